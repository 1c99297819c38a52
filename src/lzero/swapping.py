"""A part of a gated model for one forward: its tensors swapped for slices of them, and put back."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from lzero.attach import base_of, set_base
from lzero.attention import SlimAttention
from lzero.layers import IndexedLinear
from lzero.sizes import resized
from lzero.structure.sites import Slice
from lzero.surgery import SIZES, adapt, chosen_inputs
from lzero.tensors import distinct, full_name, held_by, laid_out_as
from lzero.wiring import gate_tables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lzero.decision import Decision
    from lzero.sparsifier import Sparsifier
    from lzero.structure.units import Ids

Indices = list[Tensor | None]  # for each make-up the positions that stay; None for all of them


@contextmanager
def replaced(held: dict[str, Any], name: str, value: Any) -> Iterator[None]:
    """Another value in a dictionary inside the block; afterwards the one before, or none."""
    was_there, before = name in held, held.get(name)
    held[name] = value
    try:
        yield
    finally:
        held[name] = before
        if not was_there:
            del held[name]


@dataclass(frozen=True, eq=False)
class Sliced:
    """A tensor that units run through: the dictionary that holds it, and the make-up of each such dimension."""

    held: dict[str, Any]
    name: str
    dims: tuple[tuple[int, int], ...]
    is_buffer: bool

    def chosen(self, indices: Indices) -> list[tuple[int, Tensor]]:
        """The dimensions that become smaller, with the positions that stay."""
        return [(dim, index) for dim, makeup in self.dims if (index := indices[makeup]) is not None]

    def put_back(self, raw: Tensor, chosen: Sequence[tuple[int, Tensor]]) -> None:
        """Hold the whole tensor again; what the forward wrote into a slice of a buffer goes to its place there."""
        part, self.held[self.name] = self.held[self.name], raw
        if self.is_buffer and part is not raw and distinct(raw).shape == raw.shape:  # what repeats is not written to
            # As BatchNorm changes its statistics: unseen by autograd, which may hold them for another backward.
            _scatter(raw.data, chosen, part.detach())


def _scatter(whole: Tensor, chosen: Sequence[tuple[int, Tensor]], part: Tensor) -> None:
    (dim, index), *rest = chosen
    if rest:
        row = whole.index_select(dim, index)
        _scatter(row, rest, part)
        part = row
    whole.index_copy_(dim, index, part)


class Layout:
    """Where the units of one structure are in the modules of the model, found once and used in each step.

    Dimensions with the same units, and the same gates on their columns, have one make-up: most of a network's many
    dimensions share a few.
    """

    def __init__(self, sparsifier: Sparsifier) -> None:
        self.structure = sparsifier.structure
        self._columns = {where for group in sparsifier.groups for where in group.columns}
        self._makeups: list[tuple[Ids, Slice | None]] = []
        self._known: dict[tuple[tuple[int, ...], bytes, Slice | None], int] = {}
        self._modules = self._found(sparsifier.model)
        self._gated = [self._makeup(where) for where in gate_tables(sparsifier)]
        self._choosing = self._choosing_inputs(sparsifier.model)
        self._attentions = [m for m in sparsifier.model.modules() if base_of(m) is nn.MultiheadAttention]
        self._sizes: list[tuple[nn.Module, str, int]] = []

    def _found(self, model: nn.Module) -> list[tuple[nn.Module, list[Sliced]]]:
        found = []
        for path, module in model.named_modules():
            tensors = []
            for place, name, _ in held_by(module):
                first = self.structure.aliases.get(full_name(path, name), "")
                dims = tuple(self._sliced_dims(first))
                tensors += [Sliced(place, name, dims, place is module._buffers)] if dims else []
            found += [(module, tensors)] if tensors else []
        return found

    def _sliced_dims(self, first: str) -> Iterator[tuple[int, int]]:
        for dim, table in enumerate(self.structure.tensors.get(first, ())):
            if table.size or Slice(first, dim) in self._columns:
                yield dim, self._makeup(Slice(first, dim))

    def _makeup(self, where: Slice) -> int:
        return self.number(self.structure.tensors[where.tensor][where.dim], where)

    def number(self, table: Ids, where: Slice | None = None) -> int:
        """The number of a make-up: the units of each position, and the dimension if its columns have gates."""
        where = where if where in self._columns else None
        key = table.shape, table.tobytes(), where
        if key not in self._known:
            self._known[key] = len(self._makeups)
            self._makeups.append((table, where))
        return self._known[key]

    def _choosing_inputs(self, model: nn.Module) -> list[tuple[nn.Module, Slice]]:
        """The dense layers whose inputs close singly."""
        places = ((where, where.tensor.rpartition(".")[0]) for where in self._columns)
        return [(model.get_submodule(path), where) for where, path in places]

    def add_size(self, module: nn.Module, place: str, table: Ids) -> None:
        """Where the model's own code keeps a size of its operations, and the units it counts."""
        self._sizes.append((module, place, self.number(table)))

    def _indices(self, decision: Decision, device: torch.device) -> Indices:
        """The positions of each make-up that stay."""
        masks = [
            decision.positions(table) if where is None else decision.kept(self.structure, where)
            for table, where in self._makeups
        ]
        return [None if mask.all() else torch.as_tensor(np.flatnonzero(mask), device=device) for mask in masks]

    @contextmanager
    def swapped(self, decision: Decision, device: torch.device) -> Iterator[Indices]:
        """The model cut to a decision inside the block, which gets the positions left of each gated dimension.

        Afterwards the model holds the very objects that it held before.
        """
        indices = self._indices(decision, device)
        made: dict[int, Tensor] = {}
        with ExitStack() as undo:
            for module, tensors in self._modules:
                _swap(module, tensors, indices, made, undo)
            for module, place, makeup in self._sizes:
                if (index := indices[makeup]) is not None:
                    undo.enter_context(replaced(vars(module), *resized(module, place, len(index))))
            for attention in self._attentions:
                undo.callback(set_base, attention, nn.MultiheadAttention)
                set_base(attention, SlimAttention)
            for module, where in self._choosing:
                self._choose(module, where, decision, device, undo)
            yield [indices[makeup] for makeup in self._gated]

    def _choose(
        self, module: nn.Module, where: Slice, decision: Decision, device: torch.device, undo: ExitStack
    ) -> None:
        """Let a dense layer read those of its inputs that are open, of those that are there."""
        chosen = chosen_inputs(module, self.structure, decision, where)
        if chosen is None:
            return
        index = torch.as_tensor(chosen, device=device)
        if isinstance(module, IndexedLinear):
            undo.enter_context(replaced(cast("dict[str, Any]", module._buffers), "index", index))
        else:
            undo.enter_context(replaced(vars(module), "forward", partial(_reading, index, module.forward)))


def _reading(index: Tensor, forward: Callable[[Tensor], Tensor], input: Tensor) -> Tensor:  # noqa: A002 (torch's name)
    """A dense layer's forward over some of its inputs."""
    return forward(input.index_select(-1, index))


def _swap(module: nn.Module, tensors: list[Sliced], indices: Indices, made: dict[int, Tensor], undo: ExitStack) -> None:
    """Let a module hold slices, with the attributes that go with them; tensors that were shared stay shared."""
    before = {tensor.name: tensor.held[tensor.name].shape for tensor in tensors}
    for tensor in tensors:
        chosen, raw = tensor.chosen(indices), tensor.held[tensor.name]
        if not chosen:
            continue
        if id(raw) not in made:
            part = raw
            for dim, index in chosen:
                part = part.index_select(dim, index)
            made[id(raw)] = laid_out_as(raw, part)
        undo.callback(tensor.put_back, raw, chosen)
        tensor.held[tensor.name] = made[id(raw)]
    undo.callback(vars(module).update, {name: vars(module)[name] for name in SIZES if name in vars(module)})
    adapt(module, before)
