"""The training loop, short enough to read and to copy."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

from lzero import data
from lzero.measure import measure
from lzero.recipes import Recipe, as_toml, load
from lzero.recipes.recipe import Aim, Shrink
from lzero.training import checkpoint
from lzero.training.building import build
from lzero.training.capture import CapturedStep
from lzero.training.folder import RunFolder
from lzero.training.outcome import Outcome, finish
from lzero.training.session import Session

if TYPE_CHECKING:
    from torch import nn

    from lzero.data import Dataset

Row = dict[str, Any]
OnEpoch = Callable[[Row], None]


@dataclass(frozen=True)
class Step:
    """How far a training is after a step. Reading the loss makes the host wait for the device."""

    session: Session
    row: Row | None = None  # what the epoch that ended here is remembered by

    @property
    def loss(self) -> float:
        """The mean loss of the epoch that ended here, or of this process in this epoch so far."""
        if self.row is not None:
            return float(self.row["loss"])
        return self.session.totals[0].item() / max(1, self.session.position)


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
    devices: int = 1,
    strategy: str = "auto",
    compare: bool = False,
    checkpoint_seconds: float = 30.0,
    on_step: Callable[[Step], None] | None = None,
    on_epoch: OnEpoch | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Train by a recipe, and compact what comes out to its budget.

    With a folder, checkpoints are written there while the training goes on; `resume=True` goes on from the last one
    and gives bit for bit the run that was never interrupted, `overwrite=True` begins anew. A model and a dataset of
    one's own take the place of the recipe's. `compare` first trains the network without gates, for its error. When
    `should_stop()` is true after a step, a checkpoint is written and KeyboardInterrupt raised.

    >>> outcome = fit(load("digits", ["training.epochs=1", "objective.target=1.0"]))
    >>> outcome.compacted.macs <= outcome.dense.macs
    True
    """
    recipe = as_given(recipe if isinstance(recipe, Recipe) else load(recipe), model, dataset)
    dataset = data.load(recipe.data.name, data_dir) if dataset is None else dataset
    place: dict[str, Any] = {"accelerator": accelerator, "devices": devices, "strategy": strategy}
    again: dict[str, Any] = {"resume": resume, "overwrite": overwrite}
    dense_error = _known_dense_error(recipe, folder) if resume and folder is not None else None
    if compare:
        follow: dict[str, Any] = {"on_step": on_step, "on_epoch": on_epoch, "should_stop": should_stop}
        same = {"model": copy.deepcopy(model), "dataset": dataset, "checkpoint_seconds": checkpoint_seconds}
        dense_error = _dense_error(recipe, folder, again, **same, **place, **follow)
    if folder is not None:  # before a network is built, and in every process
        RunFolder(Path(folder)).check(recipe, **again)
    with side_stream(accelerator), fastest_kernels() if accelerator != "cpu" else nullcontext():
        session = build(recipe, dataset, model, **place)
        run = None if folder is None else RunFolder(Path(folder), writes=session.fabric.is_global_zero)
        with nullcontext() if run is None else run.opened(recipe, **again):
            begin(session, run, resume=resume)
            for step in training(session, run, checkpoint_seconds):
                _tell(step, on_step, on_epoch)
                if _agreed(session, should_stop()):
                    save(session, run)
                    raise KeyboardInterrupt
            return finish(session, run, dense_error)


def as_given(recipe: Recipe, model: nn.Module | None, dataset: Dataset | None) -> Recipe:
    """The recipe with the names of what was given in place of its own, and without a title of something else."""
    named = recipe
    if dataset is not None:
        named = replace(named, data=replace(named.data, name=dataset.name))
    if model is not None:
        made = f"{type(model).__module__}.{type(model).__qualname__}"
        named = replace(named, model=replace(named.model, name=made, options={}))
    return recipe if named == recipe else replace(named, title="")


def _dense_error(recipe: Recipe, folder: str | Path | None, again: dict[str, Any], **same: Any) -> float | None:
    """The error of the same training without gates, in a folder within."""
    if folder is None:
        return fit(dense_recipe(recipe), **same).compacted.error
    run = RunFolder(Path(folder))
    run.check(recipe, **again)  # before the time of a whole training is spent
    if run.is_begun and not any(again.values()):
        raise run.taken()
    return fit(dense_recipe(recipe), run.dense, **again, **same).compacted.error


def _known_dense_error(recipe: Recipe, folder: str | Path) -> float | None:
    """The error of the network without gates, where the folder has it from before."""
    dense = RunFolder(RunFolder(Path(folder)).dense)
    if not dense.outcome.exists() or dense.config.read_text(encoding="utf-8") != as_toml(dense_recipe(recipe)):
        return None
    error: float = json.loads(dense.outcome.read_text(encoding="utf-8"))["compacted"]["error"]
    return error


