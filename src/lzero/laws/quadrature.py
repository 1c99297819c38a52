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


def _tanh_sinh() -> tuple[list[float], list[float]]:
    """Nodes and weights of the double-exponential rule on (0, 1).

    $u_k = \\frac{1}{2}(1 + \\tanh(\\frac{\\pi}{2} \\sinh kh))$ crowds towards both ends, so that the
    integrand may be singular there, as quantile functions are.
    """
    step = _REACH / _HALF_COUNT
    nodes, weights = [], []
    for k in range(-_HALF_COUNT, _HALF_COUNT + 1):
        angle = 0.5 * math.pi * math.sinh(k * step)
        nodes.append(1.0 / (1.0 + math.exp(-2.0 * angle)))
        weights.append(0.25 * math.pi * step * math.cosh(k * step) / math.cosh(angle) ** 2)
    total = math.fsum(weights)
    return nodes, [weight / total for weight in weights]


_NODES, _WEIGHTS = _tanh_sinh()


def unit_interval_rule(like: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes $u_k$ and weights $w_k$ with $\\int_0^1 f(u)\\,du \\approx \\sum_k w_k f(u_k)$.

    >>> u, w = unit_interval_rule(torch.empty(0, dtype=torch.float64))
    >>> round(float((w * u.log()).sum()), 12)  # ∫ log u du
    -1.0
    """
    inside = torch.finfo(like.dtype).eps / 2
    return like.new_tensor(_NODES).clamp(inside, 1 - inside), like.new_tensor(_WEIGHTS)


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
