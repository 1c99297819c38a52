"""Whole trainings: with gates and removal against dense ones, and many at once against one.

`lenet`: MNIST, λ = 0.1/N, shrinking, over a dense training of as many epochs (goal 0.7 on two CPU cores), and the time
of a step beside the expected MACs. `wrn`: CIFAR-10, half of the MACs, over dense (goal 0.78 on an H200). `sweep`: 16
LeNets side by side over one (goal 4 on an H200). `memory`: the peak of gated training over dense (goal 1.05).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from lzero import recipes
from lzero.latency import machine
from lzero.training import fit
from lzero.training.loop import dense_recipe, training
from lzero.training.session import build
from lzero.training.sweep import sweep

LENET = ("mnist-lenet5-penalty", ["gates.lr=0.02", "shrink.every=5"])
WRN: tuple[str, list[str]] = ("cifar10-wrn-28-10-macs", [])


def run(recipe: recipes.Recipe, data_dir: str, out: Path | None) -> tuple[float, list[dict[str, Any]]]:
    """Seconds of a whole training, and its rows."""
    rows: list[dict[str, Any]] = []
    began = time.perf_counter()
    outcome = fit(recipe, out, data_dir=data_dir, on_epoch=rows.append, resume=True)
    print(json.dumps({**outcome.as_dict(), "title": recipe.title}), flush=True)
    return time.perf_counter() - began, rows


def pair(name: str, changes: Sequence[str], data_dir: str, out: Path) -> None:
    """Print the ratio of a gated training to a dense one, and the step time beside the expected MACs."""
    recipe = recipes.load(name, changes)
    gated, rows = run(recipe, data_dir, out / "gated")
    dense, plain = run(dense_recipe(recipe), data_dir, out / "dense")
    print(f"{recipe.title}: {gated:.1f} s / {dense:.1f} s = {gated / dense:.3f}, {machine()}")
    pace = sum(row["images_per_second"] for row in plain) / len(plain)
    for row in rows:
        size = row.get("size", {}).get("macs")
        share = f"{size['expected'] / size['dense']:7.3f} {size['realised'] / size['dense']:7.3f}" if size else "frozen"
        print(f"epoch {row['epoch']:3}  step time {pace / row['images_per_second']:.3f}  MACs {share}")


def many(data_dir: str, epochs: int, count: int) -> None:
    """Print the ratio of many LeNets at once to one of them."""
    name, changes = LENET
    changes = [*changes, f"training.epochs={epochs}"]
    seconds = {}
    for number in (1, count):
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            sweep(name, {}, folder, seeds=number, changes=changes, data_dir=data_dir)
            seconds[number] = time.perf_counter() - began
    ratio = seconds[count] / seconds[1]
    print(
        f"{count} LeNets / one, {epochs} epochs: {seconds[count]:.1f} s / {seconds[1]:.1f} s = {ratio:.2f}, {machine()}"
    )


def memory(name: str, changes: Sequence[str], data_dir: str, steps: int = 8) -> None:
    """Print the peak memory of gated training over dense."""
    from lzero import data

    peaks = []
    recipe = recipes.load(name, changes)
    for each in (dense_recipe(recipe), recipe):
        session = build(each, data.load(each.data.name, data_dir))
        torch.cuda.reset_peak_memory_stats()
        for k, _ in enumerate(training(session, None)):
            if k == steps:
                break
        peaks.append(torch.cuda.max_memory_allocated())
        del session
        torch.cuda.empty_cache()
    print(f"peak memory gated / dense, {recipe.title}: {peaks[1] / peaks[0]:.3f}, {machine()}")


def main() -> None:
    """Print the ratios asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["lenet", "wrn", "sweep", "memory"], nargs="?", default="lenet")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--data-dir", default="data")
    parser.add_argument("--out", type=Path, default=Path("runs/training-speed"))
    parser.add_argument("--set", action="append", default=[])
    options = parser.parse_args()
    epochs = [f"training.epochs={options.epochs}", *options.set]
    if options.what == "sweep":
        many(options.data_dir, options.epochs, 16)
    elif options.what == "memory":
        memory(WRN[0], [*WRN[1], *epochs], options.data_dir)
    else:
        name, changes = LENET if options.what == "lenet" else WRN
        pair(name, [*changes, *epochs], options.data_dir, options.out / options.what)


if __name__ == "__main__":
    main()
