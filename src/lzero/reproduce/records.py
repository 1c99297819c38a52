"""What a training of an experiment gave, small enough to be kept: the outcome, and the curves that figures need."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from lzero.errors import LzeroError
from lzero.files import write_text
from lzero.objectives.constraint import target_of
from lzero.recipes.settings import as_toml
from lzero.training.folder import RunFolder
from lzero.training.loop import dense_recipe

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lzero.recipes import Recipe
    from lzero.recipes.recipe import Aim
    from lzero.training.together import Trial

CURVES = ("epoch", "seconds", "loss", "training_error", "error", "images_per_second")


@dataclass(frozen=True)
class Record:
    """One training of one row; `recipe` is the digest of what was set."""

    row: str
    seed: int
    recipe: str
    error: float
    best_error: float  # of all epochs within the budget, and of the compacted network
    params: int
    macs: int
    dense_params: int
    dense_macs: int
    latency: float
    dense_latency: float
    widths: dict[str, int]
    dense_widths: dict[str, int]
    epochs: int
    seconds: float
    machine: str
    curves: dict[str, list[float | None]]
    commit: str = ""  # of lzero, where it was known

    @classmethod
    def of(cls, trial: Trial) -> Record:
        """That of a finished training."""
        run = RunFolder(trial.folder)
        outcome = json.loads(run.outcome.read_text(encoding="utf-8"))
        lines = run.metrics.read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines]
        dense, small = outcome["dense"], outcome["compacted"]
        return cls(
            row=trial.settings["row"],
            seed=trial.settings["seed"],
            recipe=digest(trial.recipe),
            error=small["error"],
            best_error=min([small["error"], *_errors_within(rows, trial.recipe.objective)]),
            params=small["params"],
            macs=small["macs"],
            dense_params=dense["params"],
            dense_macs=dense["macs"],
            latency=small["latency"],
            dense_latency=dense["latency"],
            widths={layer["name"]: layer["after"] for layer in outcome["layers"]},
            dense_widths={layer["name"]: layer["before"] for layer in outcome["layers"]},
            epochs=outcome["epochs"],
            seconds=outcome["seconds"],
            machine=outcome["machine"],
            curves=_curves(rows),
            commit=outcome.get("commit", ""),
        )


def digest(recipe: Recipe) -> str:
    """A short name for all settings of a training: a record of other settings is no record of it.

    Titles are no part of it; nor, where there are no gates, what would drive and remove them. How gates would be, is.

    >>> from lzero.recipes import load
    >>> digest(load("digits")) == digest(load("digits", ["training.seed=1"]))
    False
    """
    used = recipe if recipe.is_gated else dense_recipe(recipe)
    return hashlib.sha256(as_toml(replace(used, title="")).encode()).hexdigest()[:12]


def _errors_within(rows: Sequence[dict[str, Any]], aim: Aim) -> list[float]:
    """Errors of epochs that ended within the budgets, as they are in the end, of a network with gates or without."""
    gated = [row for row in rows if "size" in row]
    last = gated[-1]["objective"]["groups"] if gated and aim.kind == "constraint" else {}
    targets = {name: _target(group, aim) for name, group in last.items()}

    def is_within(row: dict[str, Any]) -> bool:
        if "size" not in row or aim.kind in ("none", "penalty"):
            return True
        groups = row["objective"]["groups"]
        return aim.kind == "constraint" and all(groups[name]["expected"] <= targets[name] for name in targets)

    return [row["error"] for row in rows if is_within(row)]


def _target(group: dict[str, float], aim: Aim) -> float:
    """The share that a group was to have, from how far it was from it; a millionth more, for rounding."""
    return target_of(group["expected"], group["violation"], aim.violation) + 1e-6


def _curves(rows: Sequence[dict[str, Any]]) -> dict[str, list[float | None]]:
    """By name, a number for each epoch: also `macs` and `params`, expected shares, and those of each group of gates."""
    curves: dict[str, list[float | None]] = {name: [_short(row.get(name)) for row in rows] for name in CURVES}
    for cost in ("params", "macs"):
        sizes = [row.get("size", {}).get(cost) for row in rows]
        curves[cost] = [None if size is None else _short(size["expected"] / size["dense"]) for size in sizes]
    groups = [row.get("objective", {}).get("groups", {}) for row in rows]
    for name in dict.fromkeys(name for group in groups for name in group):
        for number in ("expected", "multiplier"):
            curves[f"{number} {name}"] = [_short(group.get(name, {}).get(number)) for group in groups]
    return curves


def _short(number: float | None) -> float | None:
    return None if number is None else float(f"{number:.6g}")


def write(records: Sequence[Record], path: Path) -> None:
    """Keep records as JSON, a line for each."""
    lines = (json.dumps(asdict(record), ensure_ascii=False) for record in records)
    write_text(path, "".join(f"{line}\n" for line in lines))


def read(path: Path) -> list[Record]:
    """The records of a file."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError as error:
        raise LzeroError(f"{path}: there is no such file; run lzero reproduce {path.stem} first") from error
    except (OSError, UnicodeDecodeError) as error:
        raise LzeroError(f"{path}: cannot be read ({error})") from error
    if not lines:
        raise LzeroError(f"{path}: empty, without a single record; delete it, or run lzero reproduce {path.stem}")
    return [_record(line, f"{path}, line {number}") for number, line in enumerate(lines, start=1)]


def _record(line: str, where: str) -> Record:
    try:
        return Record(**json.loads(line))
    except (ValueError, TypeError) as error:
        raise LzeroError(f"{where}: damaged, not a record ({error})") from error


def read_all(folder: Path, name: str) -> list[Record]:
    """The records of an experiment, and those of other libraries that benchmarks have put beside them."""
    others = sorted(folder.glob(f"{name}-by-*.jsonl"))
    return [record for path in (folder / f"{name}.jsonl", *others) for record in read(path)]
