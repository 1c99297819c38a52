"""The papers' figures: from the laws alone, or from what experiments have left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from lzero.reproduce.mnist import LENET
from lzero.reproduce.records import read_all
from lzero.reproduce.tables import against_the_largest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from matplotlib.figure import Figure

    from lzero.reproduce.records import Record
    from lzero.reproduce.rows import Published

# The experiments that each figure is drawn from.
SOURCES: dict[str, tuple[str, ...]] = {
    "figure-1": (),
    "figure-2": (),
    "figure-3": ("table-1-mlp", "table-1-lenet5"),
    "figure-4": ("table-2-cifar10", "table-2-cifar100"),
    "figure-c1": ("dynamics",),
    "figure-c2": ("densities-mlp", "densities-lenet5"),
    "trade-off-lenet5-macs": ("trade-off-lenet5",),
    "trade-off-lenet5-params": ("trade-off-lenet5",),
    "trade-off-wrn-macs": ("trade-off-wrn",),
    "trade-off-wrn-params": ("trade-off-wrn",),
}

BUDGETS = {"macs": "of MACs", "params": "of parameters"}  # how rows with a budget in each cost end

CAPTIONS = {
    "figure-1": "Penalties of Lp norms (2018, Figure 1)",
    "figure-2": "The hard concrete law (2018, Figure 2)",
    "figure-3": "Expected computation while MNIST is learnt (2018, Figure 3)",
    "figure-4": "Computation on CIFAR-10 and CIFAR-100, training and test (2018, Figure 4)",
    "figure-c1": "Training with and without dual restarts (2021, Figure 1)",
    "figure-c2": "Error against the target density (2021, Figure 2)",
    "trade-off-lenet5-macs": "LeNet-5 on MNIST: error against MACs",
    "trade-off-lenet5-params": "LeNet-5 on MNIST: error against parameters",
    "trade-off-wrn-macs": "WRN-16-4 on CIFAR-10: error against MACs",
    "trade-off-wrn-params": "WRN-16-4 on CIFAR-10: error against parameters",
}


def draw(name: str, folder: Path) -> list[Path]:
    """Draw a figure into the folder its experiments have written to: light and dark, as SVG and PNG."""
    from lzero.report import density_figures, paper_figures, training_figures
    from lzero.report.drawing import save_all

    figures: dict[str, Callable[..., Figure]] = {
        "figure-1": paper_figures.figure_1,
        "figure-2": paper_figures.figure_2,
        "figure-3": training_figures.figure_3,
        "figure-4": training_figures.figure_4,
        "figure-c1": training_figures.figure_c1,
        "figure-c2": density_figures.figure_c2,
        "trade-off-lenet5-macs": lambda records: _trade_off(records, "macs", LENET.published),
        "trade-off-lenet5-params": lambda records: _trade_off(records, "params", LENET.published),
        "trade-off-wrn-macs": lambda records: _trade_off(records, "macs"),
        "trade-off-wrn-params": lambda records: _trade_off(records, "params"),
    }
    records = [read_all(folder, source) for source in SOURCES[name]]
    return save_all(figures[name](*records), folder, name)


def _trade_off(
    records: Sequence[Record], cost: Literal["macs", "params"], published: Sequence[Published] = ()
) -> Figure:
    """Error against size, a curve for each method, ours first, and published LeNets as points."""
    from lzero.report.density_figures import trade_off
    from lzero.report.paper_networks import LENET as NETWORK
    from lzero.report.paper_networks import architecture_share

    methods: dict[str, list[Record]] = {"lzero": []}
    for record in against_the_largest(records):
        methods.setdefault(record.row.partition(",")[0], []).append(record)
    curves = {method: _made_for(cost, found) for method, found in methods.items() if found}
    points = {
        f"{each.architecture} ({each.source})": (architecture_share(NETWORK, each.architecture, cost), each.error / 100)
        for each in published
        if each.error is not None
    }
    return trade_off(curves, points, cost)


def _made_for(cost: Literal["macs", "params"], records: list[Record]) -> list[Record]:
    """The records of a method whose budget is of this cost, where it has such, else all of them."""
    return [record for record in records if record.row.endswith(BUDGETS[cost])] or records
