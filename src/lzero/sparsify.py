"""Put gates on what can be removed."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.parametrize import is_parametrized
from torch.utils._pytree import tree_leaves, tree_map

from lzero.arguments import one_of
from lzero.bank import Bank
from lzero.errors import ArgumentError, LzeroError, described
from lzero.gates import DEFAULT_KEEP_RATE, Gate
from lzero.gating import (
    INNER,
    Columns,
    GateGroup,
    Globs,
    UnitKind,
    choose,
    column_groups,
    element_groups,
    first_matches,
    inputs_of,
    unit_groups,
)
from lzero.laws.hard_concrete import BETA, GAMMA, ZETA
from lzero.layers import IndexedLinear
from lzero.plan import Plan
from lzero.sparsifier import Sparsifier
from lzero.structure.analysis import analyse
from lzero.structure.capture import Inputs, as_tuple
from lzero.structure.frozen import Structure, freeze
from lzero.structure.sites import Pinned, find_sites
from lzero.tensors import check_copyable, check_module, full_name, outside_inference_mode, tensor_leaves
from lzero.traceless import keeping_noise, running

if TYPE_CHECKING:
    from lzero.laws import Estimator
    from lzero.structure.analysis import Analysis


LEFT_OUT = "could be removed; left out by include and exclude"
PLAIN_FIRST = """
Weights that are computed from others, as by weight_norm or spectral_norm, mix units; take that off to remove some:
torch.nn.utils.parametrize.remove_parametrizations(layer, "weight")"""


@outside_inference_mode()
def sparsify(
    model: nn.Module,
    example_inputs: Inputs,
    *,
    units: UnitKind = "structure",
    include: Globs = "*",
    exclude: Globs = INNER,
    inputs: bool | Columns = False,
    keep_rate: float | Mapping[str, float] = DEFAULT_KEEP_RATE,
    beta: float = BETA,
    gamma: float = GAMMA,
    zeta: float = ZETA,
    estimator: Estimator = "eq13",
) -> Sparsifier:
    """Put a gate on every removable unit of a model, in place.

    `units` is `"structure"` for neurons, feature maps, heads and channels; `"paper"` for the papers' choice, which
    also gates each input of a dense layer; `"weights"` for a gate on every weight. `include` and `exclude` are globs
    over the names that `plan()` shows; the inner dimensions of attention heads are left out unless asked for. `inputs`
    also gates the raw inputs of dense layers one by one, or with lists of columns those of each list together, such as
    the columns of one category; to choose features and nothing else, include `"inputs of *"`.
    `keep_rate` is one number, or one for each glob.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> sparsifier = sparsify(model, torch.randn(3, 4))
    >>> sparsifier.log_alpha.shape
    torch.Size([8])
    """
    _check(model, units, inputs=inputs)
    positional = _examples(example_inputs)
    _check_precision(model, positional)
    analysis = analyse(model, positional)
    sites, pinned = find_sites(analysis)
    pinned += _not_reached(model, analysis)
    if units == "weights":
        structure = freeze(analysis, [site for site in sites if not fnmatchcase(site.name, INNER)], pinned)
        groups = element_groups(structure, _chosen_weights(model, structure, include, exclude), 0)
    else:
        matrices, together = set[str](), _going_together(inputs)
        if units == "paper" or inputs:
            matrices = _dense_weights(model, analysis)
        columns = {inputs_of(weight): weight for weight in sorted(matrices)}
        chosen = choose([*(site.name for site in sites), *columns], include, exclude)
        kept = [site for site in sites if site.name in chosen]
        pinned += [Pinned(s.name, s.size, LEFT_OUT, s.consumers) for s in sites if s.name not in chosen]
        structure = freeze(analysis, kept, pinned)
        wanted = {weight for name, weight in columns.items() if name in chosen}
        columns_of = column_groups(structure, pinned, wanted, structure.num_units, analysis.labels_of, together)
        groups = [*unit_groups(kept), *columns_of]
    if not groups:
        advice = PLAIN_FIRST if any(map(is_parametrized, model.modules())) else ""
        raise LzeroError(f"nothing in {type(model).__name__} can be removed:\n{Plan.of(structure, groups)}{advice}")
    bank = Bank(beta, gamma, zeta, estimator)
    log_alpha = _initial(groups, keep_rate, bank).to(next(model.parameters()).device)
    sparsifier = Sparsifier(model, structure, groups, bank, positional)
    sparsifier.put_on(log_alpha)
    return sparsifier


def _check(model: nn.Module, units: UnitKind, *, inputs: bool | Columns) -> None:
    """Refuse what cannot get gates, before it is looked at."""
    check_module("model", model)
    one_of("units", units, UnitKind)
    if units == "weights" and inputs:
        advice = "an input goes when all its weights are closed"
        raise ArgumentError.about("inputs", expected='False with units="weights"', got=inputs, advice=advice)
    if isinstance(model, torch.jit.ScriptModule):
        expected, advice = "a model in Python", "gate the model itself, before torch.jit"
        raise ArgumentError.about("model", expected=expected, got=type(model).__name__, advice=advice)
    if isinstance(model, torch._dynamo.OptimizedModule):
        advice = "gate the model itself, then compile it: torch.compile(model)"
        raise ArgumentError.about("model", expected="a model without torch.compile", got="one with", advice=advice)
    check_copyable(model)
    lazy = [path for path, module in model.named_modules() for p in module._parameters.values() if is_lazy(p)]
    if lazy:
        advice = "call the model once on example inputs first"
        expected, got = "layers that know their sizes", f"{', '.join(dict.fromkeys(lazy))} without"
        raise ArgumentError.about("model", expected=expected, got=got, advice=advice)
    if any("_lzero_factors" in module.__dict__ for module in model.modules()):
        raise LzeroError("this model has gates already; sparsifier.remove() takes them off")


def _going_together(inputs: bool | Columns) -> Columns:
    """The lists of columns that were given, if any."""
    if isinstance(inputs, bool):
        return ()
    if not isinstance(inputs, list | tuple) or not all(isinstance(columns, list | tuple) for columns in inputs):
        expected = "True, False, or lists of columns that go together"
        raise ArgumentError.about("inputs", expected=expected, got=repr(inputs))
    return inputs


def _examples(inputs: Inputs) -> tuple[Any, ...]:
    """Positional inputs without their graphs; cuts are checked by what the model makes of them."""
    examples: tuple[Any, ...] = tree_map(lambda x: x.detach() if isinstance(x, Tensor) else x, as_tuple(inputs))
    if any(isinstance(x, Tensor) and not x.is_meta and x.isnan().any() for x in tree_leaves(examples)):
        raise ArgumentError.about("example_inputs", expected="numbers", got="some that are none (NaN)")
    if empty := [tuple(x.shape) for x in tree_leaves(examples) if isinstance(x, Tensor) and not x.numel()]:
        raise ArgumentError.about("example_inputs", expected="at least one example", got=f"a tensor of {empty[0]}")
    return examples


def _check_precision(model: nn.Module, inputs: tuple[Any, ...]) -> None:
    """Refuse inputs of another precision than the weights', unless the model's code takes them: a capture would."""
    own = next((p for p in model.parameters() if p.is_floating_point()), None)
    others = {x.dtype for x in tensor_leaves(inputs) if x.is_floating_point() and not x.is_meta}
    if own is None or own.is_meta or others <= {own.dtype}:
        return
    try:
        with running(model), keeping_noise(), torch.no_grad():
            model(*inputs)
    except Exception as error:
        got = f"{', '.join(map(str, others))}, with which it does not run"
        advice = f"x.to({own.dtype}); {described(error)}"
        raise ArgumentError.about("example_inputs", expected=str(own.dtype), got=got, advice=advice) from error


def _not_reached(model: nn.Module, analysis: Analysis) -> list[Pinned]:
    """The weights that the example inputs do not lead to."""
    reason = "not used with these example inputs"
    unread = [(name, p) for name, p in model.named_parameters() if name in analysis.unread and p.dim() > 1]
    return [Pinned(name.rpartition(".")[0] or name, len(weight), reason, ()) for name, weight in unread]


def _dense_weights(model: nn.Module, analysis: Analysis) -> set[str]:
    """The weights of dense layers used once: those that can be made to choose their inputs."""
    layers = [path for path, module in model.named_modules() if type(module) in (nn.Linear, IndexedLinear)]
    names = {full_name(path, "weight") for path in layers}
    shared = [name for alias, name in analysis.aliases.items() if alias != name]
    alone = {name for name in names if analysis.aliases.get(name) == name and name not in shared}
    return alone & analysis.used_once()


def _chosen_weights(model: nn.Module, structure: Structure, include: Globs, exclude: Globs) -> list[str]:
    """The parameters whose elements get gates."""
    parameters = {name for name, _ in model.named_parameters()}
    names = [name for name, dims in structure.tensors.items() if name in parameters and len(dims) >= 2]
    chosen = choose(names, include, exclude)
    return [name for name in names if name in chosen]


def _initial(groups: list[GateGroup], keep_rate: float | Mapping[str, float], bank: Bank) -> Tensor:
    """Log α at the start: of groups that no glob matches, at the default keep rate."""
    globs = keep_rate if isinstance(keep_rate, Mapping) else {"*": keep_rate}
    matches = first_matches([group.name for group in groups], globs, "keep_rate")
    rates = {name: globs[glob] for glob, names in matches.items() for name in names}

    def start(group: GateGroup) -> Tensor:
        rate, size = rates.get(group.name, DEFAULT_KEEP_RATE), group.size
        law = {"beta": bank.beta, "gamma": bank.gamma, "zeta": bank.zeta}
        return Gate(size, keep_rate=rate, **law, estimator=bank.estimator, device="cpu").log_alpha.detach()

    return torch.cat([start(group) for group in groups])
