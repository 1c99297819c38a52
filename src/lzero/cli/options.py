"""What several commands can be given, declared once, so that it is called and means the same in all of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from lzero import costs
from lzero.arguments import one_of
from lzero.budgets import UNITS
from lzero.errors import ArgumentError, LzeroError
from lzero.recipes import names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lzero.budgets import Target

RecipeName = Annotated[
    str,
    typer.Argument(
        help=f"A TOML file, one of {', '.join(names())}, or package.module:function that makes a network.",
        metavar="RECIPE",
    ),
]
SourceName = Annotated[
    str,
    typer.Argument(
        help="A recipe or TOML file, a run folder, a network of the zoo such as lenet5, or package.module:function.",
        metavar="SOURCE",
    ),
]
Run = Annotated[Path, typer.Argument(help="A run folder of lzero train.", metavar="RUN_FOLDER")]

Changes = Annotated[
    list[str] | None, typer.Option("--set", help="Change a setting: objective.target=0.1.", metavar="KEY=VALUE")
]
DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Where datasets lie; else LZERO_DATA, else the user's cache.", show_default=False),
]
Accelerator = Annotated[str, typer.Option("--accelerator", help="auto, cpu or cuda.")]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        help="Trainings at a time; as many as cores, or 16 on a GPU, if not given.",
        min=1,
        show_default=False,
    ),
]

Input = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        help="Sizes of an input, batch first; tokens are 1,16:int64. Once for each input. Recipes know theirs.",
        metavar="1,3,32,32",
        show_default=False,
    ),
]
Include = Annotated[
    list[str] | None, typer.Option("--include", help="Only names like this: 'layers.*'.", metavar="GLOB")
]
Exclude = Annotated[list[str] | None, typer.Option("--exclude", help="No names like this.", metavar="GLOB")]
Weights = Annotated[
    Path | None,
    typer.Option(
        "--weights",
        help="A safetensors file that lzero saved, or a state dict; a run folder has one.",
        show_default=False,
    ),
]
Budget = Annotated[
    str | None,
    typer.Option("--budget", help="What may be left: 0.1, 10% or 50000.", metavar="BUDGET", show_default=False),
]
Cost = Annotated[
    str | None,
    typer.Option(
        "--cost", help="What the budget counts; macs if not given.", metavar="|".join(UNITS), show_default=False
    ),
]

Out = Annotated[Path, typer.Option("--out", help="The file to write.", show_default=False)]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the file if it is there.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def target_of(budget: str) -> Target:
    """A number where it is one; what a percentage means, and what means nothing, budgets know."""
    try:
        return float(budget)
    except ValueError:
        return budget


def cost_of(cost: str | None) -> costs.Cost:
    """What a budget counts."""
    return cast("costs.Cost", one_of("cost", cost or "macs", costs.Cost))


def check_out(path: Path, suffixes: Sequence[str], *, overwrite: bool) -> None:
    """Refuse a file of another kind, or one that is there already."""
    if path.suffix not in suffixes:
        raise ArgumentError.about("--out", expected=f"a file that ends in {' or '.join(suffixes)}", got=path)
    if path.exists() and not overwrite:
        raise LzeroError(f"{path}: it is there already; pass --overwrite to replace it")
