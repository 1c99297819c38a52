"""The optimizers of a training, and the learning rate of its weights."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from lzero.objectives.expected_l2 import ExpectedL2

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from lzero.recipes import Recipe
    from lzero.sparsifier import Sparsifier

WEIGHTS = "weights"  # marks the groups that follow the schedule


def make_optimizers(recipe: Recipe, model: nn.Module, sparsifier: Sparsifier | None, steps: int) -> list[Optimizer]:
    """The weights' optimizer first. Under SGD gates have an Adam of their own, unless the recipe says otherwise.

    Their gradients are too small for SGD: at the rate of the weights they hardly move.
    """
    settings = recipe.optimizer
    weights, gates = _groups(recipe, model, sparsifier, steps)
    device = next(model.parameters()).device
    adam: dict[str, Any] = {}
    if device.type == "cuda":  # one kernel for all parameters, with rates that a captured step can read
        adam = {"fused": True, "capturable": True}
        for group in (*weights, *gates):
            group["lr"] = torch.tensor(group["lr"], device=device)
    if settings.kind == "adam":
        return [torch.optim.Adam([*weights, *gates], **adam)]
    together = gates if recipe.gates.optimizer == "same" else []
    sgd = torch.optim.SGD(
        [*weights, *together], momentum=settings.momentum, nesterov=settings.momentum > 0, fused=device.type == "cuda"
    )
    return [sgd, *(torch.optim.Adam([group], **adam) for group in gates if group not in together)]


def _groups(
    recipe: Recipe, model: nn.Module, sparsifier: Sparsifier | None, steps: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The groups of weights, and of gates. Weights that the objective decays are not decayed twice."""
    settings = recipe.optimizer
    common = {"lr": settings.lr, "weight_decay": settings.weight_decay, WEIGHTS: True}
    if sparsifier is None:
        return [{"params": list(model.parameters()), **common}], []
    rate = settings.lr if recipe.gates.optimizer == "same" and recipe.gates.lr is None else recipe.gates.lr
    weights, gates = sparsifier.param_groups(settings.lr, rate, settings.weight_decay, steps=steps)
    decayed_elsewhere: set[str] = set()
    if recipe.objective.kind == "penalty" and recipe.objective.l2:
        decayed_elsewhere = ExpectedL2(sparsifier).names()
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    own = [p for p in weights["params"] if names[id(p)] not in decayed_elsewhere]
    rest = [p for p in weights["params"] if names[id(p)] in decayed_elsewhere]
    found = [{"params": own, **common}, {"params": rest, **common, "weight_decay": 0.0}]
    return [group for group in found if group["params"]], [gates]


def rate_at(recipe: Recipe, epoch: float) -> float:
    """The learning rate of the weights after so many epochs; that of the gates stays."""
    settings = recipe.optimizer
    if settings.schedule == "cosine":
        return settings.lr * (1 + math.cos(math.pi * epoch / recipe.training.epochs)) / 2
    if settings.schedule == "steps":
        return settings.lr * settings.factor ** sum(epoch >= milestone for milestone in settings.milestones)
    return settings.lr


def set_rate(optimizer: Optimizer, rate: float) -> None:
    """Give the weights this learning rate."""
    for group in optimizer.param_groups:
        if not group.get(WEIGHTS):
            continue
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate
