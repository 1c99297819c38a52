"""The general recipe: any continuous law, rectified to [0, 1]."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from lzero.arguments import one_of, whole
from lzero.errors import ArgumentError
from lzero.laws.checks import require, validates
from lzero.laws.quadrature import invert_cdf, unit_interval_rule

if TYPE_CHECKING:
    from collections.abc import Callable

Estimator = Literal["eq13", "median"]
ESTIMATORS: tuple[Estimator, ...] = get_args(Estimator)


class Rectified(Distribution):
    r"""The law of $z = \min(1, \max(0, s))$ for a continuous $s$ with CDF $Q$ and density $Q'$ (Eq. 4–9, 26).

    $$q(z) = Q(0)\,\delta_0(z) + (1-Q(1))\,\delta_1(z) + Q'(z)\,1_{(0,1)}(z)$$

    The base is any scalar `torch.distributions.Distribution` with `rsample`, `cdf` and `log_prob`; where it has
    no `icdf`, the CDF is inverted numerically. `log_prob` is the density with respect to δ₀ + δ₁ + Lebesgue on
    (0, 1). Moments, entropy and KL are integrals by quadrature, never sampled; they take the base's precision, and a
    smooth density between 0 and 1.

    >>> from torch.distributions import Laplace
    >>> Rectified(Laplace(torch.tensor(0.5, device="cpu"), 0.2)).prob_active
    tensor(0.9590)
    """

    arg_constraints: dict[str, constraints.Constraint] = {}  # noqa: RUF012 (the interface of torch.distributions)
    support = constraints.unit_interval
    has_rsample = True

    def __init__(self, base: Distribution, validate_args: bool | None = None) -> None:
        if not isinstance(base, Distribution):
            raise ArgumentError.about("base", expected="a torch.distributions.Distribution", got=type(base).__name__)
        if not base.has_rsample or base.event_shape:
            expected = "a distribution over single numbers with reparameterised samples"
            raise ArgumentError.about("base", expected=expected, got=base)
        self.base = base
        super().__init__(base.batch_shape, validate_args=False)
        self._validate_args = validates(validate_args)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base})"

    def expand(self, batch_shape: Any, _instance: Any = None) -> Rectified:
        """The same law with its batch broadcast to `batch_shape`."""
        return Rectified(self.base.expand(batch_shape), validate_args=self._validate_args)

    # The base's tails. Members override both where a closed form keeps its precision far out.

    def _log_cdf(self, point: float) -> Tensor:
        return _log(self.base.cdf(torch.tensor(point, device="cpu")))

    def _log_survival(self, point: float) -> Tensor:
        return _log(1 - self.base.cdf(torch.tensor(point, device="cpu")))

    @property
    def prob_active(self) -> Tensor:
        """$P(z \\neq 0) = 1 - Q(0)$ (Eq. 6)."""
        return self._log_survival(0.0).exp()

    @property
    def prob_one(self) -> Tensor:
        """$P(z = 1) = 1 - Q(1)$."""
        return self._log_survival(1.0).exp()

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Reparameterised samples (Eq. 5)."""
        return self.base.rsample(sample_shape).clamp(0, 1)

    def cdf(self, value: Tensor) -> Tensor:
        """$P(z \\le v)$: 0 below 0, $Q(v)$ on [0, 1), 1 from 1 on."""
        inner = self.base.cdf(value.clamp(0, 1))
        return torch.where(value < 0, 0.0, torch.where(value >= 1, 1.0, inner))

    def icdf(self, value: Tensor) -> Tensor:
        """The quantile function, $\\min(1, \\max(0, Q^{-1}(p)))$."""
        return self._base_icdf(value).clamp(0, 1)

    def _base_icdf(self, probability: Tensor) -> Tensor:
        try:
            return self.base.icdf(probability)
        except NotImplementedError:
            return invert_cdf(self.base, probability)

    def log_prob(self, value: Tensor) -> Tensor:
        """The log density of the mixed law: log masses at 0 and 1, the base's density between."""
        if self._validate_args:
            require("value", value, lambda v: (v >= 0) & (v <= 1), "numbers from 0 to 1")
        inside = (value > 0) & (value < 1)
        density = self.base.log_prob(torch.where(inside, value, 0.5))
        atom = torch.where(value == 0, self._log_cdf(0.0), self._log_survival(1.0))
        outside = torch.where(value.isnan(), torch.nan, -torch.inf)
        return torch.where(inside, density, torch.where((value == 0) | (value == 1), atom, outside))

    def _inner_quantile(self, u: Tensor) -> Tensor:
        """$Q^{-1}(Q(0) + u\\,(Q(1) - Q(0)))$, the quantiles of the law given $0 < z < 1$ (Eq. 29)."""
        low, high = self._log_cdf(0.0).exp(), self._log_cdf(1.0).exp()
        margin = torch.finfo(low.dtype).eps / 2
        return self._base_icdf((low + u * (high - low)).clamp(margin, 1 - margin))

    def expect(self, function: Callable[[Tensor], Tensor], num_samples: int | None = None) -> Tensor:
        r"""$E[f(z)]$ for an elementwise $f$, differentiable in the law's parameters.

        $$E[f(z)] = Q(0) f(0) + (1-Q(1)) f(1) + (Q(1)-Q(0)) \int_0^1 f(z_u)\,du$$

        with $z_u$ from Eq. 29. The integral is a quadrature, or, with `num_samples`, the mean over that many
        uniform $u$: the Monte Carlo form of the paper.

        >>> from lzero.laws import HardConcrete
        >>> HardConcrete(torch.tensor(0.0)).expect(lambda z: z * (1 - z))
        tensor(0.1020)
        """
        num_samples = None if num_samples is None else whole("num_samples", num_samples)
        zero, active, one = self._log_cdf(0.0).exp(), self._log_survival(0.0).exp(), self.prob_one
        # Of two equal differences the one between small numbers keeps its digits.
        between = torch.where(active < 0.5, active - one, self._log_cdf(1.0).exp() - zero).clamp_min(0)
        u, weight = _quadrature(zero) if num_samples is None else _monte_carlo(zero, num_samples)
        margin = torch.finfo(zero.dtype).eps  # keeps the inner points off the atoms
        inner = self._inner_quantile(u).clamp(margin, 1 - margin)
        points = torch.cat([torch.zeros_like(zero)[None], torch.ones_like(zero)[None], inner])
        masses = torch.cat([zero[None], one[None], between * weight])
        # A mass that underflows to 0 drops its term, even where f is infinite there.
        return torch.where(masses > 0, masses * function(points), 0.0).sum(0)

    @property
    def mean(self) -> Tensor:
        """$E[z]$."""
        return self.expect(lambda z: z)

    @property
    def variance(self) -> Tensor:
        """$E[(z - E[z])^2]$."""
        mean = self.mean
        return self.expect(lambda z: (z - mean).square())

    def entropy(self) -> Tensor:
        """$-E[\\log q(z)]$ with respect to δ₀ + δ₁ + Lebesgue, as `log_prob` is."""
        return -self.expect(self.log_prob)

    def estimate(self, estimator: Estimator) -> Tensor:
        """The deterministic gate of the test-time network, by the estimator's name.

        `"eq13"` removes the noise (Eq. 13); `"median"` is the median of the law. For the hard concrete the two
        close at different log α: the same parameters give two different networks.
        """
        is_median = one_of("estimator", estimator, Estimator) == "median"
        gates = self.icdf(torch.tensor(0.5, device="cpu")) if is_median else self._noise_free().clamp(0, 1)
        return gates.expand(self.batch_shape)

    def _noise_free(self) -> Tensor:
        return self._base_icdf(torch.tensor(0.5, device="cpu"))


def _log(probability: Tensor) -> Tensor:
    """The logarithm, −∞ at 0 and there with a gradient of 0 rather than NaN."""
    positive = probability > 0
    return torch.where(positive, torch.where(positive, probability, 1.0).log(), -torch.inf)


def _quadrature(like: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes in (0, 1) and their weights, along a new first dimension of `like`."""
    nodes, weights = unit_interval_rule(like)
    column = (-1, *(1 for _ in like.shape))
    return nodes.view(column), weights.view(column)


def _monte_carlo(like: Tensor, num_samples: int) -> tuple[Tensor, Tensor]:
    """Uniform samples and their equal weights, along a new first dimension of `like`."""
    u = torch.rand(num_samples, *like.shape, dtype=like.dtype, device=like.device)
    return u, torch.full_like(u, 1 / num_samples)
