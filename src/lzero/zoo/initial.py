"""Initial weights."""

from torch import nn


def kaiming(module: nn.Module) -> None:
    """Give a convolution weights that keep the variance of gradients through ReLU (He et al., 2015)."""
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def narrow(module: nn.Module) -> None:
    """Give a dense layer or an embedding small weights, as transformers have them (Radford et al., 2018)."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
