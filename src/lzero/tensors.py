"""Small operations on tensors that torch does with a detour."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import reduce
from operator import mul
from types import FunctionType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from lzero.errors import ArgumentError, LzeroError

AnyT = TypeVar("AnyT")


def full_name(path: str, name: str) -> str:
    """What a model calls a tensor of its module at this path."""
    return f"{path}.{name}" if path else name


def at_least_single(moved: Tensor, before: Tensor) -> Tensor:
    """What `Module.to` made of a tensor, but never in half precision, in which the steps of log α are lost."""
    is_half = moved.is_floating_point() and moved.dtype.itemsize < torch.float32.itemsize
    return before.to(moved.device, torch.float32) if is_half else moved


def distinct(tensor: Tensor) -> Tensor:
    """An expanded tensor without its repetitions, which cannot be written to; any other as it is."""
    for dim, stride in enumerate(tensor.stride() if tensor.layout == torch.strided else ()):
        tensor = tensor.narrow(dim, 0, 1) if stride == 0 and tensor.shape[dim] > 1 else tensor
    return tensor


def held_by(module: nn.Module) -> list[tuple[dict[str, Any], str, Tensor]]:
    """A module's own parameters and buffers, under each of their names, with the dictionary that holds them."""
    places: tuple[dict[str, Any], ...] = (module._parameters, module._buffers)
    return [(place, name, tensor) for place in places for name, tensor in place.items() if tensor is not None]


def laid_out_as(whole: Tensor, part: Tensor) -> Tensor:
    """Channels last where the whole tensor has them so: a convolution passes on the layout of its weights."""
    is_last = whole.dim() == 4 and whole.is_contiguous(memory_format=torch.channels_last) and not whole.is_contiguous()
    return part.contiguous(memory_format=torch.channels_last) if is_last else part


def saved_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and the buffers that are saved with them, by name; each that is shared under its first name.

    Not from `state_dict`, whose names hooks may change: what is read from a file has to find its module by them.
    """
    first: dict[int, tuple[str, Tensor]] = {}
    for path, module in model.named_modules():
        for _, name, tensor in held_by(module):
            if name not in module._non_persistent_buffers_set:
                first.setdefault(id(tensor), (full_name(path, name), tensor.detach()))
    return dict(first.values())


def count_nonzero(model: nn.Module) -> int:
    """How many parameters are not zero."""
    return sum(int(parameter.count_nonzero()) for parameter in model.parameters())


def shapes_of(model: nn.Module) -> dict[str, list[int]]:
    """The shapes of what is saved of a model, by name, as a file tells them."""
    return {name: list(tensor.shape) for name, tensor in saved_tensors(model).items()}


def with_numbers(x: Tensor, generator: torch.Generator) -> Tensor:
    """A tensor of this shape that has memory: noise, or zeros where there are no fractions."""
    if not x.is_floating_point():
        return torch.zeros(x.shape, dtype=x.dtype, device="cpu")
    return torch.randn(x.shape, generator=generator, dtype=torch.float32, device="cpu").to(x.dtype)


@contextmanager
def outside_inference_mode() -> Iterator[None]:
    """What is made in the block, or by the function, can be trained, also where evaluation is going on around it."""
    # Asked first, because to leave it switches gradients on.
    with torch.inference_mode(False) if torch.is_inference_mode_enabled() else nullcontext():
        yield


def in_transform() -> bool:
    """Whether `torch.func` is transforming what runs now: functions with a backward of their own cannot be."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def tensor_leaves(values: object) -> list[Tensor]:
    """All tensors in nested containers, such as a model's output."""
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


def last_product(x: Tensor) -> Tensor:
    """The product over the last dimension, factor by factor.

    The backward of `Tensor.prod` asks whether there are zeros, which makes a GPU wait and cannot be captured in a
    graph.
    """
    return reduce(mul, x.unbind(-1)) if x.shape[-1] else x.new_ones(x.shape[:-1])


def check_module(argument: str, value: object) -> None:
    """Refuse what is no model.

    >>> check_module("model", "lenet5")
    Traceback (most recent call last):
    lzero.errors.ArgumentError: model: expected a torch.nn.Module, got str; pass the model itself, ...
    """
    if not isinstance(value, nn.Module):
        advice = "pass the model itself, such as sparsifier.model"
        raise ArgumentError.about(argument, expected="a torch.nn.Module", got=type(value).__name__, advice=advice)


def check_copyable(model: nn.Module) -> None:
    """Refuse a model whose forward is a function that was set on it: a copy would run the model it was copied from."""
    for path, module in model.named_modules():
        is_compiled = isinstance(module, torch._dynamo.OptimizedModule)  # which makes its own anew in a copy
        if isinstance(vars(module).get("forward"), FunctionType) and not is_compiled:
            name = full_name(path, "forward")
            advice = "compile in place, by model.compile(); or bind it: types.MethodType(function, module)"
            raise LzeroError(f"{name} is a function set on the model, which a copy would share with it; {advice}")


def duplicate(thing: AnyT, model: nn.Module) -> AnyT:
    """A deep copy of a model, or of what holds it; what a forward has left on its modules is copied without its graph.

    `copy.deepcopy` refuses tensors that have been computed, such as activations that a model keeps for later.
    """
    check_copyable(model)
    kept = (leaf for module in model.modules() for leaf in tree_leaves(list(vars(module).values())))
    computed = {id(t): t.detach().clone() for t in kept if isinstance(t, Tensor) and not t.is_leaf}
    return copy.deepcopy(thing, dict(computed))
