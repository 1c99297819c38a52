"""The laws under test, and an independent integration to hold them against."""

import torch
from scipy import integrate
from torch.distributions import Gumbel

from lzero.laws import HardConcrete, HardNormal, Rectified


def _f64(number):
    return torch.tensor(number, dtype=torch.float64)


HARD_CONCRETES = [
    HardConcrete(_f64(log_alpha), beta, gamma, zeta)
    for log_alpha in (-6.0, -2.0, 0.0, 1.386, 8.0)
    for beta, gamma, zeta in ((2 / 3, -0.1, 1.1), (0.3, -0.01, 1.01), (5.0, -1.0, 1.5))
]
HARD_NORMALS = [HardNormal(_f64(loc), scale) for loc in (-0.7, 0.0, 0.5, 1.3) for scale in (0.01, 0.5, 3.0)]
OTHERS = [Rectified(Gumbel(_f64(0.2), _f64(0.3)))]
ALL = HARD_CONCRETES + HARD_NORMALS + OTHERS


def name(law):
    base = law.base
    numbers = (
        [base.log_alpha, base.beta, base.gamma, base.zeta] if isinstance(law, HardConcrete) else [base.loc, base.scale]
    )
    return f"{type(law).__name__}-" + ",".join(f"{float(n):.3g}" for n in numbers)


def brute_force(law, function):
    """E[f(z)] by adaptive integration over z, split where the law is concentrated, from `q` and `Q` alone."""

    def cdf(point):
        return float(law.base.cdf(_f64(point)))

    def integrand(point):
        return float(function(_f64(point))) * float(law.base.log_prob(_f64(point)).exp())

    centre = float(law.base.icdf(_f64(0.5)))
    spread = float(law.base.icdf(_f64(0.9))) - centre
    splits = [p for k in (-30, -8, -2, 0, 2, 8, 30) if 0 < (p := centre + k * spread) < 1]
    inner, _ = integrate.quad(integrand, 0, 1, points=splits or None, epsabs=1e-12, epsrel=1e-12, limit=1000)
    return cdf(0.0) * float(function(_f64(0.0))) + (1 - cdf(1.0)) * float(function(_f64(1.0))) + inner
