"""Many trainings at once: in processes, which share a GPU where there is one, or side by side in its streams."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any

import torch

from lzero import data
from lzero.recipes import Recipe
from lzero.training.building import build
from lzero.training.folder import RunFolder
from lzero.training.loop import begin, fastest_kernels, fit, training
from lzero.training.outcome import finish
from lzero.training.session import Session
from lzero.training.shared_gpu import shared_gpu

SIDE_BY_SIDE = 16  # networks that a GPU trains at a time
Point = dict[str, Any]


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
) -> Iterator[Trial]:
    """Train what is not finished yet, `workers` at a time; each is given out when it is done."""
    left = [trial for trial in trials if not trial.is_finished]
    if not torch.cuda.is_available() or accelerator == "cpu":
        yield from in_processes(left, data_dir, "cpu", workers or _cores())
        return
    at_once = min(len(left), workers or SIDE_BY_SIDE)
    with shared_gpu(at_once) as environment:
        if environment is None:
            yield from side_by_side(left, data_dir, at_once)
        else:
            yield from in_processes(left, data_dir, "cuda", at_once, environment)


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def in_processes(
    trials: Sequence[Trial],
    data_dir: str | Path | None,
    accelerator: str,
    workers: int,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Trial]:
    """Train in processes that share the cores."""
    count = min(len(trials), workers)
    if count <= 1:
        for trial in trials:
            yield _train(trial, data_dir, accelerator, _cores())
        return
    threads = max(1, _cores() // count)
    how: dict[str, Any] = {"initializer": _begin_process, "initargs": (environment or {},)}
    with ProcessPoolExecutor(count, mp_context=get_context("spawn"), **how) as pool:
        running = {pool.submit(_train, trial, data_dir, accelerator, threads) for trial in trials}
        try:
            for finished in as_completed(running):
                yield finished.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _begin_process(environment: Mapping[str, str]) -> None:
    """Let this process not outlive the one that started it, however that one ended."""
    os.environ.update(environment)
    parent = parent_process()
    assert parent is not None  # noqa: S101 (this is a process of a pool)

    def watch() -> None:
        parent.join()
        os._exit(1)  # what was trained is in the checkpoints

    Thread(target=watch, daemon=True).start()


def _train(trial: Trial, data_dir: str | Path | None, accelerator: str, threads: int) -> Trial:
    torch.set_num_threads(threads)
    fit(trial.recipe, trial.folder, resume=True, data_dir=data_dir, accelerator=accelerator)
    return trial


def side_by_side(trials: Sequence[Trial], data_dir: str | Path | None, at_once: int) -> Iterator[Trial]:
    """Train on one GPU in one process, each network in a stream of its own."""
    for start in range(0, len(trials), at_once):
        with fastest_kernels():
            yield from _together(trials[start : start + at_once], data_dir)


def _together(trials: Sequence[Trial], data_dir: str | Path | None) -> Iterator[Trial]:
    datasets = {trial.recipe.data.name: None for trial in trials}
    loaded = {name: data.load(name, data_dir) for name in datasets}
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


def _steps(trial: Trial, session: Session) -> Iterator[bool]:
    """One training in its folder, handing over after each step."""
    run = RunFolder(trial.folder)
    with run.opened(trial.recipe, resume=True):
        begin(session, run, resume=True)
        for _ in training(session, run):
            yield True
        finish(session, run)
