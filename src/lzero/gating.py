"""Which gates a model gets: one for each unit, for single columns, or for single weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from numbers import Integral
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from lzero.errors import ArgumentError
from lzero.structure.sites import INPUTS_OF, Pinned, Site, Slice
from lzero.structure.units import NONE, Ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lzero.structure.frozen import Structure

UnitKind = Literal["structure", "paper", "weights"]
Globs = str | tuple[str, ...]
Columns = Sequence[Sequence[int]]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class GateGroup:
    """A stretch of gates: those of a site's units, of the columns of layers that read alike, or of single weights."""

    name: str
    start: int
    stop: int
    site: Site | None = None
    columns: tuple[Slice, ...] = ()
    elements: str | None = None
    together: Ids | None = None  # the gate of each column, from 0, where some share one

    @property
    def size(self) -> int:
        """How many gates it has."""
        return self.stop - self.start

    @property
    def span(self) -> slice:
        """Where its gates are in the flat vector."""
        return slice(self.start, self.stop)

    @property
    def gate_of_column(self) -> Ids:
        """The gate of each column, from 0."""
        return np.arange(self.size) if self.together is None else self.together

    def any_column(self, mask: Mask) -> Mask:
        """For each gate whether the mask has one of its columns."""
        return np.asarray(np.bincount(self.gate_of_column, weights=mask, minlength=self.size) > 0)

    def left(self, start: int, kept: Mask, site: Site | None) -> GateGroup:
        """What is left of the group, from a new start, where some of its gates are kept."""
        together = self.together
        if together is not None:
            together = (np.cumsum(kept) - 1)[together[kept[together]]]
        return replace(self, start=start, stop=start + int(kept.sum()), site=site, together=together)


INNER = "*/inner"  # the inner dimensions of heads: Python code seldom allows heads to be of different depth


def choose(names: Sequence[str], include: Globs, exclude: Globs) -> set[str]:
    """The names that match `include` and not `exclude`; a glob that matches nothing is an error."""
    chosen = _matching(names, include, "include")
    return chosen - (_matching(names, exclude, "exclude") if exclude else set())


def _matching(names: Sequence[str], globs: Globs, argument: str) -> set[str]:
    matched: set[str] = set()
    for glob in (globs,) if isinstance(globs, str) else globs:
        if not isinstance(glob, str):
            raise ArgumentError.about(argument, expected="a glob, or several", got=repr(glob))
        hits = {name for name in names if fnmatchcase(name, glob)}
        if not hits and glob not in ("*", INNER):
            advice = "inputs of dense layers have gates with inputs=True" if glob.startswith(INPUTS_OF) else None
            expected = f"globs that match one of {', '.join(names) or 'no names'}"
            raise ArgumentError.about(argument, expected=expected, got=repr(glob), advice=advice)
        matched |= hits
    return matched


def first_matches(names: Sequence[str], globs: Iterable[str], argument: str) -> dict[str, tuple[str, ...]]:
    """For each glob the names that it is the first to match; a glob that matches nothing is an error."""
    left, found = list(names), {}
    for glob in globs:
        matched = _matching(names, glob, argument)
        found[glob] = tuple(name for name in left if name in matched)
        if not found[glob]:
            expected = "globs that each add something"
            raise ArgumentError.about(argument, expected=expected, got=f"{glob!r}, all of it matched by those before")
        left = [name for name in left if name not in matched]
    return found


def unit_groups(sites: Iterable[Site]) -> list[GateGroup]:
    """One gate for each unit."""
    groups, start = [], 0
    for site in sites:
        groups.append(GateGroup(site.name, start, start + site.size, site=site))
        start += site.size
    return groups


def inputs_of(weight: str) -> str:
    """What the gates on a dense layer's inputs are called, by the name of its weight."""
    return INPUTS_OF + (weight.rpartition(".")[0] or weight)


def column_groups(
    structure: Structure,
    pinned: Sequence[Pinned],
    matrices: set[str],
    start: int,
    labels: Callable[[Slice], Ids],
    together: Columns = (),
) -> list[GateGroup]:
    """One gate for each input of a dense layer that has no unit of its own: raw inputs, flattened feature maps.

    A column of raw inputs that several layers read is one input, with one gate for all of them. Columns of raw inputs
    that go together have one gate.
    """
    # One layer may read several kinds of fixed units, as rows and columns of pixels: its inputs have one gate each.
    inputs = [where for each in pinned if each.reason.startswith("model input") for where in each.consumers]
    wanted: dict[Slice, Ids | None] = {**dict.fromkeys(inputs), **structure.readers}
    alike: dict[object, list[Slice]] = {}
    for where, units in wanted.items():
        if where.tensor in matrices and not _one_to_one(units):
            read = labels(where)
            alike.setdefault(where if where in structure.readers else (read.shape, read.tobytes()), []).append(where)
    if together:
        _check_alone([several[0] for several in alike.values() if several[0] not in structure.readers])
    groups = []
    for several in alike.values():
        first = several[0]
        size = len(structure.tensors[first.tensor][first.dim])
        shared = _gate_of_column(together, size) if together and first not in structure.readers else None
        count = size if shared is None else int(shared.max()) + 1
        columns = tuple(several)
        groups.append(GateGroup(inputs_of(first.tensor), start, start + count, columns=columns, together=shared))
        start += count
    return groups


def _check_alone(tables: Sequence[Slice]) -> None:
    """Refuse columns that go together where it does not say of which table."""
    if len(tables) != 1:
        got = ", ".join(inputs_of(where.tensor) for where in tables) or "none"
        expected, advice = "columns of one table that dense layers read as it is", "choose it by include"
        raise ArgumentError.about("inputs", expected=expected, got=got, advice=advice)


def _gate_of_column(together: Columns, size: int) -> Ids:
    """The gate of each column: those that go together come first, the others have one each."""
    named = [column for columns in together for column in columns]
    whole = all(isinstance(column, Integral) and 0 <= column < size for column in named)
    if not whole or len(set(named)) != len(named) or not all(len(columns) for columns in together):
        expected = f"True, or lists of columns that go together: whole numbers from 0 to {size - 1}, each in one list"
        raise ArgumentError.about("inputs", expected=expected, got=repr(together))
    gates = np.full(size, NONE)
    for gate, columns in enumerate(together):
        gates[list(columns)] = gate
    gates[gates == NONE] = len(together) + np.arange((gates == NONE).sum())
    return gates


def _one_to_one(units: Ids | None) -> bool:
    if units is None or units.shape[1] != 1:
        return False
    return bool((units != NONE).all()) and len(np.unique(units)) == len(units)


def element_groups(structure: Structure, names: Sequence[str], start: int) -> list[GateGroup]:
    """One gate for each weight."""
    groups = []
    for name in names:
        size = int(np.prod([len(units) for units in structure.tensors[name]]))
        groups.append(GateGroup(name, start, start + size, elements=name))
        start += size
    return groups
