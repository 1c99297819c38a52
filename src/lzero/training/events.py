"""The metrics of a run for TensorBoard, where it is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class _Writer(Protocol):
    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None: ...

    def close(self) -> None: ...


class Events:
    """Scalars by epoch, in `events/` of the run folder."""

    def __init__(self, writer: _Writer) -> None:
        self._writer = writer

    @classmethod
    def beside(cls, folder: Path, epoch: int) -> Self | None:
        """Events in this run folder, those after the given epoch forgotten; none without TensorBoard."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            return None
        # What was written after the checkpoint belongs to steps that are repeated now.
        return cls(SummaryWriter(str(folder / "events"), purge_step=epoch + 1))

    def note(self, row: dict[str, Any]) -> None:
        """Add the numbers of one epoch."""
        for name, number in _numbers(row):
            self._writer.add_scalar(name, number, row["epoch"])

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()


def _numbers(row: dict[str, Any], path: str = "") -> Iterator[tuple[str, float]]:
    """All numbers of a row, by the path to them."""
    for key, value in row.items():
        if isinstance(value, dict):
            yield from _numbers(value, f"{path}{key}/")
        elif isinstance(value, int | float) and key not in ("epoch", "step"):
            yield f"{path}{key}", float(value)
