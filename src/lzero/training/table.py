"""The table of a sweep, `sweep.json`: a row for each training that is finished."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lzero.errors import ArgumentError, LzeroError
from lzero.files import write_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

SEED = "training.seed"
Point = dict[str, Any]  # what was set, by its name with a dot, and what came out


def table_in(folder: Path) -> Path:
    """Where the table of a sweep is."""
    return folder / "sweep.json"


def read_table(folder: Path) -> list[Point]:
    """The rows so far; none where there is no table."""
    table = table_in(folder)
    try:
        rows = json.loads(table.read_text(encoding="utf-8")) if table.exists() else []
    except (OSError, ValueError) as error:
        raise LzeroError(f"{table}: damaged, not the table of a sweep ({error})") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise LzeroError(f"{table}: damaged, not the table of a sweep (expected a list of rows)")
    return rows


def settings_of(rows: Iterable[Point]) -> list[str]:
    """The settings that rows differ in, in their order; the names of what came out have no dots."""
    return list(dict.fromkeys(key for row in rows for key in row if "." in key))


def check_settings(folder: Path, keys: Sequence[str]) -> None:
    """One table, one set of columns: means over rows that differ in what is not told would say nothing."""
    swept = set(settings_of(read_table(folder)))
    if swept and swept != set(keys):
        expected, got = (", ".join(sorted(each)) for each in (swept, set(keys)))
        advice = "choose another folder for another sweep"
        raise ArgumentError.about("over", expected=f"the settings of {folder}, {expected}", got=got, advice=advice)


def add_to_table(folder: Path, keys: Sequence[str], rows: list[Point]) -> list[Point]:
    """The rows of a table, without those that are made anew, and the new ones; it is written where there are any."""
    made = [[row[key] for key in keys] for row in rows]
    rows = [row for row in read_table(folder) if [row[key] for key in keys] not in made] + rows
    if rows:
        write_text(table_in(folder), json.dumps(rows, indent=2) + "\n")
    return rows
