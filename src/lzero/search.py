"""Which gates to close, or to open again, so that what is left fits its budgets."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from lzero.arguments import whole
from lzero.budgets import Budget, Meter
from lzero.costs import OF_GATES
from lzero.decision import Decision, decide_from
from lzero.errors import LzeroError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lzero.gating import GateGroup
    from lzero.sparsifier import Sparsifier

BORDERLINE = 0.01  # closed gates that are at least as likely to be active may open again where there is room
MARGIN = 1e-3  # how far past the edge a gate is moved, so that no rounding brings it back
ROUNDING = 1e-9  # of shares, which are sums of products in double precision


class Search:
    """Gates open or closed, and what that costs; every answer is that of the network which would really be left."""

    def __init__(self, sparsifier: Sparsifier, budgets: Sequence[Budget], round_to: int, columns: bool) -> None:
        self.sparsifier, self.round_to, self.columns = sparsifier, whole("round_to", round_to), columns
        self.estimate = sparsifier.estimate().cpu()
        self.start, self.is_open = self.estimate > 0, self.estimate > 0
        self.may_open = ~self.start & (sparsifier.law.prob_active.double().cpu() >= BORDERLINE)
        self.mass = self._mass()
        self._closed_at, self._opened_at = self._ends()
        costs = dict.fromkeys(budget.cost for budget in budgets)
        self.budgets = [budget for cost in costs for budget in budgets if budget.cost == cost]
        self.meters = [Meter(sparsifier, cost, [b.groups for b in self.budgets if b.cost == cost]) for cost in costs]
        self.limits = torch.tensor([budget.share for budget in self.budgets], dtype=torch.float64, device="cpu")

    def _ends(self) -> tuple[Tensor, Tensor]:
        """Log α of each gate once it has been closed, and once it has been opened, where it may be."""
        sparsifier, law, estimator = self.sparsifier, self.sparsifier.law, self.sparsifier.bank.estimator
        log_alpha = law.log_alpha.detach()
        # Gates that close stay in the order they were in: the likeliest is kept where a width would be empty.
        order = 0.5 + torch.atan(log_alpha) / torch.pi  # probabilities of sure gates are all 1
        closed = law.log_alpha_for(torch.zeros_like(log_alpha), estimator) - MARGIN * (2 - order)
        opened = log_alpha.cpu().clone()  # means are integrals: only those that may be asked for are computed
        borderline = sparsifier.bank.law(log_alpha.cpu()[self.may_open])
        opened[self.may_open] = borderline.log_alpha_for(borderline.mean.clamp(MARGIN, 1), estimator)
        return closed.cpu(), opened

    def _mass(self) -> Tensor:
        """Each gate's α as a share of the open ones' in its group: one of many goes before one of few.

        Probabilities and test-time values end at 1, where most open gates are; α still says how sure they are.
        """
        mass = self.sparsifier.log_alpha.detach().double().cpu().clone()  # not the gates themselves
        for group in self.sparsifier.groups:
            log_alpha, is_open = mass[group.span], self.is_open[group.span]
            mass[group.span] -= (log_alpha[is_open] if is_open.any() else log_alpha).logsumexp(0)
        return mass.exp()

    def moved(self, is_open: Tensor) -> Tensor:
        """Log α with gates that close where the estimate is just 0, and gates that open where it is their mean."""
        log_alpha = self.sparsifier.log_alpha.detach().cpu()
        log_alpha = torch.where(self.start & ~is_open, self._closed_at, log_alpha)
        return torch.where(~self.start & is_open, self._opened_at, log_alpha)

    def decision(self, is_open: Tensor) -> Decision:
        """What would stay."""
        decision = decide_from(self.sparsifier, is_open.double(), self.round_to, self.moved(is_open))
        if self.columns:
            return decision
        return replace(decision, columns={where: np.ones_like(mask) for where, mask in decision.columns.items()})

    def shares(self, is_open: Tensor) -> Tensor:
        """What would be left, as shares of dense, `[budgets]`."""
        return self._left_by(self.decision(is_open))

    def fits(self, is_open: Tensor) -> bool:
        """Whether every budget holds."""
        return not self._violated(self.shares(is_open)).any()

    def _left_by(self, decision: Decision) -> Tensor:
        return torch.cat([meter.realised(decision) for meter in self.meters])

    def _violated(self, shares: Tensor) -> Tensor:
        return ~(shares <= self.limits * (1 + ROUNDING))

    def _marginals(self, decision: Decision) -> Tensor:
        """What one gate more or less changes, all others as decided, `[budgets, gates]`."""
        return torch.cat([meter.marginals(decision) for meter in self.meters])

    def close(self) -> None:
        """Close gates until all budgets hold."""
        while True:
            decision = self.decision(self.is_open)
            shares = self._left_by(decision)
            violated = self._violated(shares)
            if not violated.any():
                return
            saved = self._marginals(decision)[violated] / (shares - self.limits)[violated, None]
            order = self._closing_order(saved.sum(0))
            # Each closed gate makes the others cheaper: half of what seems to be needed never closes too many.
            needed = (saved[:, order].cumsum(1) < 1).sum(1).min().item()
            self.is_open[order[: max(1, int(needed) // 2)]] = False

    def _closing_order(self, saved: Tensor) -> Tensor:
        """Open gates that save something, by mass per saving, the last of a group only when there is no other.

        What a gate saves beyond what is needed counts for nothing; of equals the one that saves least comes first.
        """
        if not self.is_open.any():
            self._give_up()
        useful = self.is_open & (saved > 0)
        useful = useful if useful.any() else self.is_open
        others = useful & ~self._last_ones()
        candidates = (others if others.any() else useful).nonzero().flatten()
        candidates = candidates[saved[candidates].argsort()]
        return candidates[(self.mass[candidates] / saved[candidates].clamp(1e-12, 1.0)).argsort(stable=True)]

    def _give_up(self) -> None:
        left = zip(self.budgets, self.shares(self.is_open).tolist(), strict=True)
        over = ", ".join(f"{share:.2%} for {budget}" for budget, share in left if share > budget.share)
        why = f" with widths that are multiples of {self.round_to}" if self.round_to > 1 else ""
        raise LzeroError(f"no choice of gates meets the budgets{why}: with every gate closed there is left {over}")

    def _last_ones(self) -> Tensor:
        """The likeliest open gate of each group: without it the network would be cut in two."""
        last = torch.zeros_like(self.is_open)
        for group in self.sparsifier.groups:
            likeliest = torch.where(self.is_open, self.mass, -1.0)[group.span].argmax()
            last[group.start + likeliest] = True
        return last

    def open(self, closed: Tensor) -> None:
        """Use what room is left, for gates that have just closed and for borderline ones that were closed before."""
        candidates = closed | self.may_open
        # Counts of gates know no widths; every other cost moves by whole blocks of units where widths are rounded.
        if self.round_to > 1 and any(budget.cost not in OF_GATES for budget in self.budgets):
            self._open_blocks(candidates)
            candidates = candidates & ~self._of_units()
        self._open_singly((candidates & ~self.is_open).nonzero().flatten())

    def _open_singly(self, candidates: Tensor) -> None:
        while len(candidates):
            added = self._marginals(self.decision(self.is_open))[:, candidates].sum(0)
            candidates = candidates[(self.mass[candidates] / added.clamp_min(1e-12)).argsort(descending=True)]
            count = self._largest(candidates)
            self.is_open[candidates[:count]] = True
            candidates = self._possible(candidates[count + 1 :])  # the first that did not fit is out of the question

    def _of_units(self) -> Tensor:
        """Gates of units, whose widths are rounded; not those of columns or weights."""
        of_units = torch.zeros_like(self.is_open)
        for group in self.sparsifier.groups:
            of_units[group.span] = group.site is not None
        return of_units

    def _possible(self, candidates: Tensor) -> Tensor:
        """Candidates that fit alone."""
        if not len(candidates):
            return candidates
        decision = self.decision(self.is_open)
        room = self.limits - self._left_by(decision)
        return candidates[(self._marginals(decision)[:, candidates] <= room[:, None] + ROUNDING).all(0)]

    def _largest(self, candidates: Tensor) -> int:
        """How many of the candidates, from the first, can be open together."""
        low, high = 0, len(candidates)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.fits(self._with(candidates[:middle])) else (low, middle - 1)
        return low

    def _with(self, more: Tensor) -> Tensor:
        trial = self.is_open.clone()
        trial[more] = True
        return trial

    def _open_blocks(self, candidates: Tensor) -> None:
        """Open gates of one group at a time: what fills up a width that is kept anyway, then whole blocks."""
        for group in self.sparsifier.groups:
            if self.fits(trial := self._with(self._likeliest(candidates, group)[: self._slack(group)])):
                self.is_open = trial
        blocks = sorted(self._blocks(candidates), key=lambda block: -float(self.mass[block].sum()))
        waiting = [*blocks, *(block[:1] for block in blocks)]  # alone one may fit, where others wake what it reads
        while waiting:
            waiting = self._open_of(waiting)

    def _open_of(self, blocks: list[Tensor]) -> list[Tensor]:
        """Open those that fit, in this order; of the others those that may fit now are returned.

        That is so where one that opened made room, as it took the place of units that were kept against emptiness.
        """
        before, others, made_room = self.shares(self.is_open), [], False
        for block in blocks:
            after = self.shares(trial := self._with(block))
            if self._violated(after).any():
                others.append(block)
            else:
                made_room = made_room or bool((after < before).any())
                self.is_open, before = trial, after
        return others if made_room else []

    def _slack(self, group: GateGroup) -> int:
        """How many more units of this group are kept than are open."""
        if group.site is None:
            return 0
        kept = self.decision(self.is_open).units[self.sparsifier.structure.span(group.site)]
        return max(0, int(kept.sum()) - int(self.is_open[group.span].sum()))

    def _likeliest(self, candidates: Tensor, group: GateGroup) -> Tensor:
        """The closed candidates of a group, the likeliest first."""
        closed = (candidates & ~self.is_open)[group.span].nonzero().flatten() + group.start
        return closed[self.mass[closed].argsort(descending=True)]

    def _blocks(self, candidates: Tensor) -> Iterator[Tensor]:
        for group in self.sparsifier.groups:
            yield from (block for block in self._likeliest(candidates, group).split(self.round_to) if len(block))
