"""How gates act: a gated module's parameter reads as the parameter times its gates.

The raw parameter stays where it was, under its own name; the module's class is replaced by a subclass in which that
name is a property. So state_dict keys, optimizers, copies and pickles see what they always saw.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial, wraps
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lzero.bank import LOG_ALPHA, Bank
from lzero.errors import LzeroError
from lzero.layers import IndexedLinear
from lzero.tensors import at_least_single, in_transform

if TYPE_CHECKING:
    from collections.abc import Callable


CHANGED = (
    "{name} is not what it was: a part of the model was replaced, wrapped or changed after lzero.sparsify; do that "
    "before, or compile parts in place, by layer.compile()"
)


@dataclass(frozen=True)
class Factor:
    """The gates of one parameter: the bank's pieces for its gated dimensions, and for its elements."""

    dims: dict[int, int]
    elements: int | None = None

    def apply(self, bank: Bank, raw: Tensor, *, casts: bool = False) -> Tensor:
        """The parameter times its gates."""
        for dim, number in self.dims.items():
            shape = [-1 if k == dim else 1 for k in range(raw.dim())]
            raw = multiplied(raw, bank.piece(number).view(shape), casts=casts)
        if self.elements is not None:
            raw = multiplied(raw, bank.piece(self.elements).view(raw.shape), casts=casts)
        return raw


# Layers that do nothing with their weight but multiply by it, which autocast does in half precision.
MULTIPLYING = frozenset(
    layer.forward
    for layer in (
        nn.Linear, IndexedLinear, nn.Conv1d, nn.Conv2d, nn.Conv3d,
        nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d,
    )
)  # fmt: skip


def multiplied(raw: Tensor, gates: Tensor, *, casts: bool) -> Tensor:
    """A parameter times its gates; where autocast will cast it anyway, in that type at once, which saves two passes."""
    device = raw.device.type
    casts = casts and torch.is_autocast_enabled(device) and raw.dtype == torch.float32
    if casts and not torch.compiler.is_compiling() and not in_transform():
        product: Tensor = _MultiplyAndCast.apply(raw, gates, torch.get_autocast_dtype(device))  # type: ignore[no-untyped-call]
        return product
    return raw * gates.to(raw.dtype)


class _MultiplyAndCast(torch.autograd.Function):
    """The product in another type, in one pass over memory each way."""

    @staticmethod
    def forward(ctx: Any, raw: Tensor, gates: Tensor, dtype: torch.dtype) -> Tensor:
        ctx.save_for_backward(raw, gates)
        return torch.mul(raw, gates, out=torch.empty_like(raw, dtype=dtype))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        raw, gates = ctx.saved_tensors
        (gradient,) = gradients
        return gradient * gates, (gradient * raw).sum_to_size(gates.shape), None


def gated(module: nn.Module, name: str) -> Tensor:
    """A parameter as a gated module reads it."""
    bank: Bank | None = module.__dict__.get("_lzero_bank")
    if bank is None:  # code that says type(self)() makes one of the same class, which has no gates
        return nn.Module.__getattr__(module, name)  # type: ignore[return-value]
    factor: Factor = module.__dict__["_lzero_factors"][name]
    raw = _raw(module, name)
    return factor.apply(bank, raw, casts=base_of(module).forward in MULTIPLYING) if bank.is_read() else raw


def _refuse(module: nn.Module, _: object, *, name: str) -> None:
    """What has gates is not set from outside, as older hooks of torch set a weight that they compute."""
    raise LzeroError(CHANGED.format(name=f"the {name} of a {base_of(module).__name__}"))


def _raw(module: nn.Module, name: str) -> Tensor:
    raw = module._parameters.get(name)
    if raw is None:
        raise LzeroError(CHANGED.format(name=f"the {name} of a {base_of(module).__name__}"))
    return raw


