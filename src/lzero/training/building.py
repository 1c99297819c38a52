"""A session built from its recipe."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Generator, Tensor

from lzero.data import Batches, statistics
from lzero.provenance import commit
from lzero.training.averaging import Polyak
from lzero.training.optimizers import make_optimizers
from lzero.training.outcome import widths_of
from lzero.training.parts import make_gates, make_model, make_objective, parts_of, start_from
from lzero.training.processes import processes
from lzero.training.session import Session

if TYPE_CHECKING:
    from torch import nn

    from lzero.data import Dataset
    from lzero.recipes import Recipe

TEST_BATCH = 2000


def build(
    recipe: Recipe,
    dataset: Dataset,
    model: nn.Module | None = None,
    accelerator: str = "auto",
    *,
    devices: int = 1,
    strategy: str = "auto",
) -> Session:
    """A session at its beginning. All random numbers come from the recipe's seed."""
    fabric = processes(recipe, accelerator, devices, strategy)
    seed, rank, device = recipe.training.seed, fabric.global_rank, fabric.device
    torch.manual_seed(seed)
    model = make_model(recipe) if model is None else model
    if recipe.model.init is not None:
        start_from(model, Path(recipe.model.init))
    dense = copy.deepcopy(model)
    model = fabric.to_device(model)
    train, test = parts_of(recipe, dataset)
    batches = Batches(train, recipe.training.batch_size, seed=seed, device=device, drop_last=True)
    steps = gated_steps(recipe, len(batches))
    sparsifier = make_gates(recipe, model, torch.zeros(1, *dataset.shape, device=device))
    # What differs between processes comes from generators of its own; all else is drawn alike by all of them.
    gate_noise = Generator(device).manual_seed(seed + rank * (recipe.gates.noise == "own"))
    if sparsifier is not None:
        sparsifier.bank.generator = gate_noise
    session = Session(
        recipe,
        fabric,
        model.train(),
        model,
        sparsifier,
        make_objective(recipe, sparsifier, len(train), steps),
        make_optimizers(recipe, model, sparsifier, steps),
        None,
        batches,
        Batches(test, TEST_BATCH, device=device),
        _statistics(train.images, device) if recipe.data.normalise else None,
        Generator(device).manual_seed(seed + rank + 1_000_000),
        gate_noise,
        dense,
        {} if sparsifier is None else widths_of(sparsifier),
        torch.zeros(2, device=device),
        commit(),
    )
    session.set_up()
    session.average = Polyak(model, recipe.training.average) if recipe.training.average else None
    return session


def gated_steps(recipe: Recipe, per_epoch: int) -> int:
    """The steps that gates are trained for."""
    after = recipe.shrink.freeze_after
    return max(1, math.ceil(recipe.training.epochs * (1.0 if after is None else after)) * per_epoch)


def _statistics(images: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
    mean, std = statistics(images)
    return mean.to(device), std.to(device)
