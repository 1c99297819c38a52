"""The model as a graph of tensor operations."""

from __future__ import annotations

import copy
import warnings
from collections import OrderedDict
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from lzero.attention import slim
from lzero.errors import ArgumentError, LzeroError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.fx import Node

Inputs = Tensor | tuple[Any, ...]
CONTAINERS = (dict, OrderedDict, list, set)  # and not what others make of them, which may refuse to change
# Torch's own recurrent layers assign lists of weights; a warning that names anything else too is the model's.
RECURRENT = r"The tensor attributes? (\S*\b_flat_weights\[\d+\],? )+w"


def as_tuple(example_inputs: Inputs) -> tuple[Any, ...]:
    """Positional inputs: a tensor alone stands for a tuple of one."""
    if isinstance(example_inputs, Tensor):
        return (example_inputs,)
    if not isinstance(example_inputs, tuple):
        expected = "a tensor or a tuple of positional inputs"
        raise ArgumentError.about("example_inputs", expected=expected, got=type(example_inputs).__name__)
    return example_inputs


def capture(
    model: nn.Module, example_inputs: Inputs, *, training: bool = False, any_batch: bool = False
) -> ExportedProgram:
    """The operations of the model's forward, by `torch.export`, without those nobody uses.

    With `any_batch` the graph works for batches of any size, where the model does.
    """
    inputs = as_tuple(example_inputs)
    shapes = tuple(_any_batch(x) for x in inputs) if any_batch else None
    with (
        in_mode(model, training),
        keeping_attributes(model),
        slim(model),
        torch.no_grad(),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", RECURRENT)
        try:
            program = torch.export.export(model, inputs, dynamic_shapes=shapes, strict=False)
        except Exception as error:
            raise LzeroError(
                f"torch.export cannot capture {type(model).__name__} with these example inputs: {error}\n"
                "The forward must not branch on values of tensors; try model(*example_inputs) first."
            ) from error
    program.graph.eliminate_dead_code()
    return program


def evaluating(model: nn.Module) -> AbstractContextManager[None]:
    """Evaluation mode inside the block."""
    return in_mode(model, training=False)


@contextmanager
def in_mode(model: nn.Module, training: bool) -> Iterator[None]:
    """A mode for all modules inside the block; each one's own is restored afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.train(training)
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def keeping_attributes(model: nn.Module) -> Iterator[None]:
    """What a forward leaves on modules is gone after the block: activations kept for later, entries of caches, hooks.

    Restoring attributes alone would not do: a model that keeps a flag beside its hooks would add them once more.
    """
    owned = [vars(module) for module in model.modules()]
    containers = [value for attributes in owned for value in attributes.values() if type(value) in CONTAINERS]
    before = [(place, copy.copy(place)) for place in (*owned, *containers)]
    try:
        yield
    finally:
        for place, contents in before:
            place.clear()
            place.extend(contents) if isinstance(place, list) else place.update(contents)


def module_path(node: Node) -> str:
    """The path of the module whose forward runs this operation."""
    return (module_paths(node) or [""])[-1]


def module_paths(node: Node) -> list[str]:
    """The paths of all modules whose forwards are running when this operation does, from the outermost in."""
    return [str(path) for path, _ in node.meta.get("nn_module_stack", {}).values()]


def _any_batch(argument: Any) -> dict[int, Any] | None:
    return {0: Dim.AUTO} if isinstance(argument, Tensor) and argument.dim() else None
