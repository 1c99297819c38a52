"""From a gated model to a plain, smaller, exactly equivalent one."""

from __future__ import annotations

import copy
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from lzero.attach import gated
from lzero.decision import Decision, decide
from lzero.errors import ArgumentError, LzeroError
from lzero.graph import alive_in, graph_model
from lzero.patch import patch_attributes
from lzero.sparsify import Sparsifier, sparsifier_of
from lzero.structure.analysis import analyse
from lzero.structure.capture import Inputs
from lzero.surgery import cut_model
from lzero.verify import VerificationError, verify

Fallback = Literal["error", "graph"]


def compact(model: nn.Module, *, round_to: int = 1, fallback: Fallback = "error") -> nn.Module:
    """A plain model without what is closed, equal in its outputs to the gated one in evaluation.

    The gated model is left alone. `round_to=8` keeps widths divisible by 8. The result is checked on the example inputs
    before it is returned. Where the model's Python code insists on the old sizes, `fallback="graph"` gives the captured
    graph with the new sizes: a `torch.fx.GraphModule` under the same parameter names, for training and evaluation.

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
    decision = decide(sparsifier, round_to)
    small = plain_copy(model)
    cut_model(small, sparsifier.structure, decision, folded(sparsifier, decision))
    _flush_subnormals(small)
    return proven(sparsifier, small, decision, fallback)


def proven(sparsifier: Sparsifier, small: nn.Module, decision: Decision, fallback: Fallback) -> nn.Module:
    """The cut model once its outputs are right: as it is, with attributes patched, or as a graph."""
    model, inputs = sparsifier.model, sparsifier.example_inputs
    if _failure(model, small, inputs) is None:
        return small
    dense = plain_copy(model)
    analysis = analyse(dense, inputs)
    patch_attributes(small, analysis, alive_in(analysis, sparsifier.structure, decision))
    failure = _failure(model, small, inputs)
    if failure is None:
        return small
    if fallback == "error":
        raise LzeroError(
            f"the Python code of {type(model).__name__} relies on the old sizes ({failure}); "
            'pass fallback="graph" to get the smaller model as a torch.fx.GraphModule'
        )
    graph = graph_model(dense, small, inputs, sparsifier.structure, decision)
    verify(model, graph, inputs)
    return graph.train(model.training)


def _failure(model: nn.Module, small: nn.Module, inputs: Inputs) -> str | None:
    """What goes wrong when the cut model runs; None where its outputs are right."""
    try:
        verify(model, small, inputs)
    except (RuntimeError, ValueError, VerificationError) as error:
        return str(error).strip().partition("\n")[0]
    return None


def plain_copy(model: nn.Module) -> nn.Module:
    """A copy of a gated model without gates, in the mode the model is in."""
    return sparsifier_of(copy.deepcopy(model)).remove()


def folded(sparsifier: Sparsifier, decision: Decision) -> dict[str, Tensor]:
    """Every gated parameter times its gates, by name."""
    gates = decision.gates.to(sparsifier.log_alpha.device)
    found: dict[str, Tensor] = {}
    with sparsifier.bank.holding(gates), torch.no_grad():
        for path, module in sparsifier.model.named_modules():
            for name in module.__dict__.get("_lzero_factors", {}):
                full = f"{path}.{name}" if path else name
                found[sparsifier.structure.aliases[full]] = gated(module, name).detach()
    return found


def _flush_subnormals(model: nn.Module) -> None:
    """Zero numbers too small for the processor's fast path, which dead channels tend towards."""
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.is_floating_point():
                tensor.masked_fill_(tensor.abs() < torch.finfo(tensor.dtype).tiny, 0.0)
