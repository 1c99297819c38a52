"""A sweep in pictures: error against size, and both over the setting that varies most."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from lzero.budgets import UNITS
from lzero.report.drawing import draw, log_ticks, log_where_positive, panels, shared_legend
from lzero.report.seeds import course, told

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from lzero.report.sweeps import Combination

SHARES = {"macs_share": UNITS["macs"], "params_share": UNITS["params"]}
DIFFERENT = 1.02  # ratio of sizes from which on they are worth an axis
ROOM = 1.2  # above the largest mean
LONG = 8.0  # ratio of numbers from which on a logarithm shows more


@dataclass(frozen=True)
class Panel:
    """What lies along x, by its name, and one of what was measured."""

    along: str
    place: Callable[[Combination], float]
    measured: str = "error"


def figure_of(combined: Sequence[Combination]) -> Figure | None:
    """Error against what is left, where that differs; both over the setting of most values, if these are numbers.

    Points are means over seeds; a line joins those that differ in that setting alone.
    """
    setting = _most_varied(combined)
    wanted = [*_sizes(combined), *([] if setting is None else _over(setting))]
    if not wanted:
        return None
    lines = _lines(combined, setting)
    figure, axes = panels(len(wanted) // 2, 2)
    for panel, where in zip(wanted, axes, strict=True):
        _draw(where, panel, lines)
    shared_legend(figure, told(each.rows for each in combined), columns=min(3, len(lines)))
    return figure


def _sizes(combined: Sequence[Combination]) -> list[Panel]:
    """Error against MACs and parameters, where one of them differs."""
    means = {share: [each.mean(share) for each in combined] for share in SHARES}
    if not any(max(shares) > DIFFERENT * min(shares) for shares in means.values()):
        return []
    return [Panel(f"{name} left, %", partial(_percent, share)) for share, name in SHARES.items()]


def _over(setting: str) -> list[Panel]:
    place = partial(_value, setting)
    return [Panel(setting, place), Panel(setting, place, "macs_share")]


def _percent(share: str, each: Combination) -> float:
    return 100 * each.mean(share)


def _value(setting: str, each: Combination) -> float:
    found = number_of(each.settings[setting])
    assert found is not None  # noqa: S101 (asked by the caller)
    return found


def number_of(value: Any) -> float | None:
    """A setting as a number, where it is one, such as a target of 30 %.

    >>> number_of(3), number_of("30%"), number_of("adam"), number_of(True)
    (3.0, 0.3, None, None)
    """
    if isinstance(value, str) and value.endswith("%"):
        try:
            return float(value[:-1]) / 100
        except ValueError:
            return None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _most_varied(combined: Sequence[Combination]) -> str | None:
    """The setting with the most values, of those that have numbers; the first of equals."""
    values = {key: {number_of(each.settings[key]) for each in combined} for key in combined[0].settings}
    counts = {key: len(numbers) for key, numbers in values.items() if None not in numbers and len(numbers) > 1}
    return max(counts, key=lambda key: counts[key]) if counts else None


def _lines(combined: Sequence[Combination], setting: str | None) -> dict[str, list[Combination]]:
    """Combinations by all other settings, in words."""
    lines: dict[str, list[Combination]] = {}
    for each in combined:
        others = [f"{key.rpartition('.')[2]} {value}" for key, value in each.settings.items() if key != setting]
        lines.setdefault(", ".join(others) or "lzero", []).append(each)
    return lines


def _draw(axes: Axes, panel: Panel, lines: dict[str, list[Combination]]) -> None:
    highest = 0.0
    for k, (label, some) in enumerate(lines.items()):
        ordered = sorted(some, key=panel.place)
        seeds = [[100 * number for number in each.numbers(panel.measured)] for each in ordered]
        line = course([panel.place(each) for each in ordered], seeds)
        draw(axes, line, label, k, marker="o")
        highest = max(highest, *line.mean)
    is_error = panel.measured == "error"
    axes.set(xlabel=panel.along, ylabel="error, %" if is_error else f"{SHARES[panel.measured]} left, %")
    low, high = axes.dataLim.intervalx
    if low > 0 and high > LONG * low:
        axes.set_xscale("log")
        log_ticks(axes.xaxis)
    if is_error:
        log_where_positive(axes)
    axes.set_ylim(bottom=None if is_error else 0.0, top=ROOM * highest or None)  # bands do not stretch it
