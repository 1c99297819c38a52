"""Norms of the weights that belong to a unit: those that make it, and those that read it, layer by layer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from lzero.per_structure import PerStructure
from lzero.wiring import check_parts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lzero.gating import GateGroup
    from lzero.sparsifier import Sparsifier
    from lzero.structure.sites import Slice

TINY = 1e-20  # the square of a norm that counts as 0, where it has no gradient


@dataclass(frozen=True, eq=False)
class Layer:
    """The units of a group of gates in one dimension of one weight: where they are, and how many weights each has."""

    where: Slice
    makes: bool  # or reads
    positions: Tensor
    gates: Tensor  # of these positions
    sizes: Tensor  # [gates of the model], 0 for those of other groups

    def squares(self, weight: Tensor) -> Tensor:
        """The sum of squares of each gate's weights, `[gates of the model]`."""
        others = [dim for dim in range(weight.dim()) if dim != self.where.dim]
        found = weight.square().sum(others)[self.positions]
        return found.new_zeros(len(self.sizes)).index_add(0, self.gates, found)


class UnitNorms:
    """The norms of a sparsified model's units, as its weights stand when they are asked for."""

    def __init__(self, sparsifier: Sparsifier) -> None:
        self._sparsifier = sparsifier
        self._layers = PerStructure(sparsifier, self._make)

    def total(self) -> Tensor:
        r"""$\sum_g \sqrt{|g|}\,\lVert\theta_g\rVert_2$; a unit has one group of weights in every layer it touches."""
        squares, sizes = self._squares()
        return (sizes.sqrt() * squares.clamp_min(TINY).sqrt()).sum()

    @torch.no_grad()
    def relative(self) -> Tensor:
        """Root mean squares of what makes a unit times what reads it, over the largest of its group, `[gates]`.

        To scale one up and the other down changes nothing, and no group loses all its units before another does.
        """
        squares, sizes = self._squares()
        makes = torch.tensor(
            [layer.makes for layer in self._layers(self._sparsifier.log_alpha.device)], device=squares.device
        )
        norms = torch.ones_like(squares[0])
        for side in (makes, ~makes):
            total, count = squares[side].sum(0), sizes[side].sum(0)
            norms *= torch.where(count > 0, total / count.clamp_min(1), 1.0).sqrt()
        for group in self._sparsifier.groups:
            norms[group.span] /= norms[group.span].max().clamp_min(TINY)
        return norms

    def _squares(self) -> tuple[Tensor, Tensor]:
        """Sums of squares, and how many there are, `[layers, gates]`."""
        layers, parameters = (
            self._layers(self._sparsifier.log_alpha.device),
            dict(self._sparsifier.model.named_parameters()),
        )
        squares = [layer.squares(parameters[layer.where.tensor]) for layer in layers]
        return torch.stack(squares), torch.stack([layer.sizes for layer in layers])

    def _make(self, device: torch.device) -> list[Layer]:
        check_parts(self._sparsifier)
        return [layer for group in self._sparsifier.groups for layer in self._find(group, device)]

    def _find(self, group: GateGroup, device: torch.device) -> Iterator[Layer]:
        structure, count = self._sparsifier.structure, self._sparsifier.num_gates
        names = {name for name, _ in self._sparsifier.model.named_parameters()}
        for where, makes in _places(group):
            sizes = [len(table) for table in structure.tensors[where.tensor]]
            if where.tensor not in names:  # a buffer
                continue
            if group.site is None:
                positions, gates = np.arange(sizes[where.dim]), group.start + group.gate_of_column
            else:
                span, units = structure.span(group.site), structure.tensors[where.tensor][where.dim]
                positions, which = ((units >= span.start) & (units < span.stop)).nonzero()
                gates = units[positions, which] - span.start + group.start
            others = math.prod(sizes) // sizes[where.dim]
            each = torch.from_numpy(np.bincount(gates, minlength=count) * others).float()
            places, readers = (torch.from_numpy(numbers).to(device) for numbers in (positions, gates))
            yield Layer(where, makes, places, readers, each.to(device))


def _places(group: GateGroup) -> list[tuple[Slice, bool]]:
    """Where the weights of a group's gates are, and whether they make its units."""
    if group.site is None:
        return [(where, False) for where in group.columns]
    return [(where, True) for where in group.site.producers] + [(where, False) for where in group.site.consumers]
