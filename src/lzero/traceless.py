"""Running somebody's model without leaving a trace: on its modules, in its tensors, in what draws noise."""

from __future__ import annotations

import copy
import random
from collections import Counter, OrderedDict, defaultdict, deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from lzero.tensors import distinct

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# And not what others make of them, which may refuse to change.
CONTAINERS = (dict, OrderedDict, defaultdict, Counter, list, set, deque)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode inside the block; each module's own mode is restored afterwards."""
    modes, was_training = [(module, module.training) for module in model.modules()], model.training
    try:
        model.eval()
        yield
    finally:
        model.train(was_training)  # it may do more than set flags, such as taking merged weights apart
        for module, training in modes:
            module.training = training


@contextmanager
def running(model: nn.Module, *, training: bool = False) -> Iterator[None]:
    """A mode inside the block, after which the model is what it was, whatever its forward or its `train` does."""
    with keeping_state(model):
        model.train(training)
        yield


@contextmanager
def keeping_state(model: nn.Module) -> Iterator[None]:
    """Whatever a forward does to the model is undone after the block: to its attributes, and to its tensors.

    BatchNorm's averages, and parameters that a forward sets itself: from its first batch, to a largest norm, as
    codebooks. Tensors are written under another name, so that a backward which still waits for them does not mind.
    """
    loose = (value for module in model.modules() for value in vars(module).values() if isinstance(value, Tensor))
    parts = [*model.parameters(), *model.buffers(), *(tensor for tensor in loose if tensor.is_leaf)]
    kept = [(part, part.data, distinct(part.detach()).clone()) for part in parts if not is_lazy(part)]
    with keeping_attributes(model):
        try:
            yield
        finally:
            for part, place, numbers in kept:
                part.data = place
                distinct(place).copy_(numbers)


@contextmanager
def keeping_attributes(model: nn.Module) -> Iterator[None]:
    """What a forward leaves on modules is gone after the block: activations kept for later, entries of caches, hooks.

    Restoring attributes alone would not do: a model that keeps a flag beside its hooks would add them once more.
    """
    owned = [vars(module) for module in model.modules()]
    containers = [value for attributes in owned for value in attributes.values() if type(value) in CONTAINERS]
    before = [(place, copy.copy(place)) for place in (*owned, *containers) if not _is_sharded(place)]
    try:
        yield
    finally:
        for place, contents in before:
            place.clear()
            place.extend(contents) if isinstance(place, list | deque) else place.update(contents)


def _is_sharded(place: Iterable[Any]) -> bool:
    """Whether these are parameters that FSDP exchanges for whole ones by itself, and keeps account of."""
    values = place.values() if isinstance(place, dict) else ()
    return any(isinstance(value, nn.Parameter) and type(value.data) is not Tensor for value in values)


@contextmanager
def keeping_noise() -> Iterator[None]:
    """What draws noise, in torch, NumPy or Python, goes on after the block as if nothing had been drawn in it."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 (what models draw from)
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002


@contextmanager
def same_noise(seed: int = 0) -> Iterator[None]:
    """The same noise each time inside the block, so that two models can be compared; none of it stays."""
    with keeping_noise():
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        yield
