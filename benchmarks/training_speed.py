"""Whole trainings: with gates and removal against dense ones, and many at once against one.

`lenet`: MNIST, λ = 0.1/N, over a dense training of as many epochs (goal 0.7 on two CPU cores), a dense step after
every eighth, and the time of an epoch beside its expected MACs. `wrn`: CIFAR-10, half of the MACs, over dense (goal
0.78 on an H200); it goes on where it was interrupted. `sweep`: 16 LeNets side by side over one (goal 4 on an H200).
`memory`: the peak of gated training over dense (goal 1.05).
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from lzero import data, recipes
from lzero.latency import machine
from lzero.recipes import Recipe
from lzero.training import fit
from lzero.training.building import build
from lzero.training.loop import dense_recipe, training
from lzero.training.outcome import finish
from lzero.training.session import Session
from lzero.training.sweep import sweep

LENET = "mnist-lenet5-penalty"
LENET_CHANGES = [
    "training.epochs=100",
    "gates.lr=0.01",
    "objective.warm_up=0.02",
    "shrink.every=1",
    "shrink.freeze_after=0.3",
    "shrink.steps=auto",
]
WRN = "cifar10-wrn-28-10-macs"


def lenet(changes: Sequence[str], data_dir: str | None) -> None:
    """Print the ratio of a gated training to a dense one, and the time of epochs beside the expected MACs."""
    gated, dataset = recipes.load(LENET, [*LENET_CHANGES, *changes]), data.load("mnist", data_dir)
    session, dense = build(gated, dataset), build(dense_recipe(gated), dataset)
    print("epoch  expected MACs   time over dense  steps", flush=True)
    whole = 0.0
    for row, ratio in _ratios(session, dense):
        whole += ratio / gated.training.epochs
        size = row.get("size", {}).get("macs")
        expected = f"{size['expected'] / size['dense']:13.3f}" if size else f"{'frozen':>13}"
        print(f"{row['epoch']:5}  {expected}  {ratio:16.3f}  {'in parts' if row['in_parts'] else 'full'}", flush=True)
    outcome = finish(session, None)
    share = f"{outcome.compacted.macs / outcome.dense.macs:.1%} of MACs, error {outcome.compacted.error:.2%}"
    print(f"gated / dense, the whole training: {whole:.3f}×, {share}, {machine()}")


def _ratios(session: Session, dense: Session, every: int = 8) -> Iterator[tuple[dict[str, Any], float]]:
    """Train, with a dense step after every few; for each epoch its row, and its time over that of a dense epoch.

    An epoch counts as its steps times their median, which other processes on the machine disturb least, plus its end:
    evaluation, removal, and the choice of steps.
    """
    steps, dense_steps = training(session, None), training(dense, None)
    for _ in range(session.recipe.training.epochs):
        times, dense_times = [], []
        for k in range(len(session.batches)):
            seconds, step = _timed(partial(next, steps))
            times.append(seconds)
            if k % every == 0:
                dense_times.append(_timed(partial(next, dense_steps))[0])
        *typical, end = times
        took = statistics.median(typical) * (len(times) - 1) + end
        dense_took = statistics.median(dense_times) * len(times) + _timed(dense.evaluate)[0]
        yield step.row, took / dense_took


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    found = call()
    return time.perf_counter() - began, found


def wrn(changes: Sequence[str], data_dir: str | None, out: Path) -> None:
    """Print the ratio of a gated training to a dense one, and the time of epochs beside the expected MACs."""
    recipe = recipes.load(WRN, changes)
    outcomes = {}
    for name, each in (("gated", recipe), ("dense", dense_recipe(recipe))):
        outcomes[name] = fit(each, out / name, data_dir=data_dir, resume=True)
        print(json.dumps({name: outcomes[name].as_dict()}), flush=True)
    ratio = outcomes["gated"].seconds / outcomes["dense"].seconds
    print(f"{recipe.title}: {ratio:.3f}× of the dense training's wall clock, {machine()}")


def many(changes: Sequence[str], data_dir: str | None, count: int = 16) -> None:
    """Print the ratio of many LeNets at once to one of them."""
    seconds = {}
    for number in (1, count):
        with tempfile.TemporaryDirectory() as folder:
            some = ["gates.lr=0.02", "training.epochs=30", *changes]
            rows = sweep(LENET, {}, folder, seeds=number, changes=some, data_dir=data_dir)
            seconds[number] = max(row["seconds"] for row in rows)
    ratio = seconds[count] / seconds[1]
    print(f"{count} LeNets / one: {seconds[count]:.1f} s / {seconds[1]:.1f} s = {ratio:.2f}, {machine()}")


def memory(changes: Sequence[str], data_dir: str | None) -> None:
    """Print the peak memory of gated training over dense, each in a process of its own."""
    recipe = recipes.load(WRN, changes)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        dense, gated = pool.map(_peak, (dense_recipe(recipe), recipe), (data_dir, data_dir))
    print(f"peak memory gated / dense, {recipe.title}: {gated / dense:.3f} ({gated:,} bytes), {machine()}")


def _peak(recipe: Recipe, data_dir: str | None, steps: int = 8) -> int:
    with torch.cuda.stream(torch.cuda.Stream()):
        session = build(recipe, data.load(recipe.data.name, data_dir))
        for _, _ in zip(range(steps), training(session, None), strict=False):
            pass
    return torch.cuda.max_memory_allocated()


def main() -> None:
    """Print the ratios asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["lenet", "wrn", "sweep", "memory"], nargs="?", default="lenet")
    parser.add_argument("--data-dir", help="where datasets lie; else where `lzero data fetch` puts them")
    parser.add_argument("--out", type=Path, default=Path("runs/training-speed"))
    parser.add_argument("--set", action="append", default=[], help="a change to the recipes")
    options = parser.parse_args()
    if options.what == "wrn":
        wrn(options.set, options.data_dir, options.out / options.what)
    else:
        {"lenet": lenet, "sweep": many, "memory": memory}[options.what](options.set, options.data_dir)


if __name__ == "__main__":
    main()
