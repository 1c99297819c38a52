"""Train any PyTorch model to the size you choose: L0 gates, budgets that hold, exact removal."""

from lzero.compact import compact
from lzero.errors import LzeroError
from lzero.export import export
from lzero.gates import Gate
from lzero.laws import HardConcrete
from lzero.measure import measure
from lzero.objectives import Constraint, Penalty
from lzero.sparsifier import Sparsifier
from lzero.sparsify import sparsify
from lzero.storage import load, save
from lzero.training import fit
from lzero.verify import verify

__version__ = "0.1.0.dev0"

__all__ = [  # noqa: RUF022 (in flow order)
    "HardConcrete",
    "Gate",
    "sparsify",
    "Sparsifier",
    "Penalty",
    "Constraint",
    "fit",
    "measure",
    "compact",
    "verify",
    "save",
    "load",
    "export",
    "LzeroError",
]
