"""Run an experiment: every row with every seed, in folders from which it goes on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lzero.recipes import load
from lzero.reproduce import records, tables
from lzero.training.sweep import Trial, train_all

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lzero.reproduce.experiments import Experiment
    from lzero.reproduce.records import Record


def run(
    experiment: Experiment,
    out: Path,
    *,
    quick: bool = False,
    seeds: int | None = None,
    data_dir: Path | None = None,
    accelerator: str = "auto",
    workers: int | None = None,
    on_record: Callable[[Record], None] = lambda _: None,
) -> list[Record]:
    """Train what is missing; write `<name>.jsonl` with all records and `<name>.md` with the table."""
    trials = plan(experiment, out / "runs", quick=quick, seeds=seeds)
    for trial in train_all(trials, data_dir=data_dir, accelerator=accelerator, workers=workers):
        on_record(records.Record.of(trial))
    found = [records.Record.of(trial) for trial in trials]
    records.write(found, out / f"{experiment.name}.jsonl")
    (out / f"{experiment.name}.md").write_text(tables.markdown(experiment, found), encoding="utf-8")
    return found


def plan(experiment: Experiment, folder: Path, *, quick: bool = False, seeds: int | None = None) -> list[Trial]:
    """All trainings of an experiment; those of the first seed come first."""
    count = seeds or (1 if quick else experiment.seeds)
    place = folder / (f"{experiment.name}-quick" if quick else experiment.name)
    return [
        Trial(
            {"row": row.label, "seed": seed},
            load(row.recipe, [*experiment.settings(row, quick=quick), f"training.seed={seed}"]),
            place / f"{k}-{_slug(row.label)}" / str(seed),
        )
        for seed in range(count)
        for k, row in enumerate(experiment.rows)
    ]


def _slug(label: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")
