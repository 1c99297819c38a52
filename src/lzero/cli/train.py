"""`lzero train`."""

from __future__ import annotations

import json
import logging
import signal
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from lzero.cli.app import app, errors_for_people
from lzero.errors import BudgetWarning
from lzero.recipes import Recipe, load, names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lzero.training import Outcome


@app.command("train")
def train_command(
    recipe: Annotated[
        str, typer.Argument(help=f"A TOML file, or one of: {', '.join(names())}.", metavar="RECIPE")
    ] = names()[0],
    changes: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting: objective.target=0.1.", metavar="KEY=VALUE")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The run folder; runs/RECIPE if not given.", show_default=False)
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run in the folder.")] = False,
    data_dir: Annotated[Path | None, typer.Option(help="Where datasets lie.", show_default=False)] = None,
    accelerator: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Train a network by a recipe to the size it asks for, and leave the compacted network in the run folder."""
    folder = out or Path("runs") / Path(recipe).stem
    console = Console(stderr=as_json)
    with errors_for_people(), _interruptible(folder), _warnings_for_people(console):
        from lzero.training import fit  # heavy: Fabric

        settings = load(recipe, changes or ())
        with _progress(settings, console) as on_epoch:
            outcome = fit(
                settings, folder, resume=resume, overwrite=overwrite, data_dir=data_dir, accelerator=accelerator,
                on_epoch=on_epoch,
            )  # fmt: skip
    if as_json:
        typer.echo(json.dumps(outcome.as_dict(), indent=2))
    else:
        console.print(_table(outcome))
        console.print(f"The network: {folder / 'model.safetensors'}", soft_wrap=True, highlight=False)


@contextmanager
def _interruptible(folder: Path) -> Iterator[None]:
    """Let SIGTERM end a training as Ctrl-C does: with a word on how to go on."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt as interruption:
        typer.echo(f"\nlzero: interrupted; go on with the same command and --resume ({folder})", err=True)
        raise typer.Exit(code=130) from interruption
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _warnings_for_people(console: Console) -> Iterator[None]:
    """Print warnings of ours as they are, and keep those of the engine's logger to what concerns the training."""
    logging.getLogger("lightning.fabric").setLevel(logging.WARNING)
    with warnings.catch_warnings():
        shown = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *rest: Any) -> None:
            if issubclass(category, BudgetWarning):
                console.print(f"lzero: {message}", style="yellow", highlight=False, soft_wrap=True, markup=False)
            else:
                shown(message, category, *rest)

        warnings.showwarning = show  # type: ignore[assignment]
        yield


@contextmanager
def _progress(recipe: Recipe, console: Console) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A bar on a terminal, a line for each epoch elsewhere."""
    epochs = recipe.training.epochs
    if not console.is_terminal:
        yield lambda row: console.print(f"epoch {row['epoch']}/{epochs}  {_said(row)}", soft_wrap=True, highlight=False)
        return
    columns = (TextColumn("epoch"), MofNCompleteColumn(), BarColumn(), TextColumn("{task.description}"))
    with Progress(*columns, TimeRemainingColumn(), console=console) as bar:
        task = bar.add_task("", total=epochs)
        yield lambda row: bar.update(task, completed=row["epoch"], description=_said(row))


def _said(row: dict[str, Any]) -> str:
    words = [f"loss {row['loss']:.4f}", f"error {row['test_error']:.2%}", f"{row['images_per_second']:,.0f} images/s"]
    for name, group in row.get("objective", {}).get("groups", {}).items():
        words.append(f"{name} {group['expected']:.1%}, multiplier {group['multiplier']:.3g}")
    if row["removed"]:
        words.append(f"{row['removed']} units removed")
    return "  ".join(words)


def _table(outcome: Outcome) -> Table:
    table = Table("", "dense", "compacted", "", box=None)
    for name in ("params", "macs"):
        before, after = getattr(outcome.dense, name), getattr(outcome.compacted, name)
        label = {"params": "parameters", "macs": "MACs"}[name]
        table.add_row(label, f"{before:,}", f"{after:,}", f"{after / before:.1%}")
    table.add_row("test error", "", f"{outcome.compacted.error:.2%}", "")
    return table
