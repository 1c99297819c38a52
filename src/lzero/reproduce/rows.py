"""What an experiment is: rows of a table, each a recipe with changes, beside what was published."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lzero.report.paper_networks import PaperNetwork

DENSE = ("gates.units=none", "objective.kind=none")  # changes that leave a recipe's network without gates
LOUIZOS, GALLEGO = "Louizos et al. 2018", "Gallego-Posada et al. 2021"
ZAGORUYKO = "Zagoruyko & Komodakis 2016"  # whose numbers Louizos et al. give beside their own


@dataclass(frozen=True)
class Row:
    """One line of a table: a recipe with changes, and the numbers of the paper, errors in percent."""

    label: str
    recipe: str
    changes: tuple[str, ...] = ()
    source: str = ""
    architecture: str = ""
    error: float | None = None  # at the end, where the paper gives it
    best: float | None = None  # over the training


@dataclass(frozen=True)
class Experiment:
    """A table: its rows, how it is made small, and the network whose layers it tells, where papers tell them."""

    name: str
    title: str
    rows: tuple[Row, ...]
    seeds: int
    quick: tuple[str, ...]
    network: PaperNetwork | None = None

    def settings(self, row: Row, *, quick: bool) -> list[str]:
        """The changes to a row's recipe."""
        return [*row.changes, *(self.quick if quick else ())]
