"""Layers before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lzero.report.run import inside, number
from lzero.training.outcome import Layer

if TYPE_CHECKING:
    from lzero.report.run import Run


def layers(run: Run) -> list[Layer]:
    """The gated layers that the outcome tells of; entries that make no sense are left out."""
    told = inside(run.outcome, "layers")
    return [layer for entry in (told if isinstance(told, list) else []) if (layer := _layer(entry)) is not None]


def _layer(entry: object) -> Layer | None:
    name, before, after = inside(entry, "name"), number(inside(entry, "before")), number(inside(entry, "after"))
    if isinstance(name, str) and before and after is not None and 0 <= after <= before:
        return Layer(name, round(before), round(after))
    return None
