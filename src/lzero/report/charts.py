"""Charts over epochs: where lines, ticks and marks lie. What they look like is the template's."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from lzero.report.axes import Axis, epoch_axis, value_axis
from lzero.report.columns import Column, Series, Time, columns
from lzero.report.words import counted, percent, plain, short

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True)
class Line:
    """A series as it is drawn, with its last number for the key."""

    name: str
    kind: str
    path: str
    last: str


@dataclass(frozen=True)
class Chart:
    """Everything to draw, and what it says in words."""

    title: str
    says: str
    log: bool
    lines: list[Line]
    columns: list[Column]
    marks: list[float]
    x_ticks: list[tuple[float, str]]
    y_ticks: list[tuple[float, str]]


def draw(
    title: str, time: Time, series: Sequence[Series], *, shares: bool = False, may_log: bool = True
) -> Chart | None:
    """A chart of the series that have a number anywhere, as shares or as they are; None where none has."""
    told, tick = (percent, percent) if shares else (plain, short)
    series = [each for each in series if _known(each)]
    if not series:
        return None
    x, y = epoch_axis(time.epochs), value_axis([number for each in series for number in _known(each)], may_log=may_log)
    courses = "; ".join(_course(each, told) for each in series)
    return Chart(
        title,
        says=f"{title} over {counted(len(time.epochs), 'epoch')}: {courses}",
        log=y.log,
        lines=[Line(each.name, each.kind, _path(x, y, time, each), told(_known(each)[-1])) for each in series],
        columns=columns(x, y, time, series, told),
        marks=[x.place(epoch) for epoch in time.removed],
        x_ticks=[(x.place(number), plain(number)) for number in x.ticks],
        y_ticks=[(y.place(number), tick(number)) for number in y.ticks],
    )


def _known(series: Series) -> list[float]:
    return [value for value in series.values if value is not None]


def _course(series: Series, told: Callable[[float], str]) -> str:
    known = _known(series)
    return f"{series.name} from {told(known[0])} to {told(known[-1])}"


def _path(x: Axis, y: Axis, time: Time, series: Series) -> str:
    """The line, broken where there are no numbers; a number alone becomes a dash."""
    path = ""
    for known, run in groupby(zip(time.epochs, series.values, strict=True), key=lambda pair: pair[1] is not None):
        if known:
            points = [f"{x.place(epoch)} {y.place(value or 0.0)}" for epoch, value in run]
            path += "M" + "L".join(points) + ("m-2 0h4" if len(points) == 1 else "")
    return path
