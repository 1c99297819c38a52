"""Small operations on tensors that torch does with a detour."""

from __future__ import annotations

from functools import reduce
from operator import mul
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def last_product(x: Tensor) -> Tensor:
    """The product over the last dimension, factor by factor.

    The backward of `Tensor.prod` asks whether there are zeros, which makes a GPU wait and cannot be captured in a
    graph.
    """
    return reduce(mul, x.unbind(-1)) if x.shape[-1] else x.new_ones(x.shape[:-1])
