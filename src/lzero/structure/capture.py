"""The model as a graph of tensor operations."""

from __future__ import annotations

import io
import logging
import re
import warnings
from contextlib import contextmanager, redirect_stderr
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.fx import Node
from torch.utils._pytree import tree_map

from lzero.attention import slim
from lzero.errors import ArgumentError, LzeroError, described
from lzero.traceless import keeping_noise, keeping_state, running

if TYPE_CHECKING:
    from collections.abc import Iterator

Inputs = Tensor | tuple[Any, ...]
COMPUTED = ("_orig", "_v")  # what torch's older hooks call the parameter of a weight that they compute


def as_tuple(example_inputs: Inputs) -> tuple[Any, ...]:
    """Positional inputs: a tensor alone stands for a tuple of one."""
    if isinstance(example_inputs, Tensor):
        return (example_inputs,)
    if not isinstance(example_inputs, tuple):
        expected, got = "a tensor or a tuple of positional inputs", type(example_inputs).__name__
        advice = f"one input that is a {got} is given as (inputs,)" if isinstance(example_inputs, dict | list) else None
        if isinstance(example_inputs, dict):
            advice = f"keyword inputs are given by position, in the order of forward; {advice}"
        advice = "torch.as_tensor(array) makes it a tensor" if isinstance(example_inputs, np.ndarray) else advice
        raise ArgumentError.about("example_inputs", expected=expected, got=got, advice=advice)
    return example_inputs


def capture(
    model: nn.Module, example_inputs: Inputs, *, training: bool = False, batch_dim: int | None = None
) -> ExportedProgram:
    """The operations of the model's forward, by `torch.export`, without those nobody uses that have no parameters.

    With `batch_dim` the graph works for any size of that dimension of the inputs, where the model does.
    """
    inputs = as_tuple(example_inputs)
    shapes = None if batch_dim is None else _any_batches(model, inputs, batch_dim)
    with (
        running(model, training=training),
        slim(model),
        torch.no_grad(),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", _assigned_by_torch(model))
        try:
            with _silent():
                program = torch.export.export(model, inputs, dynamic_shapes=shapes, strict=False)
        except Exception as error:
            raise LzeroError(_why_not_captured(model, inputs, error)) from error
    unused = _unused_with_parameters(program)
    program.graph.eliminate_dead_code(lambda node: node.is_impure() or node in unused)
    return program


@contextmanager
def _silent() -> Iterator[None]:
    """Without what torch logs and prints where it cannot follow a model: pages before an error that says it."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(before)


def _unused_with_parameters(program: ExportedProgram) -> set[Node]:
    """Operations of which no result comes, but which read parameters, and what is made of them: they run all the same.

    Whatever is cut, the model's code must be able to run them.
    """
    used: set[Node] = set()
    for node in reversed(program.graph.nodes):
        if node.op == "output" or node.is_impure() or not used.isdisjoint(node.users):
            used.add(node)
    parameters = set(parameter_nodes(program))
    made = set(parameters)
    for node in program.graph.nodes:
        if node not in used and not made.isdisjoint(node.all_input_nodes):
            made.add(node)
    return made - parameters


def _assigned_by_torch(model: nn.Module) -> str:
    """What torch warns of because its own layers and hooks do it; a warning that names more is the model's."""
    names = [r"\S*\b_flat_weights\[\d+\]"]
    for path, module in model.named_modules():
        weights = [name.removesuffix(end) for name in module._parameters for end in COMPUTED if name.endswith(end)]
        names += [re.escape(".".join(filter(None, ("self", path, weight)))) for weight in weights]
    return rf"The tensor attributes? (({'|'.join(names)}),? )+w"


def _why_not_captured(model: nn.Module, inputs: tuple[Any, ...], error: Exception) -> str:
    name = type(model).__name__
    try:
        with keeping_state(model), keeping_noise():
            model(*inputs)
    except Exception as own:  # whatever the model's code raises
        return f"{name} does not run with these example inputs: {type(own).__name__}: {own}"
    if "which is not a known type" in str(error):
        what = str(error).partition("Found ")[2].partition(" in output")[0] or "a class"
        advice = "return a dict, or tell torch of it by torch.utils._pytree.register_dataclass"
        if "Cache" in what:
            advice = "switch it off: model.config.use_cache = False, and that of model.decoder.config if there is one"
        return f"torch.export cannot capture {name}: it returns {what}, of which torch knows nothing; {advice}"
    if "data-dependent" in str(error) or "FakeTensor" in str(error):
        why = "its forward must not branch on values of tensors, and no size may depend on them"
    else:
        why = "it runs, but torch.export.export(model, example_inputs) must be able to follow it"
    return f"torch.export cannot capture {name}: {why} ({described(error)})"


def parameter_nodes(program: ExportedProgram) -> dict[Node, str]:
    """The nodes that stand for parameters, with their names."""
    names = program.graph_signature.inputs_to_parameters
    return {node: names[node.name] for node in program.graph.nodes if node.op == "placeholder" and node.name in names}


def module_path(node: Node) -> str:
    """The path of the module whose forward runs this operation."""
    return (module_paths(node) or [""])[-1]


def module_paths(node: Node) -> list[str]:
    """The paths of all modules whose forwards are running when this operation does, from the outermost in."""
    return [str(path) for path, _ in node.meta.get("nn_module_stack", {}).values()]


def _any_batches(model: nn.Module, inputs: tuple[Any, ...], batch_dim: int) -> tuple[Any, ...]:
    """The open sizes of all inputs, as torch.export wants them: what goes to `*args` is one tuple."""
    open_sizes = tuple(tree_map(lambda x: _any_batch(x, batch_dim), each) for each in inputs)
    kinds = [parameter.kind for parameter in signature(model.forward).parameters.values()]
    if Parameter.VAR_POSITIONAL not in kinds:
        return open_sizes
    named = kinds.index(Parameter.VAR_POSITIONAL)
    return (*open_sizes[:named], open_sizes[named:])


def _any_batch(argument: Any, batch_dim: int) -> dict[int, Any] | None:
    return {batch_dim: Dim.AUTO} if isinstance(argument, Tensor) and argument.dim() > batch_dim else None
