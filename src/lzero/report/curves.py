"""The course of a training as charts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lzero.budgets import UNITS
from lzero.objectives.constraint import target_of
from lzero.report.charts import Chart, draw
from lzero.report.columns import Series, Time
from lzero.report.run import inside, number
from lzero.report.summary import error_of, is_dense

if TYPE_CHECKING:
    from lzero.report.run import Run

GROUPS = 12  # of gates with budgets of their own that are drawn, at most
NAMES = UNITS | {"model": UNITS["l0"]}  # a penalty's group is the model


def curves(run: Run) -> list[Chart]:
    """All that the epochs tell."""
    return [chart for chart in [*_task(run), *_groups(run), *_size(run), *_pace(run)] if chart is not None]


def removals(run: Run) -> dict[float, float]:
    """How many units were removed after which epochs."""
    found = {float(row["epoch"]): number(row.get("removed")) or 0.0 for row in run.rows}
    return {epoch: units for epoch, units in found.items() if units > 0}


def group_names(run: Run) -> list[str]:
    """The groups that an objective told of, in their order."""
    tables = [inside(row, "objective", "groups") for row in run.rows]
    return list(dict.fromkeys(name for table in tables if isinstance(table, dict) for name in table))


def _time(run: Run) -> Time:
    return Time([float(row["epoch"]) for row in run.rows], removals(run))


def _series(run: Run, name: str, kind: str, *keys: str) -> Series:
    return Series(name, kind, [number(inside(row, *keys)) for row in run.rows])


def _task(run: Run) -> list[Chart | None]:
    examples = run.recipe.data.evaluated_on
    loss = [_series(run, "training", "first", "loss"), _series(run, examples, "second", "test_loss")]
    compacted = number(inside(run.outcome, "compacted", "error"))
    dense = {float(row["epoch"]): error_of(row) for row in run.dense_rows}
    error = [
        _series(run, "training", "first", "training_error"),
        Series(examples, "second", [error_of(row) for row in run.rows]),
        Series("dense", "third", [dense.get(float(row["epoch"])) for row in run.rows]),
        Series("compacted", "target", [None if is_dense(run) else compacted] * len(run.rows)),
    ]
    return [draw("Loss", _time(run), loss), draw("Error", _time(run), error, shares=True)]


def _size(run: Run) -> list[Chart | None]:
    """What is left of the network, whatever drives its gates."""
    series = [Series(UNITS[cost], kind, _sizes(run, cost)) for cost, kind in (("params", "first"), ("macs", "second"))]
    return [draw("What is left", _time(run), series, shares=True)]


def _sizes(run: Run, cost: str) -> list[float | None]:
    """Shares of the dense network, after each epoch; where gates have been folded in they are what came out."""
    shares = [_share(inside(row, "size", cost)) for row in run.rows]
    gated = max((k for k, share in enumerate(shares, start=1) if share is not None), default=0)
    dense, left = (number(inside(run.outcome, network, cost)) for network in ("dense", "compacted"))
    in_the_end = None if not gated or not dense or left is None else number(left / dense)
    return [*shares[:gated], *([in_the_end] * (len(shares) - gated))]


def _share(size: object) -> float | None:
    dense, realised = number(inside(size, "dense")), number(inside(size, "realised"))
    return None if not dense or realised is None else number(realised / dense)


def _groups(run: Run) -> list[Chart | None]:
    return [chart for name in group_names(run)[:GROUPS] for chart in (_budget(run, name), _multiplier(run, name))]


def _budget(run: Run, group: str) -> Chart | None:
    keys = "objective", "groups", group
    series = [
        _series(run, "expected", "first", *keys, "expected"),
        _series(run, "realised", "second", *keys, "realised"),
        Series("target", "target", [_target(run, inside(row, *keys)) for row in run.rows]),
    ]
    return draw(f"Share of {_named(group)}", _time(run), series, shares=True)


def _named(group: str) -> str:
    """A group as people call it: `macs of conv1` is a cost and where it is counted."""
    cost, _, where = group.partition(" of ")
    named = NAMES.get(cost, cost)
    return f"{named} of {where}" if where else named


def _target(run: Run, group: object) -> float | None:
    """The target in force, which may come down from 1: what the violation was measured from."""
    expected, violation = number(inside(group, "expected")), number(inside(group, "violation"))
    if run.recipe.objective.kind != "constraint" or expected is None or violation is None:
        return None
    return number(target_of(expected, violation, run.recipe.objective.violation)) if abs(violation) < 100 else None


def _multiplier(run: Run, group: str) -> Chart | None:
    """λ, unless it is that of a penalty, which stays what it was."""
    if run.recipe.objective.kind != "constraint":
        return None
    series = _series(run, "λ", "first", "objective", "groups", group, "multiplier")
    several = len(group_names(run)) > 1
    title = f"Multiplier of {_named(group)}" if several else "Multiplier"
    return draw(title, _time(run), [series], may_log=False)


def _pace(run: Run) -> list[Chart | None]:
    series = [_series(run, "images a second", "first", "images_per_second")]
    return [draw("Speed of training", _time(run), series, may_log=False)]
