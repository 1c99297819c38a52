"""The laws of a gate: continuous distributions rectified to [0, 1], with atoms at 0 and 1.

Stateless `torch.distributions`; no parameter ownership, no training flag, no device logic.
"""

from lzero.laws.concrete import BinaryConcrete
from lzero.laws.hard_concrete import HardConcrete
from lzero.laws.hard_normal import HardNormal
from lzero.laws.kl import kl_monte_carlo
from lzero.laws.rectified import ESTIMATORS, Estimator, Rectified

__all__ = [
    "ESTIMATORS",
    "BinaryConcrete",
    "Estimator",
    "HardConcrete",
    "HardNormal",
    "Rectified",
    "kl_monte_carlo",
]
