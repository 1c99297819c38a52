"""The proof a removal owes: the same outputs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from lzero.arguments import number
from lzero.bank import LOG_ALPHA
from lzero.errors import VerificationError
from lzero.structure.capture import Inputs, as_tuple
from lzero.tensors import check_module, duplicate, tensor_leaves
from lzero.traceless import running, same_noise

PROJECTED = "lzero_projected"  # the attribute of a model compacted to a budget with log α as it was moved for it
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}  # relative
HALF = 3e-2  # that of half precision, which rounds at every step


def verify(model: nn.Module, small: nn.Module, inputs: Inputs, *, tolerance: float | None = None) -> float:
    """The largest relative difference between the outputs of two models in evaluation; raises above the tolerance.

    Relative to the largest output: $\\max|y - y'| / \\max|y|$. A gated model is compared with what `compact` made of it
    with its gates as they were moved for the budget, if there was one; a file does not keep those.

    >>> verify(nn.Linear(2, 2), nn.Linear(2, 2), torch.ones(1, 2))
    Traceback (most recent call last):
    lzero.errors.VerificationError: the outputs differ by ... relative, more than ...
    """
    check_module("model", model)
    check_module("small", small)
    positional = as_tuple(inputs)
    tolerance = None if tolerance is None else number("tolerance", tolerance, least=0)
    with _gates_of(model, small):
        differences, kinds = _compared(model, small, positional)
        allowed = [tolerance_of(kind) if tolerance is None else tolerance for kind in kinds]
        if _excess(differences, allowed) and any(kind.to_real() == torch.float32 for kind in kinds):
            # GPUs round products to ten bits (TF32), by other algorithms for other sizes: let double precision decide.
            differences, _ = _compared(_double(model), _double(small), tree_map(_double, positional))
    for difference, most in _excess(differences, allowed):
        raise VerificationError(f"the outputs differ by {difference:.1e} relative, more than {most:.0e}")
    return max(differences, default=0.0)


def _excess(differences: list[float], allowed: list[float]) -> list[tuple[float, float]]:
    """The outputs that differ by more than they may: each type has its own tolerance."""
    return [(found, most) for found, most in zip(differences, allowed, strict=True) if not found <= most]


def tolerance_of(dtype: torch.dtype) -> float:
    """How far outputs of this type may differ, relative to the largest; whole numbers not at all."""
    if not (dtype.is_floating_point or dtype.is_complex):
        return 0.0
    return TOLERANCE.get(dtype.to_real(), HALF)


def outputs_of(model: nn.Module, inputs: tuple[Any, ...], *, training: bool = False, seed: int = 0) -> list[Tensor]:
    """All tensors a forward returns, with the same noise each time; the model is afterwards what it was."""
    with running(model, training=training), torch.no_grad(), same_noise(seed):
        return tensor_leaves(model(*inputs))


def _compared(model: nn.Module, small: nn.Module, inputs: tuple[Any, ...]) -> tuple[list[float], list[torch.dtype]]:
    """The difference between each two outputs, and their types."""
    with _no_fused_attention():
        expected, got = (outputs_of(each, inputs) for each in (model, small))
    if [t.shape for t in expected] != [t.shape for t in got]:
        shapes = f"{[tuple(t.shape) for t in expected]} and {[tuple(t.shape) for t in got]}"
        raise VerificationError(f"the outputs have different shapes: {shapes}")
    if not any(tensor.isfinite().any() for tensor in expected):
        why = "the outputs hold no numbers: give a batch of at least one, to models that return tensors or containers"
        raise VerificationError(f"{why} that torch.utils._pytree knows")
    differences = [_difference(one, other) for one, other in zip(expected, got, strict=True)]
    return differences, [tensor.dtype for tensor in expected]


def _double(value: Any) -> Any:
    """A copy of a module, or a tensor of numbers that have a fraction, in double precision; others as they are."""
    if isinstance(value, nn.Module):
        return duplicate(value, value).double()
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value


@contextmanager
def _no_fused_attention() -> Iterator[None]:
    """Attention as in training: fused kernels for evaluation round to single precision on a GPU, whatever the type."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextmanager
def _gates_of(model: nn.Module, small: nn.Module) -> Iterator[None]:
    """The gated model with the gates its compacted form was cut with, inside the block."""
    log_alpha, moved = model._parameters.get(LOG_ALPHA), small.__dict__.get(PROJECTED)
    if log_alpha is None or moved is None or moved.shape != log_alpha.shape:
        yield
        return
    before = log_alpha.detach().clone()
    log_alpha.data.copy_(moved)
    try:
        yield
    finally:
        log_alpha.data.copy_(before)


def _difference(expected: Tensor, got: Tensor) -> float:
    finite = expected.isfinite()
    one, other = expected[~finite], got[~finite]  # such as masked logits, which must be the same ones
    if not ((one == other) | (one.isnan() & other.isnan())).all():
        return float("inf")
    expected, got = expected[finite], got[finite]
    if not got.isfinite().all():
        return float("inf")
    if tolerance_of(expected.dtype) == 0 or not expected.numel():
        return 0.0 if torch.equal(expected, got) else float("inf")
    scale = expected.abs().max().clamp_min(torch.finfo(expected.dtype).tiny)
    return float(((expected - got).abs().max() / scale).item())
