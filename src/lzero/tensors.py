"""Small operations on tensors that torch does with a detour."""

from __future__ import annotations

import copy
from functools import reduce
from operator import mul
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

AnyT = TypeVar("AnyT")


def full_name(path: str, name: str) -> str:
    """What a model calls a tensor of its module at this path."""
    return f"{path}.{name}" if path else name


def at_least_single(moved: Tensor, before: Tensor) -> Tensor:
    """What `Module.to` made of a tensor, but never in half precision, in which the steps of log α are lost."""
    is_half = moved.is_floating_point() and moved.dtype.itemsize < torch.float32.itemsize
    return before.to(moved.device, torch.float32) if is_half else moved


def saved_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and the buffers that are saved with them, by name; each that is shared under its first name."""
    own = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    own |= {name for name, _ in model.named_buffers(remove_duplicate=False)}
    state = {name: tensor for name, tensor in model.state_dict(keep_vars=True).items() if name in own}
    first: dict[int, str] = {}
    for name, tensor in state.items():
        first.setdefault(id(tensor), name)
    return {name: state[name].detach() for name in first.values()}


def last_product(x: Tensor) -> Tensor:
    """The product over the last dimension, factor by factor.

    The backward of `Tensor.prod` asks whether there are zeros, which makes a GPU wait and cannot be captured in a
    graph.
    """
    return reduce(mul, x.unbind(-1)) if x.shape[-1] else x.new_ones(x.shape[:-1])


def duplicate(thing: AnyT, model: nn.Module) -> AnyT:
    """A deep copy of a model, or of what holds it; what a forward has left on its modules is copied without its graph.

    `copy.deepcopy` refuses tensors that have been computed, such as activations that a model keeps for later.
    """
    kept = (leaf for module in model.modules() for leaf in tree_leaves(list(vars(module).values())))
    computed = {id(t): t.detach().clone() for t in kept if isinstance(t, Tensor) and not t.is_leaf}
    return copy.deepcopy(thing, dict(computed))
