"""A session built from its recipe."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Generator, Tensor

from lzero.data import Batches, statistics
from lzero.errors import ArgumentError
from lzero.provenance import commit
from lzero.traceless import keeping_noise, running
from lzero.training.averaging import Polyak
from lzero.training.optimizers import make_optimizers
from lzero.training.outcome import widths_of
from lzero.training.parts import make_gates, make_model, make_objective, parts_of, start_from
from lzero.training.processes import processes
from lzero.training.session import Session
from lzero.trial import check_cuttable

if TYPE_CHECKING:
    from lightning.fabric import Fabric
    from torch import nn

    from lzero.data import Dataset, Split
    from lzero.recipes import Recipe
    from lzero.sparsifier import Sparsifier

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
    seed, device = recipe.training.seed, fabric.device
    torch.manual_seed(seed)
    model = make_model(recipe) if model is None else model
    if recipe.model.init is not None:
        start_from(model, Path(recipe.model.init))
    dense = copy.deepcopy(model)
    model = fabric.to_device(model)
    train, test = parts_of(recipe, dataset)
    batches = Batches(train, recipe.training.batch_size, seed=seed, device=device, drop_last=True)
    steps = gated_steps(recipe, len(batches))
    judged_on, image_statistics = judging(recipe, train, test, device)
    augmentation, gate_noise = _generators(recipe, fabric)
    sparsifier = _gates(recipe, model, dataset, gate_noise)
    session = Session(
        recipe=recipe,
        fabric=fabric,
        model=model.train(),
        forward=model,
        sparsifier=sparsifier,
        objective=make_objective(recipe, sparsifier, len(train), steps),
        optimizers=make_optimizers(recipe, model, sparsifier, steps),
        average=None,
        batches=batches,
        test=judged_on,
        statistics=image_statistics,
        augmentation=augmentation,
        gate_noise=gate_noise,
        dense=dense,
        widths={} if sparsifier is None else widths_of(sparsifier),
        totals=torch.zeros(2, device=device),
        commit=commit(),
    )
    session.set_up()
    session.average = Polyak(model, recipe.training.average) if recipe.training.average else None
    return session


def _generators(recipe: Recipe, fabric: Fabric) -> tuple[Generator, Generator]:
    """Of what differs between processes, augmentation and gates where they have their own; all else is drawn alike."""
    seed, rank = recipe.training.seed, fabric.global_rank
    augmentation = Generator(fabric.device).manual_seed(seed + rank + 1_000_000)
    return augmentation, Generator(fabric.device).manual_seed(seed + rank * (recipe.gates.noise == "own"))


def _gates(recipe: Recipe, model: nn.Module, dataset: Dataset, noise: Generator) -> Sparsifier | None:
    """The gates of a recipe on a model that fits the dataset, and can be cut."""
    example = torch.zeros(1, *dataset.shape, device=noise.device)
    _check_outputs(model, example, len(dataset.classes))
    sparsifier = make_gates(recipe, model, example)
    if sparsifier is not None:
        check_cuttable(sparsifier)
        sparsifier.bank.generator = noise
    return sparsifier


def _check_outputs(model: nn.Module, example: Tensor, classes: int) -> None:
    """Refuse a network whose outputs are not scores of all classes."""
    with running(model), torch.no_grad(), keeping_noise():
        try:
            output = model(example)
        except Exception as error:  # whatever the model's code raises
            expected = f"a network that takes images of {tuple(example.shape)}"
            raise ArgumentError.about("model", expected=expected, got=f"{type(error).__name__}: {error}") from error
    if not isinstance(output, Tensor) or output.dim() != 2 or output.shape[1] < classes:
        got = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        expected = f"a network that returns a tensor of scores, (batch, {classes})"
        raise ArgumentError.about("model", expected=expected, got=got)


def gated_steps(recipe: Recipe, per_epoch: int) -> int:
    """The steps that gates are trained for."""
    after = recipe.shrink.freeze_after
    return max(1, math.ceil(recipe.training.epochs * (1.0 if after is None else after)) * per_epoch)


def judging(
    recipe: Recipe, train: Split, test: Split, device: torch.device
) -> tuple[Batches, tuple[Tensor, Tensor] | None]:
    """What errors are counted on, and the statistics that images are normalised by, if they are."""
    batches = Batches(test, TEST_BATCH, device=device)
    if not recipe.data.normalise:
        return batches, None
    mean, std = statistics(train.images)
    return batches, (mean.to(device), std.to(device))
