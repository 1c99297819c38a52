"""Error against size: Figure 2 of Gallego-Posada et al. (2021), and methods beside one another."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from lzero.arguments import one_of
from lzero.budgets import UNITS
from lzero.errors import LzeroError
from lzero.report.drawing import GREY, draw, log_ticks, panels, shared_legend
from lzero.report.paper_networks import LENET, MLP
from lzero.report.seeds import by_row, course, told

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from lzero.reproduce.records import Record

    Targets = dict[float, list[Record]]  # by the target density, in percent

Cost = Literal["macs", "params"]
LABEL = re.compile(r"ε = ([\d.]+)\s*% of (each layer|the model)")
MARKERS = "os^Dv<>Pp*hX"
MARGIN = 0.8  # of an error: how far a logarithmic axis goes below the least


def figure_c2(mlp_records: Sequence[Record], lenet_records: Sequence[Record]) -> Figure:
    """Error at the end against the target density: LeNet above, the MLP below; by layer on the left, by model right.

    The numbers at the points are the worst densities reached, of all runs and, by layer, of all layers: the expected
    L0 share after the last epoch, which is what the constraint is about.
    """
    figure, axes = panels(2, 2, height=3.5)
    halves = [(LENET.title, lenet_records, axes[:2]), (MLP.title, mlp_records, axes[2:])]
    for network, records, (left, right) in halves:
        kinds = _by_target(records, network)
        right.sharey(left)
        for panel, kind in ((left, "each layer"), (right, "the model")):
            _draw_targets(panel, kinds[kind])
            panel.set_title(f"{network}, ε for {kind}")
        left.set_ylabel("test error, %")
        left.set_ylim(bottom=max(0.0, left.get_ylim()[0]))  # intervals of two or three runs may go below
    for panel in axes[2:]:
        panel.set_xlabel("target density ε, %")
    seeds = [seeds for _, records, _ in halves for seeds in by_row(records, "").values()]
    figure.suptitle(
        f"{told(seeds)}; numbers: the worst density expected at the end, before the last gates are closed, %",
        fontsize="medium",
    )
    return figure


def trade_off(
    curves: Mapping[str, Sequence[Record]],
    points: Mapping[str, tuple[float, float]] | None = None,
    cost: Cost = "macs",
) -> Figure:
    """Error of the compacted network against what is left: a line for each method, and published (share, error) pairs.

    Errors and shares are from 0 to 1, as in records. A line goes through the means of its rows; both axes are
    logarithmic, unless an error is 0, and as long as the means, not the intervals, need. Intervals that reach 0 say
    nothing, and would hide what does: they are left out.
    """
    one_of("cost", cost, Cost)
    if not curves:
        raise LzeroError("trade-off: expected records of at least one method, got none; run lzero reproduce first")
    figure, (axes,) = panels(1, 1, width=8.2, height=4.6)
    rows = {method: by_row(records, method) for method, records in curves.items()}
    heights = [100 * error for _, error in (points or {}).values()]
    for k, (method, settings) in enumerate(rows.items()):
        by_size = sorted(settings.values(), key=lambda seeds: _mean_share(seeds, cost))
        line = course([_mean_share(seeds, cost) for seeds in by_size], [_errors(seeds) for seeds in by_size])
        draw(axes, line.above_zero(), method, k, marker="o")
        heights += line.mean
    if points:
        _draw_points(axes, points)
    axes.set(xscale="log", xlabel=f"{UNITS[cost]} left, %", ylabel="test error, %")
    log_ticks(axes.xaxis)
    if min(heights) > 0:
        axes.set(yscale="log", ylim=(MARGIN * min(heights), max(heights) / MARGIN))
        log_ticks(axes.yaxis)
    every = [seeds for settings in rows.values() for seeds in settings.values()]
    shared_legend(figure, f"{told(every)}, where that stays above 0", place="outside right upper")
    return figure


def _by_target(records: Sequence[Record], network: str) -> dict[str, Targets]:
    kinds: dict[str, Targets] = {"each layer": {}, "the model": {}}
    for label, seeds in by_row(records, network).items():
        found = LABEL.fullmatch(label)
        if found is None:
            raise LzeroError(
                f"{network}: expected rows such as 'ε = 5% of the model' or 'of each layer', got {label!r}"
            )
        kinds[found[2]][float(found[1])] = seeds
    return {kind: dict(sorted(targets.items())) for kind, targets in kinds.items()}


def _draw_targets(axes: Axes, targets: Targets) -> None:
    if not targets:
        axes.text(0.5, 0.5, "not run", transform=axes.transAxes, ha="center")
        return
    errors = course(list(targets), [_errors(records) for records in targets.values()])
    draw(axes, errors, "error", 0, marker="o")
    axes.set_xscale("log")
    log_ticks(axes.xaxis)
    axes.set_xticks(errors.places)
    axes.minorticks_off()
    axes.margins(x=0.12)  # room for what is written at the last point
    for (target, records), error in zip(targets.items(), errors.mean, strict=True):
        worst = f"{100 * max(_density(record) for record in records):.1f}"
        axes.annotate(worst, (target, error), xytext=(4, 6), textcoords="offset points", fontsize="small")


def _draw_points(axes: Axes, points: Mapping[str, tuple[float, float]]) -> None:
    """Published results, named in the legend: many lie too close together for names beside them."""
    axes.plot([], [], " ", label="published:")
    for k, (label, (share, error)) in enumerate(points.items()):
        (point,) = axes.plot(100 * share, 100 * error, MARKERS[k % len(MARKERS)], label=label)
        point.set(color=GREY, markerfacecolor="none", markersize=9, markeredgewidth=1.6, zorder=3)


def _density(record: Record) -> float:
    """The expected share of the densest group after the last epoch."""
    ends = [numbers[-1] for name, numbers in record.curves.items() if name.startswith("expected ") and numbers]
    known = [number for number in ends if number is not None]
    if not known:
        raise LzeroError(f"{record.row}: expected curves that begin with 'expected', got {', '.join(record.curves)}")
    return max(known)


def _mean_share(records: Sequence[Record], cost: Cost) -> float:
    """What is left, in percent of the dense network."""
    left = [
        record.macs / record.dense_macs if cost == "macs" else record.params / record.dense_params for record in records
    ]
    return 100 * sum(left) / len(left)


def _errors(records: Sequence[Record]) -> list[float | None]:
    return [100 * record.error for record in records]
