"""Operations along some dimensions that leave the others alone: sums, largest ones, softmax, orders."""

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
@register_rule("aten.argmax", "aten.argmin")
def reduction(op: Op, x: Value, *args: Any, **named: Any) -> Value:
    """Summing over units reads them without a weight that could carry a gate."""
    given = op.arguments(x, *args, **named)
    gone = _listed(given.get("dim"), len(x))
    op.pin([x[k] for k in gone], f"{op.name} is over it")
    kept = given.get("keepdim", False)
    return Value(free(1) if k in gone else d for k, d in enumerate(x) if kept or k not in gone)


@register_rule("aten.max.dim", "aten.min.dim", "aten.median.dim", "aten.var_mean", "aten.std_mean")
@register_rule("aten.aminmax.default")
def pair_of_reductions(op: Op, x: Value, *args: Any, **named: Any) -> list[Value]:
    """Two results of the same dimensions, such as the largest values and where they are."""
    return [reduction(op, x, *args, **named)] * 2


@register_rule("aten.kthvalue.default")
def ordinal(op: Op, x: Value, k: int, dim: int = -1, keepdim: bool = False) -> list[Value]:
    """The k-th smallest along a dimension, and where it is."""
    del k
    return [reduction(op, x, dim=dim, keepdim=keepdim)] * 2


@register_rule("aten.mean.default", "aten.sum.default", "aten.max.default", "aten.min.default")
def total(op: Op, x: Value, *_: Any, **__: Any) -> Value:
    """Over everything."""
    op.pin(x, f"{op.name} is over it")
    return Value()


@register_rule("aten.softmax.int", "aten.log_softmax.int", "aten._softmax", "aten._log_softmax")
@register_rule("aten.cumsum", "aten.cumprod", "aten.logcumsumexp", "aten.argsort.default")
def along(op: Op, x: Value, dim: int = -1, *_: Any, **__: Any) -> Value:
    """Every result along the dimension depends on all of it."""
    op.pin([x[dim]], f"{op.name} is along it")
    return x


@register_rule("aten.diff.default")
def differences(op: Op, x: Value, n: int = 1, dim: int = -1, *_: Any, **__: Any) -> Value:
    """Of neighbours, of which there is one less."""
    del n
    return op.along(x, [dim], "is along it")


@register_rule("aten.sort.default", "aten.topk", "aten.cummax.default", "aten.cummin.default")
def order(op: Op, x: Value, *args: Any, **named: Any) -> list[Value]:
    """Values in their order, all of them or the first, and where they were."""
    return [op.along(x, [op.arguments(x, *args, **named).get("dim", -1)], "is along it")] * 2


@register_rule("aten.glu")
def gated_linear_unit(op: Op, x: Value, dim: int = -1) -> Value:
    """One half times the sigmoid of the other, position by position."""
    half = x[dim].size // 2
    joined = op.unite(x[dim].positions(slice(half)), x[dim].positions(slice(half, None)))
    return x.replaced(dim, joined)
