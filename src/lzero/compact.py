"""From a gated model to a plain, smaller, exactly equivalent one."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from lzero.cutting import Fallback, cut_copy
from lzero.decision import decide
from lzero.errors import ArgumentError
from lzero.sparsifier import sparsifier_of

if TYPE_CHECKING:
    from torch import nn


def compact(model: nn.Module, *, round_to: int = 1, fallback: Fallback = "error") -> nn.Module:
    """A plain model without what is closed, equal in its outputs to the gated one in evaluation.

    The gated model is left alone. `round_to=8` keeps widths divisible by 8. The result is checked on the example inputs
    before it is returned. Where the model's Python code insists on the old sizes, `fallback="graph"` gives the captured
    graph with the new sizes: a `torch.fx.GraphModule` under the same parameter names, for training and evaluation.

    >>> import torch
    >>> from torch import nn
    >>> from lzero.sparsify import sparsify
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    >>> sparsifier = sparsify(model, torch.randn(3, 4))
    >>> sparsifier.log_alpha.data[:5] = -4.0            # five units closed
    >>> compact(model)
    Sequential(
      (0): Linear(in_features=4, out_features=3, bias=True)
      (1): Tanh()
      (2): Linear(in_features=3, out_features=2, bias=True)
    )
    """
    if fallback not in get_args(Fallback):
        raise ArgumentError.about("fallback", expected='"error" or "graph"', got=repr(fallback))
    sparsifier = sparsifier_of(model)
    return cut_copy(sparsifier, decide(sparsifier, round_to), fallback)
