"""Running somebody's model without leaving a trace: on its modules, in its tensors, in what draws noise."""

from __future__ import annotations

import copy
import random
from collections import OrderedDict
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor, nn

CONTAINERS = (dict, OrderedDict, list, set)  # and not what others make of them, which may refuse to change


def evaluating(model: nn.Module) -> AbstractContextManager[None]:
    """Evaluation mode inside the block."""
    return in_mode(model, training=False)


@contextmanager
def in_mode(model: nn.Module, training: bool) -> Iterator[None]:
    """A mode for all modules inside the block; each one's own is restored afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.train(training)
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


@contextmanager
def keeping_state(model: nn.Module) -> Iterator[Mapping[Tensor, Tensor]]:
    """Whatever a forward in training does to the model is undone after the block, which gets copies of its tensors.

    BatchNorm's averages, and parameters that a forward sets itself: from its first batch, to a largest norm, as
    codebooks. Tensors are written under another name, so that a backward which still waits for them does not mind.
    """
    parts = (*model.parameters(), *model.buffers())
    places, before = [(part, part.data) for part in parts], {part: part.detach().clone() for part in parts}
    with keeping_attributes(model):
        try:
            yield before
        finally:
            for part, place in places:
                part.data = place
                place.copy_(before[part])


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
