"""Checks of sizes."""

from lzero.errors import ArgumentError


def check_sizes(least: int = 1, **sizes: int) -> None:
    """Refuse the first size that is not a whole number from `least`."""
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < least:
            raise ArgumentError.about(name, expected=f"a whole number from {least}", got=repr(size))


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
