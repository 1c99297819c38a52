"""Past the papers: our networks at the size, and at the error, of each published one."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, NamedTuple

from lzero.report.seeds import ONE_RUN, spread
from lzero.reproduce.tables import Line, against_the_largest, as_markdown, published_error, published_params

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lzero.reproduce.records import Record
    from lzero.reproduce.rows import Experiment, Published, Row

TITLE = "At the size, and at the error, of each published network"
FOOT = "Sizes at an error are read between the two networks of ours beside it."
COLUMNS = ("published", "its size", "its error %", "ours, no larger: error %", "ours, no worse: size")


class Point(NamedTuple):
    """A network: its parameters or MACs, its error in percent, and how sure that is; means where there are several."""

    size: float
    error: float
    spread: str = ""


def markdown(tables: Iterable[tuple[Experiment, Sequence[Record]]]) -> str:
    """The table of all experiments whose records have networks of ours."""
    found = [line for experiment, records in tables for line in lines(experiment, records)]
    return "\n".join((f"# {TITLE}", "", as_markdown(COLUMNS, found), "", FOOT, ""))


def lines(experiment: Experiment, records: Sequence[Record]) -> list[Line]:
    """A line for each published network, where there are records of ours: rows without a source."""
    records = against_the_largest(records)
    ours = [_mean(experiment, seeds) for row in experiment.rows if not row.published and (seeds := _of(row, records))]
    return [_line(experiment, each, records, ours) for each in experiment.published] if ours else []


def _line(experiment: Experiment, published: Published, records: Sequence[Record], ours: Sequence[Point]) -> Line:
    assert published.error is not None  # noqa: S101 (those without were left out)
    params = published_params(experiment, published, records[0].dense_params)
    theirs = Point(records[0].dense_macs if params is None else params, published.error)  # without widths it is whole
    title = experiment.network.title if experiment.network else experiment.title
    # Rows of ours may stand beside the same one: the first has its name, where it has no widths.
    name = published.architecture or _first_beside(experiment, published).partition(",")[0]
    unit = "parameters" if experiment.network else "MACs"
    return (
        f"{title}: {name} ({published.source})",
        f"{_short(theirs.size)} {unit}",
        published_error(published),
        _no_larger(ours, theirs.size),
        _no_worse(ours, theirs),
    )


def _first_beside(experiment: Experiment, published: Published) -> str:
    return next(row.label for row in experiment.rows if row.published == published)


def _no_larger(ours: Sequence[Point], size: float) -> str:
    """The least error within a size.

    >>> _no_larger([Point(10_000, 0.6), Point(3_000, 1.1), Point(30_000, 0.5)], 12_000)
    '0.60 at 10,000'
    """
    within = [point for point in ours if point.size <= size]
    if not within:
        return "none"
    best = min(within, key=lambda point: point.error)
    return f"{best.error:.2f}{best.spread} at {_short(best.size)}"


def _no_worse(ours: Sequence[Point], theirs: Point) -> str:
    """The least size with an error, read between the two networks beside it: log size is linear in error there.

    Networks that are larger than others and no better have no say.

    >>> _no_worse([Point(1_000, 1.2), Point(4_000, 0.8), Point(9_000, 0.6)], Point(8_000, 1.0))
    '2,000 (25 %)'
    >>> _no_worse([Point(1_000, 1.2), Point(2_000, 1.3), Point(4_000, 0.8)], Point(8_000, 1.0))
    '2,000 (25 %)'
    >>> _no_worse([Point(4_000, 0.8), Point(9_000, 0.6)], Point(8_000, 1.0))
    'at most 4,000 (50 %)'
    """
    every = sorted(ours)
    by_size = [point for k, point in enumerate(every) if all(point.error < smaller.error for smaller in every[:k])]
    good = next((k for k, point in enumerate(by_size) if point.error <= theirs.error), None)
    if good is None:
        return "none"
    worse, better = by_size[max(0, good - 1)], by_size[good]
    size = _between(worse, better, theirs.error) if good else better.size
    note = ONE_RUN if ONE_RUN in (worse.spread, better.spread) else ""
    return f"{'' if good else 'at most '}{_short(size)} ({size / theirs.size:.0%}){note}".replace("%", " %")


def _between(worse: Point, better: Point, error: float) -> float:
    part = (worse.error - error) / (worse.error - better.error)
    return worse.size * math.exp(part * math.log(better.size / worse.size))


def _of(row: Row, records: Sequence[Record]) -> list[Record]:
    return [record for record in records if record.row == row.label]


def _mean(experiment: Experiment, seeds: Sequence[Record]) -> Point:
    size = statistics.mean(seed.params if experiment.network else seed.macs for seed in seeds)
    errors = [100 * seed.error for seed in seeds]
    return Point(size, statistics.mean(errors), spread(errors))


def _short(size: float) -> str:
    return f"{size / 1e9:.2f} G" if size >= 1e9 else f"{size:,.0f}"
