"""How fast LeNets of the widths in results/reproduction are on a CPU core: each row of Table 1 over the dense network.

Records hold widths, not weights: gates close until each layer has its width, and the model is compacted, as after
training. Time does not depend on which units stay.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import nn

from lzero import compact, sparsify
from lzero.latency import latency, machine
from lzero.reproduce.mnist import LENET
from lzero.reproduce.records import Record, read
from lzero.training.outcome import layers_of, widths_of
from lzero.zoo import LeNet5

TABLE = Path(__file__).parent.parent / "results" / "reproduction" / f"{LENET.name}.jsonl"
BATCHES = (1, 100, 1000)
OPEN, CLOSED = 9.0, -9.0


def rebuilt(widths: dict[str, int]) -> nn.Module:
    """A compacted LeNet-5 of these widths."""
    model = LeNet5()
    sparsifier = sparsify(model, torch.zeros(1, 1, 28, 28), units="paper")
    before = widths_of(sparsifier)
    for group in sparsifier.groups:
        order = torch.arange(group.stop - group.start)
        if group.columns is not None:  # of the channels that stay, each in one position before any in the next
            positions = order.view(before["conv2"], -1)[: widths["conv2"]]
            order = positions.T.flatten()
        gates = sparsifier.log_alpha.data[group.start : group.stop]
        gates.fill_(CLOSED)[order[: widths.get(group.name, len(gates))]] = OPEN
    small = compact(model)
    left = {layer.name: layer.after for layer in layers_of(small, before)}
    if left != widths:
        raise RuntimeError(f"a network of widths {widths} was asked for, {left} came")
    return small


def main() -> None:
    """Print a table: milliseconds of the dense network, and the share of it that each row takes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=51)
    parser.add_argument("--only", default="", help="rows whose label has this text in it")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    records: dict[str, Record] = {record.row: record for record in read(TABLE) if record.seed == 0 and record.widths}
    labels = [row.label for row in LENET.rows if row.label in records and arguments.only in row.label]
    models: dict[str, nn.Module] = {"dense": LeNet5()}
    models |= {label: rebuilt(records[label].widths) for label in labels}
    times = {batch: latency(models, torch.zeros(batch, 1, 28, 28), arguments.repeats) for batch in BATCHES}
    print(f"{machine(torch.device('cpu'))}; time over that of the dense network, seed 0\n")
    print(f"| | MACs | {' | '.join(f'batch {batch}' for batch in BATCHES)} |\n|{' --- |' * (2 + len(BATCHES))}")
    dense = " | ".join(f"{1000 * times[batch]['dense']:.2f} ms" for batch in BATCHES)
    print(f"| dense | 100% | {dense} |")
    for label in labels:
        shares = " | ".join(f"{times[batch][label] / times[batch]['dense']:.2f}×" for batch in BATCHES)
        print(f"| {label} | {records[label].macs / records[label].dense_macs:.1%} | {shares} |")


if __name__ == "__main__":
    main()
