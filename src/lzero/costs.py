"""What a network costs: L0 groups, parameters, multiply–accumulates; expected under the gates, or for what is kept.

One count serves both. It is a sum of products of widths, $\\sum_t c_t \\prod_d w_{td}$, and a width is a sum over
positions of the probability that every unit there is alive. With probabilities of 0 and 1 it counts what is left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lzero.structure.sites import Slice
from lzero.structure.units import NONE, Ids
from lzero.tensors import last_product

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lzero.decision import Decision
    from lzero.gating import GateGroup
    from lzero.sparsifier import Sparsifier
    from lzero.structure.frozen import Extent, Structure

Cost = Literal["l0", "gates", "params", "macs"]
OF_GATES: tuple[Cost, ...] = ("l0", "gates")  # sums over gates; the others are those of the network that is left


@dataclass(frozen=True, eq=False)
class Widths:
    """The widths that can change: for each position of each, the units and columns that must be alive."""

    members: Tensor  # [positions, arity]
    width_of: Tensor  # [positions]
    count: int

    def to(self, device: torch.device) -> Widths:
        """The same on another device."""
        return replace(self, members=self.members.to(device), width_of=self.width_of.to(device))

    def __call__(self, alive: Tensor) -> Tensor:
        """Every width, `[count + 1]`; the last is 1, for terms with fewer factors."""
        padded = torch.cat([alive, alive.new_ones(1)])
        widths = alive.new_zeros(self.count).index_add(0, self.width_of, last_product(padded[self.members]))
        return torch.cat([widths, alive.new_ones(1)])


@dataclass(frozen=True, eq=False)
class Terms:
    """A sum of products of widths: factors `[terms, arity]`, constants `[terms]`, and the parameter each belongs to."""

    factors: Tensor
    constants: Tensor
    owners: tuple[str, ...]

    def to(self, device: torch.device) -> Terms:
        """The same on another device."""
        return replace(self, factors=self.factors.to(device), constants=self.constants.to(device))

    def __call__(self, widths: Tensor) -> Tensor:
        """Every term, `[terms]`."""
        return self.constants.to(widths) * last_product(widths[self.factors])


class Costs:
    """The costs of a sparsified model, as functions of how alive its units and columns are: in 0 … 1, in this order."""

    def __init__(self, sparsifier: Sparsifier, structure: Structure | None = None) -> None:
        structure = structure or sparsifier.structure
        self._columns, self._column_spans, self.num_alive = _column_places(sparsifier, structure.num_units)
        self._spans = [structure.span(site) for site in structure.sites]
        self._sites = [site.name for site in structure.sites]
        self._tables: list[Ids] = []
        self._known: dict[bytes, int] = {}
        parameters = {structure.aliases[n] for n, _ in sparsifier.model.named_parameters() if n in structure.aliases}
        self.params = self._terms(
            (name, [(units, Slice(name, k)) for k, units in enumerate(dims)])
            for name, dims in structure.tensors.items()
            if name in parameters
        )
        self.macs = self._terms(
            (_owner(product), [(e.units, e.reader) for e in product]) for product in structure.products
        )
        self.widths = self._widths()

    def _terms(self, products: Iterable[tuple[str, list[tuple[Ids, Slice | None]]]]) -> Terms:
        rows: list[list[int]] = []
        constants: list[float] = []
        owners: list[str] = []
        for owner, product in products:
            owners.append(owner)
            constant, row = 1.0, []
            for units, reader in product:
                table = self.members(units, reader)
                if table is None:
                    constant *= len(units)
                else:
                    row.append(self._number(table))
            rows.append(row)
            constants.append(constant)
        longest = max(map(len, rows), default=0)
        padded = [row + [NONE] * (longest - len(row)) for row in rows]
        factors = torch.tensor(padded, dtype=torch.int64, device="cpu").reshape(len(rows), longest)
        return Terms(factors, torch.from_numpy(np.asarray(constants, dtype=np.float64)), tuple(owners))

    def members(self, units: Ids, reader: Slice | None) -> Ids | None:
        """Who must be alive at each position of a dimension, one past the last for nobody; None where it is so in all.

        `units` is its table, `reader` the place of its columns.
        """
        table = np.where(units == NONE, self.num_alive, units)
        if reader in self._columns:
            table = np.concatenate([table, self._columns[reader][:, None]], axis=1)
        return table if (table != self.num_alive).any() else None

    def _number(self, table: Ids) -> int:
        key = np.ascontiguousarray(table).tobytes() + bytes(str(table.shape), "ascii")
        if key not in self._known:
            self._known[key] = len(self._tables)
            self._tables.append(table)
        return self._known[key]

    def _widths(self) -> Widths:
        arity = max((table.shape[1] for table in self._tables), default=1)
        members = [np.pad(t, ((0, 0), (0, arity - t.shape[1])), constant_values=self.num_alive) for t in self._tables]
        width_of = np.repeat(np.arange(len(self._tables)), [len(table) for table in self._tables])
        empty = np.empty((0, arity), dtype=np.int64)
        return Widths(
            torch.from_numpy(np.concatenate([empty, *members])), torch.from_numpy(width_of), len(self._tables)
        )

    def __call__(self, cost: Literal["params", "macs"], alive: Tensor) -> Tensor:
        """One cost, differentiable in `alive`."""
        return self.terms(cost)(self.widths(alive)).sum()

    def all_alive(self) -> Tensor:
        """Every unit and column there is."""
        return torch.ones(self.num_alive, dtype=torch.float64, device="cpu")

    def per_site(self, cost: Literal["params", "macs"], alive: Tensor) -> Tensor:
        """The cost of all that a site's units touch, `[sites]`: what makes them, follows them and reads them.

        A weight between two sites counts for both.
        """
        terms = self.terms(cost)
        touched = [self.touched(cost, [span]) for span in self._spans]
        return (torch.stack(touched).to(alive) * terms(self.widths(alive))).sum(-1) if touched else alive.new_zeros(0)

    def terms(self, cost: Literal["params", "macs"]) -> Terms:
        """The sum that one cost is."""
        return {"params": self.params, "macs": self.macs}[cost]

    def touched(self, cost: Literal["params", "macs"], spans: Iterable[slice]) -> Tensor:
        """Which terms have a width with units or columns in the given spans, `[terms]`."""
        members, of_width = self.widths.members, torch.zeros(self.widths.count + 1, dtype=torch.bool, device="cpu")
        for span in spans:
            of_width[self.widths.width_of[((members >= span.start) & (members < span.stop)).any(-1)]] = True
        return of_width[self.terms(cost).factors].any(-1)

    def span_of(self, group: GateGroup) -> slice:
        """Where the units or columns of a group stand in `alive`; nowhere for the gates of single weights."""
        if group.site is not None:
            return self._spans[self._sites.index(group.site.name)]
        return self._column_spans.get(group.name, slice(0, 0))


def _owner(product: tuple[Extent, ...]) -> str:
    """The parameter a product of activations and weights belongs to."""
    return next((extent.reader.tensor for extent in product if extent.reader), "products of activations")


def _column_places(sparsifier: Sparsifier, start: int) -> tuple[dict[Slice, Ids], dict[str, slice], int]:
    """Where columns with gates stand, behind the units: each of a reader's, those of each group, and where they end."""
    places: dict[Slice, Ids] = {}
    spans: dict[str, slice] = {}
    for group in sparsifier.groups:
        if group.columns:
            places |= dict.fromkeys(group.columns, start + group.gate_of_column)
            spans[group.name] = slice(start, start + group.size)
            start += group.size
    return places, spans, start


