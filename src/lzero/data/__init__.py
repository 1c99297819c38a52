"""Datasets to try on: read, checked, fetched; augmented and batched on the device.

Knows nothing of gates or models.
"""

from lzero.data.augment import as_floats, crop, cutout, flip, normalise, statistics
from lzero.data.batches import Batches
from lzero.data.dataset import DataError, Dataset, Split
from lzero.data.fetching import fetch
from lzero.data.folders import MissingFileError
from lzero.data.loading import check, digits, known, load

__all__ = [
    "Batches",
    "DataError",
    "Dataset",
    "MissingFileError",
    "Split",
    "as_floats",
    "check",
    "crop",
    "cutout",
    "digits",
    "fetch",
    "flip",
    "known",
    "load",
    "normalise",
    "statistics",
]
