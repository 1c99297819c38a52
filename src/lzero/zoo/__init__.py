"""Networks of the papers, in ordinary PyTorch: nothing in them knows of gates."""

from lzero.zoo.catalogue import knows, make, names
from lzero.zoo.convolutional import VGG, LeNet5, SmallConv
from lzero.zoo.dense import MLP
from lzero.zoo.residual import ResNet, WideResNet
from lzero.zoo.scaling import factor_for, scaled
from lzero.zoo.transformers import GPT, ViT

__all__ = [
    "GPT",
    "MLP",
    "VGG",
    "LeNet5",
    "ResNet",
    "SmallConv",
    "ViT",
    "WideResNet",
    "factor_for",
    "knows",
    "make",
    "names",
    "scaled",
]
