"""Checks of sizes and rates."""

from collections.abc import Sequence

from lzero.arguments import number, whole
from lzero.errors import ArgumentError


def check_sizes(**sizes: int) -> tuple[int, ...]:
    """The sizes; the first that is not a whole number above 0 is refused."""
    return tuple(whole(name, size) for name, size in sizes.items())


def check_widths(widths: Sequence[int], count: int | None = None) -> tuple[int, ...]:
    """The widths, one whole number for each hidden layer, of which there may be a given count."""
    if not isinstance(widths, Sequence) or (count is not None and len(widths) != count):
        layers = "hidden layer" if count is None else f"of {count} hidden layers"
        raise ArgumentError.about("widths", expected=f"one whole number for each {layers}", got=repr(widths))
    return tuple(whole("widths", width) for width in widths)


def check_dropout(dropout: float) -> float:
    """The share of units that is dropped."""
    return number("dropout", dropout, least=0, below=1)


def check_multiple(name: str, size: int, divisor: int, reason: str) -> None:
    """Refuse a size that is not a multiple of what the reason says."""
    if size % divisor:
        raise ArgumentError.about(name, expected=f"a multiple of {divisor}, {reason}", got=size)


def blocks_per_stage(depth: int, extra: int, example: int) -> int:
    """The n of a residual network with three stages and 6n + `extra` layers."""
    depth = whole("depth", depth)
    if depth < 6 + extra or depth % 6 != extra:
        expected, advice = f"6n + {extra} for a whole number n from 1", f"such as {example}"
        raise ArgumentError.about("depth", expected=expected, got=repr(depth), advice=advice)
    return depth // 6
