"""A run in one sentence, and in one table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lzero.budgets import UNITS, is_share
from lzero.report.run import inside, number
from lzero.report.words import counted, duration, percent, plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from lzero.report.run import Run

WORTH_A_WORD = 0.01  # of error
FALL = 0.2  # of error: more is no network any more
NEARLY = 0.02  # above a budget, as a share of it


@dataclass(frozen=True)
class Row:
    """One quantity of the dense network and of the compacted one."""

    name: str
    dense: str
    compacted: str
    ratio: str


def title(run: Run) -> str:
    """The recipe's title, or what was trained on what."""
    return run.recipe.title.strip() or f"{run.recipe.model.name} on {run.recipe.data.name}"


def is_dense(run: Run) -> bool:
    """Whether nothing was gated."""
    return not run.recipe.is_gated


def error_of(row: dict[str, Any]) -> float | None:
    """The error after an epoch."""
    return number(row.get("error"))


def result(run: Run) -> str:
    """What came out, in plain words."""
    if run.outcome is None:
        return _so_far(run)
    error = _of(run, "compacted", "error")
    at = "" if error is None else f" at {percent(error)} {run.recipe.data.evaluated_on} error"
    if is_dense(run):
        return f"A dense network{at}, trained without gates."
    cost = "macs" if run.recipe.objective.cost == "macs" else "params"
    share = _ratio(run, cost)
    left = "Finished" if share is None else f"{percent(share)} of the {UNITS[cost]}"
    return f"{left}{at}{_against(run)}{_faster(run)}.{fall_of(run)}"


def table(run: Run) -> list[Row]:
    """Dense and compacted side by side; nothing for a run that is not finished."""
    if run.outcome is None:
        return []
    batch = number(run.outcome.get("latency_batch"))
    time = "time of a forward" if batch is None else f"time for {counted(batch, 'example')}"
    rows = [
        _row(run, f"{run.recipe.data.evaluated_on} error", "error", percent, ratio=False),
        *(_row(run, UNITS[cost], cost, plain) for cost in ("params", "macs")),
    ]
    if run.recipe.gates.units == "weights":
        rows.insert(2, _row(run, "parameters that are not zero", "nonzero", plain))
    return rows if _of(run, "compacted", "latency") is None else [*rows, _row(run, time, "latency", duration)]


def budget(run: Run) -> str:
    """What was allowed, where that was one number."""
    aim = run.recipe.objective
    if is_dense(run) or aim.kind != "constraint" or isinstance(aim.target, dict):
        return ""
    share = is_share(aim.target, aim.cost)
    allowed = aim.target if isinstance(aim.target, str) else percent(aim.target) if share else f"{aim.target:,.0f}"
    of_what = f"{'of the ' if share else ''}{UNITS[aim.cost]}{' in each layer' if aim.per == 'layer' else ''}"
    fit = "borderline gates close, or open again, at the end to fit it"
    return f"The budget was {allowed} {of_what}; {fit}.{price_of_fitting(run)}"


def price_of_fitting(run: Run) -> str:
    """What the last step to the budget cost, where that is worth a word: gates had not got there by themselves."""
    before, after = (error_of(run.rows[-1]) if run.rows else None), _of(run, "compacted", "error")
    if before is None or after is None or after <= before + WORTH_A_WORD:
        return ""
    if _was_there(run):
        advice = "gates had got there by themselves, but for a last unit; in so small a network a single one counts"
    else:
        advice = "gates had not got there by themselves: train longer, or give them a higher rate (gates.lr)"
    return f" That took the error from {percent(before)} to {percent(after)}; {advice}."


def fall_of(run: Run) -> str:
    """What happened where a network had learnt and then lost most of it, while its gates closed."""
    errors = [error_of(row) for row in run.rows]
    known = [error for error in errors if error is not None]
    if is_dense(run) or not known or errors[-1] is None or errors[-1] < min(known) + FALL:
        return ""
    epoch = errors.index(min(known)) + 1
    rose = f"The error rose from {percent(min(known))} after epoch {epoch} to {percent(errors[-1])}"
    aim = "objective.strength" if run.recipe.objective.kind == "penalty" else "objective.target"
    which = f"train longer, lower gates.lr, or ask for less by {aim}"
    return f" {rose}: gates closed faster than weights could follow; {which}."


def _was_there(run: Run) -> bool:
    """Whether the last epoch ended as good as within its budgets."""
    groups = inside(run.rows[-1], "objective", "groups")
    violations = [number(inside(each, "violation")) for each in groups.values()] if isinstance(groups, dict) else []
    return bool(violations) and all(each is not None and each < NEARLY for each in violations)


def _so_far(run: Run) -> str:
    if not run.rows:
        return "Not finished: no epoch has ended yet."
    error = error_of(run.rows[-1])
    examples = run.recipe.data.evaluated_on
    at = "" if error is None else f", with {percent(error)} {examples} error after the last of them"
    return f"Not finished: {len(run.rows):,} of {counted(run.recipe.training.epochs, 'epoch')}{at}."


def _against(run: Run) -> str:
    error = _of(run, "dense", "error")
    return "" if error is None else f" (the dense network: {percent(error)})"


def _faster(run: Run) -> str:
    """How the times compare, where the difference is worth a word."""
    ratio = _ratio(run, "latency")
    return f", {plain(float(f'{1 / ratio:.2g}'))} times as fast" if ratio is not None and 0 < ratio < 0.95 else ""


def _of(run: Run, which: str, quantity: str) -> float | None:
    return number(inside(run.outcome, which, quantity))


def _row(run: Run, name: str, quantity: str, told: Callable[[float | None], str], *, ratio: bool = True) -> Row:
    dense, small = told(_of(run, "dense", quantity)), told(_of(run, "compacted", quantity))
    return Row(name, dense, small, percent(_ratio(run, quantity)) if ratio else "")


def _ratio(run: Run, quantity: str) -> float | None:
    dense, small = _of(run, "dense", quantity), _of(run, "compacted", quantity)
    return None if not dense or small is None else number(small / dense)
