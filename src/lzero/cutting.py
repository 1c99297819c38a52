"""Cutting a copy of a gated model to a decision, and proving that it computes the same."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn

from lzero.decision import Decision
from lzero.errors import LzeroError, described
from lzero.graph import alive_in, can_train, graph_model
from lzero.patch import patch_sizes
from lzero.proof import Proof, folded_copy, incomparable, plain_copy
from lzero.sizes import Sizes, changed_sizes
from lzero.structure.analysis import analyse
from lzero.structure.sites import INPUTS_OF
from lzero.surgery import cut_model
from lzero.tensors import distinct, full_name, shapes_of

if TYPE_CHECKING:
    from lzero.sparsifier import Sparsifier
    from lzero.structure.frozen import Structure

Fallback = Literal["error", "graph"]
PLAN = "lzero_plan"  # the attribute of a compacted model that says, in JSON, how the dense one was cut


def plan_of(model: nn.Module) -> dict[str, Any]:
    """How the dense model was cut to this one, or parts of it each by itself; empty where nothing was."""
    own = {path: json.loads(each.__dict__[PLAN]) for path, each in model.named_modules() if PLAN in each.__dict__}
    plan: dict[str, Any] = own.pop("", {})
    if plan or not own:
        return plan
    merged: dict[str, Any] = {"dense": shapes_of(model), "sites": {}, "attributes": {}}
    for path, part in own.items():
        cut = {name for name in merged["dense"] if name.startswith(f"{path}.")}
        merged["dense"] = {name: shape for name, shape in merged["dense"].items() if name not in cut}
        merged["dense"] |= {full_name(path, name): shape for name, shape in part["dense"].items()}
        merged["sites"] |= {_site_of(path, name): units for name, units in part["sites"].items()}
        merged["attributes"] |= {
            full_name(path, inner) if inner else path: of for inner, of in part["attributes"].items()
        }
    return merged


def _site_of(path: str, name: str) -> str:
    """What the whole model calls a site of its part."""
    inputs = INPUTS_OF if name.startswith(INPUTS_OF) else ""
    return f"{inputs}{full_name(path, name.removeprefix(INPUTS_OF))}"


@dataclass(frozen=True)
class History:
    """How a dense model has been cut so far: its shapes, the units of each site that are left, changed attributes.

    `columns` has what is left of the columns that have gates of their own, counted from when they got them.
    """

    dense: dict[str, list[int]]
    sites: dict[str, list[int]]
    attributes: dict[str, dict[str, int]]
    columns: dict[str, list[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, model: nn.Module, structure: Structure) -> History:
        """That of a model which is about to get gates, and may have been cut before."""
        plan, shapes = plan_of(model), shapes_of(model)
        known = plan.get("sites", {})
        sites = {
            site.name: known[site.name] if len(known.get(site.name, ())) == site.size else list(range(site.size))
            for site in structure.sites
        }
        return cls(plan.get("dense", shapes), {**known, **sites}, plan.get("attributes", {}))

    def is_cut(self, model: nn.Module) -> bool:
        """Whether this model is smaller than the dense one."""
        shapes = shapes_of(model)
        return any(shapes.get(name) != shape for name, shape in self.dense.items())

    def after(self, sparsifier: Sparsifier, decision: Decision, sizes: Sizes) -> History:
        """The history with one more cut, and the whole numbers that it changes."""
        structure = sparsifier.structure
        sites = dict(self.sites)
        for site in structure.sites:
            kept = decision.units[structure.span(site)]
            sites[site.name] = [unit for unit, stays in zip(self.sites[site.name], kept.tolist(), strict=True) if stays]
        attributes = {path: dict(values) for path, values in self.attributes.items()}
        for path, values in sizes.items():
            attributes.setdefault(path, {}).update(values)
        return History(self.dense, sites, attributes, self._columns_after(sparsifier, decision))

    def _columns_after(self, sparsifier: Sparsifier, decision: Decision) -> dict[str, list[int]]:
        columns = dict(self.columns)
        for where in (where for group in sparsifier.groups for where in group.columns):
            kept = decision.kept(sparsifier.structure, where)
            before = columns.get(where.tensor, range(len(kept)))
            columns[where.tensor] = [column for column, stays in zip(before, kept.tolist(), strict=True) if stays]
        return columns

    def as_dict(self) -> dict[str, Any]:
        """The plan, for JSON; layers that choose their inputs hold them themselves."""
        return {"dense": self.dense, "sites": self.sites, "attributes": self.attributes}


def cut_copy(sparsifier: Sparsifier, decision: Decision, fallback: Fallback) -> nn.Module:
    """A plain copy without what the decision removes, gates folded into the weights, its outputs verified."""
    if sparsifier.bank.is_held:
        raise LzeroError("a model is not cut while its gates are held; leave `sparsifier.drawn()` first")
    small = folded_copy(sparsifier, decision)
    cut_model(small, sparsifier.structure, decision)
    flush_subnormals(small)
    proven = _proven(sparsifier, small, decision, fallback)
    if proven is small:  # a graph has no dense model to be cut again from
        history = sparsifier.history.after(sparsifier, decision, changed_sizes(sparsifier.model, small))
        proven.__dict__[PLAN] = json.dumps(history.as_dict())
    return proven


def _proven(sparsifier: Sparsifier, small: nn.Module, decision: Decision, fallback: Fallback) -> nn.Module:
    """The cut model once its outputs are right: as it is, with other sizes in its code, or as a graph."""
    model, inputs, proof = sparsifier.model, sparsifier.example_inputs, Proof(sparsifier, decision)
    failure = proof.failure(small)
    if failure is None:
        return small

    def works() -> bool:
        nonlocal failure  # the last one is that of code in which all that can be set has been
        failure = proof.failure(small)
        return failure is None

    dense = plain_copy(sparsifier)
    analysis = analyse(dense, inputs)
    alive = alive_in(analysis, sparsifier.structure, decision)
    if patch_sizes(small, analysis, alive, works):
        return small
    _check_comparable(sparsifier, decision)
    if fallback == "error":
        raise LzeroError(
            f"the Python code of {type(model).__name__} relies on the old sizes ({failure}); let sizes follow from "
            "tensors there, as by -1 in a view; or leave out what it is about by sparsify(…, exclude=…); or take the "
            'smaller model as a graph: compact(model, fallback="graph")'
        )
    # Closed columns stay, as zeros: a graph has no index layers.
    decision = Decision(decision.units, {}, decision.gates)
    small = folded_copy(sparsifier, decision)
    cut_model(small, sparsifier.structure, decision)
    try:
        graph = graph_model(dense, small, inputs, sparsifier.structure, decision)
        Proof(sparsifier, decision).check_graph(graph)
    except LzeroError:
        raise
    except Exception as error:  # whatever operations raise when their sizes are not those they were captured with
        why = f"the graph of {type(model).__name__} cannot be cut ({described(error)})"
        raise LzeroError(f"{why}; leave out what it is about by sparsify(…, exclude=…)") from error
    return graph.train(model.training and can_train(graph))


def _check_comparable(sparsifier: Sparsifier, decision: Decision) -> None:
    """Refuse a model whose outputs are others each time, or no numbers: no cut of it can be proven."""
    why = incomparable(folded_copy(sparsifier, decision), sparsifier.example_inputs)
    if why is not None:
        raise LzeroError(f"no cut of {type(sparsifier.model).__name__} can be proven: {why}")


def flush_subnormals(model: nn.Module) -> None:
    """Zero numbers too small for the processor's fast path, which dead channels tend towards."""
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.is_floating_point():
                own = distinct(tensor)
                own.masked_fill_(own.abs() < torch.finfo(tensor.dtype).tiny, 0.0)
