"""The networks of the papers' tables, counted as they are described there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch

from lzero.errors import ArgumentError
from lzero.sparsify import sparsify
from lzero.zoo import make

if TYPE_CHECKING:
    from torch import Tensor

    from lzero.costs import Costs


@dataclass(frozen=True)
class PaperNetwork:
    """A network of the zoo: its gated layers in the papers' order, and what dropout keeps of them."""

    name: str
    title: str
    keep: dict[str, float]


MLP = PaperNetwork("mlp", "MLP 784-300-100", {"inputs of hidden.0": 0.8, "hidden.0": 0.5, "hidden.1": 0.5})
# Dropout at the rates the gates start from: the paper names no others for its dropout network.
LENET = PaperNetwork("lenet5", "LeNet-5-Caffe", {"conv1": 0.5, "conv2": 0.5, "inputs of hidden": 0.5, "hidden": 0.5})


def dropout_share(network: PaperNetwork) -> float:
    """The expected share of MACs when dropout spares the work on what it drops.

    >>> macs = 0.8 * 784 * 0.5 * 300 + 0.5 * 300 * 0.5 * 100 + 0.5 * 100 * 10
    >>> round(dropout_share(MLP) * 266_200) == macs
    True
    """
    costs, spans = _counted(network)
    alive = costs.all_alive()
    for layer, rate in network.keep.items():
        alive[spans[layer]] = rate
    return _share(costs, "macs", alive)


def architecture_share(network: PaperNetwork, architecture: str, cost: Literal["macs", "params"] = "macs") -> float:
    """The share of MACs or parameters that a pruned architecture, such as 219-214-100, leaves.

    >>> round(architecture_share(MLP, "219-214-100") * 266_200) == 219 * 214 + 214 * 100 + 100 * 10
    True
    """
    costs, spans = _counted(network)
    alive = costs.all_alive()
    widths = architecture.split("-")
    if len(widths) != len(network.keep) or not all(width.isdecimal() for width in widths):
        expected = f"a width for each of {', '.join(network.keep)}, such as 20-10-5"
        raise ArgumentError.about("architecture", expected=expected, got=repr(architecture))
    # The first units of every layer: all that is counted is how many there are, and inputs belong to maps that stay.
    for layer, width in zip(network.keep, widths, strict=True):
        alive[spans[layer]][int(width) :] = 0.0
    return _share(costs, cost, alive)


def _counted(network: PaperNetwork) -> tuple[Costs, dict[str, slice]]:
    sparsifier = sparsify(make(network.name), torch.zeros(1, 1, 28, 28), units="paper")
    return sparsifier.costs, {group.name: sparsifier.costs.span_of(group) for group in sparsifier.groups}


def _share(costs: Costs, cost: Literal["macs", "params"], alive: Tensor) -> float:
    return float(costs(cost, alive) / costs(cost, costs.all_alive()))
