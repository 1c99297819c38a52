"""How long finding and removing takes, for models of 1, 10, 100 and 1000 layers, and one of ResNet-50's size.

Goal: linear in the number of layers, and ResNet-50 in under 10 seconds on 2 cores.
"""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn

from lzero import compact, sparsify
from lzero.latency import machine


class Residual(nn.Module):
    """A branch added to its input, or to a projection of it."""

    def __init__(self, branch: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.branch, self.shortcut = branch, shortcut

    def forward(self, x: Tensor) -> Tensor:
        """Their sum."""
        return torch.relu(self.branch(x) + self.shortcut(x))


def conv(i: int, o: int, kernel: int, stride: int = 1) -> nn.Module:
    """A convolution and its normalisation."""
    return nn.Sequential(nn.Conv2d(i, o, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(o))


def bottleneck(i: int, width: int, stride: int) -> nn.Module:
    """A bottleneck block of ResNet-50."""
    o = 4 * width
    branch = nn.Sequential(conv(i, width, 1), nn.ReLU(), conv(width, width, 3, stride), nn.ReLU(), conv(width, o, 1))
    return Residual(branch, nn.Identity() if i == o else conv(i, o, 1, stride))


def resnet50() -> nn.Module:
    """ResNet-50: 25.6 million parameters."""
    layers: list[nn.Module] = [conv(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    i = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for k in range(blocks):
            layers.append(bottleneck(i, width, stride if k == 0 else 1))
            i = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(i, 1000))


def deep(layers: int) -> nn.Module:
    """That many dense layers of width 64, normalised so that activations do not fade into subnormal numbers."""
    layer = (nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU()) for _ in range(layers))
    return nn.Sequential(*layer, nn.Linear(64, 4))


def seconds(model: nn.Module, x: Tensor) -> tuple[float, float]:
    """Times of `sparsify` and of `compact` with about half of the units closed."""
    start = time.perf_counter()
    sparsifier = sparsify(model, x)
    between = time.perf_counter()
    with torch.no_grad():
        sparsifier.log_alpha.copy_(torch.where(torch.rand_like(sparsifier.log_alpha) < 0.5, 5.0, -5.0))
    middle = time.perf_counter()
    compact(model)
    return between - start, time.perf_counter() - middle


def main() -> None:
    """Print seconds, and seconds a layer relative to the model of ten layers."""
    seconds(deep(1), torch.randn(2, 64))  # imports and caches
    print(f"{machine()}\n{'layers':>12}{'sparsify':>12}{'compact':>12}{'a layer, relative to 10 layers':>34}")
    base = 0.0
    for layers in (1, 10, 100, 1000):
        found, removed = seconds(deep(layers), torch.randn(2, 64))
        each = (found + removed) / (layers + 1)
        base = each if layers == 10 else base
        relative = f"{each / base:.2f}×" if base else "–"
        print(f"{layers:12}{found:11.2f}s{removed:11.2f}s{relative:>34}")
    found, removed = seconds(resnet50(), torch.randn(1, 3, 224, 224))
    print(f"{'ResNet-50':>12}{found:11.2f}s{removed:11.2f}s")


if __name__ == "__main__":
    main()
