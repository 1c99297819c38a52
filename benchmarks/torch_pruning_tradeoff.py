r"""Error against MACs for group-magnitude pruning with fine-tuning by Torch-Pruning, under the schedule of a recipe.

    python benchmarks/torch_pruning_tradeoff.py mnist-lenet5-macs --shares 0.05 0.1 0.2 0.5 --seeds 3 \
        --out results/reproduction/trade-off-lenet5-by-torch-pruning.jsonl

The recipe's network trains without gates, for its number of epochs in all, with its optimizer, batches and seeds. After
30, 40, 50, 60 and 70 % of them it is pruned, each time by the same factor in MACs, and trains on: the units of least
norm go, of the whole network or, with `--by-layer`, the same share of every layer. One record for each training is
written, as `lzero reproduce` writes them; what its file holds already is not trained again.
"""

from __future__ import annotations

import argparse
import copy
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import starmap
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
import torch_pruning as tp  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from lzero import data
from lzero.data import Dataset
from lzero.errors import LzeroError
from lzero.recipes import Recipe, load
from lzero.reproduce import records
from lzero.reproduce.records import Record
from lzero.traceless import evaluating
from lzero.training.building import build
from lzero.training.loop import dense_recipe, fastest_kernels, side_stream, training
from lzero.training.outcome import Outcome, finish
from lzero.training.session import Session
from lzero.training.shared_gpu import shared_gpu

PRUNED_AFTER = (0.3, 0.4, 0.5, 0.6, 0.7)  # of all epochs
STEPS = 400  # in which Torch-Pruning would remove everything: few units at a time, each ranked anew


def pruned(model: nn.Module, x: Tensor, limit: float, *, by_layer: bool = False) -> nn.Module:
    """A copy without the units of least norm, of the whole network or of each layer, with at most so many MACs."""
    small = copy.deepcopy(model)
    importance = tp.importance.GroupMagnitudeImportance(p=2)
    keep = [small.get_submodule("head")]
    pruner = tp.pruner.BasePruner(
        small, x, importance, global_pruning=not by_layer, pruning_ratio=1.0, iterative_steps=STEPS, ignored_layers=keep
    )
    for _ in range(STEPS):
        if (left := macs(small, x)) <= limit:
            return small
        pruner.step()
    raise LzeroError(f"Torch-Pruning leaves {left:,} MACs, more than {limit:,.0f}")


@torch.no_grad()
def macs(model: nn.Module, x: Tensor) -> int:
    """The multiply–accumulates of one forward, counted as it runs: far quicker than an analysis."""
    with evaluating(model), FlopCounterMode(display=False) as counter:
        model(x)
    return int(counter.get_total_flops()) // 2


def schedule(epochs: int, share: float) -> dict[int, float]:
    """After which epochs it is pruned, and to which share of the dense MACs."""
    return {round(part * epochs): share ** (k / len(PRUNED_AFTER)) for k, part in enumerate(PRUNED_AFTER, 1)}


def train(recipe: Recipe, dataset: Dataset, share: float, *, by_layer: bool = False) -> Record:
    """One training with its prunings."""
    with side_stream("auto"), fastest_kernels():
        session, rows = build(recipe, dataset), list[dict[str, Any]]()
        x = torch.zeros(1, *dataset.shape, device=session.fabric.device)
        due, dense = schedule(recipe.training.epochs, share), macs(session.model, x)
        for step in training(session, None):
            if step.row is None:
                continue
            rows.append(step.row)
            if session.epoch in due:
                session.become(pruned(session.model, x, due[session.epoch] * dense, by_layer=by_layer))
        return record(session, finish(session, None), rows, label(share, by_layer))


def label(share: float, by_layer: bool) -> str:
    """What a training is called in its record."""
    return f"Torch-Pruning{' by layer' if by_layer else ''}, {100 * share:g} % of MACs"


def record(session: Session, outcome: Outcome, rows: Sequence[dict[str, Any]], row: str) -> Record:
    """What is kept of a training; its best error is that of the network as it was pruned last."""
    small, dense = outcome.compacted, outcome.dense
    last = max(schedule(len(rows), 1.0))
    assert small.error is not None and small.latency is not None and dense.latency is not None  # noqa: S101, PT018
    return Record(
        row=row,
        seed=session.recipe.training.seed,
        recipe=records.digest(session.recipe),
        error=small.error,
        best_error=min([small.error, *(row["error"] for row in rows[last:])]),
        params=small.params,
        macs=small.macs,
        dense_params=dense.params,
        dense_macs=dense.macs,
        latency=small.latency,
        dense_latency=dense.latency,
        widths=widths(outcome.model),
        dense_widths=widths(session.dense),
        epochs=outcome.epochs,
        seconds=outcome.seconds,
        machine=outcome.machine,
        curves={name: [row[name] for row in rows] for name in records.CURVES},
        commit=outcome.commit,
    )


def widths(model: nn.Module) -> dict[str, int]:
    """The outputs of every layer but the last."""
    layers = {name: m.weight for name, m in model.named_modules() if isinstance(m, nn.Conv2d | nn.Linear)}
    return {name: len(weight) for name, weight in layers.items() if name != "head"}


def main() -> None:
    """Train every share with every seed; print and write the records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", nargs="?", default="digits")
    parser.add_argument("--shares", type=float, nargs="+", default=[0.2])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--by-layer", action="store_true")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--data-dir", help="where datasets lie; else where `lzero data fetch` puts them")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--workers", type=int, default=1, help="trainings at a time")
    options = parser.parse_args()
    recipes = [dense_recipe(load(options.recipe, [*options.set, f"training.seed={k}"])) for k in range(options.seeds)]
    jobs = [(recipe, options.data_dir, share, options.by_layer) for recipe in recipes for share in options.shares]
    found = records.read(options.out) if options.out and options.out.exists() else []
    done = {(each.row, each.seed, each.recipe) for each in found}
    names = [(label(share, by), r.training.seed, records.digest(r)) for r, _, share, by in jobs]
    for each in trained([job for job, name in zip(jobs, names, strict=True) if name not in done], options.workers):
        found = [*(record for record in found if (record.row, record.seed) != (each.row, each.seed)), each]
        size = f"{each.params:,} parameters, {each.macs:,} of {each.dense_macs:,} MACs"
        print(f"{each.row}, seed {each.seed}: error {each.error:.2%}, {size}", flush=True)
        if options.out:
            order = {name[:2]: k for k, name in enumerate(names)}
            records.write(sorted(found, key=lambda r: order.get((r.row, r.seed), -1)), options.out)


def trained(jobs: Sequence[tuple[Recipe, str | None, float, bool]], workers: int) -> Iterator[Record]:
    """Records of all trainings as they finish, as many at a time as there are workers."""
    if workers == 1:
        yield from starmap(load_and_train, jobs)
        return
    with shared_gpu(workers) as environment:
        how: dict[str, Any] = {"initializer": begin_process, "initargs": (environment or {},)}
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), **how) as pool:
            for done in as_completed([pool.submit(load_and_train, *job) for job in jobs]):
                yield done.result()


def begin_process(environment: Mapping[str, str]) -> None:
    """One core for each training, and what it needs to share a GPU."""
    os.environ.update(environment)
    torch.set_num_threads(1)


def load_and_train(recipe: Recipe, data_dir: str | None, share: float, by_layer: bool) -> Record:
    """One training, from the name of its data."""
    return train(recipe, data.load(recipe.data.name, data_dir), share, by_layer=by_layer)


if __name__ == "__main__":
    main()
