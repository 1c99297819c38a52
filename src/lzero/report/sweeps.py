"""A sweep as a table: what each combination of settings costs and gives."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lzero.errors import LzeroError
from lzero.report.run import number
from lzero.report.seeds import interval
from lzero.report.words import MISSING
from lzero.training.table import SEED, Point, settings_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MEASURED = ("error", "macs_share", "params_share")


@dataclass(frozen=True, eq=False)
class Combination:
    """Settings, and what the trainings with them came to, one for each seed."""

    settings: Mapping[str, Any]
    rows: Sequence[Point]

    def numbers(self, name: str) -> list[float]:
        """One of what was measured, for each seed."""
        return [row[name] for row in self.rows]

    def mean(self, name: str) -> float:
        """Its mean over seeds."""
        return statistics.fmean(self.numbers(name))


def combinations(rows: Sequence[Point]) -> list[Combination]:
    """The combinations of a sweep, in the order in which they come first.

    >>> rows = [{"optimizer.lr": 0.1, "error": error, "macs_share": 1, "params_share": 1} for error in (2, 4)]
    >>> [(each.settings, each.mean("error")) for each in combinations(rows)]
    [({'optimizer.lr': 0.1}, 3.0)]
    """
    if not rows:
        raise LzeroError("expected a sweep with trainings that are finished, got none; go on with --resume")
    found: dict[str, list[Point]] = {}
    keys = [key for key in settings_of(rows) if key != SEED]
    for row in rows:
        if any(key not in row for key in keys) or any(number(row.get(name)) is None for name in MEASURED):
            raise LzeroError(f"expected a row with {', '.join((*keys, *MEASURED))}, got {row}")
        found.setdefault(repr([row[key] for key in keys]), []).append(row)
    return [Combination({key: same[0][key] for key in keys}, same) for same in found.values()]


def columns(combined: Sequence[Combination]) -> tuple[str, ...]:
    """What `line` tells of each combination."""
    return (*combined[0].settings, "error", "± (95 %)", "of MACs", "of parameters")


def line(combination: Combination) -> tuple[str, ...]:
    """Settings, the error in the mean over seeds with its 95 % interval, and what is left."""
    half = interval(combination.numbers("error"))
    shares = (f"{combination.mean(name):.1%}" for name in ("macs_share", "params_share"))
    error = f"{combination.mean('error'):.2%}", MISSING if half is None else f"{half:.2%}"
    return (*map(str, combination.settings.values()), *error, *shares)
