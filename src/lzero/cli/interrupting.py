"""Ctrl-C and SIGTERM: nothing that was trained is lost."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def interruptible(go_on_with: str) -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C and SIGTERM end trainings after the step that runs, with a checkpoint; the second one at once."""
    asked: list[int] = []

    def stop(number: int, *_: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        typer.echo("\nlzero: stopping after this step, with a checkpoint; once more to stop at once", err=True)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    except KeyboardInterrupt as interruption:
        typer.echo(f"\nlzero: interrupted; go on with {go_on_with}", err=True)
        raise typer.Exit(code=130) from interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
