"""What all commands share: the application, its own options, and errors for people."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

import lzero
from lzero.errors import LzeroError

if TYPE_CHECKING:
    from collections.abc import Iterator

app = typer.Typer(name="lzero", no_args_is_help=True, add_completion=False, rich_markup_mode=None)


@contextmanager
def errors_for_people() -> Iterator[None]:
    """Print an error of ours as one line, without a traceback, and exit with 1."""
    try:
        yield
    except LzeroError as error:
        Console(stderr=True).print(f"lzero: {error}", style="red", highlight=False, soft_wrap=True, markup=False)
        raise typer.Exit(code=1) from error


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lzero {lzero.__version__}")
        raise typer.Exit


@app.callback(help=lzero.__doc__)
def main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop."),
    ] = False,
) -> None:
    """Hold the options of `lzero` itself."""
