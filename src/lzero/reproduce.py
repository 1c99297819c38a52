"""Tables and figures of the papers, by name."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from lzero.errors import ArgumentError
from lzero.files import write_atomically

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console

TABLES = ("law",)
FIGURES = ("figure-1", "figure-2")
NAMES = TABLES + FIGURES


def reproduce(names: Sequence[str], out: Path, *, overwrite: bool, console: Console) -> None:
    """Print the named tables and draw the named figures into `out`; every name and path is checked first."""
    for name in names:
        _check_name(name)
    paths = {name: out / f"{name}.png" for name in FIGURES if name in names}
    for path in paths.values():
        if path.exists() and not overwrite:
            raise ArgumentError.about(
                "out",
                expected="a folder without this figure",
                got=path,
                advice="pass --overwrite to replace it",
            )
    if "law" in names:
        from lzero.report.law_table import law_table

        console.print(law_table())
    for name, path in paths.items():
        _draw(name, path)
        console.print(f"{name}: {path}", highlight=False, soft_wrap=True)


def _check_name(name: str) -> None:
    if name not in NAMES:
        nearest = difflib.get_close_matches(name, NAMES, n=1)
        advice = f"did you mean {nearest[0]}?" if nearest else None
        raise ArgumentError.about("name", expected=f"one of {', '.join(NAMES)}", got=name, advice=advice)


def _draw(name: str, path: Path) -> None:
    from lzero.report import paper_figures

    figure = {"figure-1": paper_figures.figure_1, "figure-2": paper_figures.figure_2}[name]()
    with write_atomically(path) as temporary:
        figure.savefig(temporary, format="png")
