"""Networks of the size that a budget leaves, before anything is trained: to see what it would give back in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from lzero.compact import compact
from lzero.projection import project
from lzero.tensors import duplicate

if TYPE_CHECKING:
    from torch import nn

    from lzero.budgets import Target
    from lzero.costs import Cost
    from lzero.sparsifier import Sparsifier

OPEN = 8.0  # log α of gates that are surely open, however far the luck of the draw moves them
SPREADS = (1.0, 3.0)  # of log α within a group: the wider, the more of its gates are among the first to close


def preview(
    sparsifier: Sparsifier, target: Target, cost: Cost = "macs", *, round_to: int = 1, seed: int = 0
) -> nn.Module:
    """A compacted network within a budget whose widths are left to chance; the gated model stays as it is.

    How long a network takes depends on its widths and hardly on its weights, so that it can be timed before training:
    whether a budget pays on a machine, and which multiples of widths suit it.

    >>> from torch import nn
    >>> from lzero.sparsify import sparsify
    >>> model = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 6))
    >>> small = preview(sparsify(model, torch.randn(1, 4)), "30%", round_to=8)
    >>> small[0].out_features % 8, small[2].out_features % 8
    (0, 0)
    """
    trial = duplicate(sparsifier, sparsifier.model)
    generator = torch.Generator().manual_seed(seed)
    low, high = SPREADS
    with torch.no_grad():
        for group in trial.groups:
            spread = low + (high - low) * torch.rand((), generator=generator, device="cpu")
            drawn = OPEN + spread * torch.randn(group.size, generator=generator, device="cpu")
            trial.log_alpha[group.span] = drawn.to(trial.log_alpha.device)
    project(trial.model, target, cost, round_to=round_to)
    return compact(trial.model, round_to=round_to)
