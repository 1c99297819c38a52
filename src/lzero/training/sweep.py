"""Many trainings of one recipe, for a trade-off."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lzero.errors import ArgumentError
from lzero.recipes import full_key, load, value_of
from lzero.recipes.settings import toml_value
from lzero.training.folder import RunFolder
from lzero.training.table import SEED, Point, add_to_table, check_settings, read_table, settings_of, table_in
from lzero.training.together import Trial, train_all


def sweep(
    recipe: str | Path,
    over: Mapping[str, Sequence[Any]],
    folder: str | Path,
    *,
    seeds: int = 1,
    changes: Sequence[str] = (),
    workers: int | None = None,
    resume: bool = False,
    data_dir: str | Path | None = None,
    accelerator: str = "auto",
    on_plan: Callable[[Sequence[Trial]], None] = lambda _: None,
    on_trial: Callable[[Point], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> list[Point]:
    """Train a recipe for all combinations of settings and seeds; `sweep.json` in the folder holds a row for each.

    Trainings that are in the folder already are not repeated with `resume`; those that were interrupted go on. When
    `should_stop()` is true, all write a checkpoint, and KeyboardInterrupt is raised. One that fails, as with a target
    that cannot be met, does so after all others have been trained.

    >>> import tempfile
    >>> short = ["training.epochs=1", "gates.units=none", "objective.kind=none"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = sweep("digits", {"optimizer.lr": [0.01, 0.001]}, folder, changes=short, workers=1)
    >>> [row["optimizer.lr"] for row in rows]
    [0.01, 0.001]
    """
    over = {full_key(key): [value_of(toml_value(each)) for each in values] for key, values in over.items()}
    folder = Path(folder)
    trials = list(plan(recipe, over, folder, seeds, changes))
    if not resume and any(path.exists() for path in (table_in(folder), *(trial.folder for trial in trials))):
        raise ArgumentError.about(
            "folder",
            expected="one without a sweep",
            got=folder,
            advice="go on with --resume, or choose another",
        )
    keys, before = [*over, SEED], read_table(folder)
    check_settings(folder, keys)
    earlier = ({key: row[key] for key in settings_of([row])} for row in before)
    for trial in (*trials, *(_trial(recipe, settings, folder, changes) for settings in earlier)):
        RunFolder(trial.folder).check(trial.recipe, resume=True)
    on_plan(trials)
    try:
        for trial in train_all(
            trials, data_dir=data_dir, accelerator=accelerator, workers=workers, should_stop=should_stop
        ):
            on_trial(trial.row())
    finally:  # also what was finished before an interrupt, or beside a training that failed
        rows = add_to_table(folder, keys, [trial.row() for trial in trials if trial.is_finished])
    return rows


def plan(
    recipe: str | Path, over: Mapping[str, Sequence[Any]], folder: Path, seeds: int, changes: Sequence[str]
) -> Iterator[Trial]:
    """All trainings of a sweep, their settings checked before the first begins."""
    if seeds < 1 or not all(over.values()):
        raise ArgumentError.about("over, seeds", expected="at least one value of each", got=f"{dict(over)}, {seeds}")
    if SEED in over or any(change.partition("=")[0].strip() in ("seed", SEED) for change in changes):
        raise ArgumentError.about("over, changes", expected="other settings", got=SEED, advice="say how many seeds")
    if any(len(values) != len(set(map(toml_value, values))) for values in over.values()):
        raise ArgumentError.about("over", expected="values that differ", got=dict(over))
    for values in itertools.product(*over.values(), range(seeds)):
        settings = dict(zip([*over, SEED], values, strict=True))
        yield _trial(recipe, settings, folder, changes)


def _trial(recipe: str | Path, settings: Point, folder: Path, changes: Sequence[str]) -> Trial:
    changed = [*changes, *(f"{key}={toml_value(value)}" for key, value in settings.items())]
    name = ",".join(f"{key.rpartition('.')[2]}={value}" for key, value in settings.items())
    return Trial(settings, load(recipe, changed), folder / name)


def spaced(first: float, last: float, count: int = 8) -> list[float]:
    """Numbers from the first to the last, each the same multiple of the one before; whole between whole numbers.

    >>> spaced(0.05, 0.8, 5)
    [0.05, 0.1, 0.2, 0.4, 0.8]
    >>> spaced(1, 5)  # eight would not differ
    [1, 2, 3, 4, 5]
    """
    if not (0 < first < math.inf and 0 < last < math.inf):
        raise ArgumentError.about("range", expected="two numbers above 0", got=f"{first}..{last}")
    if count < 2:
        raise ArgumentError.about("range", expected="at least 2 values", got=f"{first}..{last}:{count}")
    ratio = math.log(last / first) / (count - 1)
    numbers = [first * math.exp(ratio * k) for k in range(count)]
    if isinstance(first, int) and isinstance(last, int):
        return [*dict.fromkeys(map(round, numbers))]
    return [float(f"{number:.4g}") for number in numbers]
