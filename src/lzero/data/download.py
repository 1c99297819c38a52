"""One file from the network: resumed where it was left, checked, and only then given its name."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from lzero.data.dataset import DataError

if TYPE_CHECKING:
    from pathlib import Path

    from lzero.data.sources import Download

Progress = Callable[[str, int, int], None]
"""Told the file's name, the bytes that are here, and how many there will be (0 where the server does not say)."""

CHUNK = 1 << 18
TIMEOUT = 30.0


def download(item: Download, folder: Path, progress: Progress | None = None) -> Path:
    """Fetch a file from the first address that gives it whole, unless it is here already."""
    target, part = folder / item.file, folder / f"{item.file}.part"
    tried = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if target.is_file() and _digest(item, target) == item.digest:
            return target
    except OSError as error:
        raise DataError(f"{target}: cannot be written ({error})") from error
    for address in item.addresses:
        try:
            _fetch_checked(item, address, part, progress)
            return part.replace(target)
        except (OSError, HTTPException, DataError) as error:
            tried.append(f"\n  {address}: {error}")
    raise DataError(f"{item.file} could not be fetched; tried:{''.join(tried)}")


def _fetch_checked(item: Download, address: str, part: Path, progress: Progress | None) -> None:
    """Complete the part and check it; what turns out to be wrong is removed."""
    resumed = part.exists()
    _transfer(item, address, part, progress)
    digest = _digest(item, part)
    if digest == item.digest:
        return
    part.unlink()
    if not resumed:
        raise DataError(f"its {item.algorithm} is {digest}, expected {item.digest}")
    # What lay here before may have been the beginning of another file, so the address gets a second chance.
    _fetch_checked(item, address, part, progress)


def _transfer(item: Download, address: str, part: Path, progress: Progress | None) -> None:
    """Append what is missing to the part, or write it anew where the server does not resume."""
    have = part.stat().st_size if part.exists() else 0
    response = _ask(address, have)
    if response is None:
        return
    with response:
        done = have if response.status == HTTPStatus.PARTIAL_CONTENT else 0
        total = done + response.length if response.length else 0
        with part.open("ab" if done else "wb") as file:
            while chunk := response.read(CHUNK):
                file.write(chunk)
                done += len(chunk)
                if progress:
                    progress(item.file, done, total)
    if done < total:
        raise DataError(f"the connection ended after {done} of {total} bytes")


def _ask(address: str, have: int) -> HTTPResponse | None:
    """The answer to a request for everything after the first `have` bytes; None where nothing comes after them."""
    headers = {"User-Agent": "lzero"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        response = urlopen(Request(address, headers=headers), timeout=TIMEOUT)  # noqa: S310 (our own addresses)
    except HTTPError as error:
        with error:
            if have and error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                return None
            raise
    assert isinstance(response, HTTPResponse)  # noqa: S101 (every address is http or https)
    return response


def _digest(item: Download, path: Path) -> str:
    """The digest of a file by the algorithm for which its digest is published."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(item.algorithm, usedforsecurity=False)).hexdigest()
