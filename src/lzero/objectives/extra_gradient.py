"""Extra-gradient: both players look one step ahead, then step from where they were with what they saw."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch

from lzero.errors import ArgumentError, LzeroError
from lzero.tensors import distinct

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor
    from torch.optim import Optimizer

    from lzero.objectives.objective import Objective


def extra_gradient_step(optimizer: Optimizer, objective: Objective, task_loss: Callable[[], Tensor]) -> Tensor:
    """One step with two gradients: weights, gates and multipliers move by what they find one step ahead.

    `task_loss` computes the loss anew each time it is called, without the objective's term. The loss at the point
    itself is returned. Any optimizer and any rule for the multipliers will do; their state remembers the second step
    only.

    >>> import lzero
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> sparsifier, x = lzero.sparsify(model, torch.randn(3, 4)), torch.randn(3, 4)
    >>> optimizer = torch.optim.SGD(sparsifier.param_groups(lr=0.1))
    >>> objective = lzero.Constraint(sparsifier, 0.5, "params")
    >>> loss = extra_gradient_step(optimizer, objective, lambda: model(x).square().mean())
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if not any(p is objective.sparsifier.log_alpha for p in parameters):
        raise ArgumentError.about("optimizer", expected="an optimizer that holds the gates", got="one without")
    if objective.sparsifier.attached is not None:
        raise LzeroError("an objective is attached to the optimizer, which steps on its own; call detach() first")
    here = [p.detach().clone() for p in parameters]
    state = copy.deepcopy([optimizer.state.get(p) for p in parameters])
    duals = [buffer.clone() for buffer in objective.buffers()]
    loss = _gradient(optimizer, objective, task_loss)
    buffers = [(buffer, buffer.clone()) for buffer in objective.sparsifier.model.buffers()]  # averages of one forward
    try:
        optimizer.step()
        objective.update()
        _gradient(optimizer, objective, task_loss)
    finally:  # also where the loss ahead is not to be had
        with torch.no_grad():
            for parameter, value, kept in zip(parameters, here, state, strict=True):
                parameter.copy_(value)
                optimizer.state.pop(parameter, None)
                if kept is not None:
                    optimizer.state[parameter] = kept
            for buffer, value in (*zip(objective.buffers(), duals, strict=True), *buffers):
                distinct(buffer).copy_(distinct(value))
    optimizer.step()
    optimizer.zero_grad()
    objective.step(loss)
    return loss


def _gradient(optimizer: Optimizer, objective: Objective, task_loss: Callable[[], Tensor]) -> Tensor:
    optimizer.zero_grad()
    loss = task_loss()
    (loss + objective()).backward()
    return loss.detach()
