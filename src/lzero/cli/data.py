"""`lzero data list | fetch | check`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from lzero.cli.app import app, errors_for_people
from lzero.cli.options import AsJson, DataDir
from lzero.data import MissingFileError, check, fetch, known
from lzero.errors import LzeroError

data = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Datasets: which there are, and bring them here.")
app.add_typer(data, name="data")

Name = Annotated[str, typer.Argument(help=f"One of: {', '.join(known())}.", metavar="NAME")]


@data.command("list")
def list_command(
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """List the datasets and say which of them are here, whole and readable."""
    found = {name: _look(name, data_dir) for name in known()}
    if as_json:
        states = {name: {"here": isinstance(says, str), "says": str(says)} for name, says in found.items()}
        typer.echo(json.dumps(states, indent=2))
        return
    for name, says in found.items():
        typer.echo(f"{name:14} {f'not here: lzero data fetch {name}' if isinstance(says, MissingFileError) else says}")


def _look(name: str, folder: Path | None) -> str | LzeroError:
    """What is in a dataset, or why that is not known."""
    try:
        return check(name, folder)
    except LzeroError as error:
        return error


@data.command("check")
def check_command(name: Name, data_dir: DataDir = None) -> None:
    """Read all of a dataset and say what is in it, or what is wrong with which file."""
    with errors_for_people():
        typer.echo(check(name, data_dir))


@data.command("fetch")
def fetch_command(name: Name, data_dir: DataDir = None) -> None:
    """Download a dataset, or what is missing of it, and check it. Interrupted downloads go on where they stopped."""
    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
    tasks: dict[str, int] = {}

    def show(file: str, done: int, total: int) -> None:
        if file not in tasks:
            tasks[file] = bars.add_task(file, total=total or None)
        bars.update(tasks[file], completed=done, total=total or None)  # type: ignore[arg-type]

    with errors_for_people(), bars:
        says = fetch(name, data_dir, show)
    typer.echo(says)
