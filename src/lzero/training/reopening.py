"""A run taken up again, not to train on: to look at its network, cut it anew, and judge what comes out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from lzero import recipes
from lzero.data import Dataset, Split
from lzero.errors import LzeroError
from lzero.traceless import evaluating, keeping_noise
from lzero.training import checkpoint
from lzero.training.building import build, judging
from lzero.training.folder import RunFolder
from lzero.training.parts import parts_of

if TYPE_CHECKING:
    from torch import Tensor, nn

    from lzero.training.session import Session


def reopened(folder: str | Path, example: Tensor) -> Session:
    """The training as its checkpoint has it, with averaged weights where the recipe averages, on the CPU.

    Its images are blank, of the sizes of the example; `judged` brings those that errors are counted on.
    """
    run = RunFolder(Path(folder))
    recipe = recipes.load(run.config)
    count = recipe.training.batch_size
    blank = Split(torch.zeros(count, *example.shape[1:]), torch.zeros(count, dtype=torch.int64))
    plain = replace(recipe, data=replace(recipe.data, held_out=0.0, normalise=False))  # of which blank images have none
    with keeping_noise():
        session = build(plain, Dataset(recipe.data.name, blank, blank, ()))
        checkpoint.restore(session, run.checkpoint, run.config.read_text(encoding="utf-8"), to_go_on=False)
    if session.sparsifier is None:
        why = "has no gates any more; train with shrink.freeze_after=none" if recipe.is_gated else "never had gates"
        raise LzeroError(f"{run.path}: its network {why}")
    if session.average is not None:
        session.model.load_state_dict(session.average.module.state_dict())
    session.model.cpu()
    session.recipe = recipe
    return session


def judged(session: Session, small: nn.Module, dataset: Dataset) -> float:
    """The error of a network, counted as the training counts it: on the same part of the dataset, equally prepared."""
    device, shape = session.fabric.device, session.batches.images.shape[1:]
    with evaluating(small), torch.no_grad():
        scores = small(torch.zeros(1, *shape))
    if dataset.shape != shape or scores.shape[1] < len(dataset.classes):
        raise LzeroError(f"the network was not trained on {dataset.name}, which has other images or classes")
    train, test = parts_of(session.recipe, dataset)
    session.test, session.statistics = judging(session.recipe, train, test, device)
    return session.evaluate(small.to(device))[0]
