"""Checks of sizes and rates."""

from collections.abc import Sequence

from lzero.errors import ArgumentError


def check_sizes(least: int = 1, **sizes: int) -> None:
    """Refuse the first size that is not a whole number from `least`."""
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < least:
            raise ArgumentError.about(name, expected=f"a whole number from {least}", got=repr(size))


def check_widths(widths: Sequence[int], count: int | None = None) -> None:
    """Refuse what is not one whole number for each hidden layer, of which there may be a given count."""
    if not isinstance(widths, Sequence) or (count is not None and len(widths) != count):
        layers = "hidden layer" if count is None else f"of {count} hidden layers"
        raise ArgumentError.about("widths", expected=f"one whole number for each {layers}", got=repr(widths))
    for width in widths:
        check_sizes(widths=width)


def check_dropout(dropout: float) -> None:
    """Refuse what is not the share of units that is dropped."""
    if isinstance(dropout, bool) or not (isinstance(dropout, int | float) and 0 <= dropout < 1):
        raise ArgumentError.about("dropout", expected="a number from 0, below 1", got=repr(dropout))


def check_factor(name: str, factor: float) -> None:
    """Refuse what widths cannot be multiplied by."""
    if isinstance(factor, bool) or not (isinstance(factor, int | float) and 0 < factor < float("inf")):
        raise ArgumentError.about(name, expected="a number above 0", got=repr(factor))


def check_multiple(name: str, size: int, divisor: int, reason: str) -> None:
    """Refuse a size that is not a multiple of what the reason says."""
    if size % divisor:
        raise ArgumentError.about(name, expected=f"a multiple of {divisor}, {reason}", got=size)


def blocks_per_stage(depth: int, extra: int, example: int) -> int:
    """The n of a residual network with three stages and 6n + `extra` layers."""
    if isinstance(depth, bool) or not isinstance(depth, int) or depth < 6 + extra or depth % 6 != extra:
        expected, advice = f"6n + {extra} for a whole number n from 1", f"such as {example}"
        raise ArgumentError.about("depth", expected=expected, got=repr(depth), advice=advice)
    return depth // 6
