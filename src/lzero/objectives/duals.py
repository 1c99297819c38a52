"""How multipliers move: small rules from the violation of a constraint to its multiplier, all kept from going below 0.

A violation is positive where a constraint does not hold. Every rule is a module whose state (`multiplier` and what else
it needs) is saved, moved and cast like any other.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lzero.arguments import number, whole
from lzero.errors import ArgumentError

FLOOR = 1e-3  # a fall of the violation in one step that is never too fast


class Dual(nn.Module):
    """A rule for multipliers, one for each constraint. To write another, give `move`."""

    multiplier: Tensor

    def prepare(self, count: int, device: torch.device) -> None:
        """Start with multipliers of zero for so many constraints. Called once, by `Constraint`."""
        if "multiplier" in self._buffers:
            raise ArgumentError.about("dual", expected="a rule for this constraint alone", got="one that is in use")
        for name in ("multiplier", *self.state):
            self.register_buffer(name, torch.zeros(count, dtype=torch.float32, device=device))

    state: tuple[str, ...] = ()  # further buffers, one number for each constraint

    @torch.no_grad()
    def step(self, violation: Tensor) -> None:
        """Move all multipliers, in place."""
        self.multiplier.copy_(self.move(violation.to(self.multiplier)))

    def move(self, violation: Tensor) -> Tensor:
        """The multipliers after this step."""
        raise NotImplementedError


class Ascent(Dual):
    r"""Projected gradient ascent: $\lambda \leftarrow \max(0, \lambda + \eta\,v)$."""

    def __init__(self, lr: float) -> None:
        super().__init__()
        self.lr = number("lr", lr, above=0)

    def move(self, violation: Tensor) -> Tensor:
        """One step up the violation."""
        return (self.multiplier + self.lr * violation).clamp_min(0)


class RestartedAscent(Ascent):
    r"""Ascent with dual restarts (C-, Section 3.3): $\lambda \leftarrow 0$ as soon as its constraint holds."""

    def move(self, violation: Tensor) -> Tensor:
        """One step up the violation, or down to zero."""
        return super().move(violation).where(violation > 0, 0.0)


class Restarts(Dual):
    r"""Ascent with dual restarts whose step finds its own size: the default.

    $\lambda \leftarrow \lambda + \eta \min(v, c)$ while violated, and 0 as soon as the constraint holds. Each violated
    step lets η grow by up to the factor $e^{g}$, and each restart takes back what `period` such steps added: so η
    grows from small until gates follow, in a time that depends on the magnitude of the loss by its logarithm only, and
    shrinks where restarts come in quick succession. Where $v$ falls in a step by more than `pace`, or by more than $v$
    over `settle`, λ goes down in proportion: gates that are easy to close would otherwise all close at once, before
    the task can say which it needs, and past the target. The bound $c$ keeps far targets from being approached any
    faster than near ones.
    """

    state = ("rate", "last")

    def __init__(
        self,
        lr: float = 0.02,
        growth: float = 0.02,
        period: float = 40,
        bound: float = 0.1,
        pace: float = 0.03,
        settle: float = 40,
    ) -> None:
        super().__init__()
        self.lr, self.growth = number("lr", lr, above=0), number("growth", growth, above=0)
        self.period, self.bound = number("period", period, above=0), number("bound", bound, above=0)
        self.pace = number("pace", pace, above=0)
        self.settle = number("settle", settle, above=0)
        self.rate: Tensor
        self.last: Tensor

    @classmethod
    def within(cls, steps: int | None) -> Restarts:
        """The rule for a training of so many steps: in a short one, of less than 1200, everything goes faster."""
        haste = 1.0 if steps is None else max(1.0, 1200 / whole("steps", steps, of="optimizer steps"))
        return cls(growth=0.02 * haste, period=40 / haste, pace=0.03 * haste)

    def prepare(self, count: int, device: torch.device) -> None:
        """Start with the given step."""
        super().prepare(count, device)
        self.rate.fill_(self.lr)

    def move(self, violation: Tensor) -> Tensor:
        """One step up the violation, down in proportion to a fall, or to zero; and the size of the next one."""
        violated, bounded = violation > 0, violation.clamp(0, self.bound)
        fall, allowed = self.last - violation, (violation / self.settle).clamp(FLOOR, self.pace)
        braked = self.multiplier * (allowed / fall.clamp_min(FLOOR)).clamp(0.5, 1.0)
        moved = torch.where(fall > allowed, braked, self.multiplier + self.rate * bounded)
        restarts = ~violated & (self.multiplier > 0)
        growth = torch.where(fall > allowed, 0.0, bounded / self.bound) - self.period * restarts
        self.rate.mul_((self.growth * growth).exp())
        self.last.copy_(violation)
        return moved.where(violated, 0.0)


class PastExtrapolation(Dual):
    r"""Extrapolation from the past: $\lambda \leftarrow \max(0, \lambda + \eta\,(2 v_t - v_{t-1}))$."""

    state = ("last", "started")

    def __init__(self, lr: float) -> None:
        super().__init__()
        self.lr = number("lr", lr, above=0)
        self.last: Tensor
        self.started: Tensor

    def move(self, violation: Tensor) -> Tensor:
        """One step up where the violation is going."""
        before = self.last.where(self.started > 0, violation)
        self.last.copy_(violation)
        self.started.fill_(1)
        return (self.multiplier + self.lr * (2 * violation - before)).clamp_min(0)


class ProportionalIntegral(Dual):
    r"""A controller: $\lambda = \max(0, I + k_p v)$, $I \leftarrow \max(0, I + k_i v)$, and $I$ leaks while $v \le 0$.

    The leak is a soft restart. Without it the integral winds up while gates are slow, and overshoots.
    """

    state = ("integral",)

    def __init__(self, proportional: float = 5.0, integral: float = 0.002, leak: float = 0.02) -> None:
        super().__init__()
        self.proportional = number("proportional", proportional, above=0)
        self.rate = number("integral", integral, above=0)
        self.leak = number("leak", leak, least=0, below=1)
        self.integral: Tensor

    def move(self, violation: Tensor) -> Tensor:
        """The new integral and what is proportional to the violation."""
        kept = (1 - self.leak * (violation <= 0)) * self.integral
        self.integral.copy_((kept + self.rate * violation).clamp_min(0))
        return (self.integral + self.proportional * violation).clamp_min(0)
