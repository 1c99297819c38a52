"""Checks of a law's parameters, with errors that name the argument."""

from __future__ import annotations

import math
from numbers import Real
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lzero.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

# A hyper-parameter such as β may be one number for all gates or a tensor that broadcasts with them.
Parameter = float | Tensor


def floating_tensor(argument: str, value: Tensor) -> Tensor:
    """`value` in at least float32, or an error that names the argument.

    >>> floating_tensor("log_alpha", torch.zeros(2, dtype=torch.bfloat16)).dtype
    torch.float32
    """
    if not isinstance(value, Tensor):
        kind = type(value).__name__
        raise ArgumentError.about(argument, expected="a tensor", got=kind, advice=f"wrap it: torch.tensor({value!r})")
    if not value.is_floating_point():
        raise ArgumentError.about(argument, expected="a floating-point tensor", got=f"a tensor of {value.dtype}")
    return value.to(torch.promote_types(value.dtype, torch.float32))


def hyper_parameter(argument: str, value: Parameter, like: Tensor) -> Parameter:
    """`value` as a float, or as a tensor in the precision of `like`."""
    if isinstance(value, Tensor):
        return floating_tensor(argument, value).to(like.dtype)
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ArgumentError.about(argument, expected="a number or a tensor", got=type(value).__name__)
    return float(value)


def require(argument: str, value: Parameter, holds: Callable[[Tensor], Tensor], expected: str) -> None:
    """Raise unless every entry of `value` is a number for which `holds` is true.

    Skipped while compiling, where a check of values would break the graph, and where there are none.
    """
    if torch.compiler.is_compiling() or (isinstance(value, Tensor) and value.is_meta):
        return
    numbers = torch.tensor(value, dtype=torch.float64, device="cpu") if not isinstance(value, Tensor) else value
    entries = numbers.detach()
    bad = ~(holds(entries) & entries.isfinite())
    entries = entries.expand_as(bad)
    if bad.any():
        offender = entries[bad].flatten()[0].item()
        among = f" in {int(bad.sum())} of {entries.numel()} entries" if entries.dim() else ""
        raise ArgumentError.about(argument, expected=expected, got=f"{offender:g}{among}")


def validates(validate_args: bool | None) -> bool:
    """Whether a law checks its values: by default it does.

    The default is not that of `torch.distributions`, which the first use of torch.compile switches off for good.
    """
    return __debug__ if validate_args is None else validate_args


def log(value: Parameter) -> Parameter:
    """The logarithm; of a number in double precision, whatever the precision of the law."""
    return value.log() if isinstance(value, Tensor) else math.log(value)
