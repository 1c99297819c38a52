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
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any

import torch

from lzero import data
from lzero.arguments import whole
from lzero.errors import LzeroError, described
from lzero.recipes import Recipe
from lzero.training.building import build
from lzero.training.folder import RunFolder
from lzero.training.loop import begin, fastest_kernels, fit, save, training
from lzero.training.outcome import finish
from lzero.training.processes import device_of
from lzero.training.shared_gpu import shared_gpu
from lzero.training.table import Point

SIDE_BY_SIDE = 16  # networks that a GPU trains at a time
LOOK = 0.5  # seconds between two looks at whether to stop
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
        return RunFolder(self.folder).outcome.exists()

    @property
    def epochs(self) -> int:
        """How many epochs it has so far."""
        metrics = RunFolder(self.folder).metrics
        return metrics.read_bytes().count(b"\n") if metrics.exists() else 0

    def row(self) -> Point:
        """What was set and what came out, flat, for a table."""
        outcome = json.loads(RunFolder(self.folder).outcome.read_text(encoding="utf-8"))
        dense, small = outcome["dense"], outcome["compacted"]
        shares = {f"{cost}_share": small[cost] / dense[cost] for cost in ("params", "macs")}
        return {**self.settings, **small, **shares, "epochs": outcome["epochs"], "seconds": outcome["seconds"]}


