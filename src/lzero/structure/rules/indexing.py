"""Parts of tensors, and tensors of parts."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np
from torch.fx import Node

from lzero.structure.op import Op, Value
from lzero.structure.registry import find_rule, register_rule
from lzero.structure.rules.pointwise import constant
from lzero.structure.units import NONE, Dim, free


@register_rule("aten.embedding.default")
def embedding(op: Op, weight: Value, index: Value, *_: Any, **__: Any) -> Value:
    """Rows are looked up, never removed; columns are units like a dense layer's outputs."""
    op.pin([weight[0]], "rows are looked up by index")
    return Value([*index, weight[1]])


@register_rule("aten.embedding_bag", "aten._embedding_bag", "aten._embedding_bag_forward_only")
def embedding_bag(op: Op, weight: Value, *_: Any, **__: Any) -> list[Value]:
    """The same, summed or averaged over bags of rows; what else is returned counts rows."""
    op.pin([weight[0]], "rows are looked up by index")
    bags, *counts = op.shapes
    first = Value([free(bags[0]), weight[1]])
    return [first, *(Value(free(size) for size in shape) for shape in counts)]


@register_rule("aten.slice.Tensor", is_view=True)
def slice_(op: Op, x: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Value:
    """A stretch of a dimension."""
    if op.shapes[0][dim] == x[dim].size and step == 1:
        return x
    if not x[dim].labels.shape[1]:  # such as a batch, where the ends may be sizes known at run time
        return x.replaced(dim, free(op.shapes[0][dim]))
    if step != 1:
        op.pin([x[dim]], "it is sliced with a step")
    return x.replaced(dim, x[dim].positions(slice(start, end, step)))


@register_rule("aten.narrow.default", is_view=True)
def narrow(op: Op, x: Value, dim: int, start: int, length: int) -> Value:
    """A stretch of a dimension."""
    del op
    start %= x[dim].size
    return x.replaced(dim, x[dim].positions(slice(start, start + length)))


@register_rule("aten.split_with_sizes.default", "aten.split.sizes", "aten.tensor_split.indices", is_view=True)
def split(op: Op, x: Value, _: object, dim: int = 0) -> list[Value]:
    """Stretches of a dimension, one after another; where all have one size, code has one number for them."""
    parts = _stretches(op, x, dim)
    return _kept_equal(op, parts, dim) if len({part[dim].size for part in parts}) == 1 else parts


@register_rule("aten.chunk.default", "aten.split.Tensor", "aten.tensor_split.sections", is_view=True)
def chunk(op: Op, x: Value, _: object, dim: int = 0) -> list[Value]:
    """Stretches of one size, which they are to have after a cut too."""
    parts = _stretches(op, x, dim)
    if len({part[dim].size for part in parts}) > 1:
        op.pin([x[dim]], f"{op.name} makes parts of it that are not equal")
        return parts
    return _kept_equal(op, parts, dim)


def _stretches(op: Op, x: Value, dim: int) -> list[Value]:
    sizes = [shape[dim] for shape in op.shapes]
    ends = [*accumulate(sizes)]
    return [x.replaced(dim, x[dim].positions(slice(end - n, end))) for n, end in zip(sizes, ends, strict=True)]


def _kept_equal(op: Op, parts: list[Value], dim: int) -> list[Value]:
    """What is removed goes from each of them."""
    for part in parts[1:]:
        op.unite(parts[0][dim], part[dim])
    return parts


@register_rule("aten.select.int", is_view=True)
def select(op: Op, x: Value, dim: int, _: int) -> Value:
    """One position of a dimension, which must then stay where it is."""
    op.pin([x[dim]], "one of its positions is read by number")
    return Value(d for k, d in enumerate(x) if k != dim % len(x))


@register_rule("aten.unbind.int", is_view=True)
def unbind(op: Op, x: Value, dim: int = 0) -> list[Value]:
    """Every position of a dimension as a tensor of its own."""
    return [select(op, x, dim, k) for k in range(x[dim].size)]


@register_rule("aten.index_select.default", is_view=True)
def index_select(op: Op, x: Value, dim: int, *_: Any, **__: Any) -> Value:
    """Positions chosen by a tensor: what they are is known of layers that lzero made, and of no others."""
    if (chosen := op.chosen(x[dim], op.node.args[2])) is not None:
        return x.replaced(dim, chosen)
    op.pin([x[dim]], f"{op.name} chooses its positions")
    return x.replaced(dim, op.units.opaque(op.shapes[0][dim], op.because(f"{op.name} chooses its positions")))


@register_rule("aten.gather.default")
def gather(op: Op, x: Value, dim: int, places: Value, **_: Any) -> Value:
    """Positions chosen for each place of the other dimensions, which are the same in both."""
    chosen = dim % len(x)
    op.pin([x[chosen], places[chosen]], f"{op.name} chooses positions by it")
    unequal = [pair for pair in zip(x, places, strict=True) if pair[0].size != pair[1].size]
    op.pin([dim for pair in unequal for dim in pair], f"{op.name} reads its first positions")
    same = {k for k in range(len(x)) if k != chosen and x[k].size == places[k].size}
    return Value(op.unite(x[k], p) if k in same else free(p.size) for k, p in enumerate(places))


@register_rule("aten.index_add", "aten.index_copy")
def index_add(op: Op, x: Value, dim: int, index: Value, source: Value, **_: Any) -> Value:
    """Positions of one tensor put to chosen positions of another; the other dimensions are the same in both."""
    return scatter(op, x, dim, source, source, index)


@register_rule("aten.scatter_add", "aten.scatter", "aten.scatter_reduce")
def scatter(op: Op, x: Value, dim: int, places: Value, *others: Any, **_: Any) -> Value:
    """The other way round: each place says to which position it goes."""
    given = [value for value in (places, *others) if isinstance(value, Value) and len(value) == len(x)]
    op.pin([value[dim] for value in (x, *given)], f"{op.name} chooses positions by it")
    out = list(x)
    for k in {*range(len(x))} - {dim % len(x)}:
        for value in given:
            if value[k].size != x[k].size:
                op.pin([x[k], value[k]], f"{op.name} fills its first positions")
            else:
                out[k] = op.unite(out[k], value[k])
    return Value(out)


@register_rule("aten.index.Tensor")
def index(op: Op, x: Value, indices: list[Value | None]) -> Value:
    """Positions chosen in some dimensions: their places stand together where they were, or first if they did not."""
    chosen = [k for k, given in enumerate(indices) if given is not None]
    used = [dim for k in chosen for dim in (x[k], *(indices[k] or ()))]
    op.pin(used, f"{op.name} chooses positions by it")
    rest = [d for k, d in enumerate(x) if k not in chosen]
    first = chosen[0] if chosen[-1] - chosen[0] == len(chosen) - 1 else 0
    places = op.shapes[0][first : len(op.shapes[0]) - len(rest) + first]
    return Value([*rest[:first], *(free(size) for size in places), *rest[first:]])


def _is_constant(node: Node) -> bool:
    return find_rule(node.target) is constant


@register_rule("aten.cat.default", "aten.concat.default", "aten.concatenate.default")
def cat(op: Op, tensors: list[Value], dim: int = 0) -> Value:
    """Positions one after another; the other dimensions are the same in all. Of constants code says how many."""
    nodes: Any = op.node.args[0]
    parts = [part for part in zip(tensors, nodes, strict=True) if len(part[0]) > 1 or (part[0] and part[0][0].size)]
    tensors = [x.replaced(dim, free(x[dim].size)) if _is_constant(node) else x for x, node in parts]
    rank = len(tensors[0])
    joined = []
    for k in range(rank):
        if k == dim % rank:
            labels = [tensor[k].labels for tensor in tensors]
            width = max(part.shape[1] for part in labels)
            padded = [np.pad(p, ((0, 0), (0, width - p.shape[1])), constant_values=NONE) for p in labels]
            joined.append(Dim(np.concatenate(padded)))
        else:
            joined.extend(op.broadcast([Value([tensor[k]]) for tensor in tensors]))
    return Value(joined)


@register_rule("aten.hstack.default", "aten.column_stack.default", "aten.vstack.default")
def side_by_side(op: Op, tensors: list[Value]) -> Value | list[Value]:
    """`cat` along the second dimension, or for `vstack` the first; of vectors it makes something else."""
    if any(len(tensor) < 2 for tensor in tensors):
        return op.stays(tensors, f"{op.name} of vectors is not followed")
    return cat(op, tensors, 0 if "vstack" in op.name else 1)


@register_rule("aten.stack.default")
def stack(op: Op, tensors: list[Value], dim: int = 0) -> Value:
    """A new dimension; the others are the same in all."""
    joined = list(op.broadcast(tensors))
    joined.insert(dim % (len(joined) + 1), free(len(tensors)))
    return Value(joined)


@register_rule("aten.pad.default", "aten.constant_pad_nd.default")
def pad(op: Op, x: Value, widths: list[int], *args: Any, **named: Any) -> Value:
    """Constants before and after: positions without units."""
    mode = next((a for a in (*args, *named.values()) if isinstance(a, str)), "constant")
    padded = list(x)
    for k in range(len(widths) // 2):
        before, after, dim = widths[2 * k], widths[2 * k + 1], len(x) - 1 - k
        if min(before, after) < 0 or (mode != "constant" and (before or after)):
            op.pin([x[dim]], f"it is padded ({mode})")
            padded[dim] = free(op.shapes[0][dim])
        elif before or after:
            padded[dim] = Dim(np.pad(x[dim].labels, ((before, after), (0, 0)), constant_values=NONE))
    return Value(padded)
