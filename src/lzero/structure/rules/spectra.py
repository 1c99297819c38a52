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
    return op.along(x, [dim])


@register_rule(*(f"aten.fft_{kind}2" for kind in KINDS))
def transform_images(op: Op, x: Value, s: object = None, dim: Sequence[int] = (-2, -1), norm: object = None) -> Value:
    """Over two."""
    del s, norm
    return op.along(x, dim)


@register_rule(*(f"aten.fft_{kind}n" for kind in KINDS))
def transform_all(
    op: Op, x: Value, s: Sequence[Any] | None = None, dim: Sequence[int] | None = None, norm: object = None
) -> Value:
    """Over several: those named, as many of the last as there are lengths, or all."""
    del norm
    several = range(-len(x if s is None else s), 0) if dim is None else dim
    return op.along(x, several)


@register_rule("aten.fft_fftshift", "aten.fft_ifftshift")
def shifted(op: Op, x: Value, dim: list[int] | None = None) -> Value:
    """The middle of dimensions, or of all of them, comes first or last."""
    return op.along(x, range(len(x)) if dim is None else dim)


@register_rule("aten.real", "aten.imag", "aten.complex", "aten.polar")
def parts(op: Op, *values: Value) -> Value:
    """Complex numbers of their parts, and parts of complex numbers."""
    return op.broadcast(values)


@register_rule("aten.view_as_real")
def as_pairs(op: Op, x: Value) -> Value:
    """Both parts along a new last dimension."""
    del op
    return Value([*x, free(2)])


@register_rule("aten.view_as_complex")
def from_pairs(op: Op, x: Value) -> Value:
    """The other way round."""
    op.pin([x[-1]], f"{op.name} is over it")
    return Value(x[:-1])
