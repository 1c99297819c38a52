"""Convolutional networks without shortcuts."""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from lzero.arguments import whole
from lzero.errors import ArgumentError
from lzero.zoo.checks import check_dropout, check_multiple, check_sizes, check_widths
from lzero.zoo.initial import kaiming


class LeNet5(nn.Module):
    """LeNet-5-Caffe, 20-50-800-500 (LeCun et al., 1998, as in Caffe's examples).

    `widths` are the maps of both convolutions and the hidden units; `dropout` drops whole maps, and hidden units.
    """

    def __init__(
        self,
        channels: int = 1,
        size: int = 28,
        classes: int = 10,
        widths: Sequence[int] = (20, 50, 500),
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        channels, classes = check_sizes(channels=channels, classes=classes)
        size, dropout = whole("size", size, 16), check_dropout(dropout)
        side, (first, second, hidden) = ((size - 4) // 2 - 4) // 2, check_widths(widths, 3)
        self.conv1, self.conv2 = nn.Conv2d(channels, first, 5), nn.Conv2d(first, second, 5)
        self.hidden, self.head = nn.Linear(second * side**2, hidden), nn.Linear(hidden, classes)
        self.drop_maps = nn.Dropout2d(dropout) if dropout else nn.Identity()
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Scores of classes."""
        x = self.drop_maps(F.relu(F.max_pool2d(self.conv1(x), 2)))  # as if pooled last, with a quarter of the work
        x = self.drop_maps(F.relu(F.max_pool2d(self.conv2(x), 2)))
        scores: Tensor = self.head(self.dropout(F.relu(self.hidden(x.flatten(1)))))
        return scores


def convolution(inputs: int, outputs: int) -> nn.Module:
    """A 3 × 3 convolution, its norm and ReLU."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())


class SmallConv(nn.Module):
    """Three convolutions for small images, such as scikit-learn's 8 × 8 digits."""

    def __init__(self, channels: int = 1, size: int = 8, classes: int = 10) -> None:
        super().__init__()
        channels, classes = check_sizes(channels=channels, classes=classes)
        size = whole("size", size, 4)
        self.conv1, self.conv2, self.conv3 = convolution(channels, 32), convolution(32, 64), convolution(64, 64)
        self.head = nn.Linear(64 * (size // 4) ** 2, classes)
        self.apply(kaiming)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of classes."""
        x = F.max_pool2d(self.conv2(self.conv1(x)), 2)
        x = F.max_pool2d(self.conv3(x), 2)
        scores: Tensor = self.head(x.flatten(1))
        return scores


VGG_CONVOLUTIONS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


class VGG(nn.Module):
    """VGG for small images, with batch norms and one dense layer (Simonyan & Zisserman, 2015)."""

    def __init__(self, depth: int = 16, classes: int = 10, channels: int = 3, size: int = 32) -> None:
        super().__init__()
        if depth not in VGG_CONVOLUTIONS:
            raise ArgumentError.about("depth", expected="11, 13, 16 or 19", got=repr(depth))
        classes, channels, size = check_sizes(classes=classes, channels=channels, size=size)
        check_multiple("size", size, 32, "for five poolings")
        layers: list[nn.Module] = []
        for width, convolutions in zip((64, 128, 256, 512, 512), VGG_CONVOLUTIONS[depth], strict=True):
            for _ in range(convolutions):
                layers.append(convolution(channels, width))
                channels = width
            layers.append(nn.MaxPool2d(2))
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(512 * (size // 32) ** 2, classes)
        self.apply(kaiming)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of classes."""
        scores: Tensor = self.head(self.layers(x).flatten(1))
        return scores
