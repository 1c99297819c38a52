"""Views: the same numbers in another order or grouping."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lzero.structure.op import Op, Value
from lzero.structure.registry import register_rule
from lzero.structure.units import Dim, free


@register_rule("aten.permute.default", is_view=True)
def permute(op: Op, x: Value, dims: list[int]) -> Value:
    """Dimensions in another order."""
    del op
    return Value(x[dim] for dim in dims)


@register_rule("aten.transpose.int", "aten.swapaxes.default", "aten.swapdims.default", is_view=True)
def transpose(op: Op, x: Value, one: int, other: int) -> Value:
    """Two dimensions exchanged."""
    order = list(range(len(x)))
    order[one], order[other] = order[other], order[one]
    return permute(op, x, order)


@register_rule("aten.numpy_T.default", is_view=True)
def reverse(op: Op, x: Value) -> Value:
    """All dimensions, from the last to the first."""
    return permute(op, x, [*reversed(range(len(x)))])


@register_rule("aten.t.default", "aten.mT.default", is_view=True)
def matrix_transpose(op: Op, x: Value) -> Value:
    """The last two dimensions exchanged."""
    return transpose(op, x, -2, -1) if len(x) > 1 else x


@register_rule("aten.movedim.int", is_view=True)
def movedim(op: Op, x: Value, source: int, destination: int) -> Value:
    """One dimension elsewhere."""
    order = [k for k in range(len(x)) if k != source % len(x)]
    order.insert(destination % len(x), source % len(x))
    return permute(op, x, order)


@register_rule(
    "aten.view.default", "aten.reshape.default", "aten._unsafe_view.default", "aten.flatten.using_ints", is_view=True
)
@register_rule(
    "aten.unflatten.int",
    "aten.unsqueeze.default",
    "aten.view_as.default",
    "aten.reshape_as.default",
    "aten.ravel.default",
    is_view=True,
)
def reshape(op: Op, x: Value, *_: Any, **__: Any) -> Value:
    """Dimensions merged and split: between matching stretches of the two shapes, labels are joined and refined."""
    if 0 in op.shapes[0]:
        op.pin(x, f"{op.name} has nothing to lay out")
        return Value(free(size) for size in op.shapes[0])
    old = [dim for dim in x if dim.size != 1]
    op.pin([dim for dim in x if dim.size == 1], f"{op.name} drops or keeps a lone unit")
    new: list[Dim] = []
    sizes = [size for size in op.shapes[0] if size != 1]
    reason = op.because(f"{op.name} cuts across units")
    while old or sizes:
        taken, wanted = _stretch(old, sizes)
        new += op.units.split(op.units.merge(old[:taken]), sizes[:wanted], reason)
        old, sizes = old[taken:], sizes[wanted:]
    rest = iter(new)
    return Value(free(1) if size == 1 else next(rest) for size in op.shapes[0])


@register_rule("aten.squeeze", is_view=True)
def squeeze(op: Op, x: Value, dims: int | list[int] | None = None) -> Value:
    """Without dimensions of one position; the code would also drop one of which a single unit is left."""
    chosen = range(len(x)) if dims is None else [dims] if isinstance(dims, int) else dims
    op.needs_several([x[dim] for dim in chosen if x[dim].size > 1])
    return reshape(op, x)


def _stretch(old: list[Dim], sizes: list[int]) -> tuple[int, int]:
    """How many dimensions of each shape make the shortest stretches of equal length."""
    taken, wanted = 1, 1
    while (have := math.prod(dim.size for dim in old[:taken])) != (want := math.prod(sizes[:wanted])):
        taken, wanted = (taken + 1, wanted) if have < want else (taken, wanted + 1)
    return taken, wanted


@register_rule("aten.expand.default", "aten.expand_as.default", "aten.broadcast_to.default", is_view=True)
def expand(op: Op, x: Value, *_: Any, **__: Any) -> Value:
    """Dimensions of one stretched: of indices, to positions that go with those of what they meet."""
    shape = op.shapes[0]
    stretched = free if op.node.meta["val"].is_floating_point() else op.units.fresh
    new = [free(size) for size in shape[: len(shape) - len(x)]]
    for dim, size in zip(x, shape[len(shape) - len(x) :], strict=True):
        if dim.size != size:
            op.pin([dim], f"{op.name} stretches its only unit")
        new.append(dim if dim.size == size else stretched(size))
    return Value(new)


@register_rule("aten.repeat.default", "aten.tile.default")
def repeat(op: Op, x: Value, _: list[int]) -> Value:
    """Dimensions one after another several times."""
    dims = [*(free(1) for _ in range(len(op.shapes[0]) - len(x))), *x]
    counts = [size // dim.size for size, dim in zip(op.shapes[0], dims, strict=True)]  # those given may be symbols
    op.pin([dim for dim, n in zip(dims, counts, strict=True) if n > 1 and dim.size == 1], "its only unit is repeated")
    return Value(Dim(np.tile(dim.labels, (n, 1))) for dim, n in zip(dims, counts, strict=True))


@register_rule("aten.repeat_interleave.self_int", is_view=True)
def repeat_interleave(op: Op, x: Value, times: int, dim: int | None = None, **_: Any) -> Value:
    """Each position several times in a row."""
    if dim is None:
        op.pin(x, f"{op.name} flattens it")
        return Value(free(size) for size in op.shapes[0])
    repeated = Dim(np.repeat(x[dim].labels, times, axis=0))
    return x.replaced(dim, repeated)


@register_rule("aten.flip.default", is_view=True)
def flip(op: Op, x: Value, dims: list[int]) -> Value:
    """Positions from the last to the first."""
    del op
    turned = {dim % len(x) for dim in dims}
    return Value(d.positions(slice(None, None, -1)) if k in turned else d for k, d in enumerate(x))


@register_rule("aten.unfold.default")
def windows(op: Op, x: Value, dim: int, *_: int) -> Value:
    """Windows of a dimension; what is in each of them is the last one."""
    return Value([*op.along(x, [dim]), free(op.shapes[0][-1])])


@register_rule("aten.roll.default")
def roll(op: Op, x: Value, _: object, dims: list[int] | None = None) -> Value:
    """Positions go round: by a number of them, so that all have to stay."""
    return op.along(x, dims or range(len(x)), "moves its positions by a number of them")
