"""Warm-ups: functions from the step to a factor between 0 and 1. Any function of that kind will do."""

from __future__ import annotations

import math
from collections.abc import Callable

from lzero.errors import ArgumentError

Schedule = Callable[[int], float]


def constant(step: int) -> float:
    """No warm-up: 1 from the first step."""
    del step
    return 1.0


def linear(steps: int, start: int = 0) -> Schedule:
    """From 0 at step `start` to 1, `steps` later, on a straight line.

    >>> [linear(4)(step) for step in (0, 1, 4, 100)]
    [0.0, 0.25, 1.0, 1.0]
    """
    _check(steps, start)
    return lambda step: min(1.0, max(0.0, (step - start) / steps))


def cosine(steps: int, start: int = 0) -> Schedule:
    """The same with a slow beginning and a slow end.

    >>> [round(cosine(4)(step), 3) for step in (0, 1, 2, 4)]
    [0.0, 0.146, 0.5, 1.0]
    """
    line = linear(steps, start)
    return lambda step: (1 - math.cos(math.pi * line(step))) / 2


def _check(steps: int, start: int) -> None:
    if steps < 1:
        raise ArgumentError.about("steps", expected="at least 1", got=steps)
    if start < 0:
        raise ArgumentError.about("start", expected="0 or more", got=start)
