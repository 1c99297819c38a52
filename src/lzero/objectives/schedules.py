"""Warm-ups: functions from the step to a factor between 0 and 1. Any function of that kind will do."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import SupportsFloat

from lzero.arguments import whole
from lzero.errors import ArgumentError

Schedule = Callable[[int], float]


def constant(step: int) -> float:
    """No warm-up: 1 from the first step."""
    del step
    return 1.0


@dataclass(frozen=True)
class linear:  # noqa: N801 (called like a function; a class, because functions made by functions cannot be pickled)
    """From 0 at step `start` to 1, `steps` later, on a straight line.

    >>> [linear(4)(step) for step in (0, 1, 4, 100)]
    [0.0, 0.25, 1.0, 1.0]
    """

    steps: int
    start: int = 0

    def __post_init__(self) -> None:
        whole("steps", self.steps)
        whole("start", self.start, 0)

    def __call__(self, step: int) -> float:
        """The factor at this step."""
        return min(1.0, max(0.0, (step - self.start) / self.steps))


@dataclass(frozen=True)
class cosine(linear):  # noqa: N801 (as above)
    """The same with a slow beginning and a slow end.

    >>> [round(cosine(4)(step), 3) for step in (0, 1, 2, 4)]
    [0.0, 0.146, 0.5, 1.0]
    """

    def __call__(self, step: int) -> float:
        """The factor at this step."""
        return (1 - math.cos(math.pi * super().__call__(step))) / 2


def factor_at(schedule: Schedule, step: int) -> float:
    """What a schedule says for a step; refused where that is no number.

    >>> factor_at(linear(4), 1)
    0.25
    """
    if not callable(schedule):
        raise ArgumentError.about("schedule", expected="a function of the step", got=repr(schedule))
    factor: object = schedule(step)
    if not isinstance(factor, SupportsFloat) or not 0 <= float(factor) < math.inf:
        expected = "a function from the step to a number from 0"
        raise ArgumentError.about("schedule", expected=expected, got=f"{factor!r} at step {step}")
    return float(factor)