def _tell(step: Step, on_step: Callable[[Step], None] | None, on_epoch: OnEpoch | None) -> None:
    if on_step is not None:
        on_step(step)
    if step.row is not None and on_epoch is not None:
        on_epoch(step.row)


def begin(session: Session, run: RunFolder | None, *, resume: bool) -> None:
    """Go on from the last checkpoint where there is one and that is asked for."""
    session.fabric.barrier()
    if run is not None:
        if resume and run.checkpoint.exists():
            checkpoint.restore(session, run.checkpoint, as_toml(session.recipe))
        run.begin_at(session.epoch)


def _agreed(session: Session, stop: bool) -> bool:
    """Whether all processes stop here: between epochs, where several would have to ask each other."""
    if session.fabric.world_size == 1:
        return stop
    if session.position:
        return False
    asked = torch.tensor(float(stop), device=session.fabric.device)
    return float(session.fabric.all_reduce(asked, reduce_op="sum")) > 0  # type: ignore[arg-type]


def side_stream(accelerator: str) -> AbstractContextManager[Any]:
    """On a GPU, a stream that is not the default one, which cannot be captured: all of a training lives there."""
    if accelerator == "cpu" or not torch.cuda.is_available():
        return nullcontext()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    return torch.cuda.stream(stream)


@contextmanager
def fastest_kernels() -> Iterator[None]:
    """Let dense layers use the TF32 that convolutions use anyway.

    cuDNN is not asked to try its algorithms: after each removal that takes longer than it saves.
    """
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def training(session: Session, run: RunFolder | None, checkpoint_seconds: float = 30.0) -> Iterator[Step]:
    """Train, handing over after each step, so that the caller can look, stop, or let another training go on."""
    captured = CapturedStep(session) if can_be_captured(session) else None
    rank, count = session.fabric.global_rank, session.fabric.world_size
    began, last = perf_counter() - session.seconds, session.recipe.training.epochs
    saved = perf_counter()
    while session.epoch < last:
        at, first = perf_counter(), session.position
        batches = session.batches.rows(session.epoch)
        if not first:
            session.choose_steps(batches[0][rank::count])
        for rows in batches[first:]:
            session.before_step()
            (captured or session.step)(rows[rank::count])
            session.after_step()
            session.seconds = perf_counter() - began
            if session.position == len(session.batches):
                break  # what follows belongs to this step
            if count == 1 and perf_counter() - saved > checkpoint_seconds:
                save(session, run)
                saved = perf_counter()
            yield Step(session)
        row = _end_epoch(session, (len(session.batches) - first) * session.batches.batch_size, at)
        session.seconds = row["seconds"] = perf_counter() - began
        if run is not None:
            run.note(row)
        # Several processes have no clock in common, and so write at the end of every epoch.
        if count > 1 or session.epoch == last or perf_counter() - saved > checkpoint_seconds:
            save(session, run)
            saved = perf_counter()
        yield Step(session, row)


def can_be_captured(session: Session) -> bool:
    """Whether steps can be replayed as a CUDA graph: on one GPU, by one process, all of the network."""
    on_one_gpu = session.fabric.device.type == "cuda" and session.fabric.world_size == 1
    return on_one_gpu and session.recipe.shrink.steps != "subnetwork"


def save(session: Session, run: RunFolder | None) -> None:
    """Write a checkpoint, where there is a folder for it: what a training goes back to, and so of finite numbers."""
    if run is not None:
        session.check_finite()
        checkpoint.save(session, run.checkpoint, as_toml(session.recipe))


def _end_epoch(session: Session, images: int, began: float) -> Row:
    """What an epoch is remembered by."""
    step, in_parts = session.step_number, session.in_parts
    objective = {} if session.objective is None else {"objective": session.objective.record.as_dict()}
    loss, training_error = session.end_epoch()
    pace = images / (perf_counter() - began)
    removed = session.get_smaller()
    error, test_loss = session.evaluate()
    row: Row = {"epoch": session.epoch, "step": step, "loss": loss, "error": error, "test_loss": test_loss}
    row |= {"training_error": training_error, "images_per_second": pace, "removed": removed, "in_parts": in_parts}
    row |= objective
    if session.sparsifier is not None:
        size = measure(session.model)
        row["size"] = {"params": vars(size.params), "macs": vars(size.macs)}
    return row


def dense_recipe(recipe: Recipe) -> Recipe:
    """The same training without gates."""
    return replace(
        recipe,
        title=f"{recipe.title} (dense)" if recipe.title else "",
        gates=replace(recipe.gates, units="none"),
        objective=Aim(kind="none"),
        shrink=Shrink(),
    )
