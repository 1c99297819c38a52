"""Tables and figures as one HTML page that needs nothing else."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, NamedTuple

import lzero
from lzero.files import write_text
from lzero.report.page import environment

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


LONG = 18  # letters from which on a cell may have several lines


class Table(NamedTuple):
    """A table with its title and where it comes from."""

    title: str
    columns: Sequence[str]
    lines: Sequence[Sequence[str]]
    foot: str


class Figure(NamedTuple):
    """A figure in ink for light and for dark pages, as addresses that hold all of it."""

    caption: str
    light: str
    dark: str

    @classmethod
    def of(cls, folder: Path, name: str, caption: str) -> Figure:
        """A figure as `save_all` has written it."""
        return cls(caption, _address(folder / f"{name}.svg"), _address(folder / f"{name}-dark.svg"))


def write_tables(
    page: Path,
    title: str,
    sentences: Sequence[str],
    *,
    note: str = "",
    tables: Sequence[Table] = (),
    figures: Sequence[Figure] = (),
) -> Path:
    """Write a page with a title, what is to be said first, tables and figures."""
    template, version = environment().get_template("tables.html.jinja"), lzero.__version__
    said = {"title": title, "sentences": sentences, "note": note, "long": LONG, "version": version}
    write_text(page, template.render(**said, tables=tables, figures=figures))
    return page


def _address(path: Path) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(path.read_bytes()).decode()}"
