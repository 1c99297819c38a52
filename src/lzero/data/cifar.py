"""The binary files of CIFAR-10 and CIFAR-100: a record is one or two labels and the three planes of an image."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from lzero.data.dataset import DataError, Split
from lzero.data.idx import check_labels
from lzero.data.raw import contents

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor

PIXELS = 3 * 32 * 32
COARSE_CLASSES = 20


def read_cifar10(paths: Sequence[Path], classes: int = 10) -> Split:
    """The records of several files in turn, each with one label."""
    records = torch.cat([_records(path, (classes,)) for path in paths])
    return Split(records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].long())


def read_cifar100(paths: Sequence[Path], classes: int = 100) -> Split:
    """The records of several files in turn, by their second, fine label."""
    records = torch.cat([_records(path, (COARSE_CLASSES, classes)) for path in paths])
    return Split(records[:, 2:].reshape(-1, 3, 32, 32), records[:, 1].long())


def _records(path: Path, classes: tuple[int, ...]) -> Tensor:
    """One file as bytes [records, labels and pixels]; `classes` says how many values each label has."""
    data = contents(path)
    length = len(classes) + PIXELS
    if not data:
        raise DataError(f"{path}: empty; fetch it again")
    if len(data) % length:
        whole, rest = divmod(len(data), length)
        raise DataError(f"{path}: {whole} records of {length} bytes and {rest} bytes more; truncated or another format")
    records = torch.frombuffer(data, dtype=torch.uint8).reshape(-1, length)
    for column, count in enumerate(classes):
        check_labels(path, records[:, column], count, "label" if column == len(classes) - 1 else "coarse label")
    return records
