"""What all commands share: the application, its own options, and errors for people."""

from __future__ import annotations

import logging
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

import lzero
from lzero.errors import BudgetWarning, LzeroError

if TYPE_CHECKING:
    from collections.abc import Iterator

app = typer.Typer(name="lzero", no_args_is_help=True, add_completion=False, rich_markup_mode=None)


def say(console: Console, text: str, style: str | None = None) -> None:
    """Print one line exactly as it is: paths and names may have brackets, which would be taken for markup."""
    console.print(text, style=style, highlight=False, soft_wrap=True, markup=False)


@contextmanager
def errors_for_people() -> Iterator[None]:
    """Print an error of ours as one line, without a traceback, and exit with 1."""
    try:
        yield
    except LzeroError as error:
        say(Console(stderr=True), f"lzero: {error}", style="red")
        raise typer.Exit(code=1) from error


@contextmanager
def warnings_for_people(console: Console) -> Iterator[None]:
    """Print warnings of ours as they are, and keep those of the engine's logger to what concerns the training."""
    logging.getLogger("lightning.fabric").setLevel(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("always", BudgetWarning)
        shown = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *rest: Any) -> None:
            if issubclass(category, BudgetWarning):
                say(console, f"lzero: {message}", style="yellow")
            else:
                shown(message, category, *rest)

        warnings.showwarning = show  # type: ignore[assignment]
        yield


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
