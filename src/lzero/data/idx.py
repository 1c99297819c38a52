"""IDX files, the format of MNIST and its family."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING

import torch

from lzero.data.dataset import DataError, Split
from lzero.data.raw import contents

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor

BYTES = 0x08
TYPES = {0x09: "int8", 0x0B: "int16", 0x0C: "int32", 0x0D: "float32", 0x0E: "float64"}


def read_idx(path: Path, dimensions: int) -> Tensor:
    """The array of bytes in an IDX file, gzip or not, that must have so many dimensions."""
    data = contents(path)
    start = 4 + 4 * dimensions
    _check_magic(path, bytes(data[:4]), dimensions)
    if len(data) < start:
        raise DataError(f"{path}: ends within its header, after {len(data)} of {start} bytes; fetch it again")
    shape = struct.unpack(f">{dimensions}I", data[4:start])
    if 0 in shape:
        raise DataError(f"{path}: its header says {_told(shape)}, which is nothing; fetch it again")
    if len(data) - start != math.prod(shape):
        expected = f"{math.prod(shape)} bytes for {_told(shape)}"
        raise DataError(f"{path}: its header promises {expected}, but {len(data) - start} follow; fetch it again")
    return torch.frombuffer(data, dtype=torch.uint8, offset=start).reshape(shape)


def read_idx_split(paths: Sequence[Path], classes: int) -> Split:
    """The images of one file with the labels of another."""
    images, labels = read_idx(paths[0], dimensions=3), read_idx(paths[1], dimensions=1).long()
    if len(images) != len(labels):
        raise DataError(f"{paths[1]}: {len(labels)} labels for the {len(images)} images in {paths[0].name}")
    check_labels(paths[1], labels, classes)
    return Split(images.unsqueeze(1), labels)


def check_labels(path: Path, labels: Tensor, classes: int, kind: str = "label") -> None:
    """Refuse labels that count no class, naming the first."""
    if (labels >= classes).any():
        row = int((labels >= classes).int().argmax())
        raise DataError(f"{path}: record {row} has {kind} {int(labels[row])}, expected 0 to {classes - 1}")


def _check_magic(path: Path, magic: bytes, dimensions: int) -> None:
    """Refuse what does not begin as an IDX file of bytes with so many dimensions does."""
    if len(magic) < 4:
        raise DataError(f"{path}: {'empty' if not magic else f'only {len(magic)} bytes long'}; fetch it again")
    if magic[:2] != b"\0\0" or magic[2] not in (BYTES, *TYPES):
        raise DataError(f"{path}: not an IDX file: begins with {magic.hex()}, expected 000008{dimensions:02x}")
    if magic[2] != BYTES:
        raise DataError(f"{path}: holds {TYPES[magic[2]]}, expected uint8")
    if magic[3] != dimensions:
        what = {1: "labels", 3: "images"}.get(dimensions, "this")
        raise DataError(f"{path}: {magic[3]} dimensions, expected {dimensions} for {what}")


def _told(shape: Sequence[int]) -> str:
    """A shape as an error message names it."""
    return "×".join(map(str, shape))
