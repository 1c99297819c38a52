"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING

from safetensors import SafetensorError, safe_open

from lzero.errors import FileError, LzeroError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from torch import Tensor


def write_text(path: Path, text: str) -> None:
    """Write a text to a file that is there whole or not at all."""
    with write_atomically(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_tensors(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """What a safetensors file says of itself, and its tensors by name."""
    try:
        with safe_open(path, framework="pt") as file:
            return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    except FileNotFoundError as error:
        raise FileError(f"{path}: there is no such file") from error
    except (SafetensorError, OSError) as error:
        raise FileError(f"{path}: not a whole safetensors file ({error})") from error


@contextmanager
def write_atomically(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path` to write to, and rename it to `path` once the block succeeds.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with write_atomically(Path(folder) / "notes" / "a.txt") as temporary:
    ...         _ = temporary.write_text("whole")
    ...     [entry.name for entry in (Path(folder) / "notes").iterdir()]
    ['a.txt']
    """
    # A name of our own rather than tempfile's, whose files nobody else may read.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.touch()  # with the rights that this user gives to files; libraries may give others
            rights = temporary.stat().st_mode
            yield temporary
            temporary.chmod(rights)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise LzeroError(f"cannot write {path}: {error.strerror or error}") from error
    except SafetensorError as error:  # how safetensors tells of a full disk
        raise LzeroError(f"cannot write {path}: {error}") from error
