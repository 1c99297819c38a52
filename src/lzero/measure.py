"""How large a model is: before, in expectation, and for what is left."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch

from lzero.belonging import UNWRAPPED, check_plain, own_sparsifier
from lzero.costs import Costs, decided_alive, expected_alive
from lzero.decision import decide
from lzero.errors import ArgumentError
from lzero.proof import plain_copy
from lzero.structure.analysis import analyse
from lzero.structure.capture import Inputs, as_tuple
from lzero.structure.frozen import freeze, same_sites
from lzero.tensors import check_module, tensor_leaves

if TYPE_CHECKING:
    from torch import nn

    from lzero.sparsifier import Sparsifier
    from lzero.structure.frozen import Structure


@dataclass(frozen=True)
class Count:
    """One cost: of the whole model, expected under its gates, and of the network that is left."""

    dense: int
    expected: float
    realised: int

    @classmethod
    def fixed(cls, number: int) -> Count:
        """The cost of a model without gates."""
        return cls(number, float(number), number)

    def __str__(self) -> str:
        share = f" ({self.realised / self.dense:.1%} of {self.dense:,})" if self.realised != self.dense else ""
        return f"{self.realised:,}{share}"


@dataclass(frozen=True)
class SiteCount:
    """One site: its units, and the cost of all they touch."""

    name: str
    units: Count
    params: Count
    macs: Count


@dataclass(frozen=True)
class Measurement:
    """Gates, L0 groups as the papers count them (Eq. 16), parameters, and multiply–accumulates for the inputs."""

    gates: Count
    l0: Count
    params: Count
    macs: Count
    sites: tuple[SiteCount, ...]

    def __str__(self) -> str:
        lines = [f"parameters  {self.params}", f"MACs        {self.macs}"]
        if self.gates.dense:
            lines.append(f"open gates  {self.gates}, {self.gates.expected:,.1f} expected")
        return "\n".join(lines)


def measure(model: nn.Module, inputs: Inputs | None = None) -> Measurement:
    """Count a model: with gates for its example inputs unless others are given, without gates for `inputs`.

    One multiply–accumulate is one MAC. Realised counts are those of the model `compact` gives. Dense ones are those
    from before anything was shrunk away, but for MACs of other inputs, which nobody counted then.

    >>> from torch import nn
    >>> print(measure(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), torch.randn(1, 4)))
    parameters  58
    MACs        48
    """
    check_module("model", model)
    sparsifier = own_sparsifier(model)
    if sparsifier is not None:
        return _measure_gated(sparsifier, inputs)
    check_plain(model, UNWRAPPED)
    if inputs is None:
        raise ArgumentError.about("inputs", expected="inputs for a model without gates", got=None)
    products = analyse(model, inputs).products
    macs = sum(math.prod(dim.size for dim in product.dims) for product in products)
    params = Count.fixed(sum(parameter.numel() for parameter in model.parameters()))
    return Measurement(Count.fixed(0), Count.fixed(0), params, Count.fixed(macs), ())


@torch.no_grad()
def _measure_gated(sparsifier: Sparsifier, inputs: Inputs | None) -> Measurement:
    structure = sparsifier.structure if inputs is None else _structure_for(sparsifier, inputs)
    decision = decide(sparsifier)
    same = structure is sparsifier.structure
    costs = sparsifier.costs if same else Costs(sparsifier, structure)
    whole = {"params": sparsifier.dense, "macs": sparsifier.dense if same else costs}
    probability = sparsifier.law.prob_active.double().cpu()
    is_open = (decision.gates > 0).double()
    alive, expected = decided_alive(sparsifier, decision), expected_alive(sparsifier, probability)

    def count(cost: Literal["params", "macs"]) -> Count:
        likely, left = (float(costs(cost, a)) for a in (expected, alive))
        return Count(round(float(whole[cost](cost, whole[cost].all_alive()))), likely, round(left))

    def per_site(cost: Literal["params", "macs"]) -> list[Count]:
        dense = whole[cost].per_site(cost, whole[cost].all_alive()).tolist()
        likely, left = (costs.per_site(cost, a).tolist() for a in (expected, alive))
        return [Count(round(d), e, round(r)) for d, e, r in zip(dense, likely, left, strict=True)]

    weights = sparsifier.l0_weights
    sites = []
    for site, params, macs in zip(structure.sites, per_site("params"), per_site("macs"), strict=True):
        span = structure.span(site)
        units = Count(sparsifier.dense_units[site.name], float(expected[span].sum()), int(alive[span].sum()))
        sites.append(SiteCount(site.name, units, params, macs))
    gates = Count(int(sum(sparsifier.dense_gates.values())), float(probability.sum()), int(is_open.sum()))
    l0 = Count(
        int(sum(sparsifier.dense_l0.values())), float((weights * probability).sum()), int((weights * is_open).sum())
    )
    return Measurement(gates, l0, count("params"), count("macs"), tuple(sites))


def _structure_for(sparsifier: Sparsifier, inputs: Inputs) -> Structure:
    """The same units for inputs of another size."""
    if _shapes(as_tuple(inputs)) == _shapes(sparsifier.example_inputs):
        return sparsifier.structure
    analysis = analyse(plain_copy(sparsifier), inputs)
    return freeze(analysis, same_sites(analysis, sparsifier.structure), [])


def _shapes(inputs: tuple[Any, ...]) -> list[torch.Size]:
    return [tensor.shape for tensor in tensor_leaves(inputs)]
