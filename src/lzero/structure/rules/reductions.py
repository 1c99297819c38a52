"""Operations along some dimensions that leave the others alone: sums, softmax, pooling, resizing."""

from __future__ import annotations

from typing import Any

from lzero.structure.op import Op, Value
from lzero.structure.registry import register_rule
from lzero.structure.units import free


def _listed(dims: int | list[int] | None, rank: int) -> list[int]:
    chosen = list(range(rank)) if dims is None or dims == [] else [dims] if isinstance(dims, int) else dims
    return [dim % rank for dim in chosen]


@register_rule(
    "aten.mean.dim", "aten.sum.dim_IntList", "aten.amax", "aten.amin", "aten.logsumexp", "aten.std", "aten.var"
)
@register_rule("aten.linalg_vector_norm", "aten.norm", "aten.prod.dim_int", "aten.any.dim", "aten.all.dim")
def reduction(op: Op, x: Value, *args: Any, **named: Any) -> Value:
    """Summing over units reads them without a weight that could carry a gate."""
    given = op.arguments(x, *args, **named)
    gone = _listed(given.get("dim"), len(x))
    op.pin([x[k] for k in gone], f"{op.name} is over it")
    kept = given.get("keepdim", False)
    return Value(free(1) if k in gone else d.without_sources() for k, d in enumerate(x) if kept or k not in gone)


@register_rule("aten.mean.default", "aten.sum.default", "aten.max.default", "aten.min.default")
def total(op: Op, x: Value, *_: Any, **__: Any) -> Value:
    """Over everything."""
    op.pin(x, f"{op.name} is over it")
    return Value()


@register_rule(
    "aten.softmax.int", "aten.log_softmax.int", "aten._softmax", "aten._log_softmax", "aten.cumsum", "aten.glu"
)
def along(op: Op, x: Value, dim: int = -1, *_: Any, **__: Any) -> Value:
    """Every result along the dimension depends on all of it."""
    op.pin([x[dim]], f"{op.name} is along it")
    return Value(free(n) if d.size != n else d.without_sources() for d, n in zip(x, op.shapes[0], strict=True))


def _spatial(op: Op, x: Value, spatial: int) -> Value:
    op.pin(x[-spatial:], f"{op.name} is over it")
    return Value([*(d.without_sources() for d in x[:-spatial]), *(free(n) for n in op.shapes[0][-spatial:])])


@register_rule("aten.max_pool1d", "aten.avg_pool1d", "aten.adaptive_avg_pool1d", "aten.upsample_nearest1d")
@register_rule("aten.upsample_linear1d", "aten.reflection_pad1d", "aten.replication_pad1d")
def spatial_1d(op: Op, x: Value, *_: Any, **__: Any) -> Value:
    """The last dimension changes; channels pass."""
    return _spatial(op, x, 1)


@register_rule("aten.max_pool2d", "aten.avg_pool2d", "aten.adaptive_avg_pool2d", "aten.upsample_nearest2d")
@register_rule("aten.upsample_bilinear2d", "aten.upsample_bicubic2d", "aten.reflection_pad2d", "aten.replication_pad2d")
def spatial_2d(op: Op, x: Value, *_: Any, **__: Any) -> Value:
    """The last two dimensions change; channels pass."""
    return _spatial(op, x, 2)


@register_rule("aten.max_pool3d", "aten.avg_pool3d", "aten.adaptive_avg_pool3d", "aten.upsample_nearest3d")
@register_rule("aten.upsample_trilinear3d", "aten.replication_pad3d")
def spatial_3d(op: Op, x: Value, *_: Any, **__: Any) -> Value:
    """The last three dimensions change; channels pass."""
    return _spatial(op, x, 3)


@register_rule("aten.adaptive_max_pool1d", "aten.adaptive_max_pool2d", "aten.adaptive_max_pool3d")
@register_rule("aten.max_pool1d_with_indices", "aten.max_pool2d_with_indices", "aten.max_pool3d_with_indices")
def pooling_with_indices(op: Op, x: Value, *_: Any, **__: Any) -> list[Value]:
    """Values and their places, of the same dimensions."""
    out = _spatial(
        op, x, int(op.name.partition("d")[0][-1]) if "pool" not in op.name else int(op.name.split("pool")[1][0])
    )
    return [out, out]


@register_rule("aten.upsample_nearest2d.vec", "aten.upsample_bilinear2d.vec", "aten.upsample_bicubic2d.vec")
def resize(op: Op, x: Value, *_: Any, **__: Any) -> Value:
    """As the overloads without scale factors."""
    return _spatial(op, x, 2)
