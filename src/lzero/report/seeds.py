"""Several trainings of one row: their mean, and how sure it is."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lzero.errors import LzeroError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lzero.reproduce.records import Record

# The 97.5 % quantile of Student's law for 1, 2, … degrees of freedom.
STUDENT = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
ENOUGH = 3  # runs for an interval: that of two is 13 times as wide as they differ
ONE_RUN = " (one run)"


def interval(numbers: Sequence[float]) -> float | None:
    """Half of the 95 % interval of the mean; none for fewer than `ENOUGH` numbers.

    >>> round(interval([1.0, 2.0, 3.0]), 3)
    2.484
    """
    count = len(numbers)
    if count < ENOUGH:
        return None
    quantile = STUDENT[count - 2] if count - 2 < len(STUDENT) else 1.96
    return quantile * statistics.stdev(numbers) / math.sqrt(count)


def spread(numbers: Sequence[float]) -> str:
    """How sure a mean is, in words behind it: its interval where there are enough runs, else how many there are.

    >>> spread([1.0]), spread([1.0, 2.0]), spread([1.0, 2.0, 3.0])
    (' (one run)', ' (2 runs)', ' ± 2.48')
    """
    half = interval(numbers)
    return f" ± {half:.2f}" if half is not None else f" ({len(numbers)} runs)" if len(numbers) > 1 else ONE_RUN


@dataclass(frozen=True)
class Course:
    """A mean over seeds at each place, and half of its interval; NaN where it is missing, which draws a gap."""

    places: list[float]
    mean: list[float]
    half: list[float]

    @property
    def is_known(self) -> bool:
        """Whether there is a number anywhere."""
        return not all(math.isnan(number) for number in self.mean)

    @property
    def has_band(self) -> bool:
        """Whether there is an interval anywhere; one or two seeds have none."""
        return not all(math.isnan(number) for number in self.half)

    def above_zero(self) -> Course:
        """The same without intervals that reach 0."""
        halves = [half if half < mean else math.nan for mean, half in zip(self.mean, self.half, strict=True)]
        return replace(self, half=halves)

    @property
    def alone(self) -> list[int]:
        """The numbers between two gaps, of which a line shows nothing."""
        gap = [True, *(math.isnan(number) for number in self.mean), True]
        return [k for k in range(len(self.mean)) if gap[k] and not gap[k + 1] and gap[k + 2]]


def by_row(records: Sequence[Record], what: str) -> dict[str, list[Record]]:
    """Records by their row, rows in the order in which they come first."""
    if not records:
        raise LzeroError(f"{what}: expected records of trainings, got none; run lzero reproduce first")
    rows: dict[str, list[Record]] = {record.row: [] for record in records}
    for record in records:
        rows[record.row].append(record)
    return rows


def over_epochs(records: Sequence[Record], numbers: Callable[[Record], list[float | None]]) -> Course:
    """The course of a row: a gap where any seed has no number, as a mean over fewer seeds would jump."""
    seeds = [dict(zip(record.curves["epoch"], numbers(record), strict=True)) for record in records]
    epochs = sorted({epoch for seed in seeds for epoch in seed if epoch is not None})
    return course(epochs, [[seed.get(epoch) for seed in seeds] for epoch in epochs])


def course(places: Sequence[float], seeds: Sequence[Sequence[float | None]]) -> Course:
    """The course of the numbers that all seeds have at each place.

    >>> course([1.0, 2.0], [[2.0, 4.0], [3.0, None]]).mean
    [3.0, nan]
    """
    whole = [_whole(numbers) for numbers in seeds]
    halves = [interval(numbers) for numbers in whole]
    return Course(
        list(places),
        [statistics.fmean(numbers) if numbers else math.nan for numbers in whole],
        [math.nan if half is None else half for half in halves],
    )


def _whole(numbers: Sequence[float | None]) -> list[float]:
    known = [number for number in numbers if number is not None]
    return known if len(known) == len(numbers) else []


def curve(record: Record, name: str, factor: float = 1.0) -> list[float | None]:
    """A curve of a record, times a factor; all of it missing where the record has none of this name."""
    numbers = record.curves.get(name, [None] * len(record.curves["epoch"]))
    return [None if number is None else factor * number for number in numbers]


def told(rows: Iterable[Sequence[object]]) -> str:
    """Of how many trainings each line and its band are made."""
    counts = sorted({len(records) for records in rows})
    if counts == [1]:
        return "one run each"
    count = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    if counts[-1] < ENOUGH:
        return f"mean of {count} runs"
    return f"mean of {count} runs, with its 95 % interval{'' if counts[0] >= ENOUGH else f' from {ENOUGH} on'}"
