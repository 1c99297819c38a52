"""How a training shows that it goes on: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from lzero.cli.app import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rich.console import Console, RenderableType

    from lzero.recipes import Recipe
    from lzero.training.loop import Step
    from lzero.training.together import Trial

SHOWN = 2  # budgets beside a bar
BETWEEN = 0.5  # seconds between two looks at the loss, for each of which a GPU has to be waited for


@contextmanager
def progress(console: Console) -> Iterator[Callable[[Step], None]]:
    """What to call after each step, inside the block."""
    if not console.is_terminal:
        yield lambda step: _print(step, console)
        return
    with Progress(*_columns("{task.fields[epoch]}"), console=console) as bar:
        yield _Shown(bar)


def _columns(first: str) -> tuple[ProgressColumn, ...]:
    """All of it within 80 columns, the time that is left included."""
    facts = TextColumn("{task.description}", markup=False)  # names of layers may have brackets
    bar = (TextColumn(first), BarColumn(10), TextColumn("{task.percentage:3.0f}%"), facts)
    return (*bar, TextColumn("left"), TimeRemainingColumn())


@contextmanager
def progress_of_many(console: Console) -> Iterator[Callable[[Sequence[Trial]], None]]:
    """What to tell of trainings that begin, inside the block; on a terminal a bar follows their epochs."""
    if not console.is_terminal:
        yield lambda _: None
        return
    with _Followed(*_columns("trainings"), console=console) as bar:
        yield bar.follow


class _Followed(Progress):
    """A bar for each set of trainings, which may run anywhere: their folders say how far they are."""

    def __init__(self, *columns: ProgressColumn, console: Console) -> None:
        self.followed, self.looked = dict[TaskID, "Sequence[Trial]"](), 0.0
        super().__init__(*columns, console=console)

    def follow(self, trials: Sequence[Trial]) -> None:
        epochs = sum(trial.recipe.training.epochs for trial in trials)
        begun = sum(trial.epochs for trial in trials)
        self.followed[self.add_task("", total=epochs, completed=begun)] = trials

    def get_renderables(self) -> Iterable[RenderableType]:
        """The bars, after a look at the folders."""
        if monotonic() - self.looked > BETWEEN:
            self.looked = monotonic()
            for task, trials in list(self.followed.items()):
                done = sum(trial.is_finished for trial in trials)
                epochs = sum(trial.epochs for trial in trials)
                self.update(task, completed=epochs, description=f"{done}/{len(trials)} trained, in {epochs} epochs,")
        return super().get_renderables()


class _Shown:
    """A bar for each training, the last facts of an epoch beside it."""

    def __init__(self, bar: Progress) -> None:
        self.bar, self.tasks, self.looked, self.said = bar, dict[str, Any](), 0.0, ""

    def __call__(self, step: Step) -> None:
        session = step.session
        if not session.fabric.is_global_zero:
            return
        kind, epochs = _kind(session.recipe), session.recipe.training.epochs
        if kind not in self.tasks:
            total = epochs * len(session.batches)
            self.tasks[kind] = self.bar.add_task("", total=total, completed=session.step_number - 1, epoch="")
        if step.row is not None:
            self.said = in_short(step.row)
        elif monotonic() - self.looked < BETWEEN:
            return
        self.looked = monotonic()
        now = f"loss {step.loss:.4f}  {self.said}"
        epoch = f"{kind} {min(epochs, session.epoch + (session.position > 0))}/{epochs}"
        self.bar.update(self.tasks[kind], completed=session.step_number, description=now, epoch=epoch)


def _kind(recipe: Recipe) -> str:
    """Which of two trainings it is, where the network is first trained without gates, to compare."""
    return "epoch" if recipe.is_gated else "dense"


def _print(step: Step, console: Console) -> None:
    if step.row is not None and step.session.fabric.is_global_zero:
        recipe = step.session.recipe
        kind, epochs = _kind(recipe), recipe.training.epochs
        say(console, f"{kind} {step.row['epoch']}/{epochs}  loss {step.row['loss']:.4f}  {said(step.row)}")


def in_short(row: dict[str, Any]) -> str:
    """The facts that fit beside a bar, which must leave room for the time that is left.

    >>> in_short({"error": 0.0067, "objective": {"groups": {"macs": {"expected": 0.184}}}})
    'error 0.67%  macs 18.4%'
    """
    groups = list(row.get("objective", {}).get("groups", {}).items())
    words = [f"{name} {group['expected']:.1%}" for name, group in groups[:SHOWN]]
    return "  ".join([f"error {row['error']:.2%}", *words])


def said(row: dict[str, Any]) -> str:
    """The facts of an epoch in a few words."""
    words = [f"error {row['error']:.2%}"]
    for name, group in row.get("objective", {}).get("groups", {}).items():
        words.append(f"{name} {group['expected']:.1%}, multiplier {group['multiplier']:.3g}")
    words.append(f"{row['images_per_second']:,.0f} images/s")
    if row["removed"]:
        words.append(f"{row['removed']} units removed")
    return "  ".join(words)
