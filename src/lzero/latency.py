"""How long forwards and steps of training take. On a noisy machine only ratios measured side by side mean anything."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from lzero.arguments import whole
from lzero.errors import ArgumentError
from lzero.structure.capture import Inputs, as_tuple
from lzero.tensors import check_module, duplicate, tensor_leaves
from lzero.traceless import keeping_noise, running

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn


def latency(models: Mapping[str, nn.Module], inputs: Inputs, repeats: int = 25) -> dict[str, float]:
    """The median seconds of a forward of each model in evaluation, taken in turn on the same inputs.

    >>> from torch import nn
    >>> seconds = latency({"large": nn.Linear(64, 512), "small": nn.Linear(64, 8)}, torch.randn(16, 64))
    >>> list(seconds)
    ['large', 'small']
    """
    positional = _checked(models, inputs)
    with ExitStack() as stack:
        for model in models.values():
            stack.enter_context(running(model))
        stack.enter_context(keeping_noise())
        stack.enter_context(torch.inference_mode())
        return median_seconds({name: partial(model, *positional) for name, model in models.items()}, repeats)


def step_latency(
    models: Mapping[str, nn.Module], inputs: Inputs, repeats: int = 25, precision: torch.dtype | None = None
) -> dict[str, float]:
    """The median seconds of a forward and a backward of each model in training; copies do it, in turn.

    With a `precision` such as `torch.bfloat16` under autocast. What an optimizer takes is not in it.

    >>> from torch import nn
    >>> seconds = step_latency({"large": nn.Linear(64, 512), "small": nn.Linear(64, 8)}, torch.randn(16, 64))
    >>> list(seconds)
    ['large', 'small']
    """
    positional = _checked(models, inputs)
    copies = {name: duplicate(model, model).train() for name, model in models.items()}
    forwards = {name: _in_precision(copy, precision) for name, copy in copies.items()}
    cases = {name: partial(step, forwards[name], copies[name], positional) for name in models}
    with keeping_noise():
        return median_seconds(cases, repeats)


def _checked(models: Mapping[str, nn.Module], inputs: Inputs) -> tuple[Any, ...]:
    """The positional inputs of models that are there by name."""
    if not isinstance(models, Mapping):
        expected = "models by name, as {'dense': model}"
        raise ArgumentError.about("models", expected=expected, got=type(models).__name__)
    for name, model in models.items():
        check_module(f"models[{name!r}]", model)
    return as_tuple(inputs)


def _in_precision(model: nn.Module, precision: torch.dtype | None) -> Callable[..., Any]:
    """A forward of the model, under autocast where a precision is given."""
    if precision is None:
        return model
    device = next(model.parameters()).device

    def forward(*inputs: Any) -> Any:
        with torch.autocast(device.type, precision):
            return model(*inputs)

    return forward


def step(forward: Callable[..., Any], model: nn.Module, inputs: tuple[Any, ...]) -> None:
    """A forward and its backward. Gradients that accumulate, and hooks that wait for them, do not see it."""
    outputs = [leaf for leaf in tensor_leaves(forward(*inputs)) if leaf.requires_grad]
    losses = [output.abs().mean() for output in outputs]
    torch.autograd.grad(losses, [p for p in model.parameters() if p.requires_grad], allow_unused=True)


def median_seconds(cases: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The median time of each case over interleaved repeats, after one warm-up round."""
    repeats = whole("repeats", repeats)
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(repeats + 1):
        for name, case in cases.items():
            times[name].append(_seconds(case))
    return {name: statistics.median(series[1:]) for name, series in times.items()}


def _seconds(case: Callable[[], object]) -> float:
    _wait()
    start = time.perf_counter()
    case()
    _wait()
    return time.perf_counter() - start


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def machine(device: torch.device | None = None) -> str:
    """The kind of machine, for the head of a result: of its GPU, where it has one and no other device is named."""
    if torch.cuda.is_available() and (device is None or device.type == "cuda"):
        return f"1× {torch.cuda.get_device_name().removeprefix('NVIDIA ')}, torch {torch.__version__.split('+')[0]}"
    cores = torch.get_num_threads()
    return f"{cores} CPU core{'s' * (cores > 1)}, torch {torch.__version__.split('+')[0]}"
