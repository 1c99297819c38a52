"""`lzero report`."""

from __future__ import annotations

import typer

from lzero.cli.app import app, errors_for_people
from lzero.cli.options import Run
from lzero.training.table import table_in


@app.command("report")
def report_command(folder: Run) -> None:
    """Write the report page of a run or a sweep, finished or not, anew.

    It is report.html in the folder of a run: the sizes, the curves and the layers, in one file that needs nothing
    else; sweep.html in that of a sweep.
    """
    with errors_for_people():
        from lzero.report.page import write_page  # needs an extra
        from lzero.report.sweep_page import write_sweep

        write = write_sweep if table_in(folder).exists() else write_page
        typer.echo(str(write(folder)))
