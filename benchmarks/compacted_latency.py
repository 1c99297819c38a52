"""How fast networks of the widths in results/reproduction are on a CPU core, beside the dense network.

Records hold widths, not weights: gates close until each layer has its width, and the model is compacted, as after
training. Time does not depend on which units stay.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import nn

from lzero import compact
from lzero.data.sources import SOURCES
from lzero.gating import GateGroup
from lzero.latency import latency, machine
from lzero.recipes import Recipe, load
from lzero.reproduce import records
from lzero.reproduce.experiments import EXPERIMENTS
from lzero.training.outcome import layers_of, widths_of
from lzero.training.parts import make_gates, make_model

KEPT = Path(__file__).parent.parent / "results" / "reproduction"
OPEN, CLOSED = 9.0, -9.0


def rebuilt(recipe: Recipe, widths: dict[str, int]) -> nn.Module:
    """A compacted network of these widths."""
    model = make_model(recipe)
    sparsifier = make_gates(recipe, model, torch.zeros(1, *SOURCES[recipe.data.name].shape))
    if sparsifier is None:
        return model
    before = widths_of(sparsifier)
    for group in sparsifier.groups:
        order = first_to_stay(group, before, widths)
        gates = sparsifier.log_alpha.data[group.span]
        gates.fill_(CLOSED)[order[: widths.get(group.name, len(gates))]] = OPEN
    small = compact(model)
    left = {layer.name: layer.after for layer in layers_of(small, before)}
    if left != widths:
        raise RuntimeError(f"a network of widths {widths} was asked for, {left} came")
    return small


def first_to_stay(group: GateGroup, before: dict[str, int], widths: dict[str, int]) -> torch.Tensor:
    """The gates of a group in the order in which they stay."""
    order = torch.arange(group.stop - group.start)
    if not group.columns or "conv2" not in before:
        return order
    # Inputs of LeNet's hidden layer: of the channels that stay, each in one position before any in the next.
    positions: torch.Tensor = order.view(before["conv2"], -1)[: widths["conv2"]]
    return positions.T.flatten()


def main() -> None:
    """Print a table: milliseconds of the dense network, and the share of it that each row takes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", nargs="?", default="table-1-lenet5")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 100, 1000])
    parser.add_argument("--repeats", type=int, default=51)
    parser.add_argument("--only", default="", help="rows whose label has this text in it")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = {record.row: record for record in records.read(KEPT / f"{options.table}.jsonl") if record.seed == 0}
    chosen = [row for row in EXPERIMENTS[options.table].rows if row.label in found and options.only in row.label]
    recipes = {row.label: load(row.recipe, row.changes) for row in chosen if found[row.label].widths}
    some = next(iter(recipes.values()))
    models = {"dense": make_model(some)}
    models |= {label: rebuilt(recipe, found[label].widths) for label, recipe in recipes.items()}
    shape = SOURCES[some.data.name].shape
    times = {batch: latency(models, torch.zeros(batch, *shape), options.repeats) for batch in options.batches}
    print(f"{machine(torch.device('cpu'))}; time over that of the dense network, seed 0\n")
    print(f"| | MACs | {' | '.join(f'batch {batch}' for batch in times)} |\n|{' --- |' * (2 + len(times))}")
    whole = " | ".join(f"{1000 * each['dense']:.2f} ms" for each in times.values())
    print(f"| dense | 100% | {whole} |")
    for label in recipes:
        shares = " | ".join(f"{each[label] / each['dense']:.2f}×" for each in times.values())
        print(f"| {label} | {found[label].macs / found[label].dense_macs:.1%} | {shares} |")


if __name__ == "__main__":
    main()
