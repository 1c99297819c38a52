"""Which gates belong to a model: a model knows its sparsifier, and copies of it have copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lzero.errors import ArgumentError
from lzero.tensors import check_module

if TYPE_CHECKING:
    from torch import nn

    from lzero.sparsifier import Sparsifier

_PLACE = "_lzero_sparsifier"  # in a model's own namespace
UNWRAPPED = "pass the model that was given to lzero.sparsify, not what torch.compile or DDP made of it"


def belong(model: nn.Module, sparsifier: Sparsifier) -> None:
    """Let a model know its gates."""
    model.__dict__[_PLACE] = sparsifier


def forget(model: nn.Module) -> None:
    """Let a model forget its gates."""
    del model.__dict__[_PLACE]


def own_sparsifier(model: nn.Module) -> Sparsifier | None:
    """The sparsifier of a model, where it has gates of its own."""
    return model.__dict__.get(_PLACE)


def has_gates(model: nn.Module) -> bool:
    """Whether a model, or a part of it, such as what DDP wraps, has gates."""
    return any(own_sparsifier(each) is not None for each in model.modules())


def sparsifier_of(model: nn.Module) -> Sparsifier:
    """The sparsifier of a model that has gates."""
    check_module("model", model)
    sparsifier = own_sparsifier(model)
    if sparsifier is None:
        advice = UNWRAPPED if has_gates(model) else "call lzero.sparsify(model, example_inputs) first"
        raise ArgumentError.about("model", expected="a model with gates", got=type(model).__name__, advice=advice)
    return sparsifier


def check_plain(model: nn.Module, advice: str = "compact it first") -> None:
    """Refuse a model with gates where only its weights would be seen."""
    check_module("model", model)
    if has_gates(model):
        raise ArgumentError.about("model", expected="a model without gates", got="one with", advice=advice)
