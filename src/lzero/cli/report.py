"""`lzero report`."""

from __future__ import annotations

import typer

from lzero.cli.app import app, errors_for_people
from lzero.cli.options import Run


@app.command("report")
def report_command(folder: Run) -> None:
    """Write the report page of a run, finished or not, anew.

    It is report.html in the folder: the sizes, the curves and the layers, in one file that needs nothing else.
    """
    with errors_for_people():
        from lzero.report.page import write_page  # needs an extra

        typer.echo(str(write_page(folder)))
