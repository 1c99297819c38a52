"""The rules, by theme; importing this registers them."""

from lzero.structure.rules import (
    attention,
    contractions,
    images,
    indexing,
    norms,
    pointwise,
    recurrent,
    reductions,
    shapes,
    spectra,
)

__all__ = [
    "attention", "contractions", "images", "indexing", "norms", "pointwise", "recurrent", "reductions", "shapes",
    "spectra",
]  # fmt: skip
