"""How gates act: a gated module's parameter reads as the parameter times its gates.

The raw parameter stays where it was, under its own name; the module's class is replaced by a subclass in which that
name is a property. So state_dict keys, optimizers, copies and pickles see what they always saw.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lzero.errors import LzeroError
from lzero.laws import Estimator, HardConcrete

LOG_ALPHA = "lzero_log_alpha"


class Bank:
    """The values of all gates during the current forward of the root; one more, always 1, stands for no gate."""

    def __init__(self, beta: float, gamma: float, zeta: float, estimator: Estimator) -> None:
        self.beta, self.gamma, self.zeta, self.estimator = beta, gamma, zeta, estimator
        self.values: Tensor | None = None
        self.inside = False
        self._pending: list[weakref.ref[Any]] = []

    def law(self, log_alpha: Tensor) -> HardConcrete:
        """The law of the gates."""
        return HardConcrete(log_alpha, self.beta, self.gamma, self.zeta, validate_args=False)

    def begin(self, root: nn.Module, *_: object) -> None:
        """Draw one sample for this forward: the root's forward pre-hook."""
        law = self.law(root.get_parameter(LOG_ALPHA))
        gates = law.rsample() if root.training else law.estimate(self.estimator)
        values = torch.cat([gates, gates.new_ones(1)])
        if root.training and torch.is_grad_enabled() and not torch.compiler.is_compiling():
            values = self._watched(values)
        self.values, self.inside = values, True

    def end(self, *_: object) -> None:
        """The root's forward hook: what reads gates from now on recomputes an earlier forward."""
        self.inside = False

    def read(self) -> Tensor:
        """The values of this forward, or of the last one where a checkpoint recomputes it."""
        if self.values is None:
            raise LzeroError("gates have no values yet: call the model that was sparsified, not a part of it, first")
        if not self.inside and not torch.compiler.is_compiling() and self._waiting() > 1:
            raise LzeroError(
                "activation checkpointing recomputes a forward whose gates have been drawn anew since: two forwards "
                "before one backward; call backward after each forward, or switch checkpointing off"
            )
        return self.values

    @contextmanager
    def holding(self, gates: Tensor) -> Iterator[None]:
        """Given values instead of drawn ones, inside the block."""
        before = self.values, self.inside
        self.values, self.inside = torch.cat([gates, gates.new_ones(1)]), True
        try:
            yield
        finally:
            self.values, self.inside = before

    def _watched(self, values: Tensor) -> Tensor:
        if not values.requires_grad:
            values = values.requires_grad_()
        watched: Tensor = _Watch.apply(values)  # type: ignore[no-untyped-call]
        self._pending = [ref for ref in self._pending if _is_waiting(ref)]
        self._pending.append(weakref.ref(watched.grad_fn))
        return watched

    def _waiting(self) -> int:
        return sum(_is_waiting(ref) for ref in self._pending)

    def __getstate__(self) -> dict[str, Any]:
        # Values are part of an autograd graph, which can be neither copied nor pickled.
        return {**self.__dict__, "values": None, "inside": False, "_pending": []}


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


class Factor:
    """The gates of one parameter: one index table for each gated dimension, or one gate for each element."""

    def __init__(self, tables: dict[int, str], elements: tuple[int, int] | None = None) -> None:
        self.tables, self.elements = tables, elements

    def along(self, module: nn.Module, bank: Bank, dim: int) -> Tensor:
        """The product of the gates of each position of a dimension."""
        table = module.get_buffer(self.tables[dim])
        values = bank.read().index_select(0, table.flatten()).view(table.shape)
        return values.prod(-1) if table.shape[1] > 1 else values[:, 0]

    def apply(self, module: nn.Module, bank: Bank, raw: Tensor) -> Tensor:
        """The parameter times its gates."""
        for dim in self.tables:
            shape = [-1 if k == dim else 1 for k in range(raw.dim())]
            raw = raw * self.along(module, bank, dim).to(raw.dtype).view(shape)
        if self.elements is not None:
            raw = raw * bank.read()[slice(*self.elements)].to(raw.dtype).view(raw.shape)
        return raw


def gated(module: nn.Module, name: str) -> Tensor:
    """A parameter as a gated module reads it."""
    bank, factors = module.__dict__["_lzero_bank"], module.__dict__["_lzero_factors"]
    gated_parameter: Tensor = factors[name].apply(module, bank, module._parameters[name])
    return gated_parameter


@cache
def gated_class(base: type[nn.Module], names: tuple[str, ...], is_root: bool) -> type[nn.Module]:
    """The subclass of `base` in which these parameters read as gated; the root also guards log α."""

    def reduce(self: Any, protocol: Any) -> Any:
        rest: Any
        _, _, *rest = super(made, self).__reduce_ex__(protocol)
        return (_new_gated, (base, names, is_root), *rest)

    def apply(self: Any, fn: Any, recurse: bool = True) -> Any:
        before = self._parameters[LOG_ALPHA].data
        super(made, self)._apply(fn, recurse)
        log_alpha = self._parameters[LOG_ALPHA]
        if log_alpha.dtype.itemsize < before.dtype.itemsize == 4:  # steps of log α are lost in half precision
            log_alpha.data = before.to(log_alpha.device)
        return self

    members: dict[str, Any] = {name: property(partial(gated, name=name)) for name in names}
    members |= {"__reduce_ex__": reduce, "__module__": base.__module__, "__doc__": base.__doc__}
    members |= {"__qualname__": base.__qualname__, "_lzero_base": base}
    if is_root:
        members["_apply"] = apply
    if base.forward is nn.Linear.forward and names == ("weight",):
        members["forward"] = _linear_forward
    made: Any = type(base.__name__, (base,), members)
    return made  # type: ignore[no-any-return]


def _new_gated(base: type[nn.Module], names: tuple[str, ...], is_root: bool) -> nn.Module:
    cls = gated_class(base, names, is_root)  # type: ignore[arg-type]
    return cls.__new__(cls)


def _linear_forward(self: Any, x: Tensor) -> Tensor:
    """A dense layer with gates: they multiply whichever is smaller, the weight or the input."""
    factor: Factor = self._lzero_factors["weight"]
    raw = self._parameters["weight"]
    if set(factor.tables) == {1} and factor.elements is None and x.numel() < raw.numel():
        return F.linear(x * factor.along(self, self._lzero_bank, 1).to(x.dtype), raw, self.bias)
    return F.linear(x, self.weight, self.bias)
