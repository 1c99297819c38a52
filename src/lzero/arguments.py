"""Checks of single arguments: what fits is given back as Python's own, what does not is refused in one form."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeVar, get_args

from lzero.errors import ArgumentError

AnyT = TypeVar("AnyT")


def whole(argument: str, value: object, least: int = 1, *, of: str = "", advice: str | None = None) -> int:
    """A whole number from `least`, numpy's too.

    >>> whole("steps", 0, of="optimizer steps")
    Traceback (most recent call last):
    lzero.errors.ArgumentError: steps: expected a whole number of optimizer steps from 1, got 0
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        kind = f"a whole number of {of}" if of else "a whole number"
        raise ArgumentError.about(argument, expected=f"{kind} from {least}", got=repr(value), advice=advice)
    return int(value)


def number(
    argument: str,
    value: object,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    of: str = "",
    advice: str | None = None,
) -> float:
    """A finite number within bounds, numpy's too.

    >>> number("dropout", 1.5, least=0, below=1)
    Traceback (most recent call last):
    lzero.errors.ArgumentError: dropout: expected a number from 0, below 1, got 1.5
    """
    bounds = (
        ("from", operator.ge, least),
        ("above", operator.gt, above),
        ("up to", operator.le, most),
        ("below", operator.lt, below),
    )
    given = [(word, holds, bound) for word, holds, bound in bounds if bound is not None]
    found = _as_float(value)
    if not (math.isfinite(found) and all(holds(found, bound) for _, holds, bound in given)):
        kind, within = f"a number of {of}" if of else "a number", [f"{word} {bound}" for word, _, bound in given]
        expected = f"{kind} {', '.join(within)}".strip()
        raise ArgumentError.about(argument, expected=expected, got=repr(value), advice=advice)
    return found


def _as_float(value: object) -> float:
    """A number as a float: infinite beyond the largest, and NaN for what is none."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf


def one_of(argument: str, value: AnyT, literal: Any) -> AnyT:
    """One of the words of a Literal.

    >>> from typing import Literal
    >>> one_of("per", "block", Literal["model", "layer"])
    Traceback (most recent call last):
    lzero.errors.ArgumentError: per: expected "model" or "layer", got 'block'
    """
    words = get_args(literal)
    if not isinstance(value, str) or value not in words:
        expected = " or ".join(f'"{word}"' for word in words)
        raise ArgumentError.about(argument, expected=expected, got=repr(value))
    return value


def all_of(kind: type[AnyT], argument: str, given: AnyT | Sequence[AnyT], expected: str) -> list[AnyT]:
    """One, or several, of a kind.

    >>> all_of(int, "sizes", (3, "4"), "a size, or several in a list")
    Traceback (most recent call last):
    lzero.errors.ArgumentError: sizes: expected a size, or several in a list, got str
    """
    several = list(given) if isinstance(given, list | tuple) else [given]
    for each in several:
        if not isinstance(each, kind):
            raise ArgumentError.about(argument, expected=expected, got=type(each).__name__)
    return several  # type: ignore[return-value]


def path_of(value: object, call: str) -> Path:
    """The path that a call was given, where it was given one.

    >>> path_of(3, "save(model, path)")
    Traceback (most recent call last):
    lzero.errors.ArgumentError: path: expected a path, got int; save(model, path)
    """
    if not isinstance(value, str | Path):
        raise ArgumentError.about("path", expected="a path", got=type(value).__name__, advice=call)
    return Path(value)
