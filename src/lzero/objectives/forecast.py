"""A warning in time: gates that do not move, or a target that will not be reached in the steps that are left."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING

import torch

from lzero.budgets import UNITS
from lzero.errors import BudgetWarning

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from lzero.budgets import Budget

PATIENCE = 1000  # steps in which gates that are being closed must have moved
LOOKS = 10  # in a training whose length is known; each makes a GPU wait once
APART = 2  # steps at least: the first may have a learning rate of 0
LATE = 0.8  # of the steps: until then a density that falls faster and faster is left alone
NEAR = 1.1  # times the target: what is no further away is left to the final projection

STILL = "the gates have not moved at all"
GATES_IN = "are they in the optimizer? It takes sparsifier.param_groups(lr=…), after sparsify"


class Forecast:
    """Looks at gates and densities now and then; warns once of gates that stand still, and once for each budget."""

    def __init__(self, budgets: Sequence[Budget], steps: int | None) -> None:
        self.budgets, self.steps = budgets, steps
        self.every = PATIENCE if steps is None else max(APART, steps // LOOKS)
        self._before: tuple[int, list[float], Tensor] | None = None
        self._pace: dict[str, float] = {}
        self._warned: set[str] = set()

    def look(self, step: int, expected: Tensor, multiplier: Tensor, log_alpha: Tensor) -> None:
        """Compare with the last look. The warm-up of the target lies in the first half, where nothing is foretold."""
        if step % self.every:
            return
        now, pushed = expected.tolist(), multiplier.tolist()
        if self._before is not None and self._before[0] < step:  # the same step comes twice with an extra gradient
            rows = list(zip(self.budgets, now, self._before[1], pushed, strict=True))
            wanting = [row for row in rows if row[3] > 0 and row[1] > row[0].share * NEAR]
            if wanting and torch.equal(log_alpha, self._before[2]):
                self._warn(STILL, f"{STILL} between steps {step - self.every} and {step}; {GATES_IN}")
            else:
                for budget, share, before, _ in wanting:
                    self._warn(budget.name, self._judged(budget, step, share, before))
        self._before = step, now, log_alpha.clone()

    def _judged(self, budget: Budget, step: int, share: float, before: float) -> str | None:
        """What is to be said of a budget, if anything."""
        if self.steps is None:
            hopeless, end = abs(math.log(share / before)) < 0.01, share
        else:
            pace = min(0.0, math.log(share / before))
            is_faster = pace < min(1.1 * self._pace.get(budget.name, 0.0), -0.01) and step < LATE * self.steps
            self._pace[budget.name] = pace
            end = share * math.exp(pace * (self.steps - step) / self.every)
            hopeless = 2 * step >= self.steps and end > budget.share * NEAR and not is_faster
        return self._message(budget, step, share, end) if hopeless else None

    def _warn(self, about: str, message: str | None) -> None:
        if message is not None and about not in self._warned:
            self._warned.add(about)
            warnings.warn(message, BudgetWarning, stacklevel=6)  # where objective.step() was called

    def _message(self, budget: Budget, step: int, share: float, end: float) -> str:
        kind = f"{UNITS[budget.cost]}" + (f" of {budget.name}" if budget.groups else "")
        left = (
            f" and {end:.1%} at the end, at this pace" if self.steps is not None else f" in the last {self.every} steps"
        )
        return (
            f"the target of {budget.share:.1%} {kind} will not be met: {share:.1%} expected at step {step}{left}. "
            "Give the gates a higher learning rate (0.05 with Adam, 1 and more with SGD: param_groups(gate_lr=…), or "
            "gates.lr in a recipe), train longer, or raise the target; compacting will meet it in any case, by closing "
            "gates that are in use"
        )
