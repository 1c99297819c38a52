"""Integrals over the unit interval, and inverses of functions that only a CDF gives."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torch.distributions import Distribution

_HALF_COUNT = 32
_REACH = 3.2  # beyond it the nodes are nearer to 0 and 1 than float64 resolves


def unit_interval_rule(like: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes $u_k$ and weights $w_k$ with $\\int_0^1 f(u)\\,du \\approx \\sum_k w_k f(u_k)$, by tanh–sinh.

    $u_k = \\frac{1}{2}(1 + \\tanh(\\frac{\\pi}{2} \\sinh kh))$ crowds towards both ends, so that the
    integrand may be singular there, as quantile functions are. Computed where they are needed: a copy of constants
    would make a GPU wait.

    >>> u, w = unit_interval_rule(torch.empty(0, dtype=torch.float64))
    >>> round(float((w * u.log()).sum()), 12)  # ∫ log u du
    -1.0
    """
    step = _REACH / _HALF_COUNT
    k = step * torch.arange(-_HALF_COUNT, _HALF_COUNT + 1, dtype=torch.float64, device=like.device)
    angle = 0.5 * math.pi * torch.sinh(k)
    weights = torch.cosh(k) / torch.cosh(angle).square()
    inside = torch.finfo(like.dtype).eps / 2
    return torch.sigmoid(2 * angle).to(like.dtype).clamp(inside, 1 - inside), (weights / weights.sum()).to(like.dtype)


def invert_cdf(base: Distribution, probability: Tensor, iterations: int = 60) -> Tensor:
    """The $x \\in [0, 1]$ at which `base` has the given CDF, for bases without `icdf`.

    Bisection finds it; one Newton step then carries the gradient, $dx = (dp - dQ) / q(x)$.
    """
    low, high = torch.zeros_like(probability), torch.ones_like(probability)
    with torch.no_grad():
        for _ in range(iterations):
            middle = (low + high) / 2
            below = base.cdf(middle) < probability
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        found = (low + high) / 2
        density = base.log_prob(found).exp()
    return found + (probability - base.cdf(found)) / density.clamp_min(torch.finfo(density.dtype).tiny)
