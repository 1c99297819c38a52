"""Put gates on what can be removed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from lzero.attach import INDEX, LOG_ALPHA, Bank, Factor, gated_class
from lzero.cutting import History, changed_attributes, cut_copy
from lzero.errors import ArgumentError, LzeroError
from lzero.gates import DEFAULT_KEEP_RATE, Gate
from lzero.gating import (
    INNER,
    GateGroup,
    Globs,
    UnitKind,
    check_units,
    choose,
    column_groups,
    element_groups,
    keep_rate_of,
    unit_groups,
)
from lzero.plan import Plan
from lzero.shrink import check_optimizer, cut_groups, cut_in_place, cut_structure, decide_shrink
from lzero.structure.analysis import analyse
from lzero.structure.capture import Inputs, as_tuple
from lzero.structure.frozen import Structure, freeze
from lzero.structure.sites import Pinned, Slice, find_sites
from lzero.structure.units import NONE, Ids

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch.utils.hooks import RemovableHandle

    from lzero.decision import Decision
    from lzero.laws import Estimator, HardConcrete


class Sparsifier:
    """The gates of one model: what they are on, their law, and the way back."""

    def __init__(
        self, model: nn.Module, structure: Structure, groups: list[GateGroup], bank: Bank, inputs: Any
    ) -> None:
        self.model, self.structure, self.groups, self.bank = model, structure, tuple(groups), bank
        self.example_inputs: tuple[Any, ...] = inputs
        self._handles: list[RemovableHandle] = []
        dense = {
            name: list(t.shape) for name, t in model.state_dict().items() if structure.aliases.get(name, name) == name
        }
        self.history = History(dense, {site.name: list(range(site.size)) for site in structure.sites}, {})

    @property
    def gate_of_unit(self) -> Ids:
        """The gate of each unit; where units have none, one past the last gate."""
        units = self.structure.num_units
        gated = any(group.site for group in self.groups)
        return np.arange(units) if gated else np.full(units, max(group.stop for group in self.groups))

    @property
    def log_alpha(self) -> nn.Parameter:
        """The locations of all gates, in one vector."""
        parameter = self.model._parameters[LOG_ALPHA]
        assert parameter is not None  # noqa: S101 (registered by sparsify, taken away by remove)
        return parameter

    @property
    def law(self) -> HardConcrete:
        """The law of all gates as log α stands now."""
        return self.bank.law(self.log_alpha)

    def plan(self) -> Plan:
        """What can be removed, what cannot and why, by module path."""
        return Plan.of(self.structure, self.groups)

    def param_groups(self, lr: float, gate_lr: float | None = None, weight_decay: float = 0.0) -> list[dict[str, Any]]:
        """Two parameter groups for an optimizer: weights, and gates with their own learning rate and no decay."""
        weights = [p for name, p in self.model.named_parameters() if name != LOG_ALPHA]
        return [
            {"params": weights, "lr": lr, "weight_decay": weight_decay},
            {"params": [self.log_alpha], "lr": lr if gate_lr is None else gate_lr, "weight_decay": 0.0},
        ]

    def shrink(
        self,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        threshold: float = 0.1,
        round_to: int = 1,
        averages: Sequence[nn.Module] = (),
    ) -> int:
        """Remove, in place, units whose probability of being active is below the threshold; how many is returned.

        The optimizer's state, gradients and buffers are cut along, and so are averaged copies of the model. What was
        removed cannot come back. Call it between steps, with no graph waiting for its backward; wrap DDP anew.

        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> sparsifier = sparsify(model, torch.randn(3, 4))
        >>> sparsifier.log_alpha.data[:5] = -9.0
        >>> sparsifier.shrink(), model[0].out_features
        (5, 3)
        """
        check_optimizer(self.model, optimizer)
        decision = decide_shrink(self, threshold, round_to)
        removed = int((~decision.units).sum())
        if removed:
            copies = [sparsifier_of(average) for average in averages]
            small = cut_copy(self, decision, fallback="error")
            attributes = changed_attributes(self.model, small)
            self.history = self.history.after(self, decision, small)
            for sparsifier, its_optimizer in [(self, optimizer), *((each, None) for each in copies)]:
                sparsifier._cut(decision, its_optimizer, attributes)
        return removed

    def _cut(
        self, decision: Decision, optimizer: torch.optim.Optimizer | None, attributes: dict[str, dict[str, int]]
    ) -> None:
        self._detach_modules()
        for path, values in attributes.items():
            vars(self.model.get_submodule(path)).update(values)
        structure = cut_structure(self.structure, decision)
        groups = cut_groups(self, decision, structure)
        cut_in_place(self, decision, optimizer)
        self.structure, self.groups = structure, tuple(groups)
        _gate_modules(self)

    def _detach_modules(self) -> None:
        for module in self.model.modules():
            _detach(module)
        for handle in self._handles:
            handle.remove()

    def remove(self) -> nn.Module:
        """Undo `sparsify` exactly: the model is what it was, with the weights it has now."""
        self._detach_modules()
        del self.model._parameters[LOG_ALPHA]
        del self.model.__dict__["_lzero_sparsifier"]
        return self.model


def sparsify(
    model: nn.Module,
    example_inputs: Inputs,
    *,
    units: UnitKind = "structure",
    include: Globs = "*",
    exclude: Globs = INNER,
    inputs: bool = False,
    keep_rate: float | Mapping[str, float] = DEFAULT_KEEP_RATE,
    beta: float = 2 / 3,
    gamma: float = -0.1,
    zeta: float = 1.1,
    estimator: Estimator = "eq13",
) -> Sparsifier:
    """Put a gate on every removable unit of a model, in place.

    `units` is `"structure"` for neurons, feature maps, heads and channels; `"paper"` for the papers' choice, which
    also gates each input of a dense layer; `"weights"` for a gate on every weight. `include` and `exclude` are globs
    over the names that `plan()` shows; the inner dimensions of attention heads are left out unless asked for. `inputs`
    also gates the raw inputs of dense layers one by one. `keep_rate` is one number, or one for each glob.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> sparsifier = sparsify(model, torch.randn(3, 4))
    >>> sparsifier.log_alpha.shape
    torch.Size([8])
    """
    check_units(units)
    if "_lzero_sparsifier" in model.__dict__:
        raise LzeroError("this model has gates already; sparsifier.remove() takes them off")
    positional = as_tuple(example_inputs)
    analysis = analyse(model, positional)
    sites, pinned = find_sites(analysis)
    names = [site.name for site in sites]
    chosen = choose(names, include, exclude)
    kept = [site for site in sites if site.name in chosen]
    left_out = [site for site in sites if site.name not in chosen]
    pinned += [
        Pinned(s.name, s.size, "could be removed; left out by include and exclude", s.consumers) for s in left_out
    ]
    structure = freeze(analysis, kept, pinned)
    groups = unit_groups(kept) if units != "weights" else []
    matrices = _dense_weights(model, structure)
    if units == "paper" or inputs:
        groups += column_groups(structure, pinned, matrices, structure.num_units)
    if units == "weights":
        groups += element_groups(structure, _weight_names(model, structure, include, exclude), 0)
    if not groups:
        raise LzeroError(f"nothing in {type(model).__name__} can be removed:\n{Plan.of(structure, groups)}")
    bank = Bank(beta, gamma, zeta, estimator)
    log_alpha = _initial(groups, keep_rate, beta, gamma, zeta, estimator).to(next(model.parameters()).device)
    sparsifier = Sparsifier(model, structure, groups, bank, positional)
    _attach(sparsifier, log_alpha)
    return sparsifier


def _dense_weights(model: nn.Module, structure: Structure) -> set[str]:
    """The weights of dense layers used once: those that can be made to choose their inputs."""
    names = {f"{path}.weight" if path else "weight" for path, m in model.named_modules() if type(m) is nn.Linear}
    shared = [name for alias, name in structure.aliases.items() if alias != name]
    return {name for name in names if structure.aliases.get(name) == name and name not in shared}


def _weight_names(model: nn.Module, structure: Structure, include: Globs, exclude: Globs) -> list[str]:
    parameters = {name for name, _ in model.named_parameters()}
    names = [name for name, dims in structure.tensors.items() if name in parameters and len(dims) >= 2]
    chosen = choose([name.rpartition(".")[0] for name in names], include, exclude)
    return [name for name in names if name.rpartition(".")[0] in chosen]


def _initial(
    groups: list[GateGroup],
    keep_rate: float | Mapping[str, float],
    beta: float,
    gamma: float,
    zeta: float,
    estimator: Estimator,
) -> Tensor:
    def start(group: GateGroup) -> Tensor:
        rate = keep_rate_of(group.name, keep_rate, DEFAULT_KEEP_RATE)
        gate = Gate(group.stop - group.start, keep_rate=rate, beta=beta, gamma=gamma, zeta=zeta, estimator=estimator)
        return gate.log_alpha.detach()

    return torch.cat([start(group) for group in groups])


def _attach(sparsifier: Sparsifier, log_alpha: Tensor) -> None:
    """Change the model: everything has been checked before."""
    model = sparsifier.model
    model.register_parameter(LOG_ALPHA, nn.Parameter(log_alpha))
    model.__dict__["_lzero_sparsifier"] = sparsifier
    _gate_modules(sparsifier)


def _gate_modules(sparsifier: Sparsifier) -> None:
    model, factors = sparsifier.model, _factors(sparsifier)
    sparsifier._handles = [
        model.register_forward_pre_hook(sparsifier.bank.begin),
        model.register_forward_hook(sparsifier.bank.end, always_call=True),
    ]
    for path, module in model.named_modules():
        mine = factors.get(path, {})
        if mine or module is model:
            module.__dict__["_lzero_bank"], module.__dict__["_lzero_factors"] = sparsifier.bank, mine
            module.__class__ = gated_class(type(module), tuple(mine), module is model)  # type: ignore[arg-type]
        if mine and module is not model:
            sparsifier._handles.append(module.register_forward_pre_hook(sparsifier.bank.require))


def _factors(sparsifier: Sparsifier) -> dict[str, dict[str, Factor]]:
    """For each module path and parameter name, where its gates are in the bank; the index is laid on the root."""
    structure, bank = sparsifier.structure, sparsifier.bank
    tables = gate_tables(structure, sparsifier.groups)
    elements = [group for group in sparsifier.groups if group.elements]
    bank.sizes = [len(table) for table in tables.values()]
    bank.element_sizes = [group.stop - group.start for group in elements]
    index = torch.as_tensor(
        _stacked(list(tables.values()), sparsifier.groups[-1].stop), device=next(sparsifier.model.parameters()).device
    )
    sparsifier.model.register_buffer(INDEX, index, persistent=False)
    dims: dict[str, dict[int, int]] = {}
    for number, where in enumerate(tables):
        dims.setdefault(where.tensor, {})[where.dim] = number
    own = {group.elements: len(tables) + k for k, group in enumerate(elements)}
    factors: dict[str, dict[str, Factor]] = {}
    for alias, name in structure.aliases.items():
        path, _, attribute = alias.rpartition(".")
        if name in dims or name in own:
            factors.setdefault(path, {})[attribute] = Factor(dims.get(name, {}), own.get(name))
    return factors


def _stacked(tables: list[Ids], one: int) -> Ids:
    """All tables one below the other, filled up to one width with the number that stands for no gate."""
    width = max((table.shape[1] for table in tables), default=1)
    padded = [np.pad(table, ((0, 0), (0, width - table.shape[1])), constant_values=one) for table in tables]
    return np.concatenate([np.empty((0, width), dtype=np.int64), *padded])


def gate_tables(structure: Structure, groups: tuple[GateGroup, ...]) -> dict[Slice, np.ndarray[Any, Any]]:
    """For each gated dimension the numbers of each position's gates; positions without point past the last gate."""
    columns = {group.columns: group for group in groups if group.columns}
    one = max(group.stop for group in groups)
    readers = structure.readers if any(group.site for group in groups) else {}
    tables = {}
    for where in dict.fromkeys([*readers, *columns]):
        parts = []
        if where in readers:
            parts.append(structure.readers[where])
        if where in columns:
            parts.append(np.arange(columns[where].start, columns[where].stop)[:, None])
        table = np.concatenate(parts, axis=1)
        tables[where] = np.where(table == NONE, one, table)
    return tables


def _detach(module: nn.Module) -> None:
    if module.__dict__.pop("_lzero_factors", None) is None:
        return
    module.__class__ = type(module)._lzero_base  # type: ignore[attr-defined]
    del module.__dict__["_lzero_bank"]
    if module._buffers.pop(INDEX, None) is not None:
        module._non_persistent_buffers_set.discard(INDEX)


def sparsifier_of(model: nn.Module) -> Sparsifier:
    """The sparsifier of a model that has gates."""
    sparsifier = model.__dict__.get("_lzero_sparsifier")
    if not isinstance(sparsifier, Sparsifier):
        expected, advice = "a model with gates", "call lzero.sparsify(model, example_inputs) first"
        raise ArgumentError.about("model", expected=expected, got=type(model).__name__, advice=advice)
    return sparsifier
