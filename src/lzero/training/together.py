"""Many trainings at once: in processes, which share a GPU where there is one, or side by side in its streams."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any

import torch

from lzero import data
from lzero.errors import LzeroError
from lzero.recipes import Recipe
from lzero.training.building import build
from lzero.training.folder import RunFolder
from lzero.training.loop import begin, fastest_kernels, fit, save, training
from lzero.training.outcome import finish
from lzero.training.session import Session
from lzero.training.shared_gpu import shared_gpu

SIDE_BY_SIDE = 16  # networks that a GPU trains at a time
LOOK = 0.5  # seconds between two looks at whether to stop
Point = dict[str, Any]
Told = list[tuple[str, type[Warning]]]  # warnings of a training


@dataclass(frozen=True)
class Trial:
    """One training of a sweep: what was set, and where it is."""

    settings: Point
    recipe: Recipe
    folder: Path

    @property
    def is_finished(self) -> bool:
        """Whether its outcome is there."""
        return (self.folder / "outcome.json").exists()

    @property
    def epochs(self) -> int:
        """How many epochs it has so far."""
        metrics = self.folder / "metrics.jsonl"
        return metrics.read_bytes().count(b"\n") if metrics.exists() else 0

    def row(self) -> Point:
        """What was set and what came out, flat, for a table."""
        outcome = json.loads((self.folder / "outcome.json").read_text(encoding="utf-8"))
        dense, small = outcome["dense"], outcome["compacted"]
        shares = {f"{cost}_share": small[cost] / dense[cost] for cost in ("params", "macs")}
        return {**self.settings, **small, **shares, "epochs": outcome["epochs"], "seconds": outcome["seconds"]}


def train_all(
    trials: Sequence[Trial],
    *,
    data_dir: str | Path | None = None,
    accelerator: str = "auto",
    workers: int | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Iterator[Trial]:
    """Train what is not finished yet, `workers` at a time; each is given out when it is done.

    When `should_stop()` is true, every training writes a checkpoint, and KeyboardInterrupt is raised.
    """
    left = [trial for trial in trials if not trial.is_finished]
    if not torch.cuda.is_available() or accelerator == "cpu":
        yield from in_processes(left, data_dir, "cpu", workers or _cores(), should_stop)
        return
    at_once = min(len(left), workers or SIDE_BY_SIDE)
    with shared_gpu(at_once) as environment:
        if environment is None:
            yield from side_by_side(left, data_dir, at_once, should_stop)
        else:
            yield from in_processes(left, data_dir, "cuda", at_once, should_stop, environment)


def _cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def in_processes(
    trials: Sequence[Trial],
    data_dir: str | Path | None,
    accelerator: str,
    workers: int,
    should_stop: Callable[[], bool],
    environment: Mapping[str, str] | None = None,
) -> Iterator[Trial]:
    """Train in processes that share the cores; one at a time needs none but this."""
    count = min(len(trials), workers)
    if count <= 1:
        for trial in trials:
            _fit(trial, data_dir, accelerator, should_stop)
            yield trial
        return
    how: dict[str, Any] = {"initializer": _begin_process, "initargs": (environment or {}, max(1, _cores() // count))}
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(count, mp_context=get_context("spawn"), **how) as pool,
    ):
        stop = Path(folder) / "stop"
        with _deaf_to_interrupts():
            running = {pool.submit(_train, trial, data_dir, accelerator, stop) for trial in trials}
        try:
            yield from _finished(running, should_stop)
        finally:
            stop.touch()
            pool.shutdown(cancel_futures=True)


def _finished(running: set[Future[tuple[Trial, Told]]], should_stop: Callable[[], bool]) -> Iterator[Trial]:
    """Trainings as they finish, with their warnings."""
    while running:
        done, running = wait(running, timeout=LOOK, return_when=FIRST_COMPLETED)
        for future in done:
            trial, told = future.result()
            for message, category in told:
                warnings.warn(f"{trial.folder.name}: {message}", category, stacklevel=2)
            yield trial
        if running and should_stop():
            raise KeyboardInterrupt


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Start processes that no Ctrl-C reaches: they are told to stop by a file, and write a checkpoint."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin_process(environment: Mapping[str, str], threads: int) -> None:
    """Let this process not outlive the one that started it, however that one ended."""
    os.environ.update(environment)
    torch.set_num_threads(threads)
    logging.getLogger("lightning.fabric").setLevel(logging.WARNING)
    parent = parent_process()
    assert parent is not None  # noqa: S101 (this is a process of a pool)

    def watch() -> None:
        parent.join()
        os._exit(1)  # what was trained is in the checkpoints

    Thread(target=watch, daemon=True).start()


def _train(trial: Trial, data_dir: str | Path | None, accelerator: str, stop: Path) -> tuple[Trial, Told]:
    with warnings.catch_warnings(record=True) as caught:
        try:
            _fit(trial, data_dir, accelerator, stop.exists)
        except LzeroError as error:
            raise LzeroError(f"{trial.folder.name}: {error}") from error
    return trial, [(str(warning.message), warning.category) for warning in caught]


def _fit(trial: Trial, data_dir: str | Path | None, accelerator: str, should_stop: Callable[[], bool]) -> None:
    place: dict[str, Any] = {"data_dir": data_dir, "accelerator": accelerator}
    fit(trial.recipe, trial.folder, resume=True, should_stop=should_stop, **place)


def side_by_side(
    trials: Sequence[Trial], data_dir: str | Path | None, at_once: int, should_stop: Callable[[], bool]
) -> Iterator[Trial]:
    """Train on one GPU in one process, each network in a stream of its own."""
    for start in range(0, len(trials), at_once):
        with fastest_kernels():
            yield from _together(trials[start : start + at_once], data_dir, should_stop)


def _together(trials: Sequence[Trial], data_dir: str | Path | None, should_stop: Callable[[], bool]) -> Iterator[Trial]:
    loaded = {name: data.load(name, data_dir) for name in {trial.recipe.data.name: None for trial in trials}}
    waiting = []
    for trial in trials:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            session = build(trial.recipe, loaded[trial.recipe.data.name], accelerator="cuda")
        waiting.append((trial, stream, _steps(trial, session)))
    while waiting:
        still = []
        for trial, stream, steps in waiting:
            with torch.cuda.stream(stream):
                if next(steps, None) is None:
                    yield trial
                else:
                    still.append((trial, stream, steps))
        waiting = still
        if waiting and should_stop():
            for _, stream, steps in waiting:
                with torch.cuda.stream(stream):
                    steps.close()
            raise KeyboardInterrupt


def _steps(trial: Trial, session: Session) -> Generator[bool, None, None]:
    """One training in its folder, handing over after each step; closed early, it writes a checkpoint."""
    run = RunFolder(trial.folder)
    with run.opened(trial.recipe, resume=True):
        begin(session, run, resume=True)
        for _ in training(session, run):
            try:
                yield True
            except GeneratorExit:
                save(session, run)
                raise
        finish(session, run)
