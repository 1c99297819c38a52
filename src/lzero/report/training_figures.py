"""What trainings go through: Figures 3 and 4 of Louizos et al. (2018), Figure 1 of Gallego-Posada et al. (2021)."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from lzero.errors import LzeroError
from lzero.report.drawing import counts, draw, epochs, legend_below, level, log_where_positive, panels, shared_legend
from lzero.report.paper_networks import LENET, MLP, PaperNetwork, dropout_share
from lzero.report.seeds import by_row, curve, over_epochs, told

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from lzero.reproduce.records import Record

    Rows = dict[str, list[Record]]

MACS = "expected MACs per image"
LENGTH = re.compile(r" in \d+ epochs$")  # of trainings: axes show it, and it differs between datasets


def figure_3(mlp_records: Sequence[Record], lenet_records: Sequence[Record]) -> Figure:
    """Expected MACs while MNIST is learnt, for the rows with a λ.

    The paper draws FLOPs, two for each MAC, over iterations, 600 to an epoch. Its code counts a layer by that layer's
    own gates alone; here what neighbours spare counts too, as it does in the compacted network.
    """
    figure, (left, right) = panels(1, 2, height=4.9)
    _draw_mnist(left, mlp_records, MLP)
    _draw_mnist(right, lenet_records, LENET)
    return figure


def figure_4(cifar10_records: Sequence[Record], cifar100_records: Sequence[Record]) -> Figure:
    """Expected MACs on both datasets; training and test error on CIFAR-10, which the paper draws in one panel.

    Records without a training error are not in its panel; where none has one, it shows the loss. Trainings longer than
    those of most rows are left out: they are the same rows again, and would take half of the width.
    """
    figure, (macs, macs_of_100, training, error) = panels(2, 2, height=3.6)
    found = [_not_longer_than_most(by_row(records, "Figure 4")) for records in (cifar10_records, cifar100_records)]
    labels = list(dict.fromkeys(label for rows in found for label in rows))
    cifar10, cifar100 = ({label: rows.get(label, []) for label in labels} for rows in found)  # in one look each
    _draw_cifar_macs(macs, cifar10)
    _draw_cifar_macs(macs_of_100, cifar100)
    learnt = _draw_training(training, cifar10)
    _draw_rows(error, cifar10, _error)
    error.set_ylabel("test error, %")
    for axes in (training, error):
        log_where_positive(axes)
        epochs(axes)
    for axes, title in ((macs, "(a) CIFAR-10, computation"), (macs_of_100, "(b) CIFAR-100, computation")):
        axes.set_title(title)
    for axes, title in ((training, f"(c) CIFAR-10, {learnt}"), (error, "(d) CIFAR-10, test error")):
        axes.set_title(title)
    shared_legend(figure, told(seeds for rows in found for seeds in rows.values()), columns=2)
    return figure


def figure_c1(records: Sequence[Record], target: float = 0.33) -> Figure:
    """Density, multiplier and test error of every row, one under the other; the target is a share of the parameters."""
    rows = by_row(records, "Figure 1 of 2021")
    figure, (density, multiplier, error) = panels(3, 1, width=7.2, height=2.3)
    for axes in (density, multiplier):
        axes.sharex(error)
        axes.tick_params(labelbottom=False)
    _draw_rows(density, rows, lambda record: curve(record, _only(record, "expected "), 100))
    level(density, 100 * target, f"target, {100 * target:g} %")
    _draw_rows(multiplier, rows, lambda record: curve(record, _only(record, "multiplier ")))
    _draw_rows(error, rows, _error)
    density.set(ylabel="expected density, %", ylim=(0, None))
    multiplier.set(ylabel="multiplier λ", ylim=(0, None))
    error.set_ylabel("test error, %")
    log_where_positive(error)
    epochs(error)
    shared_legend(figure, told(rows.values()), columns=3)
    return figure


def _draw_mnist(axes: Axes, records: Sequence[Record], network: PaperNetwork) -> None:
    rows = {label: seeds for label, seeds in by_row(records, network.title).items() if label.startswith("λ")}
    if not rows:
        got = ", ".join(dict.fromkeys(record.row for record in records))
        raise LzeroError(f"{network.title}: expected records of rows that begin with λ, got {got}")
    dense = records[0].dense_macs
    level(axes, dense, "original", "-")
    rates = "-".join(f"{1 - keep:g}" for keep in network.keep.values())
    level(axes, dropout_share(network) * dense, f"dropout {rates}")
    _draw_rows(axes, rows, _expected_macs)
    _macs_axis(axes)
    axes.set_title(network.title)
    legend_below(axes, told(rows.values()))


def _draw_rows(axes: Axes, rows: Rows, numbers: Callable[[Record], list[float | None]]) -> None:
    """A line for every row that has records, in a look that is the row's in all panels."""
    for k, (label, records) in enumerate(rows.items()):
        course = over_epochs(records, numbers)
        if records and not course.is_known:
            raise LzeroError(f"{label}: expected records with numbers for this figure, got curves without any")
        if records:
            draw(axes, course, label, k)


def _draw_cifar_macs(axes: Axes, rows: Rows) -> None:
    """Rows without gates cost what the dense network costs, with dropout too: it drops activations, not maps."""
    _draw_rows(
        axes, {label: [seed for seed in seeds if _has(seed, "macs")] for label, seeds in rows.items()}, _expected_macs
    )
    dense = next(seed.dense_macs for seeds in rows.values() for seed in seeds)
    level(axes, dense, "without gates, with dropout or not")
    _macs_axis(axes)


def _draw_training(axes: Axes, rows: Rows) -> str:
    """What is learnt while training; and what it is called: the error of the records that have one, else the loss."""
    known = {label: [seed for seed in seeds if _has(seed, "training_error")] for label, seeds in rows.items()}
    if any(known.values()):
        _draw_rows(axes, known, _training_error)
        axes.set_ylabel("training error, %")
        return "training error"
    _draw_rows(axes, rows, lambda record: curve(record, "loss"))
    axes.set_ylabel("training loss")
    return "training loss"


def _not_longer_than_most(rows: Rows) -> Rows:
    """The rows with as many epochs as most rows have, or fewer; how many is no part of their names."""
    common = Counter(records[0].epochs for records in rows.values()).most_common(1)[0][0]
    kept = {label: records for label, records in rows.items() if records[0].epochs <= common}
    return {LENGTH.sub(", shortened", label): records for label, records in kept.items()}


def _macs_axis(axes: Axes) -> None:
    axes.set(ylabel=MACS, ylim=(0, None))
    epochs(axes)
    counts(axes.yaxis)


def _has(record: Record, name: str) -> bool:
    return any(number is not None for number in curve(record, name))


def _expected_macs(record: Record) -> list[float | None]:
    """What is expected while there are gates; what is left once they are folded in."""
    numbers = curve(record, "macs", record.dense_macs)
    gated = max((k + 1 for k, number in enumerate(numbers) if number is not None), default=len(numbers))
    return [*numbers[:gated], *[float(record.macs)] * (len(numbers) - gated)]


def _training_error(record: Record) -> list[float | None]:
    return curve(record, "training_error", 100)


def _error(record: Record) -> list[float | None]:
    return curve(record, "error", 100)


def _only(record: Record, beginning: str) -> str:
    """The one curve whose name begins so: that of the budget for the whole model."""
    names = [name for name in record.curves if name.startswith(beginning)]
    if len(names) != 1:
        got = ", ".join(names) or "none"
        raise LzeroError(f"{record.row}: expected one curve that begins with {beginning.strip()!r}, got {got}")
    return names[0]
