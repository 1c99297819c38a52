"""Operations on images: pooling, resizing, and channels exchanged for places."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lzero.structure.op import Op, Value
from lzero.structure.registry import register_rule
from lzero.structure.units import Dim, free


def _spatial(op: Op, x: Value, spatial: int) -> Value:
    return op.along(x, range(-spatial, 0))


@register_rule("aten.max_pool1d", "aten.avg_pool1d", "aten.adaptive_avg_pool1d", "aten.upsample_nearest1d")
@register_rule(
    "aten._upsample_nearest_exact1d", "aten.upsample_linear1d", "aten.reflection_pad1d", "aten.replication_pad1d"
)
def spatial_1d(op: Op, x: Value, *_: Any, **__: Any) -> Value:
    """The last dimension changes; channels pass."""
    return _spatial(op, x, 1)


@register_rule("aten.max_pool2d", "aten.avg_pool2d", "aten.adaptive_avg_pool2d", "aten.upsample_nearest2d")
@register_rule("aten._upsample_nearest_exact2d", "aten._upsample_bilinear2d_aa", "aten._upsample_bicubic2d_aa")
@register_rule("aten.upsample_bilinear2d", "aten.upsample_bicubic2d", "aten.reflection_pad2d", "aten.replication_pad2d")
def spatial_2d(op: Op, x: Value, *_: Any, **__: Any) -> Value:
    """The last two dimensions change; channels pass."""
    return _spatial(op, x, 2)


@register_rule("aten.max_pool3d", "aten.avg_pool3d", "aten.adaptive_avg_pool3d", "aten.upsample_nearest3d")
@register_rule("aten._upsample_nearest_exact3d", "aten.upsample_trilinear3d", "aten.replication_pad3d")
def spatial_3d(op: Op, x: Value, *_: Any, **__: Any) -> Value:
    """The last three dimensions change; channels pass."""
    return _spatial(op, x, 3)


@register_rule("aten.adaptive_max_pool1d", "aten.adaptive_max_pool2d", "aten.adaptive_max_pool3d")
@register_rule("aten.max_pool1d_with_indices", "aten.max_pool2d_with_indices", "aten.max_pool3d_with_indices")
def pooling_with_indices(op: Op, x: Value, *_: Any, **__: Any) -> list[Value]:
    """Values and their places, of the same dimensions."""
    out = _spatial(op, x, int(op.name.partition("pool")[2][0]))
    return [out, out]


@register_rule("aten.max_unpool2d", "aten.max_unpool3d")
def unpooling(op: Op, x: Value, places: Value, *_: Any, **__: Any) -> Value:
    """Values back at their places."""
    return _spatial(op, op.broadcast([x, places]), int(op.name.partition("pool")[2][0]))


@register_rule("aten.grid_sampler")
def grid_sampler(op: Op, x: Value, grid: Value, *_: Any) -> Value:
    """Places are read where the grid says; channels pass."""
    op.pin(grid[1:], f"{op.name} reads places from it")
    return _spatial(op, x, len(x) - 2)


@register_rule("aten.pixel_shuffle.default")
def pixel_shuffle(op: Op, x: Value, factor: int) -> Value:
    """Channels become places: all those that make one channel of the result are one unit."""
    op.pin(x[-2:], f"{op.name} rearranges it")
    return Value([*x[:-3], _whole(op, x[-3], factor**2), *(free(n) for n in op.shapes[0][-2:])])


@register_rule("aten.pixel_unshuffle.default")
def pixel_unshuffle(op: Op, x: Value, factor: int) -> Value:
    """Places become channels: those made of one channel live as long as it does."""
    return _each(op, x, factor**2, op.shapes[0][-2:])


@register_rule("aten.im2col.default")
def unfold(op: Op, x: Value, kernel: list[int], *_: Any) -> Value:
    """The places under a kernel become channels."""
    return _each(op, x, math.prod(kernel), op.shapes[0][-1:])


@register_rule("aten.col2im.default")
def fold(op: Op, x: Value, _: list[int], kernel: list[int], *__: Any) -> Value:
    """Channels become the places under a kernel again."""
    op.pin(x[-1:], f"{op.name} rearranges it")
    return Value([*x[:-2], _whole(op, x[-2], math.prod(kernel)), *(free(n) for n in op.shapes[0][-2:])])


@register_rule("aten.channel_shuffle.default")
def channel_shuffle(op: Op, x: Value, groups: int) -> Value:
    """Channels of the groups by turns; the number of groups is written into the call, so that all of them stay."""
    outer, inner = op.units.split(x[1], [groups, x[1].size // groups], op.because(f"{op.name} cuts across units"))
    op.pin([outer], f"{op.name} has as many groups")
    return Value([x[0], op.units.merge([inner, outer]), *x[2:]])


def _whole(op: Op, channels: Dim, places: int) -> Dim:
    """Channels of which each stretch of so many is one unit, which becomes one channel."""
    sizes = [channels.size // places, places]
    outer, inner = op.units.split(channels, sizes, op.because(f"{op.name} cuts across units"))
    op.pin([inner], f"{op.name} makes places of it")
    return outer


def _each(op: Op, x: Value, places: int, left: tuple[int, ...]) -> Value:
    """Images whose channels become so many each."""
    op.pin(x[-2:], f"{op.name} rearranges it")
    return Value([*x[:-3], Dim(np.repeat(x[-3].labels, places, axis=0)), *(free(n) for n in left)])
