"""Many trainings of one recipe, for a trade-off: side by side on a GPU, in processes on a CPU."""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any

import torch

from lzero import data
from lzero.errors import ArgumentError
from lzero.files import write_atomically
from lzero.recipes import Recipe, load
from lzero.training.building import build
from lzero.training.folder import RunFolder
from lzero.training.loop import begin, fastest_kernels, fit, training
from lzero.training.outcome import finish
from lzero.training.session import Session

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


def sweep(
    recipe: str | Path,
    over: Mapping[str, Sequence[Any]],
    folder: str | Path,
    *,
    seeds: int = 1,
    changes: Sequence[str] = (),
    workers: int | None = None,
    resume: bool = False,
    data_dir: str | Path | None = None,
    accelerator: str = "auto",
    on_trial: Callable[[Point], None] = lambda _: None,
) -> list[Point]:
    """Train a recipe for all combinations of settings and seeds; `sweep.json` in the folder holds a row for each.

    Trainings that are in the folder already are not repeated with `resume`; those that were interrupted go on.

    >>> import tempfile
    >>> short = ["training.epochs=1", "gates.units=none", "objective.kind=none"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = sweep("digits", {"optimizer.lr": [0.01, 0.001]}, folder, changes=short, workers=1)
    >>> [row["optimizer.lr"] for row in rows]
    [0.01, 0.001]
    """
    trials = list(plan(recipe, over, Path(folder), seeds, changes))
    if not resume and any(trial.folder.exists() for trial in trials):
        raise ArgumentError.about(
            "folder",
            expected="one without these trainings",
            got=folder,
            advice="go on with --resume, or choose another",
        )
    for trial in train_all(trials, data_dir=data_dir, accelerator=accelerator, workers=workers):
        on_trial(trial.row())
    rows = [trial.row() for trial in trials]
    with write_atomically(Path(folder) / "sweep.json") as temporary:
        temporary.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    return rows


def train_all(
    trials: Sequence[Trial],
    *,
    data_dir: str | Path | None = None,
    accelerator: str = "auto",
    workers: int | None = None,
) -> Iterator[Trial]:
    """Train what is not finished yet, as many at once as the machine likes; each is given out when it is done."""
    left = [trial for trial in trials if not trial.is_finished]
    on_gpu = torch.cuda.is_available() and accelerator != "cpu"
    return side_by_side(left, data_dir) if on_gpu else in_processes(left, data_dir, workers)


def plan(
    recipe: str | Path, over: Mapping[str, Sequence[Any]], folder: Path, seeds: int, changes: Sequence[str]
) -> Iterator[Trial]:
    """All trainings of a sweep, their settings checked before the first begins."""
    if seeds < 1 or not all(over.values()):
        raise ArgumentError.about("over, seeds", expected="at least one value of each", got=f"{dict(over)}, {seeds}")
    for values in itertools.product(*over.values(), range(seeds)):
        settings = dict(zip([*over, "training.seed"], values, strict=True))
        changed = [*changes, *(f"{key}={_as_text(value)}" for key, value in settings.items())]
        name = ",".join(f"{key.rpartition('.')[2]}={value}" for key, value in settings.items())
        yield Trial(settings, load(recipe, changed), folder / name)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def in_processes(trials: Sequence[Trial], data_dir: str | Path | None, workers: int | None) -> Iterator[Trial]:
    """Train in processes that share the cores."""
    cores = len(os.sched_getaffinity(0))
    count = min(len(trials), workers or cores)
    if count <= 1:
        for trial in trials:
            yield _train(trial, data_dir, cores)
        return
    with ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=_end_with_parent) as pool:
        running = {pool.submit(_train, trial, data_dir, max(1, cores // count)) for trial in trials}
        try:
            for finished in as_completed(running):
                yield finished.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """Let this process not outlive the one that started it, however that one ended."""
    parent = parent_process()
    assert parent is not None  # noqa: S101 (this is a process of a pool)

    def watch() -> None:
        parent.join()
        os._exit(1)  # what was trained is in the checkpoints

    Thread(target=watch, daemon=True).start()


def _train(trial: Trial, data_dir: str | Path | None, threads: int) -> Trial:
    torch.set_num_threads(threads)
    fit(trial.recipe, trial.folder, resume=True, data_dir=data_dir, accelerator="cpu")
    return trial


def side_by_side(trials: Sequence[Trial], data_dir: str | Path | None) -> Iterator[Trial]:
    """Train on one GPU, each network in a stream of its own: small networks leave most of a GPU free."""
    for start in range(0, len(trials), SIDE_BY_SIDE):
        with fastest_kernels():
            yield from _together(trials[start : start + SIDE_BY_SIDE], data_dir)


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


def spaced(first: float, last: float, count: int = 8) -> list[float]:
    """Numbers from the first to the last, each the same multiple of the one before.

    >>> spaced(0.05, 0.8, 5)
    [0.05, 0.1, 0.2, 0.4, 0.8]
    """
    if not first > 0 or not last > 0 or count < 2:
        raise ArgumentError.about("range", expected="two numbers above 0", got=f"{first}..{last}")
    ratio = math.log(last / first) / (count - 1)
    return [float(f"{first * math.exp(ratio * k):.4g}") for k in range(count)]
