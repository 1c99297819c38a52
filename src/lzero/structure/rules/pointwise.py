"""Elementwise operations that torch does not tag as such, and new tensors of one value."""

from __future__ import annotations

from typing import Any

from torch.fx import Node

from lzero.structure.op import Op, Value
from lzero.structure.registry import register_rule
from lzero.structure.units import Dim, free


@register_rule(
    "aten.to",
    "aten._to_copy",
    "aten.type_as",
    "aten.clone",
    "aten.contiguous",
    "aten.alias",
    "aten.detach",
    is_view=True,
)
@register_rule("aten.lift_fresh_copy", "aten.float", "aten.double", "aten.half", "aten.bfloat16", is_view=True)
def copy(op: Op, x: Value, *_: Any, **__: Any) -> Value:
    """The same values: still a view of a parameter, where it was one."""
    del op
    return x


@register_rule("aten.copy.default", "aten.copy_.default")
def overwrite(op: Op, x: Value, source: Value, *_: Any, **__: Any) -> Value:
    """One tensor's values put into another."""
    return op.broadcast([x, source])


@register_rule("aten.dropout", "aten.feature_dropout", "aten.alpha_dropout", "aten.feature_alpha_dropout")
@register_rule("aten.hardswish", "aten.bernoulli", "aten.masked_fill", "aten.fill", "aten.nan_to_num", "aten.clamp")
@register_rule("aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar")
@register_rule("aten.rrelu", "aten.hardsigmoid", "aten.silu", "aten.mish", "aten.gelu", "aten.leaky_relu", "aten.relu6")
@register_rule("aten.log_sigmoid", "aten.special_expit", "aten.special_ndtr", "aten.special_log_ndtr")
def elementwise(op: Op, x: Value, *others: Any, **named: Any) -> Value:
    """Each position by itself."""
    return op.broadcast([x, *(v for v in (*others, *named.values()) if isinstance(v, Value))])


@register_rule("aten.mul", "aten.div", is_view=True)
def scaled(op: Op, x: Value | float, other: Value | float, **_: Any) -> Value:
    """A weight times numbers still reads what the weight reads: $(w z)\\, c = (w c)\\, z$."""
    values = [each for each in (x, other) if isinstance(each, Value)]
    weights = [value for value in values if any(dim.sources for dim in value)]
    out = op.broadcast(values)
    is_divisor = op.name.startswith("aten.div") and any(weight is other for weight in weights)
    is_linear = len(weights) == 1 and not is_divisor and not _have_a_source(op.node.all_input_nodes)
    return _with_sources(out, weights) if is_linear else out


def _have_a_source(operands: list[Node]) -> bool:
    """Whether two operands are computed from one tensor: $w z\\, f(w z)$ is not $w f(w)\\, z$."""
    seen: list[set[Node]] = []
    for operand in operands:
        found, left = set[Node](), [operand]
        while left:
            node = left.pop()
            if node not in found:
                found.add(node)
                left += node.all_input_nodes
        seen.append({node for node in found if node.op == "placeholder"})
    return len(seen) == 2 and not seen[0].isdisjoint(seen[1])


@register_rule("aten.add", "aten.sub", is_view=True)
def added(op: Op, x: Value | float, other: Value | float, **_: Any) -> Value:
    """A sum of weights reads what all of them read: $w z + v z = (w + v)\\, z$."""
    values = [each for each in (x, other) if isinstance(each, Value)]
    out = op.broadcast(values)
    return _with_sources(out, values) if len(values) == 2 else out


def _with_sources(out: Value, weights: list[Value]) -> Value:
    """Dimensions that are views of all these weights' dimensions, where no weight is stretched along them."""
    if any(len(weight) != len(out) for weight in weights):
        return out

    def dim(k: int) -> Dim:
        own = [weight[k] for weight in weights]
        if any(each.size != out[k].size or not each.sources for each in own):
            return out[k]
        return Dim(out[k].labels, frozenset().union(*(each.sources for each in own)))

    return Value(dim(k) for k in range(len(out)))


@register_rule("aten.prelu")
def prelu(op: Op, x: Value, weight: Value) -> Value:
    """One slope for all, or one for each channel."""
    if weight and weight[0].size > 1:
        op.unite(x[1], weight[0])
    return x


@register_rule("aten.zeros_like", "aten.ones_like", "aten.full_like", "aten.empty_like")
@register_rule("aten.rand_like", "aten.randn_like")
def like(op: Op, x: Value, *_: Any, **__: Any) -> Value:
    """A new tensor that shrinks with the one it is made after."""
    del op
    return x


@register_rule("aten.arange", "aten.scalar_tensor", "aten.eye", "aten.rand", "aten.randn")
@register_rule("aten.empty", "aten.new_empty")
def factory(op: Op, *_: Any, **__: Any) -> Value:
    """A new tensor has no units of its own."""
    return Value(free(size) for size in op.shapes[0])


@register_rule("aten.zeros", "aten.ones", "aten.full", "aten.new_zeros", "aten.new_ones", "aten.new_full")
def constant(op: Op, *_: Any, **__: Any) -> Value:
    """The same number everywhere: its positions go with those of what it meets."""
    return Value(op.units.fresh(size) for size in op.shapes[0])


@register_rule("aten._assert_tensor_metadata", "aten._assert_scalar", "aten._assert_async", "aten.sym_size")
def assertion(op: Op, *_: Any, **__: Any) -> None:
    """Nothing is computed."""
    del op