@cache
def gated_class(base: type[nn.Module], names: tuple[str, ...], is_root: bool) -> type[nn.Module]:
    """The subclass of `base` in which these parameters read as gated; the root also guards log α."""

    def reduce(self: Any, protocol: Any) -> Any:
        rest: Any
        _, _, *rest = super(made, self).__reduce_ex__(protocol)
        return (_new_gated, (base, names, is_root), *rest)

    def apply(self: Any, fn: Any, recurse: bool = True) -> Any:
        log_alpha = self._parameters.get(LOG_ALPHA)
        before = None if log_alpha is None else log_alpha.data
        super(made, self)._apply(fn, recurse)
        log_alpha = self._parameters.get(LOG_ALPHA)
        if log_alpha is None or before is None:
            return self
        log_alpha.data = at_least_single(log_alpha.data, before)
        if log_alpha.grad is not None:
            log_alpha.grad = log_alpha.grad.to(log_alpha.dtype)
        return self

    members: dict[str, Any] = {name: property(partial(gated, name=name), partial(_refuse, name=name)) for name in names}
    members |= {"__reduce_ex__": reduce, "__module__": base.__module__, "__doc__": base.__doc__}
    members |= {"__qualname__": base.__qualname__, "_lzero_base": base}
    if base.forward is nn.Linear.forward and names == ("weight",):
        members["forward"] = _linear_forward
    if is_root:
        members |= {"_apply": apply, "forward": _drawn_first(base, members.get("forward"))}
    made: Any = _quiet_subclass(base, members)
    return made  # type: ignore[no-any-return]


def _quiet_subclass(base: type[nn.Module], members: dict[str, Any]) -> type:
    """A subclass of which the base's `__init_subclass__` is not told: it is no new model to be registered."""
    make: type[type] = type(base)
    try:
        made = make(base.__name__, (nn.Module,), members)
        made.__bases__ = (base,)
    except TypeError:  # of another layout in memory, as with slots
        return type(base.__name__, (base,), members)
    return made


def _drawn_first(base: type[nn.Module], own: Callable[..., Any] | None) -> Callable[..., Any]:
    """The root's forward, which refuses to run without gates: only a call of the model draws them.

    That of the base is looked up at each call, as Python does: it may have been exchanged since.
    """

    @wraps(own or base.forward)
    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        bank: Bank | None = self.__dict__.get("_lzero_bank")
        if bank is not None and not bank.is_read():
            raise LzeroError(
                f"the gates of this {type(self).__name__} are drawn when it is called: write model(…) for "
                "model.forward(…), or run it inside `with sparsifier.drawn():`"
            )
        forward = own or base.forward
        if bank is None or torch.compiler.is_compiling():
            return forward(self, *args, **kwargs)
        try:
            return forward(self, *args, **kwargs)
        except (KeyboardInterrupt, SystemExit):
            bank.abandon()
            raise

    return checked


def base_of(module: nn.Module) -> type[nn.Module]:
    """The class of a module, without its gates."""
    base: type[nn.Module] = type(module).__dict__.get("_lzero_base", type(module))
    return base


def set_base(module: nn.Module, base: type[nn.Module]) -> None:
    """Give a module another class, with the gates it has."""
    factors = module.__dict__.get("_lzero_factors")
    is_root = LOG_ALPHA in module._parameters
    module.__class__ = base if factors is None else gated_class(base, tuple(factors), is_root)  # type: ignore[arg-type]


def _new_gated(base: type[nn.Module], names: tuple[str, ...], is_root: bool) -> nn.Module:
    cls = gated_class(base, names, is_root)  # type: ignore[arg-type]
    return cls.__new__(cls)


def _linear_forward(self: Any, input: Tensor) -> Tensor:  # noqa: A002 (as torch names it)
    """A dense layer with gates: they multiply whichever is smaller, the weight or the input."""
    factor: Factor | None = self.__dict__.get("_lzero_factors", {}).get("weight")
    if factor is None:  # one that code has made by the class of a gated layer
        return F.linear(input, self.weight, self.bias)
    raw = _raw(self, "weight")
    columns_alone = set(factor.dims) == {1} and factor.elements is None
    if columns_alone and input.numel() < raw.numel() and self._lzero_bank.is_read():
        return F.linear(input * self._lzero_bank.piece(factor.dims[1]).to(input.dtype), raw, self.bias)
    return F.linear(input, self.weight, self.bias)
