"""Sites: sets of units that can be removed one by one, with where they are made and read; and what cannot, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lzero.structure.units import NONE, Ids

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lzero.structure.analysis import Analysis

INPUTS_OF = "inputs of "  # a layer: what units are called that no layer makes


@dataclass(frozen=True)
class Slice:
    """One dimension of one parameter or buffer."""

    tensor: str
    dim: int


@dataclass(frozen=True, eq=False)
class Site:
    """Units of one kind, such as the feature maps of a convolution or the heads of an attention."""

    name: str
    labels: tuple[int, ...]
    producers: tuple[Slice, ...]
    followers: tuple[Slice, ...]
    consumers: tuple[Slice, ...]
    least: int = 1  # how many the code needs

    @property
    def size(self) -> int:
        """The number of units."""
        return len(self.labels)


@dataclass(frozen=True)
class Pinned:
    """Units of parameters that cannot be removed, and why."""

    name: str
    size: int
    reason: str
    consumers: tuple[Slice, ...]


def find_sites(analysis: Analysis) -> tuple[list[Site], list[Pinned]]:
    """The removable and the pinned units of a model, in the order of its parameters."""
    read_by = _consumers(analysis)
    for label in _fixed_and_unread(analysis, read_by):
        read_by[label] = []
    held_by = _holders(analysis, set(read_by))
    groups: dict[tuple[int, str | None], list[int]] = {}
    for label in read_by:
        key = (analysis.units.axis_of(label), analysis.units.reason(label))
        groups.setdefault(key, []).append(label)
    depths = analysis.units.depths()
    several = {label for labels in analysis.several for label in _labels(analysis, labels)}
    sites: list[Site] = []
    pinned: list[Pinned] = []
    names: set[str] = set()
    for (_, reason), labels in groups.items():
        consumers = _ordered(s for label in labels for s in read_by[label])
        holders = [s for s in _ordered(s for label in labels for s in held_by[label]) if s not in consumers]
        inner = reason is None and (labels[0] in depths or _is_inner(analysis, labels[0], consumers))
        name = _unique_name(holders, consumers, names, "/inner" if inner else "")
        if reason is None and holders and len(labels) > 1:
            producers = tuple(s for s in holders if len(analysis.tensors[s.tensor]) > 1)
            followers = tuple(s for s in holders if len(analysis.tensors[s.tensor]) <= 1)
            least = 1 if several.isdisjoint(labels) else 2
            sites.append(Site(name, tuple(sorted(labels)), producers, followers, tuple(consumers), least))
        else:
            # As many zeros as code puts beside what a layer makes are nobody's.
            why = reason or ("the only unit that its layer makes" if holders else "made by no layer")
            pinned.append(Pinned(name, len(labels), why, tuple(consumers)))
    return sites, pinned


def _consumers(analysis: Analysis) -> dict[int, list[Slice]]:
    read_by: dict[int, list[Slice]] = {}
    for reading in analysis.readings:
        where = Slice(reading.parameter, reading.dim)
        own = set(_labels(analysis, analysis.tensors[where.tensor][where.dim].labels))
        for label in _labels(analysis, reading.labels):
            if label in own and where not in read_by.setdefault(label, []):
                read_by[label].append(where)
    return {label: where for label, where in read_by.items() if where}


def _holders(analysis: Analysis, wanted: set[int]) -> dict[int, list[Slice]]:
    held_by: dict[int, list[Slice]] = {label: [] for label in wanted}
    for name, value in analysis.tensors.items():
        for k, dim in enumerate(value):
            for label in wanted.intersection(_labels(analysis, dim.labels)):
                held_by[label].append(Slice(name, k))
    return held_by


def _labels(analysis: Analysis, labels: Ids) -> list[int]:
    resolved = analysis.units.resolve(labels)
    return [int(label) for label in dict.fromkeys(resolved[resolved != NONE].tolist())]


def _ordered(slices: Iterable[Slice]) -> list[Slice]:
    return list(dict.fromkeys(slices))


def _is_inner(analysis: Analysis, label: int, consumers: list[Slice]) -> bool:
    """Whether these units are a part of others, as the inner dimension of attention heads is."""
    tables = (analysis.units.resolve(analysis.tensors[where.tensor][where.dim].labels) for where in consumers)
    return any((table[:, 1:] == label).any() for table in tables)


def _unique_name(holders: list[Slice], consumers: list[Slice], taken: set[str], suffix: str) -> str:
    """The path of the module that makes the units; a number behind it where one module makes several kinds."""
    base = (holders or consumers)[0].tensor.rpartition(".")[0] or (holders or consumers)[0].tensor
    base = (base if holders else INPUTS_OF + base) + suffix
    name, count = base, 1
    while name in taken:
        count += 1
        name = f"{base}#{count}"
    taken.add(name)
    return name


def _fixed_and_unread(analysis: Analysis, read: Mapping[int, object]) -> list[int]:
    """Units of parameters that cannot be removed and that no parameter reads: outputs, unknown operations.

    Behind its first two dimensions a weight has the places of a kernel, which nobody takes for units.
    """
    dims = (dim for value in analysis.tensors.values() for dim in value[:2])
    labels = (label for dim in dims for label in _labels(analysis, dim.labels))
    return [label for label in dict.fromkeys(labels) if label not in read and analysis.units.reason(label) is not None]
