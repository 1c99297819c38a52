"""A sweep as one page: its table, and what it looks like."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lzero import recipes
from lzero.report.seeds import ENOUGH
from lzero.report.sweeps import Combination, columns, combinations, line
from lzero.report.tables_page import Figure, Table, write_tables
from lzero.report.words import counted, percent
from lzero.training.table import read_table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lzero.recipes import Recipe

NAME = "sweep"
CAPTION = "A point for each combination of settings, its mean over seeds; lines join those that differ in one setting."
FEW = f"An interval takes {ENOUGH} seeds."
ON_TEST = "These are errors on the test part: to choose settings by them, sweep with --set data.held_out=0.1."


def write_sweep(folder: Path) -> Path:
    """Write `sweep.html` into the folder of a sweep, and its figure as SVG and PNG, light and dark."""
    from lzero.report.drawing import save_all  # needs an extra
    from lzero.report.sweep_figures import figure_of

    combined = combinations(read_table(folder))
    figure, figures = figure_of(combined), []
    if figure is not None:
        save_all(figure, folder, NAME)
        figures = [Figure.of(folder, NAME, CAPTION)]
    recipe = next((recipes.load(path) for path in sorted(folder.glob("*/config.toml"))), None)
    notes = [FEW] * any(len(each.rows) < ENOUGH for each in combined) + [ON_TEST] * _is_on_test(recipe)
    table = Table("", columns(combined), [line(each) for each in combined], " ".join(notes))
    what = "A sweep" if recipe is None else f"{recipe.model.name} on {recipe.data.name}"
    title = f"{what}, over {' and '.join(combined[0].settings) or 'seeds'}"
    return write_tables(folder / f"{NAME}.html", title, [_said(combined)], tables=[table], figures=figures)


def _is_on_test(recipe: Recipe | None) -> bool:
    return recipe is not None and recipe.data.evaluated_on == "test"


def _said(combined: Sequence[Combination]) -> str:
    """How much was trained, and what was best."""
    best = min(combined, key=lambda each: each.mean("error"))
    trainings = counted(sum(len(each.rows) for each in combined), "training")
    settings = ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in best.settings.items())
    whose = f" of {settings}" if settings else ""
    left = f"{percent(best.mean('macs_share'))} of the MACs and {percent(best.mean('params_share'))} of the parameters"
    return f"{trainings}. The least error is that{whose}: {percent(best.mean('error'))}, with {left}."
