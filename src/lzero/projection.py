"""The last step to a budget: which borderline gates close, or open again, so that what is left just fits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lzero.budgets import Budget, Meter, Per, Target, make_budgets
from lzero.decision import decide_from
from lzero.errors import LzeroError
from lzero.shrink import GONE
from lzero.sparsifier import sparsifier_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import nn

    from lzero.costs import Cost
    from lzero.sparsifier import Sparsifier

MARGIN = 1e-3  # how far past the edge a gate is moved, so that no rounding brings it back


@dataclass(frozen=True)
class Projection:
    """What moved to meet the budgets: how many gates of each group closed and opened, and the shares of dense."""

    budgets: tuple[Budget, ...]
    before: tuple[float, ...]
    after: tuple[float, ...]
    closed: dict[str, int]
    opened: dict[str, int]
    mass: float  # the probability of being active that closed gates had, in all
    in_use: int  # closed gates that were fully open

    def __str__(self) -> str:
        lines = [
            f"{budget}: {before:.2%} before, {after:.2%} after"
            for budget, before, after in zip(self.budgets, self.before, self.after, strict=True)
        ]
        for word, moved in (("closed", self.closed), ("opened", self.opened)):
            if moved:
                lines.append(f"{word} " + ", ".join(f"{count} of {name}" for name, count in moved.items()))
        return "\n".join(lines)


def project(
    model: nn.Module,
    target: Target | Mapping[str, Target],
    cost: Cost = "macs",
    *,
    per: Per = "model",
    round_to: int = 1,
) -> Projection:
    """Move borderline gates, in place, so that the compacted network costs at most the target, and hardly less.

    Gates close in the order of least mass per cost, those that are not fully open first: mass is the probability of
    being active, as a share of all in the same group. Where the budget leaves room, gates that were just closed open
    again with their mean as value; gates that are as good as gone (P < 0.1) stay closed.

    >>> from torch import nn
    >>> from lzero.sparsify import sparsify
    >>> model = nn.Sequential(nn.Linear(4, 10), nn.Tanh(), nn.Linear(10, 6))
    >>> sparsifier = sparsify(model, torch.randn(1, 4))
    >>> print(project(model, 0.5))
    50 MACs (50.0% of 100): 100.00% before, 50.00% after
    closed 5 of 0
    """
    sparsifier = sparsifier_of(model)
    return project_to(sparsifier, make_budgets(sparsifier, target, cost, per), round_to)


@torch.no_grad()
def project_to(sparsifier: Sparsifier, budgets: Sequence[Budget], round_to: int = 1) -> Projection:
    """The same for budgets of any kind."""
    search = _Search(sparsifier, budgets, round_to)
    start = search.is_open.clone()
    before = search.shares(start)
    search.close()
    search.open(start & ~search.is_open)
    closed, opened = start & ~search.is_open, ~start & search.is_open
    _move(sparsifier, closed, opened)
    return Projection(
        tuple(search.budgets),
        tuple(before.tolist()),
        tuple(search.shares(search.is_open).tolist()),
        _per_group(sparsifier, closed),
        _per_group(sparsifier, opened),
        float(search.probability[closed].sum()),
        int((closed & (search.estimate >= 1)).sum()),
    )


def _per_group(sparsifier: Sparsifier, mask: Tensor) -> dict[str, int]:
    counts = {group.name: int(mask[group.span].sum()) for group in sparsifier.groups}
    return {name: count for name, count in counts.items() if count}


def _move(sparsifier: Sparsifier, closed: Tensor, opened: Tensor) -> None:
    """Set log α of gates that close where the estimate is just 0, of those that open where it is their mean."""
    law, log_alpha, estimator = sparsifier.law, sparsifier.log_alpha, sparsifier.bank.estimator
    mean = law.mean.clamp(MARGIN, 1)
    just_closed = law.log_alpha_for(torch.zeros_like(mean), estimator) - MARGIN
    moved = torch.where(closed.to(mean.device), just_closed, log_alpha)
    log_alpha.copy_(torch.where(opened.to(mean.device), law.log_alpha_for(mean, estimator), moved))


class _Search:
    """Gates open or closed, and what that costs; every answer is that of the network which would really be left."""

    def __init__(self, sparsifier: Sparsifier, budgets: Sequence[Budget], round_to: int) -> None:
        self.sparsifier, self.round_to = sparsifier, round_to
        self.estimate = sparsifier.law.estimate(sparsifier.bank.estimator).cpu()
        self.probability = sparsifier.law.prob_active.double().cpu()
        self.is_open = self.estimate > 0
        self.may_open = ~self.is_open & (self.probability >= GONE)
        self.mass = self._mass()
        costs = dict.fromkeys(budget.cost for budget in budgets)
        self.budgets = [budget for cost in costs for budget in budgets if budget.cost == cost]
        self.meters = [Meter(sparsifier, cost, [b.groups for b in self.budgets if b.cost == cost]) for cost in costs]
        self.limits = torch.tensor([budget.share for budget in self.budgets], dtype=torch.float64)

    def _mass(self) -> Tensor:
        """Each gate's probability as a share of its group's: the last few of a layer are dearer than one of many."""
        mass = self.probability.clone()
        for group in self.sparsifier.groups:
            mass[group.span] /= mass[group.span][self.is_open[group.span]].sum().clamp_min(1.0)
        return mass

    def shares(self, is_open: Tensor) -> Tensor:
        """What would be left, as shares of dense, `[budgets]`."""
        decision = decide_from(self.sparsifier, is_open.double(), self.round_to)
        return torch.cat([meter.realised(decision) for meter in self.meters])

    def fits(self, is_open: Tensor) -> bool:
        """Whether every budget holds, up to the rounding of a share."""
        return bool((self.shares(is_open) <= self.limits * (1 + 1e-12)).all())

    def marginals(self) -> Tensor:
        """What one gate more or less changes, all others as they are, `[budgets, gates]`."""
        with torch.enable_grad():
            open_ = self.is_open.double().requires_grad_()
            shares = torch.cat([meter.shares(open_) for meter in self.meters])
            rows = [torch.autograd.grad(share, open_, retain_graph=True)[0] for share in shares]
        return torch.stack(rows)

    def close(self) -> None:
        """Close gates until all budgets hold."""
        while not self.fits(self.is_open):
            excess = (self.shares(self.is_open) - self.limits).clamp_min(0)
            violated = excess > 0
            saved = self.marginals()[violated] / excess[violated, None]
            order = self._closing_order(saved.sum(0))
            # Each closed gate makes the others cheaper: half of what seems to be needed never closes too many.
            needed = (saved[:, order].cumsum(1) < 1).sum(1).min().item()
            self.is_open[order[: max(1, int(needed) // 2)]] = False

    def _closing_order(self, saved: Tensor) -> Tensor:
        """Open gates that save something, by mass per saving: the fully open later, the last of a group last.

        What a gate saves beyond what is needed counts for nothing; of equals the one that saves least comes first.
        """
        useful = self.is_open & (saved > 0)
        tier = (self.estimate >= 1).long() + 2 * self._last_ones().long()
        if not useful.any():
            raise LzeroError("no choice of gates meets the budgets: all that could close has closed")
        candidates = useful.nonzero().flatten()
        first = tier[candidates].min()
        candidates = candidates[tier[candidates] == first]
        candidates = candidates[saved[candidates].argsort()]
        return candidates[(self.mass[candidates] / saved[candidates].clamp_max(1.0)).argsort(stable=True)]

    def _last_ones(self) -> Tensor:
        """The likeliest open gate of each group: without it the network would be cut in two."""
        last = torch.zeros_like(self.is_open)
        for group in self.sparsifier.groups:
            likeliest = torch.where(self.is_open, self.probability, -1.0)[group.span].argmax()
            last[group.start + likeliest] = True
        return last

    def open(self, closed: Tensor) -> None:
        """Use what room is left, for gates that have just closed and for borderline ones that were closed before."""
        candidates = (closed | self.may_open).nonzero().flatten()
        while len(candidates):
            room = self.limits - self.shares(self.is_open)
            added = self.marginals()[:, candidates]
            possible = (added <= room[:, None] + 1e-12).all(0)
            candidates, added = candidates[possible], added[:, possible].sum(0)
            order = (self.mass[candidates] / added.clamp_min(1e-12)).argsort(descending=True)
            candidates = candidates[order]
            count = self._largest(candidates)
            self.is_open[candidates[:count]] = True
            candidates = candidates[count + 1 :]  # the first that did not fit is out of the question

    def _largest(self, candidates: Tensor) -> int:
        """How many of the candidates, from the first, can be open together."""
        low, high = 0, len(candidates)
        while low < high:
            middle = (low + high + 1) // 2
            trial = self.is_open.clone()
            trial[candidates[:middle]] = True
            low, high = (middle, high) if self.fits(trial) else (low, middle - 1)
        return low
