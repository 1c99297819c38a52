"""Complex numbers, and Fourier transforms: what those are over stays, the other dimensions pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lzero.structure.op import Op, Value
from lzero.structure.registry import register_rule
from lzero.structure.units import free

KINDS = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")


@register_rule(*(f"aten.fft_{kind}" for kind in KINDS))
def transform(op: Op, x: Value, n: object = None, dim: int = -1, norm: object = None) -> Value:
    """Over one dimension, whose length may change."""
    del n, norm
    return _transformed(op, x, [dim])


@register_rule(*(f"aten.fft_{kind}2" for kind in KINDS))
def transform_images(op: Op, x: Value, s: object = None, dim: Sequence[int] = (-2, -1), norm: object = None) -> Value:
    """Over two."""
    del s, norm
    return _transformed(op, x, dim)


@register_rule(*(f"aten.fft_{kind}n" for kind in KINDS))
def transform_all(
    op: Op, x: Value, s: Sequence[Any] | None = None, dim: Sequence[int] | None = None, norm: object = None
) -> Value:
    """Over several: those named, as many of the last as there are lengths, or all."""
    del norm
    several = range(-len(x if s is None else s), 0) if dim is None else dim
    return _transformed(op, x, several)


@register_rule("aten.real", "aten.imag", "aten.complex", "aten.polar")
def parts(op: Op, *values: Value) -> Value:
    """Complex numbers of their parts, and parts of complex numbers."""
    return op.broadcast(values)


@register_rule("aten.view_as_real")
def as_pairs(op: Op, x: Value) -> Value:
    """Both parts along a new last dimension."""
    del op
    return Value([*(dim.without_sources() for dim in x), free(2)])


@register_rule("aten.view_as_complex")
def from_pairs(op: Op, x: Value) -> Value:
    """The other way round."""
    op.pin([x[-1]], f"{op.name} is over it")
    return Value(dim.without_sources() for dim in x[:-1])


def _transformed(op: Op, x: Value, dims: Sequence[int]) -> Value:
    over = {dim % len(x) for dim in dims}
    op.pin([x[k] for k in over], f"{op.name} is over it")
    return Value(free(op.shapes[0][k]) if k in over else dim.without_sources() for k, dim in enumerate(x))
