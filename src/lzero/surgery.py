"""Cutting a model to a decision: new parameters and buffers, and the attributes that go with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from lzero.attention import make_slim
from lzero.layers import IndexedLinear
from lzero.structure.sites import Slice
from lzero.tensors import full_name, held_by, laid_out_as

if TYPE_CHECKING:
    from lzero.decision import Decision
    from lzero.structure.frozen import Structure
    from lzero.structure.units import Ids

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
PER_CHANNEL = nn.modules.batchnorm._NormBase
SIZES = (  # the attributes that `adapt` sets
    "in_features", "out_features", "embedding_dim", "groups", "in_channels", "out_channels", "num_groups",
    "num_channels", "num_features", "in1_features", "in2_features", "input_size", "hidden_size",
    "proj_size", "num_parameters",
)  # fmt: skip


def cut(tensor: Tensor, structure: Structure, decision: Decision, name: str) -> Tensor:
    """A parameter or buffer without what is removed."""
    part = tensor
    for k in range(tensor.dim()):
        mask = decision.kept(structure, Slice(name, k))
        if not mask.all():
            part = part.index_select(k, torch.as_tensor(np.flatnonzero(mask), device=tensor.device))
    return laid_out_as(tensor, part)


def cut_model(model: nn.Module, structure: Structure, decision: Decision) -> None:
    """Replace, in a plain model, every tensor by its part that stays; shared parameters stay shared."""
    made: dict[str, Any] = {}
    for path, module in model.named_modules():
        own = held_by(module)
        before = {name: tensor.shape for _, name, tensor in own}
        for place, name, old in own:
            full = full_name(path, name)
            first = structure.aliases.get(full, full)
            if first not in structure.tensors:
                continue
            if first not in made:
                new = cut(old.detach(), structure, decision, first)
                is_parameter = isinstance(old, nn.Parameter)
                made[first] = nn.Parameter(new, requires_grad=old.requires_grad) if is_parameter else new
            place[name] = made[first]
        adapt(module, before)
        if path in structure.norms:
            _count_channels(module, int(decision.positions(structure.norms[path]).sum()))
    choose_inputs(model, structure, decision)
    make_slim(model)


def _count_channels(norm: nn.Module, channels: int) -> None:
    """Tell a norm how many channels are left; what has their number in its code is not told."""
    if isinstance(norm, nn.GroupNorm):
        norm.num_groups = _scaled(norm.num_groups, norm.num_channels, channels)
        norm.num_channels = channels
    elif isinstance(norm, PER_CHANNEL):
        norm.num_features = channels


def adapt(module: nn.Module, before: dict[str, torch.Size]) -> None:
    """Set the attributes of torch's own layers to their new sizes; `before` has the old shapes."""
    weight = module._parameters.get("weight")
    if isinstance(module, nn.Linear) and weight is not None:
        module.out_features, module.in_features = weight.shape
    elif isinstance(module, nn.Bilinear) and weight is not None:
        module.out_features, module.in1_features, module.in2_features = weight.shape
    elif isinstance(module, nn.Embedding | nn.EmbeddingBag) and weight is not None:
        module.embedding_dim = weight.shape[1]
    elif isinstance(module, CONVOLUTIONS) and weight is not None:
        module.groups = _scaled(module.groups, before["weight"][0], weight.shape[0])
        module.out_channels, module.in_channels = weight.shape[0], weight.shape[1] * module.groups
    elif isinstance(module, TRANSPOSED) and weight is not None:
        module.groups = _scaled(module.groups, before["weight"][0], weight.shape[0])
        module.in_channels, module.out_channels = weight.shape[0], weight.shape[1] * module.groups
    elif isinstance(module, nn.PReLU) and weight is not None:
        module.num_parameters = len(weight)
    elif isinstance(module, nn.RNNBase | nn.RNNCellBase):
        _count_units(module)
    elif isinstance(module, nn.GroupNorm | PER_CHANNEL):
        state = weight if weight is not None else module._buffers.get("running_mean")
        if state is not None:
            _count_channels(module, len(state))


def _count_units(recurrent: nn.RNNBase | nn.RNNCellBase) -> None:
    """Tell a recurrent layer or cell how wide it is; its states may be a projection of its units."""
    suffix = "_l0" if isinstance(recurrent, nn.RNNBase) else ""
    inputs, states = (recurrent._parameters[f"weight_{which}{suffix}"] for which in ("ih", "hh"))
    projection = recurrent._parameters.get("weight_hr_l0")
    assert inputs is not None  # noqa: S101 (every recurrent layer has these two)
    assert states is not None  # noqa: S101
    recurrent.input_size, recurrent.hidden_size = inputs.shape[1], states.shape[1]
    if projection is not None:
        recurrent.proj_size, recurrent.hidden_size = projection.shape


def _scaled(count: int, before: int, after: int) -> int:
    return count * after // before if count > 1 else count


def choose_inputs(model: nn.Module, structure: Structure, decision: Decision) -> None:
    """Let dense layers whose inputs closed singly choose them from those that are left."""
    for path, module in model.named_modules():
        where = Slice(structure.aliases.get(full_name(path, "weight"), ""), 1)
        if isinstance(module, nn.Linear) and (where in decision.columns or where in structure.inputs):
            index = chosen_inputs(module, structure, decision, where)
            if index is not None:
                weight = module._parameters["weight"]
                IndexedLinear.over(module, torch.as_tensor(index, device=weight.device if weight is not None else None))


def chosen_inputs(module: nn.Module, structure: Structure, decision: Decision, where: Slice) -> Ids | None:
    """Which of the inputs that are left a dense layer reads; None where it reads them all and never chose."""
    present = decision.positions(structure.given(where))
    position = np.cumsum(present) - 1  # of an input among those that are left
    before = module.index.cpu().numpy() if isinstance(module, IndexedLinear) else np.arange(len(present))
    index = position[before[decision.kept(structure, where)]]
    if len(index) == present.sum() and not isinstance(module, IndexedLinear):
        return None
    return np.asarray(index)
