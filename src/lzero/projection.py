"""The last step to a budget: which borderline gates close, or open again, so that what is left just fits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from lzero.belonging import sparsifier_of
from lzero.budgets import Budget, Per, Target, make_budgets
from lzero.search import Search
from lzero.tensors import outside_inference_mode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor, nn

    from lzero.costs import Cost
    from lzero.sparsifier import Sparsifier

IN_USE = 0.1  # the test-time value from which outputs change by the closing of a gate


@dataclass(frozen=True)
class Projection:
    """What moved to meet the budgets: how many gates of each group closed and opened, and the shares of dense."""

    budgets: tuple[Budget, ...]
    before: tuple[float, ...]
    after: tuple[float, ...]
    closed: dict[str, int]
    opened: dict[str, int]
    in_use: int  # closed gates that were in use

    def __str__(self) -> str:
        lines = [
            f"at most {budget}: {before:.2%} before, {after:.2%} after"
            for budget, before, after in zip(self.budgets, self.before, self.after, strict=True)
        ]
        for word, moved in (("closed", self.closed), ("opened", self.opened)):
            if moved:
                lines.append(f"{word} " + ", ".join(f"{count} of {name}" for name, count in moved.items()))
        return "\n".join(lines)


def project(
    model: nn.Module,
    target: Target | Mapping[str, Target],
    cost: Cost = "macs",
    *,
    per: Per = "model",
    round_to: int = 1,
) -> Projection:
    """Move borderline gates, in place, so that the compacted network costs at most the target; the rest fits no gate.

    Gates close in the order of least mass per cost: mass is α, as a share of the open ones' in its group. Where
    the budget leaves room, gates that were just closed open again with their mean as value; gates that are as good as
    gone (P < 0.01) stay closed.

    >>> from torch import nn
    >>> from lzero.sparsify import sparsify
    >>> model = nn.Sequential(nn.Linear(4, 10), nn.Tanh(), nn.Linear(10, 6))
    >>> sparsifier = sparsify(model, torch.randn(1, 4))
    >>> print(project(model, 0.5))
    at most 50 MACs (50.0% of 100): 100.00% before, 50.00% after
    closed 5 of 0
    """
    sparsifier = sparsifier_of(model)
    return project_to(sparsifier, make_budgets(sparsifier, target, cost, per), round_to)


@outside_inference_mode()
@torch.no_grad()
def project_to(
    sparsifier: Sparsifier, budgets: Sequence[Budget], round_to: int = 1, *, columns: bool = True
) -> Projection:
    """The same for budgets of any kind; without `columns`, single columns that close stay in the count, as zeros."""
    search = Search(sparsifier, budgets, round_to, columns)
    start = search.is_open.clone()
    before = search.shares(start)
    search.close()
    search.open(start & ~search.is_open)
    after = search.shares(search.is_open)
    closed, opened = start & ~search.is_open, ~start & search.is_open
    in_use = int((closed & (search.estimate > IN_USE)).sum())
    sparsifier.log_alpha.copy_(search.moved(search.is_open))
    return Projection(
        tuple(search.budgets),
        tuple(before.tolist()),
        tuple(after.tolist()),
        _per_group(sparsifier, closed),
        _per_group(sparsifier, opened),
        in_use,
    )


def _per_group(sparsifier: Sparsifier, mask: Tensor) -> dict[str, int]:
    counts = {group.name: int(mask[group.span].sum()) for group in sparsifier.groups}
    return {name: count for name, count in counts.items() if count}
