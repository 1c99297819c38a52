"""`lzero compact`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from lzero import data, storage
from lzero.cli.app import app, errors_for_people, warnings_for_people
from lzero.cli.measure import sizes_of, table_of
from lzero.cli.options import AsJson, Budget, Cost, DataDir, Input, Out, Overwrite, Run, check_out, cost_of, target_of
from lzero.cli.source import Source, find, working_folder_importable
from lzero.compact import compact, warn_of_force
from lzero.errors import ArgumentError, LzeroError
from lzero.projection import project
from lzero.training.reopening import judged, reopened
from lzero.verify import verify

if TYPE_CHECKING:
    from torch import nn

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
        with working_folder_importable():
            session = reopened(folder, source.inputs(inputs)[0])
        small, was_moved = _compacted(session, budget, cost, round_to or source.recipe.shrink.round_to)
        difference = verify(session.model, small, source.inputs(inputs))
        storage.save(small, out)
        sizes = sizes_of(source, out, inputs)
        with Console(stderr=True).status("counting its error …"):  # the file is there: nobody has to wait for this
            error, worth = _worth(session, small, source, data_dir)
    if as_json:
        typer.echo(json.dumps({"out": str(out), "difference": difference, "error": error, **sizes}, indent=2))
        return
    Console().print(table_of(sizes))
    moved = " with its gates as they were moved for the budget" if was_moved else ""
    rounding = f", but for {difference:.0e} relative" if difference else ""
    typer.echo(f"{out}: its outputs are those of the gated network{moved}{rounding}")
    typer.echo(worth)


def _worth(session: Session, small: nn.Module, source: Source, data_dir: Path | None) -> tuple[float | None, str]:
    """The error on the data of the recipe, and in words that, or why it is not known."""
    recipe = source.recipe
    try:
        error = judged(session, small, data.load(recipe.data.name, data_dir))
    except LzeroError as problem:
        return None, f"its error is not known: {problem}"
    return error, f"its error on the {recipe.data.evaluated_on} part of {recipe.data.name}: {error:.2%}"


def _run_of(folder: Path) -> Source:
    source = find(str(folder)) if folder.is_dir() else None
    if source is None or source.run is None:
        raise ArgumentError.about("RUN_FOLDER", expected="a folder that lzero train made", got=folder)
    return source


def _compacted(session: Session, budget: str | None, cost: str | None, multiple: int) -> tuple[nn.Module, bool]:
    """The network within the budget asked for, else within the recipe's if it has one; whether gates were moved."""
    assert session.sparsifier is not None  # noqa: S101 (checked when the run was reopened)
    if budget is not None:
        projection = project(session.model, target_of(budget), cost_of(cost), round_to=multiple)
        warn_of_force(projection, session.sparsifier.num_gates)
        return compact(session.model, round_to=multiple), True
    if cost is not None:
        raise ArgumentError.about("--cost", expected="--budget beside it", got=cost, advice="the recipe's has its own")
    own = session.objective if session.objective is not None and session.objective.budgets else None
    return compact(session.model, budget=own, round_to=multiple), own is not None