def expected_alive(sparsifier: Sparsifier, probability: Tensor) -> Tensor:
    """How alive units and columns are when gates are open with the given probability."""
    count = sparsifier.structure.num_units
    gated = sparsifier.gates_units
    units = probability[:count] if gated else probability.new_ones(count)
    return torch.cat([units, *(probability[g.span] for g in sparsifier.groups if g.columns)])


def decided_alive(sparsifier: Sparsifier, decision: Decision) -> Tensor:
    """The same for a decision: 0 or 1, in double precision."""
    columns = [g.any_column(decision.columns[g.columns[0]]) for g in sparsifier.groups if g.columns]
    return torch.from_numpy(np.concatenate([decision.units, *columns]).astype(np.float64))


def gates_of_alive(sparsifier: Sparsifier, values: Tensor) -> Tensor:
    """Numbers for units and columns, `[…, alive]`, as numbers for gates, `[…, gates]`; 0 for the gates of weights."""
    gates = values.new_zeros(*values.shape[:-1], sparsifier.num_gates)
    for group in sparsifier.groups:
        if group.elements is None:
            gates[..., group.span] = values[..., sparsifier.costs.span_of(group)]
    return gates


def l0_weights(sparsifier: Sparsifier) -> Tensor:
    """$|g|$ of each gate as the papers count it (Eq. 16).

    A feature map counts the weights and the bias that make it, an input of a dense layer the weights that read it; but
    where it is a unit's only one there, that unit has counted them.
    """
    structure = sparsifier.structure
    sizes = {name: [len(units) for units in dims] for name, dims in structure.tensors.items()}
    weights, read = np.ones(sparsifier.num_gates), np.zeros(structure.num_units, dtype=bool)
    for group in sparsifier.groups:
        if group.site is None:
            continue
        makers = [s for s in group.site.producers if len(sizes[s.tensor]) > 2]
        biases = [s for s in group.site.followers if any(_module(s) == _module(m) for m in makers)]
        counted = [*makers, *biases] if makers else list(group.site.consumers)
        weights[group.span] = sum(_per_unit(structure.tensors[s.tensor], s, group.span) for s in counted)
        read[group.span] = not makers
    for group in sparsifier.groups:
        for k, where in enumerate(group.columns):
            each = math.prod(sizes[where.tensor]) / sizes[where.tensor][where.dim]
            gates = group.gate_of_column
            own = np.where(_counted(structure.readers.get(where), read, len(gates)), 0.0, each)
            total = np.bincount(gates, weights=own, minlength=group.size)
            weights[group.span] = total if k == 0 else weights[group.span] + total
    return torch.from_numpy(weights)


def _counted(units: Ids | None, read: NDArray[np.bool_], size: int) -> NDArray[np.bool_]:
    """Columns that are the only one of a unit which counts the weights that read it."""
    if units is None:
        return np.zeros(size, dtype=bool)
    columns = np.bincount(units[units != NONE], minlength=len(read))
    alone = (units != NONE) & (read & (columns == 1))[units]
    return np.asarray(alone.any(axis=1) & ((units != NONE).sum(axis=1) == 1))


def _module(where: Slice) -> str:
    return where.tensor.rpartition(".")[0]


def _per_unit(dims: tuple[Ids, ...], where: Slice, span: slice) -> NDArray[np.float64]:
    """How many numbers of a tensor belong to each unit."""
    others = np.prod([len(units) for k, units in enumerate(dims) if k != where.dim])
    units = dims[where.dim]
    mine = units[(units >= span.start) & (units < span.stop)] - span.start
    return np.bincount(mine, minlength=span.stop - span.start).astype(np.float64) * float(others)
