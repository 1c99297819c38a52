"""`lzero reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lzero.cli.app import app, errors_for_people, warnings_for_people
from lzero.cli.interrupting import interruptible
from lzero.cli.options import Accelerator, DataDir, Workers
from lzero.cli.progress import progress_of_many
from lzero.reproduce import NAMES, WITHOUT_TRAINING, reproduce


@app.command("reproduce")
def reproduce_command(
    names: Annotated[
        list[str] | None,
        typer.Argument(help=f"all, or any of: {', '.join(NAMES)}. What needs no training if none.", metavar="NAME"),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="Train only rows with this in their label; may be repeated.", metavar="TEXT"),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small versions, in the folder quick: few epochs, one seed.")
    ] = False,
    seeds: Annotated[
        int | None, typer.Option(help="Trainings of each row; as in the papers if not given.", min=1)
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder for tables, figures and runs.")] = Path("runs/reproduce"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace figures that are there already.")] = False,
    data_dir: DataDir = None,
    accelerator: Accelerator = "auto",
    workers: Workers = None,
) -> None:
    """Re-create tables and figures of the papers. Trainings that were interrupted go on."""
    console = Console()
    wanted = [each for name in names or WITHOUT_TRAINING for each in (NAMES if name == "all" else (name,))]
    with (
        errors_for_people(),
        warnings_for_people(console),
        interruptible("the same command") as should_stop,
        progress_of_many(console) as on_plan,
    ):
        reproduce(
            wanted, out, console=console, overwrite=overwrite, only=only or (), quick=quick, seeds=seeds,
            data_dir=data_dir, accelerator=accelerator, workers=workers, on_plan=on_plan, should_stop=should_stop,
        )  # fmt: skip
