"""Attention."""

from __future__ import annotations

import numpy as np

from lzero.structure.op import Op, Value
from lzero.structure.registry import register_rule
from lzero.structure.units import Dim


@register_rule("aten.scaled_dot_product_attention.default")
def scaled_dot_product_attention(
    op: Op,
    query: Value,
    key: Value,
    value: Value,
    mask: Value | None = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:
    """Heads are units; the inner dimension of q·k is pinned, that of v is free to go."""
    del dropout, is_causal
    op.contract(query[-1], key[-1])
    if scale is None:
        op.pin([query[-1]], "attention divides by the root of their number")
    op.unite(key[-2], value[-2])
    op.pin([key[-2]], "attention is over it")
    op.attends_to(value)
    heads = query[:-2]
    for other in (key, value):
        repeated = _repeated(other[:-2], heads) if enable_gqa else other[:-2]
        heads = op.broadcast([Value(heads), Value(repeated)])
    if mask is not None:
        op.broadcast([Value([*heads, query[-2], key[-2]]), mask])
    op.multiplies(*heads, query[-2], key[-2], query[-1])
    op.multiplies(*heads, query[-2], key[-2], value[-1])
    return Value([*heads, query[-2], value[-1]])


def _repeated(fewer: tuple[Dim, ...], heads: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Grouped-query attention: each key–value head serves a stretch of query heads."""
    times = heads[-1].size // fewer[-1].size
    return (*fewer[:-1], Dim(np.repeat(fewer[-1].labels, times, axis=0)))
