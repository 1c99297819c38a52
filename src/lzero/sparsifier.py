"""The gates of one model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from lzero.attach import LOG_ALPHA, Bank
from lzero.cutting import History, changed_attributes, cut_copy
from lzero.errors import ArgumentError, LzeroError
from lzero.plan import Plan
from lzero.shrink import check_optimizer, cut_groups, cut_in_place, cut_structure, decide_shrink
from lzero.wiring import gate_modules, release

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.utils.hooks import RemovableHandle

    from lzero.decision import Decision
    from lzero.gating import GateGroup
    from lzero.laws import HardConcrete
    from lzero.structure.frozen import Structure
    from lzero.structure.units import Ids


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
        parameter = self.model._parameters.get(LOG_ALPHA)
        if parameter is None:
            raise LzeroError("the gates of this model have been removed; call lzero.sparsify again")
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

    def attach(self, log_alpha: Tensor) -> None:
        """Change the model: register the gates and let parameters read as gated. Called once, by `sparsify`."""
        self.model.register_parameter(LOG_ALPHA, nn.Parameter(log_alpha))
        self.model.__dict__["_lzero_sparsifier"] = self
        self._handles = gate_modules(self)

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

        >>> import lzero
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> sparsifier = lzero.sparsify(model, torch.randn(3, 4))
        >>> sparsifier.log_alpha.data[:5] = -9.0
        >>> sparsifier.shrink(), model[0].out_features
        (5, 3)
        """
        check_optimizer(self.model, optimizer)
        decision = decide_shrink(self, threshold, round_to)
        removed = int((~decision.units).sum())
        if removed:
            copies = [self._same(average) for average in averages]
            small = cut_copy(self, decision, fallback="error")
            for sparsifier, its_optimizer in [(self, optimizer), *((each, None) for each in copies)]:
                sparsifier._cut(decision, its_optimizer, small)
        return removed

    def _same(self, average: nn.Module) -> Sparsifier:
        """The sparsifier of an averaged copy, which must have been cut like this model so far."""
        other = sparsifier_of(average.module if isinstance(average, AveragedModel) else average)
        if other.history.sites != self.history.sites or other.history.dense != self.history.dense:
            expected = "copies of this model that were cut along with it"
            raise ArgumentError.about("averages", expected=expected, got="one of other sizes")
        return other

    def _cut(self, decision: Decision, optimizer: torch.optim.Optimizer | None, small: nn.Module) -> None:
        """Cut this model like `small`, a copy that is known to be right."""
        self.history = self.history.after(self, decision, small)
        attributes = changed_attributes(self.model, small)
        self._release()
        for path, values in attributes.items():
            vars(self.model.get_submodule(path)).update(values)
        structure = cut_structure(self.structure, decision)
        groups = cut_groups(self, decision, structure)
        cut_in_place(self, decision, optimizer)
        self.structure, self.groups = structure, tuple(groups)
        self._handles = gate_modules(self)

    def _release(self) -> None:
        for module in self.model.modules():
            release(module)
        for handle in self._handles:
            handle.remove()

    def remove(self) -> nn.Module:
        """Undo `sparsify` exactly: the model is what it was, with the weights it has now."""
        sparsifier_of(self.model)
        self._release()
        del self.model._parameters[LOG_ALPHA]
        del self.model.__dict__["_lzero_sparsifier"]
        return self.model


def sparsifier_of(model: nn.Module) -> Sparsifier:
    """The sparsifier of a model that has gates."""
    sparsifier = model.__dict__.get("_lzero_sparsifier")
    if not isinstance(sparsifier, Sparsifier):
        expected, advice = "a model with gates", "call lzero.sparsify(model, example_inputs) first"
        raise ArgumentError.about("model", expected=expected, got=type(model).__name__, advice=advice)
    return sparsifier
