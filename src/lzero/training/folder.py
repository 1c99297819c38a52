"""A run folder: what was asked, how it went, and what came out, in files that are whole or not there."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tomllib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lzero.errors import LzeroError
from lzero.files import write_text
from lzero.recipes import Recipe, as_toml
from lzero.training.events import Events

if TYPE_CHECKING:
    from collections.abc import Iterator


class RunFolderError(LzeroError):
    """A run folder cannot be used."""


class RunFolder:
    """`config.toml`, `metrics.jsonl`, `events/`, `checkpoint.safetensors`, `model.safetensors`, `outcome.json`, a page.

    Of several processes only one writes; the others read the same folder.
    """

    def __init__(self, path: Path, *, writes: bool = True) -> None:
        self.path, self.writes = path, writes
        self.config, self.metrics = path / "config.toml", path / "metrics.jsonl"
        self.checkpoint, self.model = path / "checkpoint.safetensors", path / "model.safetensors"
        self.outcome, self.report = path / "outcome.json", path / "report.html"
        self.dense = path / "dense"  # the folder of the network without gates, where there is one to compare with
        self._events: Events | None = None

    @property
    def is_begun(self) -> bool:
        """Whether there is a run, or only the dense one so far that it is to be compared with."""
        return self.config.exists() or RunFolder(self.dense).config.exists()

    @contextmanager
    def opened(self, recipe: Recipe, *, resume: bool, overwrite: bool = False) -> Iterator[None]:
        """The folder, made if it is not there, for one training alone inside the block."""
        if not self.writes:
            yield
            return
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / ".lock").open("w")
        except OSError as error:
            raise RunFolderError(f"{self.path}: cannot be written to ({error.strerror})") from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise RunFolderError(f"{self.path}: another process is training there") from error
            self.check(recipe, resume=resume, overwrite=overwrite)
            if overwrite:
                self._clear()
            if not self.config.exists():
                self.write(self.config, as_toml(recipe))
            try:
                yield
            finally:
                if self._events is not None:
                    self._events.close()

    def _clear(self) -> None:
        for path in (self.config, self.metrics, self.checkpoint, self.model, self.outcome, self.report):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.path / "events", ignore_errors=True)

    def check(self, recipe: Recipe, *, resume: bool, overwrite: bool = False) -> None:
        """Refuse to begin where a run is already, or to go on with another recipe than the one that was begun."""
        if resume and overwrite:
            raise RunFolderError(f"{self.path}: to go on with a run and to replace it are two things; choose one")
        if overwrite or not self.config.exists():
            return
        if not resume:
            raise self.taken()
        begun = self.config.read_text(encoding="utf-8")
        if begun != as_toml(recipe):
            told = _differences(begun, as_toml(recipe))
            raise RunFolderError(
                f"{self.config}: the run was started with other settings ({told}); resume without changing them"
            )

    def taken(self) -> RunFolderError:
        """The error for who would begin where something was begun."""
        choices = "go on with --resume, replace it with --overwrite, or choose another folder"
        return RunFolderError(f"{self.path}: there is a run already; {choices}")

    def write(self, path: Path, text: str) -> None:
        """Write a file whole."""
        if not self.writes:
            return
        write_text(path, text)

    def begin_at(self, epoch: int) -> None:
        """Forget what was noted after the epoch at which the training goes on."""
        lines = self.metrics.read_text(encoding="utf-8").splitlines() if self.metrics.exists() else []
        self.write(self.metrics, "".join(f"{line}\n" for line in lines[:epoch]))
        if self.writes:
            self._events = Events.beside(self.path, epoch)

    def note(self, row: dict[str, Any]) -> None:
        """Add one epoch to the metrics."""
        if not self.writes:
            return
        if self._events is not None:
            self._events.note(row)
        try:
            with self.metrics.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise RunFolderError(f"{self.metrics}: cannot be written ({error.strerror})") from error


def _differences(begun: str, now: str) -> str:
    """The settings that differ, as a run has them and as they are asked for.

    >>> _differences("[training]\\nepochs = 12", "[training]\\nepochs = 20")
    'training.epochs: 12 there, 20 here'
    """
    try:
        there, here = _flat(tomllib.loads(begun)), _flat(tomllib.loads(now))
    except tomllib.TOMLDecodeError as error:
        return f"it cannot be read: {error}"
    keys = [key for key in {**there, **here} if there.get(key) != here.get(key)]
    return ", ".join(f"{key}: {there.get(key, 'nothing')} there, {here.get(key, 'nothing')} here" for key in keys)


def _flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat
