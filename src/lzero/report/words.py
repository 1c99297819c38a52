"""Numbers in words: shares, counts and times as people read them."""

from __future__ import annotations

MISSING = "–"
SPACE = "\u00a0"  # no line ends between a number and its unit


def percent(share: float | None) -> str:
    """A share with three figures, two below one percent.

    >>> percent(0.1971), percent(0.0067340)
    ('19.7\xa0%', '0.67\xa0%')
    """
    if share is None:
        return MISSING
    return f"{_figures(100 * share) if abs(share) >= 0.01 else format(100 * share, '.2g')}{SPACE}%"


def plain(number: float | None) -> str:
    """A number with three figures, and all of them before the point.

    >>> plain(0.0017234), plain(9820.4)
    ('0.00172', '9,820')
    """
    return MISSING if number is None else _figures(number)


def short(number: float) -> str:
    """A number for the side of a chart.

    >>> short(20000), short(0.5)
    ('20k', '0.5')
    """
    for factor, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if factor <= abs(number) < 1e12:
            return f"{number / factor:.3g}{letter}"
    return f"{number:.3g}"


def duration(seconds: float | None) -> str:
    """A time in the unit that suits it.

    >>> duration(0.00213), duration(75)
    ('2.13\xa0ms', '1.25\xa0min')
    """
    if seconds is None:
        return MISSING
    units = ((3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"))
    for length, unit in units:
        if abs(seconds) >= length:
            return f"{_figures(seconds / length)}{SPACE}{unit}"
    return f"{_figures(seconds * 1e6)}{SPACE}µs"


def counted(number: float, noun: str) -> str:
    """A count with its noun.

    >>> counted(1, "unit"), counted(3, "unit")
    ('1 unit', '3 units')
    """
    return f"{number:,.0f} {noun}" if number == 1 else f"{number:,.0f} {noun}s"


def _figures(number: float) -> str:
    return f"{number:,.0f}" if 1000 <= abs(number) < 1e15 else f"{number:.3g}"
