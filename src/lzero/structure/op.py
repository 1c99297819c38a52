"""What a rule sees of one operation of the captured graph, and what it may say about its units."""

from __future__ import annotations

from dataclasses import dataclass, field
from inspect import isfunction
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.fx import Node
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.flop_counter import FlopCounterMode

from lzero.errors import UnsupportedError
from lzero.structure.units import Dim, Ids, Units, free
from lzero.tensors import full_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

BASE = 1024


class Value(tuple[Dim, ...]):
    """A tensor, as a rule sees it: its dimensions."""

    __slots__ = ()

    def replaced(self, dim: int, new: Dim) -> Value:
        """The same dimensions but for one."""
        return Value(new if k == dim % len(self) else each for k, each in enumerate(self))


def sizes(tensor: Tensor) -> tuple[int, ...]:
    """A tensor's shape in numbers; of a size left open, the example's."""
    shape = [size.node.hint if isinstance(size, torch.SymInt) else size for size in tensor.shape]
    if None in shape:
        why = "a size depends on the values of a tensor, as after boolean indexing or nonzero"
        raise UnsupportedError(f"{why}: what cannot be counted cannot be cut; keep the size and mask instead")
    return tuple(shape)


def _macs(node: Node) -> int:
    """The multiply–accumulates of an operation on the example, as torch counts them; of one in place, none.

    It runs once more for that, which must not change what the graph knows of its arguments.
    """
    if not isinstance(node.target, torch._ops.OpOverload) or node.target._schema.is_mutable:
        return 0
    arguments = tree_map(lambda a: a.meta.get("val") if isinstance(a, Node) else a, (node.args, node.kwargs))
    with FlopCounterMode(display=False) as counter:
        node.target(*arguments[0], **arguments[1])
    return int(counter.get_total_flops()) // 2


@dataclass(frozen=True, eq=False)
class Reading:
    """Units that a parameter dimension reads by a contraction: where their gate acts."""

    parameter: str
    dim: int
    labels: Ids


@dataclass(frozen=True, eq=False)
class Product:
    """Multiply–accumulates of one operation: the product of the sizes of these dimensions."""

    dims: tuple[Dim, ...]


@dataclass
class Findings:
    """What the rules have found so far."""

    units: Units = field(default_factory=Units)
    tensors: dict[str, Value] = field(default_factory=dict)  # parameters and buffers, by name
    values: dict[Node, Any] = field(default_factory=dict)  # what every operation gives: a value or several
    readings: list[Reading] = field(default_factory=list)
    products: list[Product] = field(default_factory=list)
    indices: dict[Node, Ids] = field(default_factory=dict)  # by which layers choose inputs, where they are known
    inputs: dict[str, Dim] = field(default_factory=dict)  # what such a layer chooses from, by the name of its weight
    norms: dict[str, Dim] = field(default_factory=dict)  # the channels of norms that have no weight, by their path
    several: list[Ids] = field(default_factory=list)  # units of which code needs more than one


