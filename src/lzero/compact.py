"""From a gated model to a plain, smaller, exactly equivalent one."""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING

from torch.fx import GraphModule

from lzero.arguments import one_of
from lzero.belonging import sparsifier_of
from lzero.cutting import Fallback, cut_copy
from lzero.decision import decide
from lzero.errors import ArgumentError, BudgetWarning
from lzero.objectives import Objective
from lzero.projection import Projection, project_to
from lzero.sparsifier import Sparsifier
from lzero.tensors import duplicate, outside_inference_mode
from lzero.verify import PROJECTED

if TYPE_CHECKING:
    from torch import nn

TOLERATED = 0.02  # of all gates: more that were in use and had to close are worth a warning
log = logging.getLogger("lzero")


@outside_inference_mode()
def compact(
    model: nn.Module, *, budget: Objective | None = None, round_to: int = 1, fallback: Fallback = "error"
) -> nn.Module:
    """A plain model without what is closed, equal in its outputs to the gated one in evaluation.

    The gated model is left alone. With a constraint as `budget`, borderline gates are first moved in a copy so that
    what is left costs at most the target ([project][lzero.projection]); the logger "lzero" says which, at level INFO,
    and `verify` compares with the gates as they were moved. `round_to=8` keeps widths divisible by 8. The result is
    checked on the example inputs before it is returned. Where the model's Python code insists on the old sizes,
    `fallback="graph"` gives the captured graph with the new sizes: a `torch.fx.GraphModule` under the same parameter
    names, for training where it can be, and for evaluation.

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
    one_of("fallback", fallback, Fallback)
    sparsifier = sparsifier_of(model)
    if budget is None:
        return cut_copy(sparsifier, decide(sparsifier, round_to), fallback)
    _check_budget(budget, sparsifier)
    projected, projection = _projected(sparsifier, budget, round_to, columns=True)
    small = cut_copy(projected, decide(projected, round_to), fallback)
    if isinstance(small, GraphModule) and any(group.columns for group in sparsifier.groups):
        projected, projection = _projected(sparsifier, budget, round_to, columns=False)  # a graph keeps them, as zeros
        small = cut_copy(projected, decide(projected, round_to), fallback)
    log.info("%s", projection)
    # The line that is told is the one where compact, behind its decorator, was called.
    warn_of_force(projection, sparsifier.num_gates, _advice(budget), stacklevel=4)
    small.__dict__[PROJECTED] = projected.log_alpha.detach()
    return small


def _check_budget(budget: Objective, sparsifier: Sparsifier) -> None:
    if not isinstance(budget, Objective) or not budget.budgets:
        expected, advice = "an objective with a budget", "use a Constraint; lzero.projection.project needs none"
        got = type(budget).__name__ if isinstance(budget, Objective) else repr(budget)
        raise ArgumentError.about("budget", expected=expected, got=got, advice=advice)
    if budget.sparsifier is not sparsifier:
        expected, advice = "the objective of this model", "a copy, such as an average, goes by lzero.projection.project"
        raise ArgumentError.about("budget", expected=expected, got="that of another", advice=advice)


def _projected(
    sparsifier: Sparsifier, budget: Objective, round_to: int, *, columns: bool
) -> tuple[Sparsifier, Projection]:
    """A copy of the gated model with its gates moved to the budget."""
    projected = duplicate(sparsifier, sparsifier.model)
    return projected, project_to(projected, budget.budgets, round_to, columns=columns)


def _advice(budget: Objective) -> str:
    if not budget.steps:
        return "nothing was trained towards it: it has seen no objective.step() after an optimizer.step()"
    return "train longer with the constraint, or give the gates a higher learning rate"


def warn_of_force(projection: Projection, gates: int, *advice: str, stacklevel: int = 2) -> None:
    """Warn of a budget that was met by closing many gates that were in use."""
    if projection.in_use > TOLERATED * gates:
        closed = f"{sum(projection.closed.values())} of {gates} gates, {projection.in_use} of them in use"
        message = "; ".join([f"the budget was met by closing {closed}", *advice])
        warnings.warn(f"{message}\n{projection}", BudgetWarning, stacklevel=stacklevel)
