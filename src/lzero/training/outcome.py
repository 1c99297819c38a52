"""What a training gave: the dense network beside the compacted one."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Size:
    """One network: parameters, multiply–accumulates for one example, and test error where it was tested."""

    params: int
    macs: int
    error: float | None = None


@dataclass(frozen=True, eq=False)
class Outcome:
    """The compacted network and how it compares."""

    model: nn.Module
    dense: Size
    compacted: Size
    epochs: int

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        return {"dense": asdict(self.dense), "compacted": asdict(self.compacted), "epochs": self.epochs}
