"""`lzero reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lzero.cli.app import app, errors_for_people
from lzero.reproduce import NAMES, reproduce


@app.command("reproduce")
def reproduce_command(
    names: Annotated[list[str] | None, typer.Argument(help=f"Any of: {', '.join(NAMES)}.", metavar="NAME")] = None,
    out: Annotated[Path, typer.Option(help="The folder for figures.")] = Path("runs/reproduce"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace figures that are there already.")] = False,
) -> None:
    """Re-create tables and figures of the papers: those named, or all."""
    with errors_for_people():
        reproduce(names or list(NAMES), out, overwrite=overwrite, console=Console())
