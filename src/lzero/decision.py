"""What stays: liveness of units, from the gates of the test-time network."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from lzero.arguments import whole
from lzero.errors import LzeroError, NotFiniteError
from lzero.structure.units import NONE, Ids

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lzero.gating import GateGroup
    from lzero.sparsifier import Sparsifier
    from lzero.structure.frozen import Structure
    from lzero.structure.sites import Site, Slice

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Decision:
    """Which units stay, which columns of the layers that choose their inputs, and the value of every gate."""

    units: Mask
    columns: dict[Slice, Mask]
    gates: torch.Tensor

    def positions(self, table: Ids) -> Mask:
        """Which positions of a dimension stay."""
        return _alive(self.units, table)

    def kept(self, structure: Structure, where: Slice) -> Mask:
        """Which positions of a parameter's dimension stay."""
        return self.positions(structure.tensors[where.tensor][where.dim]) & self.columns.get(where, np.True_)


def _alive(units: Mask, table: Ids) -> Mask:
    """Which positions of a dimension live: those whose units all do."""
    return np.asarray(np.where(table == NONE, True, units[table]).all(axis=1))


def decide(sparsifier: Sparsifier, round_to: int = 1) -> Decision:
    """Keep what is open and read; of a width that would be empty, its likeliest position, with weights of zero.

    With `round_to`, widths are made divisible by it by keeping the likeliest of the closed units.
    """
    check_memory(sparsifier)
    with torch.no_grad():
        gates = sparsifier.estimate().cpu()
    return decide_from(sparsifier, gates, round_to)


def check_memory(sparsifier: Sparsifier) -> None:
    """Refuse gates that have no values yet."""
    if sparsifier.log_alpha.is_meta:
        advice = "give it memory and weights, by model.to_empty(device=…) and load_state_dict"
        raise LzeroError(f"the model is on the meta device, where gates have no values; {advice}")


def _check_numbers(sparsifier: Sparsifier, gates: torch.Tensor) -> None:
    """Refuse gates that are no numbers: they would count as closed."""
    if bad := [group.name for group in sparsifier.groups if gates[group.span].isnan().any()]:
        raise NotFiniteError(f"the gates of {', '.join(bad)} are not finite; go back to the last checkpoint")


def decide_from(
    sparsifier: Sparsifier, gates: torch.Tensor, round_to: int = 1, log_alpha: torch.Tensor | None = None
) -> Decision:
    """The decision for given values of the gates, and for log α of its own where they are about to be moved."""
    round_to = whole("round_to", round_to)
    check_memory(sparsifier)
    _check_numbers(sparsifier, gates)
    structure, gate_of_unit = sparsifier.structure, sparsifier.gate_of_unit
    is_open = np.append(gates.numpy() > 0, True)
    log_alpha = sparsifier.log_alpha.detach() if log_alpha is None else log_alpha
    location = np.append(log_alpha.cpu().numpy(), 0.0)
    units = is_open[gate_of_unit]
    groups = {where: group for group in sparsifier.groups for where in group.columns}
    columns = {where: is_open[group.span][group.gate_of_column] for where, group in groups.items()}
    elements = {g.elements: is_open[g.span] for g in sparsifier.groups if g.elements}
    units = units & read_units(structure, units, columns, elements)
    for site in structure.sites:
        span = structure.span(site)
        likeliest_first = np.argsort(-location[gate_of_unit[span]], kind="stable")
        units[span] = _at_least(units[span], likeliest_first, _step(structure, site, round_to), site.least)
    _fill_empty(structure, units, location[gate_of_unit])
    decision = Decision(units, {}, gates)
    kept = {where: _columns(decision, structure, where, mask, groups[where]) for where, mask in columns.items()}
    return Decision(units, kept, gates)


def read_units(
    structure: Structure, units: Mask, columns: dict[Slice, Mask], elements: Mapping[str, Mask] = MappingProxyType({})
) -> Mask:
    """Which units some layer reads: through an open column, with a weight that is not closed."""
    read = np.zeros(len(units), dtype=bool)
    for where, table in structure.readers.items():
        position = _alive(units, table) & columns.get(where, np.True_)
        if where.tensor in elements:
            shape = [len(dim) for dim in structure.tensors[where.tensor]]
            weights = elements[where.tensor].reshape(shape)
            position &= weights.any(axis=tuple(k for k in range(len(shape)) if k != where.dim))
        seen = table[position]
        read[seen[seen != NONE]] = True
    return read


def _step(structure: Structure, site: Site, round_to: int) -> int:
    """How many units make a width divisible by `round_to`, where each unit has several positions."""
    span = structure.span(site)
    for where in (*site.producers, *site.consumers):
        table = structure.tensors[where.tensor][where.dim]
        positions = int((table == span.start).sum())
        if positions:
            return round_to // math.gcd(round_to, positions)
    return round_to


def _at_least(keep: Mask, likeliest_first: Ids, step: int, least: int) -> Mask:
    """Those that stay, and as many of the likeliest others as make a multiple of `step`, and `least` in all."""
    wanted = min(len(keep), math.ceil(max(keep.sum(), least) / step) * step)
    closed = likeliest_first[~keep[likeliest_first]]
    keep = keep.copy()
    keep[closed[: max(0, wanted - int(keep.sum()))]] = True
    return keep


def _fill_empty(structure: Structure, units: Mask, location: NDArray[np.float64]) -> None:
    """No dimension may lose all its positions: torch has no layers of width 0."""
    likelihood = np.append(location, np.inf)
    for table in (*(table for dims in structure.tensors.values() for table in dims), *structure.activations):
        if table.size and not _alive(units, table).any():
            best = table[int(np.argmax(likelihood[table].min(axis=1)))]
            units[best[best != NONE]] = True


def _columns(decision: Decision, structure: Structure, where: Slice, mask: Mask, group: GateGroup) -> Mask:
    """The open columns of units that stay; those of one gate, with weights of zero, where there would be none."""
    alive = decision.positions(structure.tensors[where.tensor][where.dim])
    kept = alive & mask
    if not kept.any():
        gates = group.gate_of_column
        kept = alive & (gates == gates[np.flatnonzero(alive)[0]])
    return np.asarray(kept)
