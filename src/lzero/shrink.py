"""Removal while training: the model, its gates and the optimizer's state become smaller in place."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves

from lzero.arguments import number
from lzero.attention import make_slim
from lzero.decision import Decision, Mask, check_memory, decide_from, read_units
from lzero.errors import ArgumentError, UnsupportedError
from lzero.structure.frozen import Extent, Structure
from lzero.structure.sites import Slice
from lzero.structure.units import NONE, Ids
from lzero.surgery import choose_inputs, cut
from lzero.tensors import full_name, held_by

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lzero.gating import GateGroup
    from lzero.sparsifier import Sparsifier

GONE = 0.1  # units less likely than this to be active are as good as removed

# Their state describes rows, columns or the whole, not single parameters: cutting it would change the next step.
MIXING = (torch.optim.Adafactor, torch.optim.LBFGS)


def decide_shrink(sparsifier: Sparsifier, threshold: float, round_to: int, *, columns: bool = True) -> Decision:
    """Remove units, and columns, that are closed at test time and hardly likely to be active; single weights stay."""
    check_memory(sparsifier)
    threshold = number("threshold", threshold, least=0, most=1)
    with torch.no_grad():
        probability = sparsifier.law.prob_active.cpu()
        estimate = sparsifier.estimate().cpu()
    is_gone = (probability < threshold) & (estimate <= 0)
    stays = torch.where(estimate.isnan(), estimate, 1.0)  # what is no number is refused with the decision
    for group in sparsifier.groups:
        if group.site is not None or (group.columns and columns):
            stays[group.span] = torch.where(is_gone[group.span], 0.0, stays[group.span])
    decision = decide_from(sparsifier, stays, round_to)
    read = read_units(sparsifier.structure, decision.units, decision.columns)
    return Decision(decision.units, _with_unread(sparsifier, decision, ~read) if columns else {}, estimate)


def _with_unread(sparsifier: Sparsifier, decision: Decision, unread: Mask) -> dict[Slice, Mask]:
    """Open columns, and all those of units that nothing reads and that stay, as those that round a width do."""
    tables = {where: sparsifier.structure.tensors[where.tensor][where.dim] for where in decision.columns}
    nobody = np.append(unread, False)  # for positions without a unit
    return {where: mask | nobody[tables[where]].any(axis=1) for where, mask in decision.columns.items()}


def check_optimizers(model: nn.Module, optimizers: Sequence[Optimizer]) -> None:
    """Refuse, before anything is changed, an optimizer whose state cannot be cut with the parameters."""
    for optimizer in optimizers:
        _check_optimizer(model, optimizer)


def _check_optimizer(model: nn.Module, optimizer: Optimizer) -> None:
    if isinstance(optimizer, MIXING):
        kind = type(optimizer).__name__
        raise UnsupportedError(f"{kind} keeps state that mixes units, which cannot be cut; use SGD, Adam(W), RMSprop …")
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    if held.isdisjoint(id(p) for p in model.parameters()):
        advice = "pass the optimizer that trains this model"
        raise ArgumentError.about("optimizer", expected="this model's parameters in it", got="none", advice=advice)
    for name, parameter in model.named_parameters():
        for key, state in optimizer.state.get(parameter, {}).items():
            for part in tree_leaves(state):
                is_whole = isinstance(part, Tensor) and part.numel() > 1
                if is_whole and (part is not state or part.shape != parameter.shape):
                    where = "" if part is state else " in a container"
                    shapes = f"{key} of shape {tuple(part.shape)}{where} for {name} of shape {tuple(parameter.shape)}"
                    raise UnsupportedError(f"{type(optimizer).__name__} keeps {shapes}: it cannot be cut with it")


def cut_in_place(sparsifier: Sparsifier, decision: Decision, gates: Mask, optimizers: Sequence[Optimizer]) -> None:
    """Cut every parameter with its gradient and optimizer state, every buffer, and the gates themselves."""
    structure, done, buffers = sparsifier.structure, set[int](), dict[int, Tensor]()
    for path, module in sparsifier.model.named_modules():
        for place, name, tensor in held_by(module):
            first = structure.aliases.get(full_name(path, name))
            if first not in structure.tensors:
                continue
            if not isinstance(tensor, nn.Parameter):  # a new tensor, for all modules that share the old one
                if id(tensor) not in buffers:
                    buffers[id(tensor)] = cut(tensor, structure, decision, first)
                place[name] = buffers[id(tensor)]
            elif id(tensor) not in done:
                done.add(id(tensor))
                _cut_parameter(tensor, lambda t, first=first: cut(t, structure, decision, first), optimizers)
    choose_inputs(sparsifier.model, structure, decision)
    make_slim(sparsifier.model)
    kept = torch.as_tensor(np.flatnonzero(gates), device=sparsifier.log_alpha.device)
    _cut_parameter(sparsifier.log_alpha, lambda t: t.index_select(0, kept), optimizers)


def _cut_parameter(parameter: nn.Parameter, smaller: Any, optimizers: Sequence[Optimizer]) -> None:
    old, data, gradient = parameter.shape, parameter.data, parameter.grad
    parameter.grad = None
    # Another type in between makes autograd forget the old shape, which a loss that is still held would keep alive.
    other = torch.float64 if data.dtype != torch.float64 else torch.float32
    parameter.data = torch.empty(0, dtype=other, device="cpu")
    parameter.data = smaller(data)
    parameter.grad = None if gradient is None else smaller(gradient)
    for optimizer in optimizers:
        state = optimizer.state.get(parameter, {})
        for key, value in state.items():
            if isinstance(value, Tensor) and value.shape == old and value.dim():
                state[key] = smaller(value)


def gates_kept(sparsifier: Sparsifier, decision: Decision) -> Mask:
    """Which gates stay: those of units, columns and elements that do."""
    structure = sparsifier.structure
    masks = []
    for group in sparsifier.groups:
        if group.site is not None:
            masks.append(decision.units[structure.span(group.site)])
        elif group.columns:
            masks.append(group.any_column(decision.kept(structure, group.columns[0])))
        else:
            assert group.elements is not None  # noqa: S101 (the third kind)
            kept = [
                decision.kept(structure, Slice(group.elements, k))
                for k in range(len(structure.tensors[group.elements]))
            ]
            masks.append(_outer(kept).ravel())
    return np.concatenate(masks)


def _outer(masks: Sequence[Mask]) -> Mask:
    grid = masks[0]
    for mask in masks[1:]:
        grid = np.logical_and.outer(grid, mask)
    return grid


def cut_structure(structure: Structure, decision: Decision) -> Structure:
    """The structure of what is left, its units numbered anew."""
    number = np.where(decision.units, np.cumsum(decision.units) - 1, NONE)

    def left(table: Ids, kept: Mask | None = None) -> Ids:
        rows = table[decision.positions(table) if kept is None else kept]
        return np.where(rows == NONE, NONE, number[rows])

    def read(table: Ids, reader: Slice | None) -> Ids:
        return left(table, None if reader not in decision.columns else decision.kept(structure, reader))

    sites = tuple(
        replace(site, labels=tuple(np.array(site.labels)[decision.units[structure.span(site)]].tolist()))
        for site in structure.sites
    )
    tensors = {
        name: tuple(read(table, Slice(name, k)) for k, table in enumerate(dims))
        for name, dims in structure.tensors.items()
    }
    inputs = {where: left(structure.given(where)) for where in (*structure.inputs, *decision.columns)}
    return Structure(
        sites,
        structure.pinned,
        tensors,
        {where: left(table, decision.kept(structure, where)) for where, table in structure.readers.items()},
        tuple(tuple(Extent(read(e.units, e.reader), e.reader) for e in product) for product in structure.products),
        tuple(left(table) for table in structure.activations),
        structure.aliases,
        {w: t for w, t in inputs.items() if w in structure.inputs or len(t) > len(tensors[w.tensor][w.dim])},
        {path: left(table) for path, table in structure.norms.items()},
    )


def cut_groups(before: Sequence[GateGroup], kept: Mask, structure: Structure) -> list[GateGroup]:
    """The gate groups of what is left, one after another."""
    sites = {site.name: site for site in structure.sites}
    groups, start = [], 0
    for group in before:
        site = None if group.site is None else sites[group.site.name]
        groups.append(group.left(start, kept[group.span], site))
        start = groups[-1].stop
    return groups
