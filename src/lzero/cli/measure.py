"""`lzero measure`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from torch import Tensor, nn

from lzero.budgets import UNITS
from lzero.cli.app import app, errors_for_people
from lzero.cli.options import AsJson, Input, SourceName, Weights
from lzero.cli.source import Source, find
from lzero.measure import measure
from lzero.structure.sites import INPUTS_OF
from lzero.tensors import count_nonzero
from lzero.training.outcome import MOSTLY, layers_of, widths_of
from lzero.training.parts import make_gates

Sizes = dict[str, Any]  # as JSON has it: sizes of the dense and the compacted network, gates, and layers


@app.command("measure")
def measure_command(source: SourceName, weights: Weights = None, inputs: Input = None, as_json: AsJson = False) -> None:
    """Count parameters, MACs and gates.

    Of a run folder, of the dense network and of the compacted one. A MAC is one multiply–accumulate; they are those
    of one example, or of the inputs given.
    """
    with errors_for_people():
        sizes = sizes_of(find(source), weights, inputs)
    if as_json:
        typer.echo(json.dumps(sizes, indent=2))
    else:
        Console().print(table_of(sizes))


def sizes_of(source: Source, weights: Path | None = None, given: list[str] | None = None) -> Sizes:
    """Count the dense network, the compacted one where there is one, and the gates of the recipe."""
    inputs, dense, small = source.inputs(given), source.dense(), source.compacted(weights)
    sizes: Sizes = {"dense": _size(dense, inputs)}
    if small is not None:
        sizes["compacted"] = {**_size(small, inputs), "nonzero": count_nonzero(small)}
    gated = make_gates(source.recipe, dense, inputs[0]) if source.has_data else None
    if gated is not None:
        sizes["gates"] = len(gated.log_alpha)
    if gated is not None and small is not None:
        sizes["layers"] = [asdict(layer) for layer in layers_of(small, widths_of(gated))]
    return sizes


def _size(model: nn.Module, inputs: tuple[Tensor, ...]) -> dict[str, int]:
    counted = measure(model, inputs)
    return {"params": counted.params.dense, "macs": counted.macs.dense}


def table_of(sizes: Sizes) -> Table:
    """The sizes for people, the compacted network beside the dense one where there is one."""
    table = Table(box=None)
    table.add_column("")
    for name in ["dense", *(["compacted", ""] if "compacted" in sizes else [])]:
        table.add_column(name, justify="right")
    small = sizes.get("compacted", {})
    table.add_row(UNITS["params"], *_cells(sizes["dense"]["params"], small.get("params")))
    if small and small["nonzero"] < MOSTLY * small["params"]:
        table.add_row("not zero", *_cells(sizes["dense"]["params"], small["nonzero"]))
    table.add_row(UNITS["macs"], *_cells(sizes["dense"]["macs"], small.get("macs")))
    if "gates" in sizes:
        table.add_row("gates", f"{sizes['gates']:,}")
    for layer in sizes.get("layers", []):
        label = layer["name"] if layer["name"].startswith(INPUTS_OF) else f"units of {layer['name']}"
        table.add_row(Text(label), *_cells(layer["before"], layer["after"]))
    return table


def _cells(before: int, after: int | None) -> list[str]:
    return [f"{before:,}"] if after is None else [f"{before:,}", f"{after:,}", f"{after / before:.1%}"]
