"""Forwards that still wait for their backward: where gates are drawn anew meanwhile, none of them can be recomputed."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor

from lzero.errors import LzeroError
from lzero.tensors import in_transform


class Pending:
    """The forwards that wait for their backward, told by nodes in their graphs."""

    def __init__(self) -> None:
        self._forward, self._nodes = 0, list[tuple[int, weakref.ref[Any]]]()

    def begin(self) -> None:
        """Gates are drawn anew."""
        if not torch.compiler.is_compiling():  # which recomputes by itself, and would guard on the number
            self._forward += 1

    def watched(self, values: Tensor) -> Tensor:
        """The same values, with a node in the graph that tells whether their backward has come."""
        if not torch.is_grad_enabled() or torch.compiler.is_compiling() or in_transform():
            return values
        watched: Tensor = _Watch.apply(values if values.requires_grad else values.requires_grad_())  # type: ignore[no-untyped-call]
        self._nodes = [each for each in self._nodes if _is_waiting(each[1])]
        self._nodes.append((self._forward, weakref.ref(watched.grad_fn)))
        return watched

    def check_recomputation(self) -> None:
        """Refuse to recompute a forward where another one, whose gates are gone, waits for its backward as well."""
        if any(forward != self._forward and _is_waiting(node) for forward, node in self._nodes):
            raise LzeroError(
                "activation checkpointing recomputes a forward whose gates have been drawn anew since: two forwards "
                "before one backward; call backward after each forward, or switch checkpointing off"
            )

    def __getstate__(self) -> dict[str, Any]:
        return vars(Pending())  # nodes belong to graphs, which are neither copied nor pickled


def _is_waiting(ref: weakref.ref[Any]) -> bool:
    node = ref()
    return node is not None and not node.done


class _Watch(torch.autograd.Function):
    """The identity, whose node in the graph tells whether a forward still waits for its backward."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        ctx.done = False
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        ctx.done = True
        return gradients[0]
