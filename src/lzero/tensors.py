"""Small operations on tensors that torch does with a detour."""

from __future__ import annotations

import copy
from functools import reduce
from operator import mul
from typing import TypeVar

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

AnyT = TypeVar("AnyT")


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
