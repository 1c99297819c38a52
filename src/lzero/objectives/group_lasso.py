"""Group lasso, to compare with: norms of whole units in the loss, and the least of them closed in the end."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lzero.arguments import number, whole
from lzero.budgets import Meter, Target, make_budgets
from lzero.errors import ArgumentError
from lzero.objectives.objective import Objective, Record
from lzero.objectives.schedules import Schedule, constant
from lzero.objectives.unit_norms import UnitNorms
from lzero.search import Search

if TYPE_CHECKING:
    from lzero.costs import Cost
    from lzero.sparsifier import Sparsifier

OPEN = 30.0  # log α of a gate that every sample leaves at exactly 1, with a gradient of exactly 0


class GroupLasso(Objective):
    r"""$\lambda \sum_g \sqrt{|g|}\,\lVert\theta_g\rVert_2$ (Yuan & Lin, 2006) on the weights; gates are held open.

    As Wen et al. (2016) have it, each unit has two kinds of groups: the weights that make it, its filter, and those
    that read it, its channel. `strength` is λ for a mean loss in nats. In the end `close` closes the units of least
    norm, so that the rest costs at most `target`, with widths that are multiples of `round_to` as `compact` will have
    them; given the number of `steps`, that happens after the last of them.

    >>> import lzero
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> objective = GroupLasso(lzero.sparsify(model, torch.randn(3, 4)), 0.01, target=0.5)
    >>> objective().backward()
    >>> objective.close()
    >>> lzero.compact(model)[0].out_features
    4
    """

    waits_for_gates = False  # weights follow its norms

    def __init__(
        self,
        sparsifier: Sparsifier,
        strength: float,
        target: Target,
        cost: Cost = "macs",
        *,
        steps: int | None = None,
        round_to: int = 1,
        schedule: Schedule = constant,
    ) -> None:
        super().__init__(sparsifier, schedule)
        self.strength, self.round_to = number("strength", strength, least=0), whole("round_to", round_to)
        self._last_step = None if steps is None else whole("steps", steps, of="optimizer steps")
        if any(group.elements for group in sparsifier.groups):
            advice = 'sparsify with units="structure"'
            raise ArgumentError.about("sparsifier", expected="gates on units", got="gates on weights", advice=advice)
        self.norms = UnitNorms(sparsifier)
        self.budgets, self._meter = make_budgets(sparsifier, target, cost), Meter(sparsifier, cost)
        with torch.no_grad():
            sparsifier.log_alpha.fill_(OPEN)

    def forward(self) -> Tensor:
        """The sum of norms as the weights stand now."""
        term = self.strength * self._factor * self.norms.total()
        self._term = term.detach()
        return term

    @torch.no_grad()
    def close(self) -> None:
        """Close the gates of least norm until the budget holds; what room is left is used for others that fit."""
        search = Search(self.sparsifier, self.budgets, self.round_to, columns=True)
        search.mass = self.norms.relative().double().cpu()
        rank = search.mass.argsort(descending=True).argsort()
        count = bisect_left(range(1, len(rank) + 1), True, key=lambda count: not search.fits(rank < count))
        search.is_open = rank < count
        search.open(~search.is_open)
        log_alpha = self.sparsifier.log_alpha
        log_alpha.copy_(torch.where(search.is_open, OPEN, -OPEN))

    def count(self) -> None:
        """Go on; after the last step, close."""
        super().count()
        if self.steps == self._last_step:
            self.close()

    @property
    def record(self) -> Record:
        """What the norms were; nothing is violated, and nothing is closed before the end."""
        return self._without_violation((self._meter.cost,), self._meter, self.strength * self._factor)
