"""The optimizers of a training, and how their learning rates go."""

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

SCHEDULED = "scheduled"  # in groups that follow the schedule: the learning rate they begin with


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
    common = {"lr": settings.lr, "weight_decay": settings.weight_decay, SCHEDULED: settings.lr}
    if sparsifier is None:
        return [{"params": list(model.parameters()), **common}], []
    is_same = recipe.gates.optimizer == "same"
    rate = settings.lr if is_same and recipe.gates.lr is None else recipe.gates.lr
    weights, gates = sparsifier.param_groups(settings.lr, rate, settings.weight_decay, steps=steps)
    gates |= {SCHEDULED: gates["lr"]} if is_same else {}
    decayed_elsewhere: set[str] = set()
    if recipe.objective.kind == "penalty" and recipe.objective.l2:
        decayed_elsewhere = ExpectedL2(sparsifier).names()
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    own = [p for p in weights["params"] if names[id(p)] not in decayed_elsewhere]
    rest = [p for p in weights["params"] if names[id(p)] in decayed_elsewhere]
    found = [{"params": own, **common}, {"params": rest, **common, "weight_decay": 0.0}]
    return [group for group in found if group["params"]], [gates]


def schedule_at(recipe: Recipe, epoch: float) -> float:
    """What is left of the learning rate after so many epochs."""
    settings = recipe.optimizer
    if settings.schedule == "cosine":
        return (1 + math.cos(math.pi * epoch / recipe.training.epochs)) / 2
    if settings.schedule == "steps":
        return settings.factor ** sum(epoch >= milestone for milestone in settings.milestones)
    return 1.0


def set_rates(optimizer: Optimizer, left: float) -> None:
    """Give what follows the schedule so much of its learning rate: the weights, and gates with the same optimizer."""
    for group in optimizer.param_groups:
        if SCHEDULED not in group:
            continue
        rate = left * group[SCHEDULED]
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate
