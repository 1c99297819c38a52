"""Where datasets lie."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from lzero.data.dataset import DataError

if TYPE_CHECKING:
    from lzero.data.sources import Source


class MissingFileError(DataError):
    """A file of a dataset is not where it is looked for."""


def data_folder(folder: str | Path | None = None) -> Path:
    """The folder given, else that of LZERO_DATA, else one in the user's cache."""
    if folder is not None:
        return Path(folder)
    if chosen := os.environ.get("LZERO_DATA"):
        return Path(chosen)
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        # The convention has relative paths in that variable ignored.
        return (cache if cache.is_absolute() else Path.home() / ".cache") / "lzero" / "data"
    except RuntimeError as error:
        raise DataError("this user has no home folder for data; name one with --data-dir or LZERO_DATA") from error


def find(source: Source, folder: Path, file: str) -> Path:
    """One file of a dataset, in the folder of its name or directly in the folder, gzip or not."""
    places = [folder / source.name, folder]
    if source.subfolder:
        places = [place for base in places for place in (base, base / source.subfolder)]
    # Fetched files stand first, in the folder of the name and as gzip, so that fetching heals a damaged one.
    paths = (place / name for place in places for name in (f"{file}.gz", file))
    try:
        found = next((path for path in paths if path.exists()), None)
    except OSError as error:
        raise DataError(f"{folder}: cannot be looked into ({error.strerror}); name another with --data-dir") from error
    if found is None:
        raise MissingFileError(
            f"{source.name}: {file} (or {file}.gz) is neither in {folder / source.name} nor in {folder}; "
            f"run `lzero data fetch {source.name}`, or name the folder that has it with --data-dir or LZERO_DATA"
        )
    return found
