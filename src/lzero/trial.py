"""Whether a model can be cut, or run in parts: without many of its units a copy must compute the same."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import cycle
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from lzero.cutting import cut_copy
from lzero.decision import decide
from lzero.errors import LzeroError, UnsupportedError
from lzero.gating import INNER
from lzero.graph import alive_in, units_in
from lzero.patch import entering_dims, written_dims
from lzero.proof import plain_copy
from lzero.sizes import changed_sizes, sizes_of
from lzero.structure.analysis import analyse
from lzero.structure.units import NONE
from lzero.surgery import PER_CHANNEL
from lzero.swapping import Layout
from lzero.tensors import duplicate
from lzero.traceless import keeping_noise, same_noise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lzero.decision import Decision
    from lzero.gating import GateGroup
    from lzero.sparsifier import Sparsifier
    from lzero.structure.units import Ids

SET_BY_FORWARD = """the forward of {model} sets {names} in training, which is lost where gates act: it sets what it
reads, a product. Where a first batch sets it once, run one through the model before lzero.sparsify; a largest norm or
an average is set after optimizer.step(); or leave the gates out: add {globs} to sparsify(…, exclude=…)"""
WAY_OUT = "call the model itself instead"
SHARES = (0.5, 0.7, 0.3)  # of gates that stay open where a cut is tried
TILTS = (1.0, -1.0, 0.0)  # cuts that are tried before a training: more of the later units go, of the first, of neither


def check_divisible(sparsifier: Sparsifier, wrapped: Callable[..., Any]) -> None:
    """Refuse, before anything is tried, what can never run in parts."""
    modules = [*sparsifier.model.modules(), *(wrapped.modules() if isinstance(wrapped, nn.Module) else ())]
    if any(group.elements for group in sparsifier.groups):
        raise UnsupportedError('gates on single weights leave no part to compute alone; use units="structure"')
    if any(type(parameter.data) is not Tensor for parameter in sparsifier.model.parameters()):
        raise UnsupportedError(f"parameters that are sharded, or not plain tensors, cannot be cut; {WAY_OUT}")
    if any(isinstance(module, nn.SyncBatchNorm) for module in modules):
        raise UnsupportedError(f"SyncBatchNorm needs the same channels in every process; {WAY_OUT}")
    if any(isinstance(m, torch._dynamo.OptimizedModule) or m._compiled_call_impl for m in modules):
        raise UnsupportedError("torch.compile would compile anew for the sizes of each step; pass a model without it")


@dataclass(frozen=True)
class Obstacle:
    """What stands in the way of a cut: the groups of gates it is about, and what happens when many of them close."""

    names: tuple[str, ...]
    why: str

    def __str__(self) -> str:
        exclude = f"exclude = {json.dumps(self.left_out)}"
        return f"{self.told}; let sizes follow from tensors there, or leave them out by {exclude}"

    @property
    def told(self) -> str:
        """What fails, and how."""
        return f"removing some of the units of {', '.join(self.names)} fails: {self.why}"

    @property
    def left_out(self) -> list[str]:
        """The globs to exclude, with that which is excluded by default."""
        return [INNER, *(name for name in self.names if not fnmatchcase(name, INNER))]


def find_obstacle(sparsifier: Sparsifier) -> Obstacle | None:
    """Why a copy of the model without many of its units does not compute the same; None where it does."""
    for tilt in TILTS:
        why = _why_not_cut(_partly_closed(sparsifier, tilt=tilt))
        if why is not None:
            groups = _fewest(sparsifier, tilt)
            return Obstacle(tuple(group.name for group in groups), why)
    return None


def _fewest(sparsifier: Sparsifier, tilt: float) -> list[GateGroup]:
    """Groups each of which fails alone; where none does, as few as fail together."""

    def fails(groups: Sequence[GateGroup]) -> bool:
        return _why_not_cut(_partly_closed(sparsifier, groups, tilt=tilt)) is not None

    alone = [group for group in sparsifier.groups if fails([group])]
    if alone:
        return alone
    together = list(sparsifier.groups)
    for group in sparsifier.groups:
        others = [each for each in together if each is not group]
        together = others if fails(others) else together
    return together


def check_cuttable(sparsifier: Sparsifier) -> None:
    """Refuse, before anything is trained, a model that nothing smaller could be made of in the end."""
    _check_lasting(sparsifier)
    obstacle = find_obstacle(sparsifier)
    if obstacle is not None:
        raise UnsupportedError(f"{obstacle}, in a recipe gates.exclude")


def _check_lasting(sparsifier: Sparsifier) -> None:
    """Refuse a model whose forward sets a parameter that has gates, unless as an optimizer does, by `parameters()`.

    A forward that does not come through, as with a batch too small for its norms, says nothing.
    """
    readers, before = _gated_parameters(sparsifier), dict(sparsifier.model.named_parameters())
    if any(each.is_meta or type(each.data) is not Tensor for each in before.values()):
        return
    plain, gated = plain_copy(sparsifier), duplicate(sparsifier, sparsifier.model)
    own = dict(gated.model.named_parameters())
    _train_once(plain, sparsifier.example_inputs)
    with gated.bank.holding(torch.ones_like(sparsifier.log_alpha)):  # so that what is read is what is there
        _train_once(gated.model, sparsifier.example_inputs)
    wanted, got = dict(plain.named_parameters()), dict(gated.model.named_parameters())
    changed = [name for name in readers if not _equal(before[name], wanted.get(name))]
    lost = [name for name in changed if got.get(name) is not own[name] or not _equal(got[name], wanted.get(name))]
    if lost:
        globs = json.dumps(list(dict.fromkeys(group for name in lost for group in readers[name])))
        told = SET_BY_FORWARD.format(model=type(plain).__name__, names=", ".join(lost), globs=globs)
        raise UnsupportedError(told.replace("\n", " "))


def _train_once(model: nn.Module, inputs: tuple[Any, ...]) -> None:
    with suppress(Exception), torch.compiler.set_stance("force_eager"), same_noise(), torch.no_grad():
        model.train()(*inputs)


def _gated_parameters(sparsifier: Sparsifier) -> dict[str, list[str]]:
    """The parameters that gates act on, each with the names of these gates."""
    found: dict[str, list[str]] = {}
    for group in sparsifier.groups:
        consumers = group.site.consumers if group.site else group.columns
        read = [group.elements] if group.elements else [where.tensor for where in consumers]
        for name in dict.fromkeys(read):
            found.setdefault(name, []).append(group.name)
    return found


def _equal(one: Tensor, other: Tensor | None) -> bool:
    return other is not None and one.shape == other.shape and torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)


def _why_not_cut(trial: Sparsifier) -> str | None:
    with keeping_noise():
        try:
            cut_copy(trial, decide(trial), fallback="error")
        except LzeroError as error:
            return str(error).partition(";")[0]
    return None


def proven_layout(sparsifier: Sparsifier) -> Layout:
    """The layout of a model once a copy of it has been cut and computes the same; the model is left alone."""
    layout, trial = Layout(sparsifier), _partly_closed(sparsifier)
    decision = decide(trial)
    with keeping_noise():
        try:
            small = cut_copy(trial, decision, fallback="error")
        except LzeroError as error:
            why = str(error).partition(";")[0]
            raise UnsupportedError(f"this model cannot run in parts: {why}; {WAY_OUT}") from error
        with layout.swapped(decision, sparsifier.log_alpha.device):
            missing = changed_sizes(sparsifier.model, small)
        for path, name, units in _counted(trial, decision, missing) if missing else ():
            layout.add_size(sparsifier.model.get_submodule(path), name, units)
    return layout


def _partly_closed(
    sparsifier: Sparsifier, only: Sequence[GateGroup] | None = None, *, tilt: float = TILTS[0]
) -> Sparsifier:
    """A copy in which many of each group's gates, or of some groups', are closed: at random, with a tilt to later ones.

    Code that takes the first units or every other one, cuts a width in two, or divides one by another must not come
    through by luck: no two groups that follow one another keep the same share.
    """
    trial, generator = duplicate(sparsifier, sparsifier.model), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for group, share in zip(trial.groups, cycle(SHARES), strict=False):
            order = torch.rand(group.size, generator=generator, device="cpu")
            order += tilt * torch.linspace(0, 1, group.size, device="cpu")
            closed = order.argsort()[max(1, round(share * group.size)) :].to(trial.log_alpha.device)
            trial.log_alpha[group.span] = 100.0
            if only is None or group.start in {each.start for each in only}:
                trial.log_alpha[group.span][closed] = -100.0
    return trial


def _counted(
    trial: Sparsifier, decision: Decision, attributes: dict[str, dict[str, int]]
) -> Iterator[tuple[str, str, Ids]]:
    """Sizes that the model's own code keeps in attributes, each with the units at the positions it counts."""
    analysis = analyse(plain_copy(trial), trial.example_inputs)
    units_of = units_in(analysis, trial.structure)
    written = written_dims(analysis, alive_in(analysis, trial.structure, decision))
    entering = entering_dims(analysis)
    for path, names in attributes.items():
        for name in names:
            old = sizes_of(trial.model.get_submodule(path))[name]
            if isinstance(trial.model.get_submodule(path), nn.GroupNorm | PER_CHANNEL):
                channels = trial.structure.norms[path]
                yield path, name, channels[:: len(channels) // old]  # each of them, or one of each group
                continue
            sized = [[units_of(dim) for dim in dims.get(path, ()) if dim.size == old] for dims in (written, entering)]
            tables = {units.tobytes(): units for units in sized[0] or sized[1] if (units != NONE).any()}
            if len(tables) != 1:
                why = f"{path}.{name} counts units of several kinds"
                raise UnsupportedError(f"this model cannot run in parts: {why}; {WAY_OUT}")
            yield path, name, next(iter(tables.values()))