def train_all(
    trials: Sequence[Trial],
    *,
    data_dir: str | Path | None = None,
    accelerator: str = "auto",
    workers: int | None = None,
    among: int | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Iterator[Trial]:
    """Train what is not finished yet, `workers` at a time; each is given out when it is done.

    They may be some `among` more that are not named here, because they are done.

    When `should_stop()` is true, every training writes a checkpoint, and KeyboardInterrupt is raised. Errors of single
    trainings are raised when the others are done.
    """
    device = device_of(accelerator)
    workers = None if workers is None else whole("workers", workers)
    left = [trial for trial in trials if not trial.is_finished]
    on_gpu = device.type == "cuda"
    at_once = min(among or len(trials), workers or (SIDE_BY_SIDE if on_gpu else _cores()))
    # By all trainings, not by those that are left: the threads of a training decide how its sums are rounded.
    threads = max(1, _cores() // at_once) if at_once > 1 else None
    pool = Pool(data_dir, device.type, at_once, threads, should_stop)
    with shared_gpu(min(len(left), at_once) if on_gpu else 1) as environment:
        if environment is None:
            yield from side_by_side(left, data_dir, at_once, should_stop)
        else:
            yield from pool.trained(left, environment)


def _cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


@dataclass(frozen=True)
class Pool:
    """Processes that share the cores, and a GPU where there is one; one training at a time needs none but this."""

    data_dir: str | Path | None
    accelerator: str
    workers: int
    threads: int | None  # of each training; as torch has it where there is one at a time
    should_stop: Callable[[], bool]

    def trained(self, trials: Sequence[Trial], environment: Mapping[str, str]) -> Iterator[Trial]:
        """Train all, and give out each when it is done."""
        count = min(len(trials), self.workers)
        return self._in_processes(trials, count, environment) if count > 1 else self._here(trials)

    def _here(self, trials: Sequence[Trial]) -> Iterator[Trial]:
        before, failed = torch.get_num_threads(), list[LzeroError]()
        for trial in trials:
            torch.set_num_threads(self.threads or before)
            try:
                _fit(trial, self.data_dir, self.accelerator, self.should_stop)
            except LzeroError as error:
                failed.append(error)
                continue
            finally:
                torch.set_num_threads(before)
            yield trial
        _raise_all(failed)

    def _in_processes(self, trials: Sequence[Trial], count: int, environment: Mapping[str, str]) -> Iterator[Trial]:
        how: dict[str, Any] = {"initializer": _begin_process, "initargs": (environment, self.threads)}
        with (
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
            ProcessPoolExecutor(count, mp_context=get_context("spawn"), **how) as pool,
        ):
            stop = Path(folder) / "stop"
            try:
                with _deaf_to_interrupts():
                    running = {pool.submit(_train, trial, self.data_dir, self.accelerator, stop) for trial in trials}
                yield from _finished(running, self.should_stop)
            except BrokenProcessPool as error:
                if self.should_stop():  # a signal for all processes, which have ended with a checkpoint
                    raise KeyboardInterrupt from error
                raise LzeroError(
                    "the process of a training was killed, perhaps for want of memory; train fewer at a time "
                    "(--workers) and go on with --resume"
                ) from error
            finally:
                stop.touch()
                pool.shutdown(cancel_futures=True)


def _finished(running: set[Future[tuple[Trial, Told]]], should_stop: Callable[[], bool]) -> Iterator[Trial]:
    """Trainings as they finish, with their warnings; after all of them, what went wrong."""
    failed: list[LzeroError] = []
    while running:
        done, running = wait(running, timeout=LOOK, return_when=FIRST_COMPLETED)
        for future in done:
            try:
                trial, told = future.result()
            except LzeroError as error:
                failed.append(error)
                continue
            for message, category in told:
                warnings.warn(f"{trial.folder.name}: {message}", category, stacklevel=2)
            yield trial
        if running and should_stop():
            raise KeyboardInterrupt
    _raise_all(failed)


def _raise_all(errors: Sequence[LzeroError]) -> None:
    """What went wrong in single trainings, in one error."""
    if errors:
        raise LzeroError("\n".join(map(str, errors)))


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Start processes that no Ctrl-C reaches: they are told to stop by a file, and write a checkpoint."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin_process(environment: Mapping[str, str], threads: int | None) -> None:
    """Let this process not outlive the one that started it, however that one ended."""
    os.environ.update(environment)
    if threads is not None:
        torch.set_num_threads(threads)
    logging.getLogger("lightning.fabric").setLevel(logging.WARNING)
    parent = parent_process()
    assert parent is not None  # noqa: S101 (this is a process of a pool)

    def watch() -> None:
        parent.join()
        os._exit(1)  # what was trained is in the checkpoints

    Thread(target=watch, daemon=True).start()


def _train(trial: Trial, data_dir: str | Path | None, accelerator: str, stop: Path) -> tuple[Trial, Told]:
    if stop.exists():
        raise KeyboardInterrupt
    with warnings.catch_warnings(record=True) as caught, _saving_when_terminated() as is_terminated:
        _fit(trial, data_dir, accelerator, lambda: is_terminated() or stop.exists())
    return trial, [(str(warning.message), warning.category) for warning in caught]


@contextmanager
def _saving_when_terminated() -> Iterator[Callable[[], bool]]:
    """Let a training that SIGTERM is to end write a checkpoint first: that may be sent to all processes at once."""
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    try:
        yield lambda: bool(asked)
    except KeyboardInterrupt:
        if asked:
            os._exit(128 + signal.SIGTERM)
        raise
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _fit(trial: Trial, data_dir: str | Path | None, accelerator: str, should_stop: Callable[[], bool]) -> None:
    place: dict[str, Any] = {"data_dir": data_dir, "accelerator": accelerator}
    with _named(trial):
        fit(trial.recipe, trial.folder, resume=True, should_stop=should_stop, **place)


@contextmanager
def _named(trial: Trial) -> Iterator[None]:
    """Let errors say which training they are of."""
    try:
        yield
    except LzeroError as error:
        raise LzeroError(f"{trial.folder.name}: {error}") from error
    except Exception as error:  # whatever the user's code raises, or torch for want of memory
        raise LzeroError(f"{trial.folder.name}: {described(error)}") from error


def side_by_side(
    trials: Sequence[Trial], data_dir: str | Path | None, at_once: int, should_stop: Callable[[], bool]
) -> Iterator[Trial]:
    """Train on one GPU in one process, each network in a stream of its own."""
    loaded = cache(partial(data.load, folder=data_dir))
    failed: list[LzeroError] = []
    for start in range(0, len(trials), at_once):
        with fastest_kernels():
            failed += yield from _together(trials[start : start + at_once], loaded, should_stop)
    _raise_all(failed)


def _together(
    trials: Sequence[Trial], loaded: Callable[[str], data.Dataset], should_stop: Callable[[], bool]
) -> Generator[Trial, None, list[LzeroError]]:
    """Trainings as they finish, a step of each in turn; what went wrong is returned."""
    waiting = [(trial, torch.cuda.Stream(), _steps(trial, loaded)) for trial in trials]
    failed: list[LzeroError] = []
    while waiting:
        still = []
        for trial, stream, steps in waiting:
            with torch.cuda.stream(stream):
                try:
                    with _named(trial):
                        is_done = next(steps, None) is None
                except LzeroError as error:
                    failed.append(error)
                    continue
                if is_done:
                    yield trial
                else:
                    still.append((trial, stream, steps))
        waiting = still
        if waiting and should_stop():
            with ExitStack() as closing:  # of all, also where one cannot be saved
                for _, stream, steps in waiting:
                    closing.enter_context(torch.cuda.stream(stream))
                    closing.callback(steps.close)
            raise KeyboardInterrupt
    return failed


def _steps(trial: Trial, loaded: Callable[[str], data.Dataset]) -> Generator[bool, None, None]:
    """One training in its folder, handing over after each step; closed early, it writes a checkpoint."""
    session, run = build(trial.recipe, loaded(trial.recipe.data.name), accelerator="cuda"), RunFolder(trial.folder)
    with run.opened(trial.recipe, resume=True):
        begin(session, run, resume=True)
        for _ in training(session, run):
            try:
                yield True
            except GeneratorExit:
                with _named(trial):
                    save(session, run)
                raise
        finish(session, run)
