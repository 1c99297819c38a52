"""The training loop, short enough to read and to copy."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

from lzero import data, storage
from lzero.compact import compact
from lzero.measure import measure
from lzero.recipes import Recipe, as_toml, load
from lzero.training import checkpoint
from lzero.training.folder import RunFolder
from lzero.training.outcome import Outcome, Size
from lzero.training.session import Session, build

if TYPE_CHECKING:
    from torch import nn

    from lzero.data import Dataset

OnEpoch = Callable[[dict[str, Any]], None]


def fit(
    recipe: Recipe | str | Path = "digits",
    folder: str | Path | None = None,
    *,
    resume: bool = False,
    overwrite: bool = False,
    model: nn.Module | None = None,
    dataset: Dataset | None = None,
    data_dir: str | Path | None = None,
    accelerator: str = "auto",
    on_epoch: OnEpoch | None = None,
) -> Outcome:
    """Train by a recipe, and compact what comes out to its budget.

    With a folder, every epoch ends with a checkpoint there; `resume=True` goes on from the last one and gives bit for
    bit the run that was never interrupted, `overwrite=True` begins anew. A model and a dataset of one's own take the
    place of the recipe's.

    >>> outcome = fit(load("digits", ["training.epochs=1", "objective.target=1.0"]))
    >>> outcome.compacted.macs <= outcome.dense.macs
    True
    """
    recipe = recipe if isinstance(recipe, Recipe) else load(recipe)
    dataset = data.load(recipe.data.name, data_dir) if dataset is None else dataset
    run = None if folder is None else RunFolder(Path(folder))
    with nullcontext() if run is None else run.opened(recipe, resume=resume, overwrite=overwrite):
        session = build(recipe, dataset, model, accelerator)
        if run is not None:
            if resume and run.checkpoint.exists():
                checkpoint.restore(session, run.checkpoint, as_toml(recipe))
            run.begin_at(session.epoch)
        _train(session, run, on_epoch or (lambda _: None))
        return _finish(session, run)


def _train(session: Session, run: RunFolder | None, on_epoch: OnEpoch) -> None:
    for epoch in range(session.epoch, session.recipe.training.epochs):
        losses, began = [], perf_counter()
        for k, (images, labels) in enumerate(session.batches):
            losses.append(session.step(images, labels, epoch * len(session.batches) + k))
        loss = torch.stack(losses).mean().item()
        pace = len(losses) * session.batches.batch_size / (perf_counter() - began)
        session.epoch = epoch + 1
        removed = session.shrink()
        row = {"epoch": session.epoch, "loss": loss, "images_per_second": pace, "removed": removed, **_facts(session)}
        if run is not None:
            run.note(row)
            checkpoint.save(session, run.checkpoint, as_toml(session.recipe))
        on_epoch(row)


def _facts(session: Session) -> dict[str, Any]:
    """What an epoch is remembered by."""
    error, loss = session.evaluate()
    facts: dict[str, Any] = {"test_error": error, "test_loss": loss}
    if session.objective is not None:
        facts["objective"] = session.objective.record.as_dict()
    return facts


def _finish(session: Session, run: RunFolder | None) -> Outcome:
    """Compact the averaged weights, where there are any, to the budget, where there is one."""
    example = torch.zeros(1, *session.batches.images.shape[1:], device=session.fabric.device)
    if session.average is not None:
        session.model.load_state_dict(session.average.module.state_dict())
    if session.sparsifier is None:
        small, dense = session.model, measure(session.model, example)
    else:
        budget = session.objective if session.objective is not None and session.objective.budgets else None
        dense = measure(session.model)
        small = compact(session.model, budget=budget)
    left = measure(small, example)
    compacted = Size(left.params.dense, left.macs.dense, session.evaluate(small)[0])
    outcome = Outcome(small, Size(dense.params.dense, dense.macs.dense), compacted, session.epoch)
    if run is not None:
        storage.save(small, run.model)
        run.write(run.outcome, json.dumps(outcome.as_dict(), indent=2) + "\n")
    return outcome