class Op:
    """One operation: its node, the path of the module it runs in, and the statements a rule can make."""

    def __init__(self, node: Node, path: str, findings: Findings) -> None:
        self.node, self.path, self.units, self._findings = node, path, findings.units, findings

    @property
    def name(self) -> str:
        """The operation's name, such as `aten.softmax.int`."""
        target = self.node.target
        return getattr(target, "__name__", str(target)) if isfunction(target) else str(target)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the tensors this operation returns."""
        value = self.node.meta["val"]
        several = value if isinstance(value, list | tuple) else [value]
        try:
            return [sizes(each) for each in several if isinstance(each, Tensor)]
        except UnsupportedError as error:
            raise UnsupportedError(f"{self.because(self.name)}: {error}") from error

    def arguments(self, *args: Any, **named: Any) -> dict[str, Any]:
        """The arguments by the names they have in the operation's schema."""
        assert isinstance(self.node.target, torch._ops.OpOverload)  # noqa: S101 (operators have schemas)
        names = (argument.name for argument in self.node.target._schema.arguments)
        return {**dict(zip(names, args, strict=False)), **named}

    def because(self, why: str) -> str:
        """A reason that says where."""
        return f"{why}, in {self.path or 'the model itself'}"

    def pin(self, dims: Sequence[Dim], why: str) -> None:
        """Forbid the removal of these dimensions' units."""
        for dim in dims:
            self.units.pin(dim.labels, self.because(why))

    def needs_several(self, dims: Sequence[Dim]) -> None:
        """Say that code would take a single unit of these dimensions for none."""
        self._findings.several.extend(dim.labels for dim in dims)

    def along(self, x: Value, dims: Iterable[int], how: str = "is over it") -> Value:
        """What comes of work along some dimensions, which stay and may change their size; the others pass."""
        over = {dim % len(x) for dim in dims}
        self.pin([x[k] for k in over], f"{self.name} {how}")
        return Value(free(self.shapes[0][k]) if k in over else dim for k, dim in enumerate(x))

    def stays(self, arguments: Sequence[Any], why: str) -> Value | list[Value]:
        """Pin whatever the operation touches, and return units that say so."""
        leaves = tree_leaves(arguments, is_leaf=lambda argument: isinstance(argument, Value))
        for value in leaves:
            if isinstance(value, Value):
                self.pin(value, why)
        outputs = [Value(self.units.opaque(size, self.because(why)) for size in shape) for shape in self.shapes]
        return outputs[0] if isinstance(self.node.meta.get("val"), Tensor) else outputs

    def unite(self, one: Dim, other: Dim) -> Dim:
        """Make two dimensions the same, position by position; the one with units is returned."""
        self.units.unite(
            one.labels, other.labels, self.because(f"{self.name} joins it with something of another make-up")
        )
        return other if one.labels.shape[1] == 0 else one

    def unite_blocks(self, dim: Dim, blocks: int) -> None:
        """Make each of `blocks` equal stretches of a dimension one unit."""
        for block in np.split(np.arange(dim.size), blocks):
            self.units.unite_all(dim.labels[block], self.because(f"{self.name} mixes different units in a group"))

    def chosen(self, dim: Dim, index: object) -> Dim | None:
        """The positions that a layer chooses of its inputs; None where they are not known beforehand."""
        known = self._findings.indices.get(index) if isinstance(index, Node) else None
        if known is None:
            return None
        given = self._findings.inputs.setdefault(full_name(self.path, "weight"), dim)
        if given is not dim:  # a layer that is called twice chooses the same positions of both
            self.unite(given, dim)
        return dim.positions(known)

    def contract(self, one: Dim, other: Dim) -> None:
        """Sum over a dimension of two tensors; the one that is a parameter is where a gate can act."""
        self.unite(one, other)
        reader = other if other.sources else one
        if not reader.sources:
            self.pin([one], f"{self.name} multiplies two activations over it")
        for parameter, dim in reader.sources:
            self._findings.readings.append(Reading(parameter, dim, reader.labels))

    def normalises(self, channels: Dim) -> None:
        """Say that this norm counts its channels although no parameter tells them."""
        given = self._findings.norms.setdefault(self.path, channels)
        if given is not channels:  # a norm that is called twice has one number of channels
            self.unite(given, channels) if given.size == channels.size else self.pin([given, channels], "it has a norm")

    def attends_to(self, value: Value) -> None:
        """Say that an attention's weights are applied to these values, [batch, heads, places, depth]."""
        if len(value) > 3 and value[-3].size == 1:
            self.units.mark_depth(value[-1].labels)

    def multiplies(self, *dims: Dim) -> None:
        """Count the multiply–accumulates of this operation: the product of these sizes."""
        self._findings.products.append(Product(dims))

    def multiplies_as_it_is(self) -> None:
        """Count the multiply–accumulates of this operation as torch does: a number that no removal changes."""
        count, place = _macs(self.node), 0  # digit by digit, so that sizes stay small
        while count:
            count, digit = divmod(count, BASE)
            if digit:
                self.multiplies(free(digit), *[free(BASE)] * place)
            place += 1

    def broadcast(self, values: Sequence[Value]) -> Value:
        """The dimensions of an elementwise operation: equal sizes are united, ones stretch."""
        rank = max(len(value) for value in values)
        return Value(self._stretch([v[k - rank] for v in values if len(v) >= rank - k]) for k in range(rank))

    def _stretch(self, dims: list[Dim]) -> Dim:
        size = max(dim.size for dim in dims)
        self.pin([dim for dim in dims if dim.size != size], f"{self.name} stretches its only unit")
        first, *others = (dim for dim in dims if dim.size == size)
        for dim in others:
            first = self.unite(first, dim)
        return first.without_sources()
