"""`lzero plan`."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from typing import Annotated, Any, get_args

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lzero.cli.app import app, errors_for_people, say
from lzero.cli.options import AsJson, Exclude, Include, Input, SourceName
from lzero.cli.source import find
from lzero.gating import UnitKind
from lzero.plan import Plan
from lzero.trial import Obstacle, find_obstacle

Units = Annotated[
    str | None,
    typer.Option(
        help="Neurons, maps and heads; these and the inputs of dense layers, as in the papers; or single weights.",
        metavar="|".join(get_args(UnitKind)),
        show_default=False,
    ),
]


@app.command("plan")
def plan_command(
    source: SourceName,
    inputs: Input = None,
    units: Units = None,
    include: Include = None,
    exclude: Exclude = None,
    as_json: AsJson = False,
) -> None:
    """Say what can be removed, what cannot and why.

    What is not given is as the recipe has it. A copy is cut to see whether the network's code allows it.
    """
    with errors_for_people():
        sparsifier = find(source).gated(inputs, units=units, include=include, exclude=exclude)
        plan, obstacle = sparsifier.plan(), find_obstacle(sparsifier)
    if as_json:
        typer.echo(json.dumps(_as_dict(plan, obstacle), indent=2))
        return
    console = Console()
    console.print(_table("can be removed", "read by", plan.removable))
    if plan.fixed:
        console.print()
        console.print(_table("stays", "because", plan.fixed))
    if obstacle is not None:
        console.print()
        options = " ".join(f"--exclude {shlex.quote(glob)}" for glob in obstacle.left_out)
        ways = "let sizes follow from tensors there, or leave them out by"
        graph = 'in Python, lzero.compact(model, fallback="graph") makes a graph of it, for lzero.export'
        say(console, f"But {obstacle.told}; {ways} {options}; {graph}.", style="yellow")


def _as_dict(plan: Plan, obstacle: Obstacle | None) -> dict[str, Any]:
    return {
        "removable": [{"name": name, "units": units, "read_by": by} for name, units, by in plan.removable],
        "fixed": [{"name": name, "units": units, "reason": reason} for name, units, reason in plan.fixed],
        "obstacle": None if obstacle is None else asdict(obstacle),
    }


def _table(what: str, why: str, rows: tuple[tuple[str, int, str], ...]) -> Table:
    table = Table(box=None)
    table.add_column(what, overflow="fold")
    table.add_column("units", justify="right")
    table.add_column(why, overflow="fold")
    for name, units, reason in rows:
        table.add_row(Text(name), f"{units:,}", Text(reason))  # as text: names may have brackets
    return table
