"""What a dataset is: images and labels, in two parts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lzero.errors import ArgumentError, LzeroError


class DataError(LzeroError):
    """A dataset cannot be read or fetched: what is wrong, where, and what to do."""


@dataclass(frozen=True, eq=False)
class Split:
    """Images [N, C, H, W], uint8 in 0 to 255 or floating in 0 to 1, and their labels [N].

    >>> len(Split(torch.zeros(5, 1, 8, 8), torch.zeros(5, dtype=torch.int64)))
    5
    """

    images: Tensor
    labels: Tensor

    def __post_init__(self) -> None:
        images, labels = self.images, self.labels
        if images.dim() != 4 or not (images.dtype == torch.uint8 or images.dtype.is_floating_point):
            raise ArgumentError.about("images", expected="uint8 or floating [N, C, H, W]", got=_told(images))
        if labels.dtype != torch.int64 or labels.shape != images.shape[:1]:
            raise ArgumentError.about("labels", expected=f"int64 [{len(images)}], one an image", got=_told(labels))

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A training and a test part, and the classes that their labels count."""

    name: str
    train: Split
    test: Split
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        sizes = [list(split.images.shape) for split in (self.train, self.test)]
        told = f"{sizes[0]} to train and {sizes[1]} to test"
        if not len(self.train) or not len(self.test):
            raise ArgumentError.about("images", expected="some in both parts", got=told)
        if sizes[0][1:] != sizes[1][1:]:
            raise ArgumentError.about("images", expected="the same channels and sizes in both parts", got=told)
        for split in (self.train, self.test) if self.classes else ():
            low, high = (int(label) for label in split.labels.aminmax())
            if low < 0 or high >= len(self.classes):
                expected = f"numbers from 0 to {len(self.classes) - 1}, one for each of the classes"
                raise ArgumentError.about("labels", expected=expected, got=f"some from {low} to {high}")

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image."""
        _, channels, height, width = self.train.images.shape
        return channels, height, width


def _told(tensor: Tensor) -> str:
    """A tensor as an error message names it."""
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
