"""Run an experiment: every row with every seed, in folders from which it goes on."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lzero.files import write_text
from lzero.recipes import load
from lzero.reproduce import records, tables
from lzero.training.together import Trial, train_all

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lzero.reproduce.records import Record
    from lzero.reproduce.rows import Experiment, Row

Key = tuple[int, str]  # seed, row


def run(
    experiment: Experiment,
    out: Path,
    *,
    only: Sequence[str] = (),
    quick: bool = False,
    seeds: int | None = None,
    data_dir: Path | None = None,
    accelerator: str = "auto",
    workers: int | None = None,
    on_plan: Callable[[Sequence[Trial]], None] = lambda _: None,
    on_record: Callable[[Record], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> list[Record]:
    """Train what `<name>.jsonl` has no record of; add to it, and write `<name>.md` with the table.

    With `only`, those rows are trained whose label has one of these texts in it.
    """
    path, count = out / f"{experiment.name}.jsonl", seeds or (1 if quick else experiment.seeds)
    trials = [
        trial for trial in plan(experiment, out / "runs", quick=quick, seeds=count) if is_chosen(_key(trial)[1], only)
    ]
    found = records.read(path) if path.exists() else []
    valid = _still_valid(found, experiment, quick=quick)
    missing = [trial for trial in trials if _key(trial) not in valid]
    # Records of other settings make room for new ones; those of rows that are not trained now stay what they are.
    kept = valid | {(r.seed, r.row): r for r in found if not is_chosen(r.row, only)}
    on_plan(missing)
    done = [trial for trial in missing if trial.is_finished]
    place: dict[str, Any] = {"data_dir": data_dir, "accelerator": accelerator, "workers": workers}
    others = train_all(missing, among=len(trials), should_stop=should_stop, **place)
    try:
        for trial in chain(done, others):
            record = kept[_key(trial)] = records.Record.of(trial)
            records.write([kept[key] for key in sorted(kept)], path)  # at once: nothing is lost on an interrupt
            on_record(record)
    finally:  # also of what was finished before an interrupt, or beside a training that failed
        if path.exists():
            text = tables.markdown(experiment, records.read_all(out, experiment.name))
            write_text(out / f"{experiment.name}.md", text)
    return [kept[key] for key in sorted(kept)]


def plan(experiment: Experiment, folder: Path, *, quick: bool, seeds: int) -> list[Trial]:
    """All trainings of an experiment; those of the first seed come first."""
    return [_trial(experiment, row, seed, folder, quick=quick) for seed in range(seeds) for row in experiment.rows]


def is_chosen(label: str, only: Sequence[str]) -> bool:
    """Whether a row is to be trained."""
    return not only or any(text in label for text in only)


def _trial(experiment: Experiment, row: Row, seed: int, folder: Path, *, quick: bool) -> Trial:
    recipe = load(row.recipe, [*experiment.settings(row, quick=quick), f"training.seed={seed}"])
    place = folder / experiment.name / f"{_slug(row.label)}-{seed}-{records.digest(recipe)}"
    return Trial({"row": row.label, "seed": seed}, recipe, place)


def _still_valid(found: Sequence[Record], experiment: Experiment, *, quick: bool) -> dict[Key, Record]:
    """Records of rows that the experiment has, trained as it says today."""
    plans = plan(experiment, Path(), quick=quick, seeds=1 + max((record.seed for record in found), default=-1))
    recipes = {_key(trial): records.digest(trial.recipe) for trial in plans}
    return {(r.seed, r.row): r for r in found if recipes.get((r.seed, r.row)) == r.recipe}


def _key(trial: Trial) -> Key:
    return trial.settings["seed"], trial.settings["row"]


def _slug(label: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")
