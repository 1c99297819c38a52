"""Normalisations."""

from __future__ import annotations

from typing import Any

from lzero.structure.op import Op, Value
from lzero.structure.registry import register_rule


def _per_channel(op: Op, x: Value, parameters: tuple[Value | None, ...]) -> Value:
    channels = x[1]
    if all(parameter is None for parameter in parameters):
        op.normalises(channels)
    for parameter in parameters:
        if parameter is not None:
            channels = op.unite(channels, parameter[0])
    return x.replaced(1, channels)


@register_rule("aten.batch_norm.default")
def batch_norm(
    op: Op, x: Value, weight: Value | None, bias: Value | None, mean: Value | None, var: Value | None, *_: Any
) -> Value:
    """Each channel by itself: in training, and without running averages always, by the mean of what is there."""
    op.pin([x[0], *x[2:]], "the mean and variance of this batch are over it")
    return _per_channel(op, x, (weight, bias, mean, var))


@register_rule("aten.instance_norm.default")
def instance_norm(
    op: Op, x: Value, weight: Value | None, bias: Value | None, mean: Value | None, var: Value | None, *_: Any
) -> Value:
    """Each channel of each example by itself, over all places."""
    op.pin(x[2:], "InstanceNorm is over it")
    return _per_channel(op, x, (weight, bias, mean, var))


@register_rule("aten.group_norm.default")
def group_norm(op: Op, x: Value, groups: int, weight: Value | None = None, bias: Value | None = None, *_: Any) -> Value:
    """A group is one unit: its channels share mean and variance."""
    op.pin(x[2:], "GroupNorm is over it")
    out = _per_channel(op, x, (weight, bias))
    op.unite_blocks(out[1], groups)
    return out


@register_rule("aten._weight_norm.default")
def weight_norm(op: Op, direction: Value, length: Value, dim: int = 0) -> Value:
    """A weight as length times direction, whose norm is over all dimensions but one, or over all."""
    if not length:
        op.pin(direction, "the norm of a weight is over it")
        return direction
    op.pin([d for k, d in enumerate(direction) if k != dim % len(direction)], "the norm of a weight is over it")
    return direction.replaced(dim, op.unite(direction[dim], length[dim]))


@register_rule("aten.layer_norm.default")
def layer_norm(
    op: Op, x: Value, shape: list[int], weight: Value | None = None, bias: Value | None = None, *_: Any
) -> Value:
    """Mean and variance are over the normalised dimensions, so none of their units can go."""
    return _over_trailing(op, x, len(shape), (weight, bias), "LayerNorm is over it")


@register_rule("aten.rms_norm.default")
def rms_norm(op: Op, x: Value, shape: list[int], weight: Value | None = None, *_: Any) -> Value:
    """The mean square is over the normalised dimensions."""
    return _over_trailing(op, x, len(shape), (weight,), "RMSNorm is over it")


def _over_trailing(op: Op, x: Value, count: int, parameters: tuple[Value | None, ...], why: str) -> Value:
    trailing = Value(x[-count:])
    op.pin(trailing, why)
    for parameter in parameters:
        if parameter is not None:
            trailing = op.broadcast([trailing, parameter])
    return Value([*x[:-count], *trailing])
