"""Datasets by name."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch

from lzero.data.dataset import DataError, Dataset, Split
from lzero.data.folders import data_folder, find
from lzero.data.sources import SOURCES, Source
from lzero.errors import ArgumentError, MissingExtraError, did_you_mean

DIGITS = "digits"
DIGITS_TRAINING = 1500


def known() -> tuple[str, ...]:
    """The names that `load` takes.

    >>> known()
    ('digits', 'mnist', 'fashion-mnist', 'cifar10', 'cifar100')
    """
    return DIGITS, *SOURCES


def load(name: str, folder: str | Path | None = None) -> Dataset:
    """Read a dataset, checking all of it.

    >>> load("digits").shape
    (1, 8, 8)
    """
    check_name(name)
    return digits() if name == DIGITS else read(SOURCES[name], data_folder(folder))


def check(name: str, folder: str | Path | None = None) -> str:
    """Read everything and say what is there, or raise the error that names the file and what is wrong with it.

    >>> check("digits")
    'digits: 1500 training and 297 test images of 1×8×8, 10 classes'
    """
    return describe(load(name, folder))


def digits() -> Dataset:
    """scikit-learn's handwritten digits, split once and for all; they come with scikit-learn and need no file."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise MissingExtraError.of("scikit-learn", extra="train") from error
    bunch = load_digits()
    images = torch.from_numpy(bunch.images).float().div(16).unsqueeze(1)
    labels = torch.from_numpy(bunch.target).long()
    # Ordered by a hash and not by a random generator, whose streams change between versions.
    order = torch.tensor(sorted(range(len(labels)), key=lambda row: hashlib.sha256(str(row).encode()).digest()))
    train, test = order[:DIGITS_TRAINING], order[DIGITS_TRAINING:]
    return Dataset(DIGITS, Split(images[train], labels[train]), Split(images[test], labels[test]), tuple("0123456789"))


def read(source: Source, folder: Path) -> Dataset:
    """Read the files of a dataset and check that they are its files."""
    train, test = (
        _read_split(source, [find(source, folder, file) for file in files], count)
        for files, count in zip((source.train, source.test), source.counts, strict=True)
    )
    begins = tuple(train.labels[: len(source.begins)].tolist())
    if begins != source.begins:
        where = find(source, folder, source.train[0]).parent
        raise DataError(f"{where}: the labels begin {begins}, those of {source.name} {source.begins}: another dataset")
    return Dataset(source.name, train, test, source.classes)


def describe(dataset: Dataset) -> str:
    """A dataset in one line."""
    counts = f"{len(dataset.train)} training and {len(dataset.test)} test images"
    return f"{dataset.name}: {counts} of {'×'.join(map(str, dataset.shape))}, {len(dataset.classes)} classes"


def check_name(name: str) -> None:
    """Refuse an unknown name with the nearest known one."""
    if name not in known():
        expected, advice = f"one of {', '.join(known())}", did_you_mean(name, known())
        raise ArgumentError.about("name", expected=expected, got=repr(name), advice=advice)


def _read_split(source: Source, paths: list[Path], count: int) -> Split:
    """Read one part, and refuse files that are whole in themselves but not those of the dataset."""
    split = source.read(paths, len(source.classes))
    where, shape = ", ".join(map(str, paths)), tuple(split.images.shape[1:])
    if shape != source.shape:
        raise DataError(f"{where}: images of {shape}, expected {source.shape} for {source.name}")
    if len(split) != count:
        raise DataError(f"{where}: {len(split)} images, expected {count} for {source.name}; fetch it again")
    return split
