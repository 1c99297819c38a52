"""Budgets: how much of which cost, for the whole model or for some of its gates; and what it costs now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from lzero.arguments import one_of
from lzero.costs import OF_GATES, Cost, decided_alive, expected_alive, gates_of_alive
from lzero.decision import decide_from
from lzero.errors import ArgumentError
from lzero.gating import first_matches
from lzero.per_structure import PerStructure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from lzero.costs import Costs
    from lzero.decision import Decision
    from lzero.gating import GateGroup
    from lzero.sparsifier import Sparsifier

Target = float | int | str
Per = Literal["model", "layer"]
UNITS = {"l0": "gated parameters", "gates": "open gates", "params": "parameters", "macs": "MACs"}


@dataclass(frozen=True)
class Budget:
    """At most `limit` of a cost, for all that the named groups of gates touch; without groups, for the whole model."""

    cost: Cost
    limit: float
    dense: float
    name: str = "model"
    groups: tuple[str, ...] = ()

    @property
    def share(self) -> float:
        """The limit as a share of the dense cost."""
        return self.limit / self.dense

    def __str__(self) -> str:
        where = "" if not self.groups else f" of {self.name}"
        return f"{self.limit:,.0f} {UNITS[self.cost]}{where} ({self.share:.1%} of {self.dense:,.0f})"


class Meter:
    """One cost for the whole model, or for groups of its gates, as shares of what it was when gates were put on."""

    def __init__(self, sparsifier: Sparsifier, cost: Cost, groups: Sequence[tuple[str, ...]] = ((),)) -> None:
        self.cost, self.groups, self._sparsifier = one_of("cost", cost, Cost), tuple(groups), sparsifier
        self.dense = self._dense()
        self._scale = PerStructure(sparsifier, self._make)

    def shares(self, probability: Tensor) -> Tensor:
        """The cost as shares of dense, `[groups]`, when gates are open with the given probability; differentiable."""
        alive = probability if self.cost in OF_GATES else expected_alive(self._sparsifier, probability)
        return self._scale(probability.device)(alive)

    @torch.no_grad()
    def realised(self, decision: Decision) -> Tensor:
        """The cost of the network a decision leaves, exactly, `[groups]` in float64 on the CPU."""
        is_open = (decision.gates > 0).double().cpu()
        alive = is_open if self.cost in OF_GATES else decided_alive(self._sparsifier, decision)
        return self._scale(alive.device)(alive)

    def marginals(self, decision: Decision) -> Tensor:
        """What each gate adds when it opens, or saves when it closes, all else as decided, `[groups, gates]`."""
        of_gates = self.cost in OF_GATES
        alive = torch.ones_like(self._sparsifier.l0_weights) if of_gates else decided_alive(self._sparsifier, decision)
        with torch.enable_grad():
            shares = self._scale(alive.device)(alive.requires_grad_())
            rows = torch.stack([torch.autograd.grad(share, alive, retain_graph=True)[0] for share in shares])
        return rows if of_gates else gates_of_alive(self._sparsifier, rows)

    def _make(self, device: torch.device) -> Callable[[Tensor], Tensor]:
        """The function from gates, or from units and columns, to shares."""
        return self._gate_scale(device) if self.cost in OF_GATES else self._cost_scale(device)

    def _gate_scale(self, device: torch.device) -> Callable[[Tensor], Tensor]:
        sparsifier, count = self._sparsifier, len(self.groups)
        gates = [np.arange(g.start, g.stop) for names in self.groups for g in _chosen(sparsifier, names)]
        slots = [np.full(g.size, k) for k, names in enumerate(self.groups) for g in _chosen(sparsifier, names)]
        gate, slot = torch.from_numpy(np.concatenate(gates)), torch.from_numpy(np.concatenate(slots))
        weights = (_gate_weights(sparsifier, self.cost)[gate] / self.dense[slot]).to(device)
        gate, slot = gate.to(device), slot.to(device)
        if self.groups == ((),):
            return lambda open_: (weights.to(open_) * open_).sum().unsqueeze(0)
        return lambda open_: open_.new_zeros(count).index_add(0, slot, weights.to(open_) * open_[gate])

    def _cost_scale(self, device: torch.device) -> Callable[[Tensor], Tensor]:
        assert self.cost in ("params", "macs")  # noqa: S101 (which are counted alike)
        costs = self._sparsifier.costs
        selected = (_selection(self._sparsifier, costs, self.cost, self.groups) / self.dense[:, None]).to(device)
        terms, widths = costs.terms(self.cost).to(device), costs.widths.to(device)
        # A product and a sum: autocast would do a matrix product in half precision, where counts overflow.
        return lambda alive: (selected.to(alive) * terms(widths(alive))).sum(-1)

    def _dense(self) -> Tensor:
        if self.cost in OF_GATES:
            whole = self._sparsifier.dense_l0 if self.cost == "l0" else self._sparsifier.dense_gates
            sums = [sum(n for name, n in whole.items() if not names or name in names) for names in self.groups]
            return torch.tensor(sums, dtype=torch.float64, device="cpu")
        assert self.cost in ("params", "macs")  # noqa: S101 (which are counted alike)
        costs = self._sparsifier.dense
        terms = costs.terms(self.cost)(costs.widths(costs.all_alive()))
        return _selection(self._sparsifier, costs, self.cost, self.groups) @ terms


def _gate_weights(sparsifier: Sparsifier, cost: Cost) -> Tensor:
    """What each gate counts for."""
    return sparsifier.l0_weights if cost == "l0" else torch.ones_like(sparsifier.l0_weights)


def _chosen(sparsifier: Sparsifier, names: tuple[str, ...]) -> list[GateGroup]:
    return [group for group in sparsifier.groups if not names or group.name in names]


def _selection(
    sparsifier: Sparsifier, costs: Costs, cost: Literal["params", "macs"], groups: Sequence[tuple[str, ...]]
) -> Tensor:
    """Which terms of a cost count for which groups, `[groups, terms]`."""

    def row(names: tuple[str, ...]) -> Tensor:
        spans = [costs.span_of(group) for group in _chosen(sparsifier, names)]
        return costs.touched(cost, spans) if names else torch.ones_like(costs.terms(cost).constants, dtype=torch.bool)

    return torch.stack([row(names) for names in groups]).double()


def make_budgets(
    sparsifier: Sparsifier, target: Target | Mapping[str, Target], cost: Cost, per: Per = "model"
) -> tuple[Budget, ...]:
    """The budgets that a target means: one, one for each group of gates, or one for each glob over their names."""
    one_of("cost", cost, Cost)
    if cost not in OF_GATES and all(group.elements for group in sparsifier.groups):
        advice = "sparsify with units to count what units cost"
        expected = '"l0" or "gates" for gates on single weights'
        raise ArgumentError.about("cost", expected=expected, got=repr(cost), advice=advice)
    entries = _entries(sparsifier, target, per)
    meter = Meter(sparsifier, cost, [groups for _, groups, _ in entries])
    smallest = decide_from(sparsifier, torch.zeros(sparsifier.num_gates, dtype=torch.float64, device="cpu"))
    if cost in OF_GATES:
        floors = [_cheapest(sparsifier, cost, groups) for _, groups, _ in entries]
    else:
        floors = (meter.realised(smallest) * meter.dense).tolist()
    made = []
    for (name, groups, wanted), dense, floor in zip(entries, meter.dense.tolist(), floors, strict=True):
        budget = Budget(cost, _limit(wanted, dense, cost), dense, name, groups)
        if budget.limit < floor * (1 - 1e-9):
            _refuse(sparsifier, budget, smallest, floor)
        made.append(budget)
    return tuple(made)


def _cheapest(sparsifier: Sparsifier, cost: Cost, names: tuple[str, ...]) -> float:
    """What the cheapest gate of these groups counts for: with less, all would close."""
    weights = torch.cat([_gate_weights(sparsifier, cost)[group.span] for group in _chosen(sparsifier, names)])
    return float(weights[weights > 0].min()) if weights.any() else 0.0  # columns that a unit has counted weigh nothing


def _entries(
    sparsifier: Sparsifier, target: Target | Mapping[str, Target], per: Per
) -> list[tuple[str, tuple[str, ...], Target]]:
    names = [group.name for group in sparsifier.groups]
    one_of("per", per, Per)
    if isinstance(target, Mapping):
        if per != "model":
            raise ArgumentError.about("per", expected="nothing beside one target for each glob", got=repr(per))
        if not target:
            raise ArgumentError.about("target", expected="at least one glob with its target", got="none")
        return [(glob, found, target[glob]) for glob, found in first_matches(names, target, "target").items()]
    return [("model", (), target)] if per == "model" else [(name, (name,), target) for name in names]


def _limit(target: Target, dense: float, cost: Cost) -> float:
    """A target as an absolute number."""
    expected = f'a share such as 0.3, "30%", or a whole number of {UNITS[cost]} up to {dense:,.0f}'
    number = _number(target, expected)
    if not 0 < number < float("inf") or (number > 1 and not number.is_integer() and not isinstance(target, str)):
        raise ArgumentError.about("target", expected=expected, got=repr(target))
    limit = number * dense if is_share(target, cost) else number
    if limit > dense:
        raise ArgumentError.about("target", expected=expected, got=target, advice="the dense network needs no budget")
    return limit


def is_share(target: Target, cost: Cost) -> bool:
    """Whether a target is a part of the whole: 1 is all of it, but where gates are counted a single one of them."""
    return isinstance(target, str) or target < 1 or (target == 1 and cost != "gates")


def _number(target: Target, expected: str) -> float:
    try:
        if isinstance(target, str):
            return float(target.strip().removesuffix("%")) / 100 if target.strip().endswith("%") else float("nan")
        return float("nan") if isinstance(target, bool) else float(target)
    except (TypeError, ValueError):
        raise ArgumentError.about("target", expected=expected, got=repr(target)) from None


def _refuse(sparsifier: Sparsifier, budget: Budget, smallest: Decision, floor: float) -> None:
    """Say what stays even with one unit left at every site, and whose it is."""
    where = f" for {budget.name}" if budget.groups else ""
    least = f"at least {floor:,.0f} {UNITS[budget.cost]}{where} ({floor / budget.dense:.2%} of dense)"
    if budget.cost not in ("params", "macs"):
        least = f"{least}, which one gate stands for"
        advice = f'to keep {budget.limit:g} units count them: cost="gates"' if budget.cost == "l0" else None
        raise ArgumentError.about("target", expected=least, got=f"{budget.limit:,.0f}", advice=advice)
    costs = sparsifier.costs
    left = costs.terms(budget.cost)(costs.widths(decided_alive(sparsifier, smallest)))
    left = left * _selection(sparsifier, costs, budget.cost, [budget.groups])[0]
    owned: dict[str, float] = {}
    for owner, number in zip(costs.terms(budget.cost).owners, left.tolist(), strict=True):
        owned[owner] = owned.get(owner, 0.0) + number
    largest = sorted(owned.items(), key=lambda item: -item[1])[:4]
    whose = ", ".join(f"{name} {number:,.0f}" for name, number in largest)
    raise ArgumentError.about(
        "target",
        expected=f"{least}, which cannot be removed",
        got=f"{budget.limit:,.0f}",
        advice=f"{_meant(budget)}most of it: {whose}; sparsifier.plan(), or lzero plan, says why",
    )


def _meant(budget: Budget) -> str:
    """What a small whole number may have been meant to be."""
    number = budget.limit
    is_percent = 1 < number <= 100 and number.is_integer()
    return (
        f'{number:g} counts {UNITS[budget.cost]}, a share is {number / 100:g} or "{number:g}%"; ' if is_percent else ""
    )
