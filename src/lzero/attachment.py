"""An objective that acts from inside an optimizer: its gradient before each step, its own step after."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lzero.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.utils.hooks import RemovableHandle

    from lzero.objectives import Objective
    from lzero.sparsifier import Sparsifier


@dataclass(frozen=True, eq=False)
class Attachment:
    """The two hooks on an optimizer."""

    handles: tuple[RemovableHandle, RemovableHandle]

    @classmethod
    def to(cls, sparsifier: Sparsifier, optimizer: Optimizer, objective: Objective) -> Attachment:
        """Check that the optimizer moves the gates of this model, then hook the objective to it."""
        if objective.sparsifier is not sparsifier:
            raise ArgumentError.about("objective", expected="an objective of this sparsifier", got="one of another")
        held = {id(p): p for group in optimizer.param_groups for p in group["params"]}
        if id(sparsifier.log_alpha) not in held:
            expected, advice = "an optimizer that holds the gates", "make it from sparsifier.param_groups(lr=…)"
            raise ArgumentError.about("optimizer", expected=expected, got="one without", advice=advice)
        before = optimizer.register_step_pre_hook(_Before(sparsifier.model, objective))
        after = optimizer.register_step_post_hook(lambda *_: objective.step())
        return cls((before, after))

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
            self.add_gradient(optimizer)
            return loss

        return wrapped

    @torch.enable_grad()
    def add_gradient(self, optimizer: Optimizer) -> None:
        """Add the gradient of the term, once, outside of any backward: wrappers such as DDP do not see it."""
        scale = vars(optimizer).get("grad_scale")  # fused optimizers take gradients as a GradScaler left them
        term = self.objective() if scale is None else self.objective() * scale
        parameters = {id(p): p for p in self.model.parameters() if p.requires_grad}
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        for parameter, gradient in zip(
            parameters.values(), self._gradients(term, list(parameters.values())), strict=True
        ):
            if gradient is None:
                continue
            if id(parameter) not in held:
                expected = "an optimizer that holds every parameter the objective moves"
                raise ArgumentError.about("optimizer", expected=expected, got="one without some of the weights")
            parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient

    @staticmethod
    def _gradients(term: Tensor, parameters: list[nn.Parameter]) -> tuple[Tensor | None, ...]:
        return torch.autograd.grad(term, parameters, allow_unused=True)
