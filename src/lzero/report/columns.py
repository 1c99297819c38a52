"""What a chart shows where one points at an epoch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from lzero.report.axes import LEFT, RIGHT, Axis
from lzero.report.words import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

COLUMNS = 150  # places to point at, at most


@dataclass(frozen=True)
class Series:
    """One line: a number, or none, for each epoch. The kind is its look: `first`, `second`, `third` or `target`."""

    name: str
    kind: str
    values: Sequence[float | None]


@dataclass(frozen=True)
class Time:
    """The epochs, and after which of them how many units were removed."""

    epochs: Sequence[float]
    removed: Mapping[float, float]


@dataclass(frozen=True)
class Column:
    """The place to point at, dots on the lines, words above, and words beside."""

    x: float
    left: float
    width: float
    dots: tuple[tuple[float, str], ...]
    above: str
    beside: str


def columns(x: Axis, y: Axis, time: Time, series: Sequence[Series], told: Callable[[float], str]) -> list[Column]:
    """A column for each epoch, or for every few of them, with the last one always."""
    count = len(time.epochs)
    chosen = range(count - 1, -1, -math.ceil(count / COLUMNS))[::-1]
    places = [x.place(time.epochs[k]) for k in chosen]
    edges = [LEFT, *((a + b) / 2 for a, b in pairwise(places)), RIGHT]
    found = []
    for k, place, (left, right) in zip(chosen, places, pairwise(edges), strict=True):
        values = [(each, value) for each in series if (value := each.values[k]) is not None]
        dots = tuple((y.place(value), each.kind) for each, value in values)
        above = ", ".join(f"{each.name} {told(value)}" for each, value in values)
        above = f"epoch {time.epochs[k]:.0f}: {above}"
        found.append(Column(place, round(left, 2), round(right - left, 2), dots, above, _beside(time, time.epochs[k])))
    return found


def _beside(time: Time, epoch: float) -> str:
    return f"{counted(time.removed[epoch], 'unit')} removed" if epoch in time.removed else ""
