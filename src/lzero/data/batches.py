"""Batches of a dataset that lies on the device whole."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from lzero.data.dataset import Split
from lzero.errors import ArgumentError

EPOCHS = 1_000_003  # a prime beyond the length of any training: epochs of two seeds never share an order


class Batches:
    """The rows of each batch of an epoch, and what is in them. With a seed, every epoch has an order of its own.

    The order depends on the seed, the epoch and the kind of device alone: a training can go on from any batch.

    >>> split = Split(torch.zeros(5, 1, 8, 8), torch.arange(5))
    >>> [labels.tolist() for _, labels in Batches(split, 2)]
    [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self,
        split: Split,
        batch_size: int,
        *,
        seed: int | None = None,
        device: str | torch.device = "cpu",
        drop_last: bool = False,
    ) -> None:
        if batch_size < 1 or (drop_last and batch_size > len(split)):
            expected = f"1 to {len(split)}" if drop_last else "1 or more"
            raise ArgumentError.about("batch_size", expected=expected, got=batch_size)
        self.images, self.labels = split.images.to(device), split.labels.to(device)
        self.batch_size, self.seed, self.drop_last = batch_size, seed, drop_last

    def __len__(self) -> int:
        whole, rest = divmod(len(self.labels), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def rows(self, epoch: int = 0) -> tuple[Tensor, ...]:
        """The rows of each batch of an epoch."""
        count, device = len(self.labels), self.labels.device
        if self.seed is None:
            order = torch.arange(count, device=device)
        else:  # drawn where the examples are: a GPU would wait for the order
            generator = torch.Generator(device).manual_seed(self.seed * EPOCHS + epoch)
            order = torch.randperm(count, generator=generator, device=device)
        rows: tuple[Tensor, ...] = order.split(self.batch_size)
        return rows[: len(self)]

    def take(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The images and labels of these rows."""
        return self.images.index_select(0, rows), self.labels.index_select(0, rows)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return (self.take(rows) for rows in self.rows())
