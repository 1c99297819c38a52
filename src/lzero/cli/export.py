"""`lzero export`."""

from __future__ import annotations

from typing import Annotated

import typer

from lzero.cli.app import app, errors_for_people
from lzero.cli.options import Input, Out, Overwrite, SourceName, Weights, check_out
from lzero.cli.source import find
from lzero.errors import ArgumentError
from lzero.export import export
from lzero.formats import FORMATS


@app.command("export")
def export_command(
    source: SourceName,
    out: Out,
    weights: Weights = None,
    inputs: Input = None,
    batch_dim: Annotated[int, typer.Option(help="Where the batch is; 1 if time is first.", metavar="DIM")] = 0,
    overwrite: Overwrite = False,
) -> None:
    """Write a compacted network as .onnx or .pt2.

    The second is a program of torch.export. Both take batches of any size, and need no lzero. The file is run and
    compared with the network before it takes its place.
    """
    with errors_for_people():
        check_out(out, tuple(FORMATS), overwrite=overwrite)
        found = find(source)
        if weights is None and found.run is None and not found.is_function:
            advice = "give a run folder, or --weights"
            raise ArgumentError.about("SOURCE", expected="a trained network", got=source, advice=advice)
        trained = found.compacted(weights)
        export(trained or found.dense(), out, found.inputs(inputs), batch_dim=batch_dim)
    whose = "" if trained else f", with the weights that {source} makes: no --weights were given"
    typer.echo(f"{out}: {out.stat().st_size:,} bytes, checked against the network{whose}")
