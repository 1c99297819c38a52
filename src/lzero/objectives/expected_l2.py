"""The expected L2 norm of gated weights (Eq. 15, 17): each squared weight counts with its probability of surviving."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lzero.costs import expected_alive
from lzero.per_structure import PerStructure
from lzero.structure.sites import Slice
from lzero.tensors import last_product
from lzero.wiring import check_parts

if TYPE_CHECKING:
    from lzero.sparsifier import Sparsifier


class ExpectedL2:
    r"""$\sum_j P(\text{weight } j \text{ survives})\,\tilde\theta_j^2$ over the weights that gates can remove.

    A weight between two gated dimensions survives with the product of both probabilities. Biases, norms and weights
    that no gate can remove are left to the optimizer's weight decay.
    """

    def __init__(self, sparsifier: Sparsifier) -> None:
        self._sparsifier = sparsifier
        self._tables = PerStructure(sparsifier, self._make)

    def __call__(self, probability: Tensor) -> Tensor:
        """The expectation when gates are open with the given probability."""
        sparsifier = self._sparsifier
        alive = expected_alive(sparsifier, probability)
        padded = torch.cat([alive, alive.new_ones(1)])
        parameters = dict(sparsifier.model.named_parameters())
        total = probability.new_zeros(())
        own = {group.elements: group for group in sparsifier.groups if group.elements}
        tables = self._tables(probability.device)
        for name in {**tables, **own}:
            squares = parameters[name].square()
            for dim, members in tables.get(name, {}).items():
                shape = [-1 if k == dim else 1 for k in range(squares.dim())]
                squares = squares * last_product(padded[members]).to(squares.dtype).view(shape)
            if name in own:
                squares = squares * probability[own[name].span].view(squares.shape)
            total = total + squares.sum()
        return total

    def names(self) -> set[str]:
        """The weights it is about."""
        own = {group.elements for group in self._sparsifier.groups if group.elements}
        return own | set(self._tables(self._sparsifier.log_alpha.device))

    def _make(self, device: torch.device) -> dict[str, dict[int, Tensor]]:
        """For each weight that units or columns can remove, who must be alive at each position of its dimensions."""
        sparsifier = self._sparsifier
        check_parts(sparsifier)
        names, tables = {name for name, _ in sparsifier.model.named_parameters()}, {}
        for name, dims in sparsifier.structure.tensors.items():
            if name not in names or len(dims) < 2:
                continue
            mine = {}
            for dim, units in enumerate(dims):
                gated = units if sparsifier.gates_units else units[:, :0]
                if (table := sparsifier.costs.members(gated, Slice(name, dim))) is not None:
                    mine[dim] = torch.as_tensor(table, device=device)
            if mine:
                tables[name] = mine
        return tables
