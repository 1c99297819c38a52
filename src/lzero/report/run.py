"""A run folder as it is read for a report. What is in it may come from anywhere: nothing is believed unchecked."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from lzero import recipes
from lzero.errors import LzeroError
from lzero.storage import KEY
from lzero.training.folder import RunFolder

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from lzero.recipes import Recipe

LARGEST, SMALLEST = 1e100, 1e-100  # beyond these, differences and powers overflow


class RunError(LzeroError):
    """A run folder cannot be reported on: which file, and what is wrong with it."""


@dataclass(frozen=True, eq=False)
class Run:
    """What was asked, how it went, and, once the run is finished, what came out."""

    recipe: Recipe
    settings: str
    rows: list[dict[str, Any]]
    dense_rows: list[dict[str, Any]]  # of the network without gates, where there is one to compare with
    outcome: dict[str, Any] | None
    dense: dict[str, Any]  # the shapes of the dense network, by parameter
    indices: dict[str, Tensor]  # the inputs that dense layers choose, by the layer's path


def read_run(path: Path) -> Run:
    """The run in a folder, finished or not."""
    folder = RunFolder(path)
    settings = _text(folder.config)
    try:
        recipe = recipes.load(folder.config)
    except LzeroError as error:
        raise RunError(f"{folder.config}: {str(error).removeprefix(f'{folder.config}: ')}") from error
    rows, without_gates = _rows(folder.metrics), RunFolder(folder.dense).metrics
    dense_rows = _rows(without_gates) if without_gates.exists() else []
    outcome = _object(_text(folder.outcome), folder.outcome) if folder.outcome.exists() else None
    dense, indices = ({}, {}) if outcome is None else _network(folder.model)
    return Run(recipe, settings, rows, dense_rows, outcome, dense, indices)


def number(value: object) -> float | None:
    """A number that can be drawn, or None.

    >>> number(3), number(float("nan")), number("3")
    (3.0, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not -LARGEST < value < LARGEST:
        return None
    return 0.0 if abs(value) < SMALLEST else float(value)


def inside(value: object, *keys: str) -> object:
    """What nested tables hold under these keys, or None.

    >>> inside({"a": {"b": 1}}, "a", "b"), inside({"a": 3}, "a", "b")
    (1, None)
    """
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise RunError(f"{path}: there is no such file; is this the folder of a run?") from error
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"{path}: cannot be read ({error})") from error


def _object(text: str, where: object) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RunError(f"{where}: damaged, not JSON ({error})") from error
    if not isinstance(found, dict):
        raise RunError(f"{where}: damaged, expected a JSON object")
    return found


def _rows(path: Path) -> list[dict[str, Any]]:
    """The epochs in their order. A line without its end is still being written."""
    lines = _text(path).split("\n")[:-1]
    rows = [_object(line, f"{path}, line {k}") for k, line in enumerate(lines, start=1)]
    return sorted((row for row in rows if number(row.get("epoch")) is not None), key=lambda row: float(row["epoch"]))


def _network(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Shapes before, and chosen inputs; weights are not read, which makes a page of a large network as quick."""
    try:
        with safe_open(path, framework="pt") as file:
            plan = _object((file.metadata() or {}).get(KEY, ""), path)
            found = plan.get("dense")
            dense = found if isinstance(found, dict) else {}
            # Ours are those that the dense network does not have: a network may have buffers of this name.
            names = [name for name in file.keys() if name.rpartition(".")[2] == "index" and name not in dense]  # noqa: SIM118
            indices = {name.rpartition(".")[0]: file.get_tensor(name) for name in names}
    except FileNotFoundError as error:
        raise RunError(f"{path}: there is no such file, though the run is finished") from error
    except (SafetensorError, OSError) as error:
        raise RunError(f"{path}: not a whole safetensors file ({error})") from error
    return dense, indices
