"""The gates of one model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel
from torch.utils._pytree import tree_map

from lzero.arguments import all_of, number, whole
from lzero.attachment import Attachment
from lzero.bank import LOG_ALPHA, Bank
from lzero.belonging import belong, forget, own_sparsifier, sparsifier_of
from lzero.costs import Costs, l0_weights
from lzero.cutting import PLAN, History, cut_copy
from lzero.errors import ArgumentError, LzeroError
from lzero.plan import Plan
from lzero.shrink import GONE, check_optimizers, cut_groups, cut_in_place, cut_structure, decide_shrink, gates_kept
from lzero.sizes import Sizes, changed_sizes, set_sizes
from lzero.tensors import outside_inference_mode, with_numbers
from lzero.trial import check_cuttable
from lzero.wiring import gate_modules, release

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.utils.hooks import RemovableHandle

    from lzero.decision import Decision
    from lzero.gating import GateGroup
    from lzero.laws import HardConcrete
    from lzero.objectives import Objective
    from lzero.structure.frozen import Structure
    from lzero.structure.units import Ids

OTHERS = "these gates have been removed, and the model has others: use what lzero.sparsify returned last"


class Sparsifier:
    """The gates of one model: what they are on, their law, and the way back."""

    def __init__(
        self, model: nn.Module, structure: Structure, groups: list[GateGroup], bank: Bank, inputs: Any
    ) -> None:
        self.model, self.structure, self.groups, self.bank = model, structure, tuple(groups), bank
        self._inputs: tuple[Any, ...] = inputs
        self._captured = self._precision()
        self._handles: list[RemovableHandle] = []
        self.history = History.of(model, structure)
        self.l0_weights = l0_weights(self)
        self.dense_l0 = {group.name: float(self.l0_weights[group.span].sum()) for group in groups}
        self.dense_gates = {group.name: float(group.size) for group in groups}
        self.dense_units = {site.name: site.size for site in structure.sites}
        self.costs = self.dense = Costs(self)
        self._attached: Attachment | None = None

    @property
    def num_gates(self) -> int:
        """How many gates there are now."""
        return self.groups[-1].stop

    @property
    def gates_units(self) -> bool:
        """Whether units have gates, and not their weights or columns alone."""
        return any(group.site for group in self.groups)

    @property
    def gate_of_unit(self) -> Ids:
        """The gate of each unit; where units have none, one past the last gate."""
        units = self.structure.num_units
        return np.arange(units) if self.gates_units else np.full(units, self.num_gates)

    @property
    def log_alpha(self) -> nn.Parameter:
        """The locations of all gates, in one vector."""
        self.check_current()
        return self.model._parameters[LOG_ALPHA]  # type: ignore[return-value]

    def check_current(self) -> None:
        """Refuse gates that were taken off the model, also where it has others by now."""
        if LOG_ALPHA not in self.model._parameters:
            raise LzeroError("the gates of this model have been removed; call lzero.sparsify again")
        if own_sparsifier(self.model) not in (None, self):
            raise LzeroError(OTHERS)

    @property
    def law(self) -> HardConcrete:
        """The law of all gates as log α stands now."""
        return self.bank.law(self.log_alpha)

    def estimate(self) -> Tensor:
        """The gates of the test-time network, by the estimator that the model was sparsified with."""
        return self.law.estimate(self.bank.estimator)

    @property
    def example_inputs(self) -> tuple[Any, ...]:
        """The inputs the model was captured with, where the model is now, in the precision it has now."""
        device, kind = self.log_alpha.device, self._precision()
        generator = torch.Generator().manual_seed(0)  # the same numbers each time, but not for each input

        def there(x: Any) -> Any:
            if not isinstance(x, Tensor):
                return x
            x = with_numbers(x, generator) if x.is_meta and device.type != "meta" else x
            return x.to(device, kind if x.dtype == self._captured else x.dtype)

        inputs: tuple[Any, ...] = tree_map(there, self._inputs)
        return inputs

    def _precision(self) -> torch.dtype | None:
        """That of the model's first parameter with a fraction."""
        own = (p for name, p in self.model.named_parameters() if name != LOG_ALPHA and p.is_floating_point())
        return next((parameter.dtype for parameter in own), None)

    def plan(self) -> Plan:
        """What can be removed, what cannot and why, by module path."""
        return Plan.of(self.structure, self.groups)

    def check(self) -> None:
        """Refuse a model whose own code stands in the way of a cut, before it is trained: it tries one, on a copy.

        >>> import lzero
        >>> lzero.sparsify(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), torch.randn(3, 4)).check()
        """
        check_cuttable(self)

    def param_groups(
        self, lr: float, gate_lr: float | None = None, weight_decay: float | None = None, *, steps: int | None = None
    ) -> list[dict[str, Any]]:
        """Two parameter groups for an optimizer: weights, and gates with their own learning rate and no decay.

        The decay of the weights is that of the optimizer, unless it is given here.
        The default of `gate_lr` is meant for Adam, whatever the weights' learning rate: 0.05, or for a training of
        so many `steps` a rate between 0.1 (up to 500) and 0.02 (from 2500). Under plain SGD gates need 1 and more;
        give them an Adam of their own instead:

        >>> import lzero
        >>> sparsifier = lzero.sparsify(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), torch.randn(3, 4))
        >>> weights, gates = sparsifier.param_groups(lr=0.1, steps=1000)
        >>> optimizers = torch.optim.SGD([weights], momentum=0.9), torch.optim.Adam([gates])
        >>> gates["lr"]
        0.05
        """
        if gate_lr is None:
            gate_lr = 0.05 if steps is None else min(0.1, max(0.02, 50 / whole("steps", steps, of="optimizer steps")))
        for name, rate in {"lr": lr, "gate_lr": gate_lr, "weight_decay": weight_decay}.items():
            if rate is not None and not isinstance(rate, Tensor):  # as a captured step wants its rate
                number(name, rate, least=0)
        weights = [p for name, p in self.model.named_parameters() if name != LOG_ALPHA]
        decay = {} if weight_decay is None else {"weight_decay": weight_decay}
        return [
            {"params": weights, "lr": lr, **decay},
            {"params": [self.log_alpha], "lr": gate_lr, "weight_decay": 0.0},
        ]

    def __getstate__(self) -> dict[str, Any]:
        # A copy has no optimizer, and cannot have hooks on modules that are gone.
        handles = [handle for handle in self._handles if handle.hooks_dict_ref() is not None]
        return {**self.__dict__, "_attached": None, "_handles": handles}

    def put_on(self, log_alpha: Tensor) -> None:
        """Change the model: register the gates and let parameters read as gated. Called once, by `sparsify`."""
        self.model.register_parameter(LOG_ALPHA, nn.Parameter(log_alpha))
        belong(self.model, self)
        try:
            self._handles = gate_modules(self)
        except Exception:  # from code of the model's, as of its classes: it stays as it was
            self.remove()
            raise

    def attach(self, optimizer: Optimizer, objective: Objective) -> None:
        """Let an objective act from inside an optimizer, for loops that cannot be changed.

        At each `optimizer.step()` the objective's gradient is added to what the loop left in `.grad`, unscaled by a
        GradScaler, accumulated and clipped: it is itself neither accumulated nor clipped. `objective.step()` follows.

        >>> import lzero
        >>> model = nn.Linear(4, 2)
        >>> sparsifier = lzero.sparsify(model, torch.randn(3, 4), inputs=True)
        >>> optimizer = torch.optim.Adam(sparsifier.param_groups(lr=1e-3))
        >>> sparsifier.attach(optimizer, lzero.Penalty(sparsifier, strength=0.01))
        >>> model(torch.randn(3, 4)).square().mean().backward()
        >>> optimizer.step()
        >>> sparsifier.detach()
        """
        if self._attached is not None:
            raise LzeroError(
                "an objective is attached already; call sparsifier.detach() first, or attach a sum of both"
            )
        self._attached = Attachment.to(self, optimizer, objective)

    @property
    def attached(self) -> Objective | None:
        """The objective that acts from inside an optimizer, if any."""
        return None if self._attached is None else self._attached.objective

    def detach(self) -> None:
        """Undo `attach`."""
        if self._attached is None:
            raise LzeroError("no objective is attached; call sparsifier.attach(optimizer, objective) first")
        self._attached.remove()
        self._attached = None

    @contextmanager
    def drawn(self) -> Iterator[None]:
        """Draw the gates once for all calls inside the block, of the model or of parts of it.

        For models that are not called as a whole, such as encoders and decoders, in training and in evaluation:

        >>> import lzero
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> sparsifier = lzero.sparsify(model, torch.randn(3, 4))
        >>> with sparsifier.drawn():
        ...     y = model[2](model[1](model[0](torch.randn(3, 4))))
        """
        self.check_current()
        with self.bank.drawing(self.model):
            yield

    @outside_inference_mode()
    def shrink(
        self,
        optimizer: Optimizer | Sequence[Optimizer] = (),
        *,
        threshold: float = GONE,
        round_to: int = 1,
        averages: Sequence[nn.Module] = (),
    ) -> int:
        """Remove, in place, units that are active less likely than the threshold; how many is returned.

        Those that are open at test time stay, whatever the threshold.

        Inputs of dense layers that have gates of their own are removed, and counted, like units. The state of the
        optimizer, or of several, gradients and buffers are cut along, and so are averaged copies of the model; that of
        an optimizer with an objective attached also where it is not given. What was removed cannot come back. Call it
        between steps, with no graph waiting for its backward; wrap DDP anew.

        >>> import lzero
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> sparsifier = lzero.sparsify(model, torch.randn(3, 4))
        >>> sparsifier.log_alpha.data[:5] = -9.0
        >>> sparsifier.shrink(), model[0].out_features
        (5, 3)
        """
        optimizers = all_of(Optimizer, "optimizer", optimizer, "an optimizer, or several in a list; averages=[…] too")
        averages = all_of(nn.Module, "averages", averages, "averaged copies of the model in a list")
        if self._attached is not None and self._attached.optimizer not in optimizers:
            optimizers.append(self._attached.optimizer)
        check_optimizers(self.model, optimizers)
        copies = [self._same(average) for average in averages]
        decision = decide_shrink(self, threshold, round_to)
        removed = self._removed(decision)
        if removed:
            try:
                small = cut_copy(self, decision, fallback="error")
            except LzeroError:  # code that reads a weight without calling its layer needs all of its columns
                decision = decide_shrink(self, threshold, round_to, columns=False)
                small = cut_copy(self, decision, fallback="error")
            removed = self._removed(decision)
            sizes = changed_sizes(self.model, small)  # other whole numbers of an averaged copy are its own
            self._cut(decision, optimizers, sizes)
            for each in copies:
                each._cut(decision, [], sizes)
        return removed

    def _removed(self, decision: Decision) -> int:
        """How many units, and single columns of units that stay, a decision removes."""
        columns = [group.columns[0] for group in self.groups if group.columns and decision.columns]
        tables = {where: self.structure.tensors[where.tensor][where.dim] for where in columns}
        gone = [decision.positions(tables[where]) & ~decision.columns[where] for where in columns]
        return int((~decision.units).sum() + sum(mask.sum() for mask in gone))

    def _same(self, average: nn.Module) -> Sparsifier:
        """The sparsifier of an averaged copy, which must have been cut like this model so far."""
        other = sparsifier_of(average.module if isinstance(average, AveragedModel) else average)
        mine, theirs = self.history, other.history
        if (theirs.sites, theirs.columns, theirs.dense) != (mine.sites, mine.columns, mine.dense):
            expected = "copies of this model that were cut along with it"
            raise ArgumentError.about("averages", expected=expected, got="one of other sizes")
        return other

    def _cut(self, decision: Decision, optimizers: Sequence[Optimizer], sizes: Sizes) -> None:
        """Cut this model like a copy that is known to be right, whose whole numbers differ in these."""
        self.history = self.history.after(self, decision, sizes)
        self._release()
        self.bank.was_cut()
        torch.clear_autocast_cache()  # which holds the old weights
        set_sizes(self.model, sizes)
        structure, kept = cut_structure(self.structure, decision), gates_kept(self, decision)
        groups = cut_groups(self.groups, kept, structure)
        cut_in_place(self, decision, kept, optimizers)
        self.l0_weights = self.l0_weights[torch.from_numpy(kept)]
        self.structure, self.groups = structure, tuple(groups)
        self.costs = Costs(self)
        self._handles = gate_modules(self)

    def _release(self) -> None:
        for module in self.model.modules():
            release(module)
        for handle in self._handles:
            handle.remove()

    def remove(self) -> nn.Module:
        """Undo `sparsify` exactly: the model is what it was, with the weights, and the units, it has now."""
        self.check_current()
        if self._attached is not None:
            self.detach()
        self._release()
        del self.model._parameters[LOG_ALPHA]
        forget(self.model)
        if self.history.is_cut(self.model):  # so that it can be saved, and loaded into the dense model
            self.model.__dict__[PLAN] = json.dumps(self.history.as_dict())
        return self.model


def check_sparsifier(value: object) -> None:
    """Refuse what `sparsify` has not returned."""
    if not isinstance(value, Sparsifier):
        expected, advice = "what lzero.sparsify returned", "pass the sparsifier, not the model"
        raise ArgumentError.about("sparsifier", expected=expected, got=type(value).__name__, advice=advice)
