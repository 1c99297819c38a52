"""What an experiment is: rows of a table, each a recipe with changes, beside what was published."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from lzero.report.paper_networks import PaperNetwork

DENSE = ("gates.units=none", "objective.kind=none")  # changes that leave a recipe's network without gates
LOUIZOS, GALLEGO = "Louizos et al. 2018", "Gallego-Posada et al. 2021"
ZAGORUYKO = "Zagoruyko & Komodakis 2016"  # whose numbers Louizos et al. give beside their own


class Published(NamedTuple):
    """A result of others: who tells of it, the widths of its network where they are given, and errors in percent."""

    source: str
    architecture: str = ""
    error: float | None = None  # at the end, where they give it
    best: float | None = None  # over the training


@dataclass(frozen=True)
class Row:
    """One line of a table: a recipe with changes, and what was published; rows of our own have nothing beside them."""

    label: str
    recipe: str
    changes: tuple[str, ...] = ()
    published: Published | None = None


@dataclass(frozen=True)
class Experiment:
    """A table: its rows, how it is made small, the network whose layers it tells, where papers tell them.

    `compared` are networks that the papers compare with and give no setting of.
    """

    name: str
    title: str
    rows: tuple[Row, ...]
    seeds: int
    quick: tuple[str, ...]
    network: PaperNetwork | None = None
    compared: tuple[Published, ...] = ()

    @property
    def published(self) -> tuple[Published, ...]:
        """Every network with an error that stands beside a row, or is compared with, once."""
        beside = (row.published for row in self.rows if row.published)
        return tuple(dict.fromkeys(each for each in (*beside, *self.compared) if each.error is not None))

    def settings(self, row: Row, *, quick: bool) -> list[str]:
        """The changes to a row's recipe."""
        return [*row.changes, *(self.quick if quick else ())]
