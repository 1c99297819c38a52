"""Networks by name."""

import re
from collections.abc import Callable
from inspect import signature

from torch import nn

from lzero.errors import ArgumentError, did_you_mean
from lzero.zoo.convolutional import VGG, LeNet5, SmallConv
from lzero.zoo.dense import MLP
from lzero.zoo.residual import ResNet, WideResNet
from lzero.zoo.transformers import GPT, ViT

Network = Callable[..., nn.Module]

NETWORKS: dict[str, tuple[Network, dict[str, int]]] = {
    "mlp": (MLP, {}),
    "lenet5": (LeNet5, {}),
    "smallconv": (SmallConv, {}),
    "vgg11": (VGG, {"depth": 11}),
    "vgg13": (VGG, {"depth": 13}),
    "vgg16": (VGG, {"depth": 16}),
    "vgg19": (VGG, {"depth": 19}),
    "resnet20": (ResNet, {"depth": 20}),
    "resnet56": (ResNet, {"depth": 56}),
    "wrn-16-4": (WideResNet, {"depth": 16, "width": 4}),
    "wrn-28-10": (WideResNet, {"depth": 28, "width": 10}),
    "vit": (ViT, {}),
    "gpt": (GPT, {}),
}
WIDE = re.compile(r"wrn-(\d+)-(\d+)")


def names() -> tuple[str, ...]:
    """The names that are fixed; `make` also makes any `wrn-<depth>-<width>`."""
    return tuple(NETWORKS)


def knows(name: str) -> bool:
    """Whether `make` has a network of this name.

    >>> knows("lenet5"), knows("wrn-10-1"), knows("alexnet")
    (True, True, False)
    """
    return name in NETWORKS or WIDE.fullmatch(name) is not None


def make(name: str, **options: object) -> nn.Module:
    """The network of a name, with options of its class.

    >>> make("lenet5", classes=47).head
    Linear(in_features=500, out_features=47, bias=True)
    """
    network, fixed = _find(name)
    known = [option for option in signature(network).parameters if option not in fixed]
    for option in options:
        if option not in known:
            expected = f"one of {', '.join(known)}"
            raise ArgumentError.about(f"options of {name}", expected=expected, got=repr(option))
    return network(**fixed, **options)


def _find(name: str) -> tuple[Network, dict[str, int]]:
    if wide := WIDE.fullmatch(name):
        return WideResNet, {"depth": int(wide[1]), "width": int(wide[2])}
    if name not in NETWORKS:
        expected, advice = f"one of {', '.join(NETWORKS)}, or wrn-<depth>-<width>", did_you_mean(name, NETWORKS)
        raise ArgumentError.about("name", expected=expected, got=repr(name), advice=advice)
    return NETWORKS[name]
