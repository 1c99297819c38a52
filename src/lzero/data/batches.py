"""Batches of a dataset that lies on the device whole."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Generator, Tensor

from lzero.data.dataset import Split
from lzero.errors import ArgumentError


class Batches:
    """Iterates over (images, labels), in an order drawn anew each time from a generator of the CPU.

    The state of that generator before an epoch is all that is needed to repeat it.

    >>> split = Split(torch.zeros(5, 1, 8, 8), torch.arange(5))
    >>> [labels.tolist() for _, labels in Batches(split, 2)]
    [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self,
        split: Split,
        batch_size: int,
        *,
        shuffle: bool = False,
        generator: Generator | None = None,
        device: str | torch.device = "cpu",
        drop_last: bool = False,
    ) -> None:
        if batch_size < 1 or (drop_last and batch_size > len(split)):
            expected = f"1 to {len(split)}" if drop_last else "1 or more"
            raise ArgumentError.about("batch_size", expected=expected, got=batch_size)
        if shuffle and (generator is None or generator.device.type != "cpu"):
            got = "none" if generator is None else f"one of {generator.device}"
            raise ArgumentError.about("generator", expected="a generator of the CPU to shuffle with", got=got)
        self.images, self.labels = split.images.to(device), split.labels.to(device)
        self.batch_size = batch_size
        self.drop_last = drop_last
        self._generator = generator if shuffle else None

    def __len__(self) -> int:
        whole, rest = divmod(len(self.labels), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        # Drawn here and not with the first batch, so that the generator moves when the epoch begins.
        return self._in_order(self._order().to(self.labels.device))

    def _order(self) -> Tensor:
        """The rows in the order of this epoch."""
        count = len(self.labels)
        return torch.arange(count) if self._generator is None else torch.randperm(count, generator=self._generator)

    def _in_order(self, order: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of one epoch."""
        for rows in order.split(self.batch_size)[: len(self)]:
            yield self.images.index_select(0, rows), self.labels.index_select(0, rows)
