"""`lzero sweep`."""

from __future__ import annotations

import json
import tomllib
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lzero.cli.app import app, errors_for_people, say, warnings_for_people
from lzero.cli.interrupting import interruptible
from lzero.cli.options import Accelerator, AsJson, Changes, DataDir, RecipeName, Workers
from lzero.cli.progress import progress_of_many
from lzero.cli.source import recipe_of, short_name, working_folder_importable
from lzero.errors import LzeroError
from lzero.recipes import SettingError, full_key, value_of
from lzero.report.page import written
from lzero.report.sweep_page import write_sweep
from lzero.report.sweeps import columns, combinations, line
from lzero.training.table import read_table, table_in


@app.command("sweep")
def sweep_command(
    recipe: RecipeName,
    over: Annotated[
        list[str],
        typer.Option(
            "--over",
            help="Values of a setting: target=0.1,0.2, or evenly on a log scale: target=0.05..0.8[:8], epochs=5..40:4.",
            metavar="KEY=VALUES",
        ),
    ],
    seeds: Annotated[int, typer.Option(help="Trainings of each combination, with seeds 0, 1, …", min=1)] = 1,
    changes: Changes = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder; runs/RECIPE-sweep if not given.", show_default=False)
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the sweep in the folder.")] = False,
    workers: Workers = None,
    data_dir: DataDir = None,
    accelerator: Accelerator = "auto",
    as_json: AsJson = False,
) -> None:
    """Train one recipe for many settings and seeds at once; a table and a page say what each costs and gives."""
    console = Console(stderr=as_json)
    with errors_for_people(), warnings_for_people(console), working_folder_importable():
        from lzero.training.sweep import sweep  # heavy: Fabric

        values = _all_parsed(over)
        folder = out or Path("runs") / f"{short_name(recipe)}-sweep"
        name, changed = recipe_of(recipe, changes or [])
        trained: list[dict[str, Any]] = []

        def on_trial(row: dict[str, Any]) -> None:
            trained.append(row)
            _print(row, list(values), console)

        try:
            with interruptible("the same command and --resume") as should_stop, progress_of_many(console) as on_plan:
                sweep(
                    name, values, folder, seeds=seeds, changes=changed, workers=workers, resume=resume,
                    data_dir=data_dir, accelerator=accelerator, on_plan=on_plan, should_stop=should_stop,
                    on_trial=on_trial,
                )  # fmt: skip
        except LzeroError:  # of one training, beside others
            if trained:
                _tell(folder, console, as_json=as_json)
            raise
        _tell(folder, console, as_json=as_json)


def _tell(folder: Path, console: Console, *, as_json: bool) -> None:
    """All rows of the table, also those of an earlier call, and a page of them."""
    rows = read_table(folder)
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    else:
        console.print(_table(rows))
    say(console, f"All rows: {table_in(folder)}")
    say(console, f"With pictures: {written(partial(write_sweep, folder))}")


def _all_parsed(over: list[str]) -> dict[str, list[Any]]:
    values: dict[str, list[Any]] = {}
    for key, some in map(parsed, over):
        if key in values:
            raise SettingError(f"{key}: expected once, got twice; give all of its values in one --over")
        values[key] = some
    return values


def parsed(text: str) -> tuple[str, list[Any]]:
    """A setting and its values.

    >>> parsed("target=0.1..0.4:3")
    ('objective.target', [0.1, 0.2, 0.4])
    >>> parsed("optimizer.kind=adam,sgd")
    ('optimizer.kind', ['adam', 'sgd'])
    >>> parsed("model.options.widths=[1,2],[3,4]")
    ('model.options.widths', [[1, 2], [3, 4]])
    """
    key, equals, values = text.partition("=")
    texts = values.split(",")
    if not equals or not all(map(str.strip, texts)):
        raise SettingError(f"{text}: expected KEY=VALUE,VALUE or KEY=FIRST..LAST")
    try:
        return full_key(key), list(tomllib.loads(f"values = [{values}]")["values"])
    except tomllib.TOMLDecodeError:  # a range, or texts without quotes
        is_range = len(texts) == 1 and ".." in values and "/" not in values  # which paths have
        return full_key(key), _range(text, values) if is_range else [value_of(each) for each in texts]


def _range(text: str, values: str) -> list[float]:
    from lzero.training.sweep import spaced  # heavy: Fabric

    first, _, rest = values.partition("..")
    last, colon, count = rest.partition(":")
    try:
        numbers = _number(first), _number(last), int(count) if colon else 8
    except ValueError as error:
        raise SettingError(f"{text}: expected two numbers above 0, as in 0.05..0.8 or 0.05..0.8:8") from error
    return spaced(*numbers)


def _number(text: str) -> float:
    return int(text) if text.strip().isdecimal() else float(text)


def _print(row: dict[str, Any], keys: list[str], console: Console) -> None:
    settings = "  ".join(f"{key} {row[key]}" for key in [*keys, "training.seed"])
    numbers = f"error {row['error']:.2%}  {row['macs_share']:.1%} of MACs  {row['params_share']:.1%} of parameters"
    say(console, f"{settings}  {numbers}  {row['seconds']:.0f} s")


def _table(rows: list[dict[str, Any]]) -> Table:
    """A line for each combination, means over its seeds, and the 95 % interval of the error."""
    combined = combinations(rows)
    table = Table(*columns(combined), box=None)
    for each in combined:
        table.add_row(*map(Text, line(each)))
    return table
