"""What all objectives share: a term for the loss, a step of their own, a record."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn

from lzero.errors import LzeroError, NotFiniteError
from lzero.objectives.schedules import Schedule, constant, factor_at
from lzero.sparsifier import check_sparsifier
from lzero.tensors import at_least_single
from lzero.wiring import check_parts

if TYPE_CHECKING:
    from collections.abc import Callable

    from lzero.budgets import Budget, Meter
    from lzero.sparsifier import Sparsifier

LOOK_EVERY = 100  # steps between two looks at a GPU, which has to wait for each


@dataclass(frozen=True, eq=False)
class Record:
    """What an objective did in its last step: one entry for each group of gates, on the device of the gates.

    Reading a number makes the host wait for the device; making a record does not.
    """

    step: int
    names: tuple[str, ...]
    term: Tensor
    expected: Tensor  # shares of the dense cost
    realised: Tensor  # the same for the gates of the test-time network
    violation: Tensor
    multiplier: Tensor
    task_loss: Tensor | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        groups = {
            name: {"expected": e, "realised": r, "violation": v, "multiplier": m}
            for name, e, r, v, m in zip(
                self.names,
                self.expected.tolist(),
                self.realised.tolist(),
                self.violation.tolist(),
                self.multiplier.tolist(),
                strict=True,
            )
        }
        loss = None if self.task_loss is None else self.task_loss.item()
        return {"step": self.step, "task_loss": loss, "term": self.term.item(), "groups": groups}

    def __str__(self) -> str:
        numbers = self.as_dict()
        loss = "" if numbers["task_loss"] is None else f"loss {numbers['task_loss']:.4g}, "
        lines = [f"step {self.step}: {loss}term {numbers['term']:.4g}"]
        for name, group in numbers["groups"].items():
            shares = f"{group['expected']:.1%} expected, {group['realised']:.1%} realised"
            lines.append(f"  {name}: {shares}, multiplier {group['multiplier']:.3g}")
        return "\n".join(lines)


class Objective(nn.Module):
    """A term that makes gates close: added to the task's loss by calling it, with a step of its own after each step.

    `loss = task_loss + objective()`, then `objective.step()` after `optimizer.step()`. Objectives of one model add up:
    `Constraint(sparsifier, 0.3, "macs") + Constraint(sparsifier, 0.2, "params")`.
    """

    sparsifier: Sparsifier
    budgets: tuple[Budget, ...] = ()
    steps = 0
    waits_for_gates = True  # whether a step does nothing while gates are frozen, which cannot follow multipliers

    def __init__(self, sparsifier: Sparsifier, schedule: Schedule = constant) -> None:
        super().__init__()
        check_sparsifier(sparsifier)
        self.sparsifier, self._schedule = sparsifier, schedule
        self._scheduled = factor_at(schedule, 0)
        self._factor: Tensor  # what the schedule says for this step, on the device: a captured step reads it there
        factor = torch.full((), self._scheduled, dtype=torch.float32, device=sparsifier.log_alpha.device)
        self.register_buffer("_factor", factor, persistent=False)
        self._task_loss: Tensor | None = None
        self._term: Tensor | None = None  # as it was when it was last computed
        self._finite: Tensor | None = None  # 0 as long as all numbers are finite

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(lambda tensor: at_least_single(fn(tensor), tensor), recurse)  # type: ignore[no-untyped-call]
        return self

    def forward(self) -> Tensor:
        """The term, a scalar that is differentiable in log α."""
        raise NotImplementedError

    def step(self, task_loss: Tensor | float | None = None) -> None:
        """What follows `optimizer.step()`: the multipliers move, schedules go on, and numbers are checked to be finite.

        The task's loss, where it is given, appears in the record. While gates are frozen it does nothing.
        """
        if self.sparsifier.attached is self:
            raise LzeroError("this objective steps with the optimizer it is attached to: leave objective.step() out")
        self.advance(task_loss)

    def advance(self, task_loss: Tensor | float | None = None) -> None:
        """The same for what steps in place of the loop."""
        if self.waits_for_gates and not self.sparsifier.log_alpha.requires_grad:
            return
        if self.steps % LOOK_EVERY == 0:
            check_parts(self.sparsifier)
        self.note(task_loss)
        self.look()
        self.update()
        self.count()

    # A step in four parts. A CUDA graph can capture the first and the third, which stay on the device.

    def note(self, task_loss: Tensor | float | None) -> None:
        """Remember the loss, and whether all numbers are finite."""
        self._task_loss = None if task_loss is None else torch.as_tensor(task_loss).detach()
        total = self.sparsifier.log_alpha.detach().sum()
        for number in (self._task_loss, self._term):
            total = total if number is None else total + number.sum().to(total)
        if self._finite is None:
            self._finite = torch.zeros_like(total)
        self._finite.add_(total, alpha=0)  # infinity times zero is no number: few kernels, and it stays

    def look(self) -> None:
        """Stop where a number is none: at once on a CPU, within 100 steps on a GPU."""
        if self._finite is None or (self._finite.device.type != "cpu" and self.steps % LOOK_EVERY):
            return
        if not math.isfinite(self._finite.item()):
            self._stop()

    def update(self) -> None:
        """What this kind of objective does in its step."""

    def count(self) -> None:
        """Go on to the next step, and to what the schedule says for it."""
        self.steps += 1
        self._follow_schedule()

    def _follow_schedule(self) -> None:
        factor = factor_at(self._schedule, self.steps)
        if factor != self._scheduled:
            self._factor.fill_(factor)
            self._scheduled = factor

    @property
    def record(self) -> Record:
        """What the objective did in its last step."""
        raise NotImplementedError

    def _without_violation(self, names: tuple[str, ...], meter: Meter, multiplier: Tensor) -> Record:
        """The record of an objective that has no target."""
        with torch.no_grad():
            expected = meter.shares(self.sparsifier.law.prob_active)
            realised = meter.shares(self.open_gates())
            term = self.forward() if self._term is None else self._term
        zero, multiplier = torch.zeros_like(expected), multiplier.expand_as(expected)
        return Record(self.steps, names, term, expected, realised, zero, multiplier, self._task_loss)

    def __add__(self, other: Objective) -> Objective:
        from lzero.objectives.total import Total

        return Total(self, other)

    def __radd__(self, other: object) -> Objective:
        if other != 0:  # what sum() starts with
            return NotImplemented
        return self

    @torch.no_grad()
    def open_gates(self) -> Tensor:
        """1 for gates that are open in the test-time network, 0 for the others."""
        return (self.sparsifier.estimate() > 0).to(self.sparsifier.log_alpha.dtype)

    def _stop(self) -> None:
        log_alpha = self.sparsifier.log_alpha.detach()
        bad = [group.name for group in self.sparsifier.groups if not log_alpha[group.span].isfinite().all()]
        loss_is_fine = self._task_loss is None or bool(self._task_loss.isfinite().all())
        what = [] if loss_is_fine else ["the task's loss"]
        what += [f"the gates of {', '.join(bad)}"] if bad else []
        what = what or ["the objective's term, from its multipliers or from weights,"]
        are = "are" if bad else "is"
        advice = "go back to the last checkpoint and lower the learning rate, look at the data, or"
        if not self.steps:
            advice = "look for what is no number in inputs, labels and weights, or"
        raise NotFiniteError(
            f"{' and '.join(what)} {are} not finite at step {self.steps}; {advice} for what overflows with "
            "torch.autograd.set_detect_anomaly(True)"
        )

    def get_extra_state(self) -> Tensor:
        """The number of steps, for `state_dict`."""
        return torch.tensor(self.steps, device="cpu")

    def set_extra_state(self, state: Tensor) -> None:
        """The counterpart, for `load_state_dict`."""
        self.steps = int(state)
        self._task_loss = self._term = self._finite = None  # of a step that is not the last one any more
        self._follow_schedule()
