"""Residual networks for small images."""

from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from lzero.arguments import number
from lzero.zoo.checks import blocks_per_stage, check_dropout, check_sizes
from lzero.zoo.initial import kaiming
from lzero.zoo.scaling import scaled


def conv3(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    """A 3 × 3 convolution."""
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)


class Block(nn.Module):
    """Two convolutions beside a shortcut, which is a 1 × 1 convolution where sizes change."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = conv3(inputs, outputs, stride), nn.BatchNorm2d(outputs)
        self.conv2, self.norm2 = conv3(outputs, outputs), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if inputs != outputs or stride > 1:
            self.shortcut.append(nn.Conv2d(inputs, outputs, 1, stride, bias=False)).append(nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """The sum, rectified."""
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResNet(nn.Module):
    """The ResNet of 6n + 2 layers for CIFAR (He et al., 2016), with projections where sizes change (option B)."""

    def __init__(self, depth: int = 20, classes: int = 10, channels: int = 3) -> None:
        super().__init__()
        blocks = blocks_per_stage(depth, 2, example=20)
        classes, channels = check_sizes(classes=classes, channels=channels)
        self.conv, self.norm = conv3(channels, 16), nn.BatchNorm2d(16)
        widths = [16] * (blocks + 1) + [32] * blocks + [64] * blocks
        self.blocks = nn.Sequential(*(Block(i, o, o // i) for i, o in pairwise(widths)))
        self.head = nn.Linear(64, classes)
        self.apply(kaiming)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of classes."""
        x = self.blocks(F.relu(self.norm(self.conv(x))))
        scores: Tensor = self.head(x.mean((2, 3)))
        return scores


class WideBlock(nn.Module):
    """Norms and activations before two convolutions; a 1 × 1 convolution in the shortcut reads the first of them."""

    def __init__(self, inputs: int, hidden: int, outputs: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(inputs), conv3(inputs, hidden, stride)
        self.norm2, self.conv2 = nn.BatchNorm2d(hidden), conv3(hidden, outputs)
        self.dropout = nn.Dropout(dropout)
        changes = inputs != outputs or stride > 1
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        """The sum, as it is."""
        y = F.relu(self.norm1(x))
        skipped = x if self.shortcut is None else self.shortcut(y)
        y = self.dropout(F.relu(self.norm2(self.conv1(y))))
        out: Tensor = self.conv2(y) + skipped
        return out


class WideResNet(nn.Module):
    """The wide residual network WRN-depth-width, of 6n + 4 layers (Zagoruyko & Komodakis, 2016).

    `hidden` scales what is between the convolutions of each block, to multiples of 16 above 16.
    """

    def __init__(
        self,
        depth: int = 28,
        width: int = 10,
        classes: int = 10,
        dropout: float = 0.0,
        channels: int = 3,
        hidden: float = 1.0,
    ) -> None:
        super().__init__()
        blocks = blocks_per_stage(depth, 4, example=28)
        width, classes, channels = check_sizes(width=width, classes=classes, channels=channels)
        dropout, hidden = check_dropout(dropout), number("hidden", hidden, above=0)
        self.conv, inputs = conv3(channels, 16), 16
        self.blocks = nn.Sequential()
        for outputs, stride in ((16 * width, 1), (32 * width, 2), (64 * width, 2)):
            (between,) = scaled((outputs,), hidden, multiple=16)
            for block in range(blocks):
                self.blocks.append(WideBlock(inputs, between, outputs, 1 if block else stride, dropout))
                inputs = outputs
        self.norm, self.head = nn.BatchNorm2d(inputs), nn.Linear(inputs, classes)
        self.apply(kaiming)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of classes."""
        x = F.relu(self.norm(self.blocks(self.conv(x))))
        scores: Tensor = self.head(x.mean((2, 3)))
        return scores
