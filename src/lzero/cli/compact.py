"""`lzero compact`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import torch
import typer
from rich.console import Console

from lzero import data, storage
from lzero.budgets import check_cost
from lzero.cli.app import app, errors_for_people, warnings_for_people
from lzero.cli.measure import sizes_of, table_of
from lzero.cli.options import AsJson, Budget, Cost, DataDir, Input, Out, Overwrite, Run, check_out, target_of
from lzero.cli.source import Source, find, working_folder_importable
from lzero.compact import compact
from lzero.errors import ArgumentError, LzeroError
from lzero.objectives import Constraint
from lzero.traceless import evaluating, keeping_noise
from lzero.training import checkpoint
from lzero.training.building import TEST_BATCH, build
from lzero.training.parts import parts_of
from lzero.verify import verify

if TYPE_CHECKING:
    from torch import Tensor, nn

    from lzero.objectives import Objective
    from lzero.recipes import Recipe
    from lzero.training.session import Session


@app.command("compact")
def compact_command(
    folder: Run,
    out: Out,
    budget: Budget = None,
    cost: Cost = None,
    round_to: Annotated[
        int | None,
        typer.Option(
            help="Keep widths divisible by this, where enough units are left; else as the recipe has it.",
            min=1,
            show_default=False,
        ),
    ] = None,
    inputs: Input = None,
    data_dir: DataDir = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Compact the network of a run to another budget, or once more to that of its recipe.

    Gates are moved, weights are not trained again: a budget much smaller than the recipe's costs accuracy. How much is
    told where the dataset of the recipe is here.
    """
    with errors_for_people(), warnings_for_people(Console(stderr=True)):
        check_out(out, (".safetensors",), overwrite=overwrite)
        source = _run_of(folder)
        session = _restored(source, source.inputs(inputs)[0])
        multiple = round_to or source.recipe.shrink.round_to
        objective = _budget(session, budget, cost)
        small = compact(session.model, budget=objective, round_to=multiple)
        difference = verify(session.model, small, source.inputs(inputs))
        storage.save(small, out)
        sizes = sizes_of(source, out, inputs)
        with Console(stderr=True).status("counting its error …"):  # the file is there: nobody has to wait for this
            error, worth = _worth(session, small, source, data_dir)
    if as_json:
        typer.echo(json.dumps({"out": str(out), "difference": difference, "error": error, **sizes}, indent=2))
        return
    Console().print(table_of(sizes))
    moved = " with its gates as they were moved for the budget" if objective is not None else ""
    rounding = f", but for {difference:.0e} relative" if difference else ""
    typer.echo(f"{out}: its outputs are those of the gated network{moved}{rounding}")
    typer.echo(worth)


def _worth(session: Session, small: nn.Module, source: Source, data_dir: Path | None) -> tuple[float | None, str]:
    """The error on the data of the recipe, and in words that, or why it is not known."""
    recipe, part = source.recipe, "held-out" if source.recipe.data.held_out else "test"
    try:
        error = _error(session, small, recipe, data.load(recipe.data.name, data_dir))
    except LzeroError as problem:
        return None, f"its error is not known: {problem}"
    return error, f"its error on the {part} part of {recipe.data.name}: {error:.2%}"


def _error(session: Session, small: nn.Module, recipe: Recipe, dataset: data.Dataset) -> float:
    device, shape = session.fabric.device, session.batches.images.shape[1:]
    with evaluating(small), torch.no_grad():
        scores = small(torch.zeros(1, *shape))
    if dataset.shape != shape or scores.shape[1:] != (len(dataset.classes),):
        raise LzeroError(f"the network was not trained on {dataset.name}, which has other images or classes")
    train, test = parts_of(recipe, dataset)
    session.test = data.Batches(test, TEST_BATCH, device=device)
    if recipe.data.normalise:
        mean, deviation = data.statistics(train.images)
        session.statistics = mean.to(device), deviation.to(device)
    return session.evaluate(small.to(device))[0]


def _run_of(folder: Path) -> Source:
    source = find(str(folder)) if folder.is_dir() else None
    if source is None or source.run is None:
        raise ArgumentError.about("RUN_FOLDER", expected="a folder that lzero train made", got=folder)
    return source


def _budget(session: Session, text: str | None, cost: str | None) -> Objective | None:
    """The budget asked for, else that of the recipe, if it has one."""
    assert session.sparsifier is not None  # noqa: S101 (checked when the session was restored)
    if text is not None:
        return Constraint(session.sparsifier, target_of(text), check_cost(cost or "macs"))
    if cost is not None:
        raise ArgumentError.about("--cost", expected="--budget beside it", got=cost, advice="the recipe's has its own")
    return session.objective if session.objective is not None and session.objective.budgets else None


def _restored(source: Source, example: Tensor) -> Session:
    """The training as its checkpoint has it, with averaged weights where the recipe averages; on blank data."""
    recipe, run, count = source.recipe, source.run, source.recipe.training.batch_size
    assert run is not None  # noqa: S101 (checked by the caller)
    blank = data.Split(torch.zeros(count, *example.shape[1:]), torch.zeros(count, dtype=torch.int64))
    plain = replace(recipe, data=replace(recipe.data, held_out=0.0, normalise=False))
    with keeping_noise(), working_folder_importable():
        session = build(plain, data.Dataset(recipe.data.name, blank, blank, ()))
        checkpoint.restore(session, run.checkpoint, run.config.read_text(encoding="utf-8"), to_go_on=False)
    if session.sparsifier is None:
        raise LzeroError(f"{run.path}: its network has no gates any more; train with gates, and without freeze_after")
    if session.average is not None:
        session.model.load_state_dict(session.average.module.state_dict())
    session.model.cpu()
    return session
