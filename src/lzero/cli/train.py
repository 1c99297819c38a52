"""`lzero train`."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from lzero.cli.app import app, errors_for_people, say, warnings_for_people
from lzero.cli.interrupting import interruptible
from lzero.cli.options import Accelerator, AsJson, Changes, DataDir, RecipeName
from lzero.cli.progress import progress
from lzero.cli.source import recipe_of, short_name, working_folder_importable
from lzero.recipes import DEFAULT, load
from lzero.training.outcome import LATENCY_BATCH, MOSTLY

if TYPE_CHECKING:
    from lzero.training import Outcome


@app.command("train")
def train_command(
    recipe: RecipeName = DEFAULT,
    changes: Changes = None,
    out: Annotated[
        Path | None, typer.Option(help="The run folder; runs/RECIPE if not given.", show_default=False)
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder, if any.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run in the folder.")] = False,
    compare: Annotated[
        bool, typer.Option("--compare", help="First train the network without gates, to compare with.")
    ] = False,
    init: Annotated[
        Path | None, typer.Option(help="A safetensors file with weights to start from.", show_default=False)
    ] = None,
    data_dir: DataDir = None,
    accelerator: Accelerator = "auto",
    devices: Annotated[int, typer.Option(help="Processes to train with, one for each device.")] = 1,
    strategy: Annotated[str, typer.Option(help="How several processes share the work: auto or ddp.")] = "auto",
    checkpoint_seconds: Annotated[float, typer.Option(help="Seconds between two checkpoints.")] = 30.0,
    as_json: AsJson = False,
) -> None:
    """Train a network by a recipe to the size it asks for, and leave the compacted network in the run folder."""
    console = Console(stderr=as_json)
    with errors_for_people(), warnings_for_people(console), working_folder_importable():
        from lzero.report.page import write_page, written
        from lzero.report.run import read_run
        from lzero.report.summary import fall_of, price_of_fitting
        from lzero.training import fit  # heavy: Fabric
        from lzero.training.folder import RunFolder
        from lzero.training.processes import is_first

        begun = [] if init is None else [f"model.init={json.dumps(str(init))}"]
        name, changed = recipe_of(recipe, [*(changes or []), *begun])
        folder = out or Path("runs") / short_name(recipe)
        run = RunFolder(folder)
        is_begun = run.is_begun if compare else run.config.exists()
        if resume and is_first() and not is_begun:
            say(console, f"{folder}: no run to go on with; a new one begins")
        with interruptible(f"the same command and --resume ({folder})") as should_stop, progress(console) as on_step:
            outcome = fit(
                load(name, changed), folder, resume=resume, overwrite=overwrite, data_dir=data_dir, compare=compare,
                accelerator=accelerator, devices=devices, strategy=strategy, on_step=on_step, should_stop=should_stop,
                checkpoint_seconds=checkpoint_seconds,
            )  # fmt: skip
        if not is_first():
            return
        page, seen = written(partial(write_page, folder)), read_run(folder)
        price, fall = price_of_fitting(seen), fall_of(seen)
    if as_json:
        typer.echo(json.dumps(outcome.as_dict(), indent=2))
        return
    console.print(_table(outcome))
    if price:
        say(console, f"The budget was met in the end.{price}", style="yellow")
    if fall:
        say(console, fall.strip(), style="yellow")
    say(console, f"The network: {run.model}")
    say(console, f"The report:  {page}")


def _table(outcome: Outcome) -> Table:
    """Dense beside compacted."""
    table = Table("", "dense", "compacted", "", box=None)
    dense, small = outcome.dense, outcome.compacted

    def percent(error: float | None) -> str:
        return "–" if error is None else f"{error:.2%}"

    table.add_row(f"error ({outcome.evaluated_on})", percent(dense.error), percent(small.error), "")
    table.add_row("parameters", f"{dense.params:,}", f"{small.params:,}", f"{small.params / dense.params:.1%}")
    if small.nonzero is not None and small.nonzero < MOSTLY * small.params:
        table.add_row("not zero", f"{dense.params:,}", f"{small.nonzero:,}", f"{small.nonzero / dense.params:.1%}")
    table.add_row("MACs", f"{dense.macs:,}", f"{small.macs:,}", f"{small.macs / dense.macs:.1%}")
    if dense.latency and small.latency:
        before, after = (f"{1000 * seconds:.2f} ms" for seconds in (dense.latency, small.latency))
        table.add_row(f"latency of {LATENCY_BATCH}", before, after, f"{small.latency / dense.latency:.1%}")
    return table
