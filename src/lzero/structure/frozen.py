"""The structure of a model without its graph: plain arrays that can be copied, pickled and saved."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from lzero.errors import LzeroError
from lzero.structure.sites import Slice, find_sites
from lzero.structure.units import NONE, Dim, Ids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lzero.structure.analysis import Analysis
    from lzero.structure.sites import Pinned, Site


@dataclass(frozen=True, eq=False)
class Extent:
    """One dimension in a count: the units of each position, `[size, arity]`, and the parameter it is read through."""

    units: Ids
    reader: Slice | None = None


@dataclass(frozen=True, eq=False)
class Structure:
    """Removable units, numbered 0 … in the order of the sites, and where they are in every tensor and product."""

    sites: tuple[Site, ...]
    pinned: tuple[Pinned, ...]
    tensors: dict[str, tuple[Ids, ...]]  # the units of each position of each dimension, −1 for none
    readers: dict[Slice, Ids]  # the same for the dimensions where gates act: the units read there
    products: tuple[tuple[Extent, ...], ...]
    activations: tuple[Ids, ...]  # the same for the dimensions of what is computed, each make-up once
    aliases: dict[str, str]
    inputs: dict[Slice, Ids] = field(default_factory=dict)  # the same for what a layer chooses its columns from
    norms: dict[str, Ids] = field(default_factory=dict)  # the same for the channels of norms without a weight, by path

    @cached_property
    def _starts(self) -> dict[str, int]:
        starts = [0, *accumulate(site.size for site in self.sites)]
        return {site.name: start for site, start in zip(self.sites, starts, strict=False)}

    @cached_property
    def num_units(self) -> int:
        """How many units there are."""
        return sum(site.size for site in self.sites)

    def has_units(self, name: str) -> bool:
        """Whether a parameter or buffer has positions that can be removed."""
        return any(table.size for table in self.tensors.get(name, ()))

    def given(self, where: Slice) -> Ids:
        """The units of each input that a layer is given: more than its columns where it chooses."""
        return self.inputs.get(where, self.tensors[where.tensor][where.dim])

    def span(self, site: Site) -> slice:
        """The numbers of a site's units."""
        start = self._starts[site.name]
        return slice(start, start + site.size)


class Numbering:
    """The units of a dimension by number, in the order of the given sites; −1 for positions without."""

    def __init__(self, analysis: Analysis, sites: Sequence[Site]) -> None:
        self.number = {label: k for k, label in enumerate(label for site in sites for label in site.labels)}
        self._units = analysis.units
        self._known: dict[int, tuple[Dim, Ids]] = {}

    def __call__(self, dim: Dim) -> Ids:
        """The table of units, `[size, arity]`."""
        if id(dim) not in self._known:
            resolved = self._units.resolve(dim.labels)
            flat = [self.number.get(label, NONE) for label in resolved.ravel().tolist()]
            table = np.array(flat, dtype=np.int64).reshape(resolved.shape)
            self._known[id(dim)] = dim, table[:, (table != NONE).any(axis=0)]
        return self._known[id(dim)][1]


def freeze(analysis: Analysis, sites: list[Site], pinned: list[Pinned]) -> Structure:
    """The structure of the given sites; all other units count as fixed."""
    of = Numbering(analysis, sites)
    readers: dict[Slice, Ids] = {}
    for site in sites:
        for where in site.consumers:
            units = of(analysis.tensors[where.tensor][where.dim])
            mine = np.isin(units, [of.number[label] for label in site.labels])
            kept = np.where(mine, units, readers.get(where, np.full_like(units, NONE)))
            readers[where] = kept
    return Structure(
        tuple(sites),
        tuple(pinned),
        {name: tuple(of(dim) for dim in value) for name, value in analysis.tensors.items()},
        readers,
        tuple(tuple(_extent(dim, of(dim)) for dim in product.dims) for product in analysis.products),
        _activations(analysis, of),
        analysis.aliases,
        {Slice(analysis.aliases[name], 1): of(dim) for name, dim in analysis.inputs.items()},
        {path: of(dim) for path, dim in analysis.norms.items()},
    )


def same_sites(analysis: Analysis, structure: Structure) -> list[Site]:
    """The sites of a structure in another analysis of its model.

    A unit that is left alone may not be seen there, as a lone head, which no view tells apart from its depth: it keeps
    its number under a label that nothing has, since it cannot be removed.
    """
    found = {site.name: site for site in find_sites(analysis)[0]}
    lone = {
        site.name: replace(site, labels=(NONE - 1 - k,)) for k, site in enumerate(structure.sites) if site.size == 1
    }
    sites = [found.get(site.name, lone.get(site.name)) for site in structure.sites]
    same = [site for site, before in zip(sites, structure.sites, strict=True) if site and site.size == before.size]
    if len(same) < len(sites):
        raise LzeroError("with these inputs the model runs other operations than when it was sparsified; do that again")
    return same


def _activations(analysis: Analysis, of: Numbering) -> tuple[Ids, ...]:
    found: dict[tuple[tuple[int, ...], bytes], Ids] = {}
    for value in analysis.values.values():
        for each in value if isinstance(value, list) else [value]:
            for dim in each or ():
                table = of(dim)
                if table.size:
                    found.setdefault((table.shape, table.tobytes()), table)
    return tuple(found.values())


def _extent(dim: Dim, units: Ids) -> Extent:
    readers = [Slice(*source) for source in dim.sources]
    return Extent(units, readers[0] if len(readers) == 1 else None)
