"""Tables and figures as one HTML page that needs nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lzero.report.tables_page import Figure, Table, write_tables
from lzero.reproduce import past, records, tables
from lzero.reproduce.experiments import EXPERIMENTS
from lzero.reproduce.figures import CAPTIONS, SOURCES

if TYPE_CHECKING:
    from pathlib import Path

LEAD = "Louizos, Welling and Kingma (2018), Gallego-Posada et al. (2021), and ours beside theirs."
QUICK = "Small versions, of a few epochs and one seed: they show that everything runs, and nothing about methods."
NOTE = "Errors are of the compacted network at the last epoch; ± is the 95 % interval of the mean over seeds."


def write_page(folder: Path, *, quick: bool = False) -> Path:
    """Write `index.html` with all tables and figures that the folder has; small versions are called so."""
    found, sentences = _tables(folder), [LEAD, QUICK] if quick else [LEAD]
    note = NOTE if found else ""
    page, figures = folder / "index.html", _figures(folder)
    return write_tables(page, "The papers' experiments", sentences, note=note, tables=found, figures=figures)


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
    return [Figure.of(folder, name, CAPTIONS[name]) for name in SOURCES if (folder / f"{name}.svg").exists()]
