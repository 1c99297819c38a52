"""Axes: from numbers to places, with round numbers along them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH, HEIGHT = 400, 220  # of a chart
LEFT, RIGHT, TOP, BOTTOM = 44, 392, 22, 196  # of its inside
MARGIN = 6  # left and right of the lines
STEPS = 5  # between ticks, at most
USEFUL = 20.0  # from this ratio of largest to smallest on, a logarithm shows more
SLACK = 1e-6  # for what rounding does, such as a share of 1.0000001


@dataclass(frozen=True)
class Axis:
    """A range of numbers on a line from `start` to `end`; on a logarithmic one zero lies at the start."""

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]
    log: bool = False

    def place(self, value: float) -> float:
        """Where a number lies, to a tenth."""
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(max(value, low))
        share = (value - low) / (high - low) if high > low else 0.5
        return round(self.start + share * (self.end - self.start), 1)


def value_axis(values: list[float], *, may_log: bool = True) -> Axis:
    """An axis from zero; a logarithmic one, where it may be, for numbers that differ by much and are not negative.

    >>> value_axis([0.2, 0.9]).ticks
    (0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0)
    >>> value_axis([0.0001, 0.9]).ticks
    (0.0001, 0.001, 0.01, 0.1, 1.0)
    """
    positive = [value for value in values if value > 0]
    if may_log and positive and min(values) >= 0 and max(positive) > USEFUL * min(positive):
        return _log_axis(positive, with_zero=min(values) == 0)
    low, high = min(0.0, *values), max(0.0, *values)
    step = _step(high - low)
    first, last = math.floor(low / step + SLACK), math.ceil(high / step - SLACK)
    last = max(last, first + 1)
    return Axis(first * step, last * step, BOTTOM, TOP, tuple(k * step for k in range(first, last + 1)))


def epoch_axis(epochs: Sequence[float]) -> Axis:
    """An axis from the first epoch to the last.

    >>> epoch_axis([1, 40]).ticks
    (10.0, 20.0, 30.0, 40.0)
    """
    low, high = min(epochs), max(epochs)
    step = max(1.0, _step(high - low))
    ticks = tuple(k * step for k in range(math.ceil(low / step), math.floor(high / step) + 1))
    return Axis(low, high, LEFT + MARGIN, RIGHT - MARGIN, ticks or (low,))


def _log_axis(positive: list[float], *, with_zero: bool) -> Axis:
    smallest, largest = min(positive) / (2 if with_zero else 1), max(positive)
    first, last = math.floor(math.log10(smallest)), math.ceil(math.log10(largest))
    factors = (1, 2, 5) if largest < 100 * smallest else (1,)
    rounds = [factor * 10.0**k for k in range(first, last + 1) for factor in factors]
    low = max(number for number in rounds if number <= smallest * (1 + SLACK))
    high = min(number for number in rounds if number >= largest * (1 - SLACK))
    ticks = [number for number in rounds if low <= number <= high]
    ticks = ticks[:: max(1, math.ceil(len(ticks) / (2 * STEPS)))]
    return Axis(low, high, BOTTOM, TOP, (0.0, *ticks[1:]) if with_zero else tuple(ticks), log=True)


def _step(span: float) -> float:
    """The least of 1, 2, 5 or 10 times a power of ten by which a span has no more than `STEPS` steps."""
    raw = span / STEPS or 1.0
    power = 10.0 ** math.floor(math.log10(raw))
    return next(factor * power for factor in (1, 2, 5, 10, 20) if factor * power >= raw * (1 - SLACK))
