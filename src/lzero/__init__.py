"""Train any PyTorch model to the size you choose: L0 gates, budgets that hold, exact removal."""

from lzero.errors import LzeroError
from lzero.gates import Gate
from lzero.laws import HardConcrete

__version__ = "0.1.0.dev0"

__all__ = ["Gate", "HardConcrete", "LzeroError"]
