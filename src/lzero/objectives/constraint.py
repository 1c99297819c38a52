"""The constrained objective of the 2021 paper, for budgets in gates, parameters or multiply–accumulates."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch import Tensor

from lzero.arguments import one_of, whole
from lzero.budgets import Meter, Per, Target, make_budgets
from lzero.errors import ArgumentError
from lzero.objectives.duals import Dual, Restarts
from lzero.objectives.forecast import Forecast
from lzero.objectives.objective import Objective, Record
from lzero.objectives.schedules import Schedule, constant, linear

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lzero.costs import Cost
    from lzero.sparsifier import Sparsifier

Violation = Literal["log_ratio", "difference"]
Density = Literal["expected", "realised"]
TINY = 1e-6  # the share of a network with every gate closed, so that it has a logarithm
WARM_UP = 0.3  # of all steps: time for the task to say which units it needs, and as much again to train what is left


class Look(NamedTuple):
    """What gates give: the term, expected shares, how far those are from the targets, and what moves multipliers."""

    term: Tensor
    expected: Tensor
    violation: Tensor
    pull: Tensor


class Constraint(Objective):
    r"""At most `target` of a cost: $f + \sum_g \lambda_g v_g$, where $\lambda_g$ rises while $v_g > 0$ (C-5 … C-7).

    `cost` is `"l0"` (gated parameters as the papers count them), `"gates"` (how many are open: units, or features), or
    `"params"` or `"macs"` of what will really be left. There is no gate less than one: of `"gates"` 1 is one, not all.
    `target` is a share (0.3), a percentage ("30%"), or a number (50_000; MACs are those of the example inputs); with a
    mapping, one for each glob over the names that `sparsifier.plan()` shows. `per="layer"` sets it for every group of
    gates by itself. For several costs at once add constraints: `Constraint(s, 0.3, "macs") + Constraint(s, 0.2,
    "params")`.

    Given the number of `steps` of the training, the target comes down from 1 during the first 30 % of them, and a
    warning says when it will not be met. A `schedule` of your own, from the step to 0 … 1, takes its place: the target
    at step t is $\epsilon^{f(t)}$. `dual` is the rule of the multipliers ([duals][lzero.objectives.duals]). The
    violation $v$ is $\log(\text{density}/\epsilon)$, which needs no tuning for small targets, or the papers'
    `"difference"`. With `dual_density="realised"` multipliers follow the test-time network, gradients still the
    expected density.

    >>> import lzero
    >>> from torch import nn
    >>> sparsifier = lzero.sparsify(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), torch.randn(1, 4))
    >>> objective = Constraint(sparsifier, target="30%", cost="macs")
    >>> print(objective.budgets[0])
    14 MACs (30.0% of 48)
    """

    def __init__(
        self,
        sparsifier: Sparsifier,
        target: Target | Mapping[str, Target],
        cost: Cost = "macs",
        *,
        per: Per = "model",
        steps: int | None = None,
        schedule: Schedule | None = None,
        dual: Dual | None = None,
        violation: Violation = "log_ratio",
        dual_density: Density = "expected",
    ) -> None:
        steps = None if steps is None else whole("steps", steps, of="optimizer steps")
        if dual is not None and not isinstance(dual, Dual):
            expected, advice = "a rule of lzero.objectives.duals", "such as RestartedAscent(lr=0.01)"
            raise ArgumentError.about("dual", expected=expected, got=repr(dual), advice=advice)
        warm_up = constant if steps is None else linear(max(1, round(WARM_UP * steps)))
        super().__init__(sparsifier, warm_up if schedule is None else schedule)
        self.budgets = make_budgets(sparsifier, target, cost, per)
        self._meter = Meter(sparsifier, cost, [budget.groups for budget in self.budgets])
        self._kind = one_of("violation", violation, Violation)
        self._dual_density = one_of("dual_density", dual_density, Density)
        self._forecast = Forecast(self.budgets, steps)
        self.dual = Restarts.within(steps) if dual is None else dual
        self.dual.prepare(len(self.budgets), sparsifier.log_alpha.device)
        self.shares: Tensor
        shares = [budget.share for budget in self.budgets]
        targets = torch.tensor(shares, dtype=torch.float32, device=sparsifier.log_alpha.device)
        self.register_buffer("shares", targets, persistent=False)  # an argument, not what training finds
        self._last: Look | None = None
        self._last_of = 0  # the version of log α that it is of
        self._shown: Look | None = None  # the same for the record, as of the last step

    @property
    def multiplier(self) -> Tensor:
        """λ of each budget."""
        return self.dual.multiplier

    def target(self) -> Tensor:
        """The targets in force at this step, as shares of dense."""
        return self.shares**self._factor

    def forward(self) -> Tensor:
        """$\\sum_g \\lambda_g v_g$ as the gates stand now."""
        now = self._now()
        self._term = now.term.detach()
        version = self.sparsifier.log_alpha._version
        if self._last is None or version == self._last_of:  # a look for a log, once gates have moved, changes nothing
            self._last, self._last_of = Look(*(each.detach() for each in now)), version
        return now.term

    def _now(self) -> Look:
        """A look at the gates as they stand now."""
        expected = self._meter.shares(self.sparsifier.law.prob_active)
        violation = pull = self._violation(expected)
        if self._dual_density == "realised":
            pull = self._violation(self._meter.shares(self.open_gates()))
        return Look((self.multiplier.detach() * violation).sum(), expected, violation, pull)

    def _violation(self, shares: Tensor) -> Tensor:
        if self._kind == "difference":
            return shares - self.target()
        return (shares.clamp_min(TINY) / self.target()).log()

    def update(self) -> None:
        """Move the multipliers, by the violation the term had: both players move at once."""
        self._last = self._last or self._seen()
        self.dual.step(self._last.pull)
        self._shown, self._last = self._last, None

    def count(self) -> None:
        """Go on, with a look at where the density is going."""
        expected = (self._shown or self._seen()).expected
        self._forecast.look(self.steps, expected, self.multiplier, self.sparsifier.log_alpha.detach())
        super().count()

    def set_extra_state(self, state: Tensor) -> None:
        """The counterpart of `get_extra_state`; nothing that was seen before is of the training that goes on."""
        self._shown = self._last = None
        super().set_extra_state(state)

    def _seen(self) -> Look:
        """What the term was last made of; where there was none, as the gates stand now."""
        if self._last is not None:
            return self._last
        with torch.no_grad():
            return self._now()

    @property
    def record(self) -> Record:
        """What the constraint did in its last step."""
        term, expected, violation, _ = self._shown or self._seen()
        realised = self._meter.shares(self.open_gates())
        names = tuple(f"{b.cost} of {b.name}" if b.groups else b.cost for b in self.budgets)
        return Record(self.steps, names, term, expected, realised, violation, self.multiplier.clone(), self._task_loss)


def target_of(expected: float, violation: float, kind: Violation) -> float:
    """The target that a share was compared with when this was its violation.

    >>> target_of(0.5, 0.2, "difference")
    0.3
    """
    return expected - violation if kind == "difference" else expected * math.exp(-violation)
