"""The bytes of a data file, compressed or not."""

from __future__ import annotations

import gzip
import zlib
from typing import IO, TYPE_CHECKING

from lzero.data.dataset import DataError

if TYPE_CHECKING:
    from pathlib import Path

LARGEST = 1 << 30
CHUNK = 1 << 20
GZIP = b"\x1f\x8b"


def contents(path: Path, largest: int = LARGEST) -> bytearray:
    """Everything in a file; one that begins as gzip does is unpacked, whatever its name."""
    try:
        with path.open("rb") as file:
            packed = file.read(len(GZIP)) == GZIP
            file.seek(0)
            if path.suffix == ".gz" and not packed:
                raise DataError(f"{path}: not a gzip file, though its name says so; fetch it again")
            data = _at_most(gzip.GzipFile(fileobj=file) if packed else file, largest + 1)
    except FileNotFoundError as error:
        raise DataError(f"{path}: there is no such file") from error
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read ({error}); fetch it again") from error
    if len(data) > largest:
        raise DataError(f"{path}: more than {largest} bytes, which no dataset here has; fetch it again")
    return data


def _at_most(stream: IO[bytes] | gzip.GzipFile, count: int) -> bytearray:
    """The first `count` bytes, in chunks, so that a small file that unpacks to a huge one does no harm."""
    data = bytearray()
    while len(data) < count and (chunk := stream.read(min(CHUNK, count - len(data)))):
        data += chunk
    return data
