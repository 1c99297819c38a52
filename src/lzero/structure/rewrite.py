"""What the arguments of an operation become once units are gone: the sizes that are written into a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

from lzero.structure.units import Dim

Alive = Callable[[Dim], Any]  # which positions of a dimension stay, as a mask
Call = tuple[Any, tuple[Any, ...], dict[str, Any]]  # target, args, kwargs
Values = dict[Node, Any]

aten = torch.ops.aten
SIZE = "aten.sym_size.int"  # gives a size at run time


def rewritten(node: Node, values: Values, alive: Alive) -> Call:
    """The call that does for what is left what the node's call did for all."""
    if node.target is aten.view.dtype:  # another type, not another shape
        return node.target, node.args, dict(node.kwargs)
    family = str(node.target).rpartition(".")[0]
    rewrite = _REWRITES.get(family)
    return (node.target, node.args, dict(node.kwargs)) if rewrite is None else rewrite(node, values, alive)


def _count(dim: Dim, alive: Alive) -> int:
    return int(alive(dim).sum())


def _sizes(wanted: Any, dims: tuple[Dim, ...], alive: Alive) -> list[Any]:
    """Written sizes, each scaled to what is left of its dimension; those computed at run time become a product."""

    def size(written: Any, dim: Dim) -> Any:
        left = _count(dim, alive)
        if left == dim.size or written == -1:
            return written
        return left if isinstance(written, int) else Scaled(written, left, dim.size)

    return [size(written, dim) for written, dim in zip(wanted, dims, strict=True)]


class Scaled:
    """A size known at run time, times `numerator` over `denominator`."""

    def __init__(self, node: Node, numerator: int, denominator: int) -> None:
        self.node, self.numerator, self.denominator = node, numerator, denominator


def _reshape(node: Node, values: Values, alive: Alive) -> Call:
    return aten.reshape.default, (node.args[0], _sizes(node.args[1], values[node], alive)), {}


def _expand(node: Node, values: Values, alive: Alive) -> Call:
    x, sizes, *rest = node.args
    return node.target, (x, _sizes(sizes, values[node], alive), *rest), dict(node.kwargs)


def _constant(node: Node, values: Values, alive: Alive) -> Call:
    """Of a size known at run time: made from the tensor it is the size of, as a pickled graph must, where that is."""
    wanted: Any = node.args[0]
    sizes = _sizes(wanted, values[node], alive)
    measured = next((size.args[0] for size in wanted if isinstance(size, Node) and str(size.target) == SIZE), None)
    if measured is None:
        return node.target, (sizes, *node.args[1:]), dict(node.kwargs)
    family = str(node.target).split(".")[1]
    return getattr(aten, f"new_{family}").default, (measured, sizes, *node.args[1:]), {"dtype": node.meta["val"].dtype}


def _unflatten(node: Node, values: Values, alive: Alive) -> Call:
    x, dim, sizes = _arguments(node)
    start = dim % len(values[x])
    return node.target, (x, dim, _sizes(sizes, values[node][start : start + len(sizes)], alive)), {}


def _split(node: Node, values: Values, alive: Alive) -> Call:
    dim = node.args[2] if len(node.args) > 2 else node.kwargs.get("dim", 0)
    parts = [_count(part[dim], alive) for part in values[node]]
    if parts == [part[dim].size for part in values[node]]:  # as of a batch, whose sizes are known at run time
        return node.target, node.args, dict(node.kwargs)
    return aten.split_with_sizes.default, (node.args[0], parts, dim), {}


def _slice(node: Node, values: Values, alive: Alive) -> Call:
    defaults: list[Any] = [None, 0, None, None]
    x, dim, start, end, *rest = _arguments(node) + defaults[len(node.args) :]
    whole = values[x][dim]
    mask = alive(whole)
    if mask.all():
        return node.target, node.args, dict(node.kwargs)
    first, last, _ = slice(start, end).indices(whole.size)
    return node.target, (x, dim, int(mask[:first].sum()), int(mask[:last].sum()), *rest), dict(node.kwargs)


def _narrow(node: Node, values: Values, alive: Alive) -> Call:
    x, dim, start, length = _arguments(node)
    mask = alive(values[x][dim])
    if mask.all():
        return node.target, node.args, dict(node.kwargs)
    start %= len(mask)
    return node.target, (x, dim, int(mask[:start].sum()), int(mask[start : start + length].sum())), {}


def _convolution(node: Node, values: Values, alive: Alive) -> Call:
    """Groups are the seventh argument, of plain and of transposed convolutions alike."""
    arguments = _arguments(node)
    weight = values[arguments[1]][0]
    if len(arguments) > 6 and arguments[6] > 1:
        arguments[6] = arguments[6] * _count(weight, alive) // weight.size
    return node.target, tuple(arguments), dict(node.kwargs)


def _group_norm(node: Node, values: Values, alive: Alive) -> Call:
    x, groups, *rest = _arguments(node)
    channels = values[x][1]
    return node.target, (x, groups * _count(channels, alive) // channels.size, *rest), dict(node.kwargs)


def _squeeze(node: Node, values: Values, alive: Alive) -> Call:
    """Only what had one position from the start: a channel that is left alone stays a dimension."""
    del alive
    x, *given = _arguments(node)
    chosen = range(len(values[x])) if not given else [given[0]] if isinstance(given[0], int) else given[0]
    return aten.squeeze.dims, (x, [dim for dim in chosen if values[x][dim].size == 1]), {}


def _arguments(node: Node) -> list[Any]:
    return list(node.args)


_REWRITES: dict[str, Callable[[Node, Values, Alive], Call]] = {
    "aten.view": _reshape,
    "aten.reshape": _reshape,
    "aten._unsafe_view": _reshape,
    "aten.expand": _expand,
    "aten.broadcast_to": _expand,
    "aten.zeros": _constant,
    "aten.ones": _constant,
    "aten.full": _constant,
    "aten.new_zeros": _expand,
    "aten.new_ones": _expand,
    "aten.new_full": _expand,
    "aten.unflatten": _unflatten,
    "aten.split": _split,
    "aten.split_with_sizes": _split,
    "aten.chunk": _split,
    "aten.tensor_split": _split,
    "aten.squeeze": _squeeze,
    "aten.slice": _slice,
    "aten.narrow": _narrow,
    "aten.conv1d": _convolution,
    "aten.conv2d": _convolution,
    "aten.conv3d": _convolution,
    "aten.conv_transpose1d": _convolution,
    "aten.conv_transpose2d": _convolution,
    "aten.conv_transpose3d": _convolution,
    "aten.group_norm": _group_norm,
}
