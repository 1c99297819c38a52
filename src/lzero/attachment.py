"""An objective that acts from inside an optimizer: its gradient before each step, its own step after."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lzero.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.utils.hooks import RemovableHandle

    from lzero.objectives import Objective
    from lzero.sparsifier import Sparsifier


@runtime_checkable
class Acting(Protocol):
    """What is needed of an objective."""

    sparsifier: Sparsifier

    def advance(self, task_loss: Tensor | float | None = None) -> None:
        """What follows a step of the optimizer."""


@dataclass(frozen=True, eq=False)
class Attachment:
    """The two hooks on an optimizer."""

    optimizer: Optimizer
    objective: Objective
    handles: tuple[RemovableHandle, RemovableHandle]

    @classmethod
    def to(cls, sparsifier: Sparsifier, optimizer: Optimizer, objective: Objective) -> Attachment:
        """Check that the optimizer moves the gates of this model, then hook the objective to it."""
        if not isinstance(optimizer, Optimizer):
            raise ArgumentError.about("optimizer", expected="a torch optimizer", got=type(optimizer).__name__)
        if not isinstance(objective, Acting):
            expected, advice = "an objective", "such as lzero.Constraint(sparsifier, 0.3)"
            raise ArgumentError.about("objective", expected=expected, got=type(objective).__name__, advice=advice)
        if objective.sparsifier is not sparsifier:
            raise ArgumentError.about("objective", expected="an objective of this sparsifier", got="one of another")
        held = {id(p): p for group in optimizer.param_groups for p in group["params"]}
        if id(sparsifier.log_alpha) not in held:
            expected, advice = "an optimizer that holds the gates", "make it from sparsifier.param_groups(lr=…)"
            raise ArgumentError.about("optimizer", expected=expected, got="one without", advice=advice)
        before = optimizer.register_step_pre_hook(_Before(sparsifier.model, objective))
        after = optimizer.register_step_post_hook(_After(objective))
        return cls(optimizer, objective, (before, after))

    def remove(self) -> None:
        """Take the hooks off."""
        for handle in self.handles:
            handle.remove()


class _Before:
    """The hook before a step. A closure computes gradients inside the step: then the objective's come after it."""

    def __init__(self, model: nn.Module, objective: Objective) -> None:
        self.model, self.objective = model, objective

    def __call__(self, optimizer: Optimizer, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        itself, *rest = args
        closure = rest[0] if rest else kwargs.get("closure")
        if closure is None:
            self.add_gradient(optimizer)
            return None
        wrapped = self._with_gradient(closure, optimizer)
        return ((itself, wrapped, *rest[1:]), kwargs) if rest else (args, {**kwargs, "closure": wrapped})

    def _with_gradient(self, closure: Callable[[], Any], optimizer: Optimizer) -> Callable[[], Any]:
        def wrapped() -> Any:
            with torch.enable_grad():
                loss = closure()
            term = self.add_gradient(optimizer)
            return loss if loss is None else loss + term  # line searches compare values with gradients

        return wrapped

    @torch.enable_grad()
    def add_gradient(self, optimizer: Optimizer) -> Tensor:
        """Add the gradient of the term, once, outside of any backward: wrappers such as DDP do not see it."""
        scale = vars(optimizer).get("grad_scale")  # fused optimizers take gradients as a GradScaler left them
        term: Tensor = self.objective()
        if not term.requires_grad:  # frozen gates
            return term
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        gradients = torch.autograd.grad(term if scale is None else term * scale, parameters, allow_unused=True)
        moved = [(p, g) for p, g in zip(parameters, gradients, strict=True) if g is not None]
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        if any(id(p) not in held for p, _ in moved):
            expected, advice = "an optimizer that holds every parameter the objective moves", "l2 moves weights, too"
            raise ArgumentError.about("optimizer", expected=expected, got="one without some", advice=advice)
        for parameter, gradient in moved:
            parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
        return term.detach()


class _After:
    """The hook after a step: the objective's own, unless a fused optimizer has skipped the step for a GradScaler."""

    def __init__(self, objective: Objective) -> None:
        self.objective = objective

    def __call__(self, optimizer: Optimizer, *_: object) -> None:
        found_inf = vars(optimizer).get("found_inf")
        if found_inf is None or not found_inf:
            self.objective.advance()
