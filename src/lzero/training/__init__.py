"""The training loop and what surrounds it: sessions, checkpoints, run folders."""

from lzero.training.loop import fit
from lzero.training.outcome import Outcome

__all__ = ["Outcome", "fit"]
