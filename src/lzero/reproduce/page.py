"""Tables and figures as one HTML page that needs nothing else."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, NamedTuple

import lzero
from lzero.files import write_text
from lzero.report.page import environment
from lzero.reproduce import past, records, tables
from lzero.reproduce.experiments import EXPERIMENTS
from lzero.reproduce.figures import CAPTIONS, SOURCES

if TYPE_CHECKING:
    from pathlib import Path


class Figure(NamedTuple):
    """A figure in ink for light and for dark pages, as addresses that hold all of it."""

    caption: str
    light: str
    dark: str


class Table(NamedTuple):
    """A table with its title and where it comes from."""

    title: str
    columns: tables.Line
    lines: list[tables.Line]
    foot: str


def write_page(folder: Path, *, quick: bool = False) -> Path:
    """Write `index.html` with all tables and figures that the folder has; small versions are called so."""
    text = (
        environment()
        .get_template("reproduction.html.jinja")
        .render(tables=_tables(folder), figures=_figures(folder), quick=quick, version=lzero.__version__)
    )
    page = folder / "index.html"
    write_text(page, text)
    return page


def _tables(folder: Path) -> list[Table]:
    names = [name for name in EXPERIMENTS if (folder / f"{name}.jsonl").exists()]
    found = [line for name in names for line in past.lines(EXPERIMENTS[name], records.read_all(folder, name))]
    beyond = [Table(past.TITLE, past.COLUMNS, found, past.FOOT)] if found else []
    return [*beyond, *(_table(folder, name) for name in names)]


def _table(folder: Path, name: str) -> Table:
    experiment, found = EXPERIMENTS[name], records.read_all(folder, name)
    columns, lines = tables.without_empty(tables.COLUMNS, tables.lines(experiment, found))
    return Table(experiment.title, columns, lines, tables.foot(found))


def _figures(folder: Path) -> list[Figure]:
    light = {name: folder / f"{name}.svg" for name in SOURCES}
    return [
        Figure(CAPTIONS[name], _address(path), _address(folder / f"{name}-dark.svg"))
        for name, path in light.items()
        if path.exists()
    ]


def _address(path: Path) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(path.read_bytes()).decode()}"
