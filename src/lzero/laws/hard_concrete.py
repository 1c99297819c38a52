"""The hard concrete distribution (Louizos, Welling, Kingma 2018)."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions import constraints

from lzero.arguments import one_of
from lzero.laws.checks import Parameter, log, require
from lzero.laws.concrete import BinaryConcrete
from lzero.laws.rectified import Estimator, Rectified

BETA, GAMMA, ZETA = 2 / 3, -0.1, 1.1  # the papers' temperature and stretch


class HardConcrete(Rectified):
    r"""A binary concrete stretched to (γ, ζ) and rectified: a gate that is exactly 0 or 1 with positive probability.

    $$u \sim U(0,1),\quad \bar s = \sigma\Big(\frac{\log u - \log(1-u) + \log\alpha}{\beta}\Big)(\zeta-\gamma)+\gamma,
    \quad z = \min(1, \max(0, \bar s))$$

    (Eq. 10, 11). `log_alpha` is a tensor; half precision is computed, and returned, in float32.

    >>> law = HardConcrete(torch.tensor([-3.0, 0.0, 3.0]))
    >>> law.prob_active
    tensor([0.1976, 0.8318, 0.9900])
    >>> law.estimate("eq13")
    tensor([0.0000, 0.5000, 1.0000])
    """

    arg_constraints = {  # noqa: RUF012 (the interface of torch.distributions)
        "log_alpha": constraints.real,
        "beta": constraints.positive,
        "gamma": constraints.less_than(0.0),
        "zeta": constraints.greater_than(1.0),
    }
    base: BinaryConcrete

    def __init__(
        self,
        log_alpha: Tensor,
        beta: Parameter = BETA,
        gamma: Parameter = GAMMA,
        zeta: Parameter = ZETA,
        validate_args: bool | None = None,
    ) -> None:
        super().__init__(BinaryConcrete(log_alpha, beta, gamma, zeta, validate_args), validate_args)
        if self._validate_args:
            require("gamma", self.gamma, lambda g: g < 0, "a number below 0")
            require("zeta", self.zeta, lambda z: z > 1, "a number above 1")

    @property
    def log_alpha(self) -> Tensor:
        """The location, log α."""
        return self.base.log_alpha

    @property
    def beta(self) -> Parameter:
        """The temperature, β."""
        return self.base.beta

    @property
    def gamma(self) -> Parameter:
        """The lower end of the stretch, γ."""
        return self.base.gamma

    @property
    def zeta(self) -> Parameter:
        """The upper end of the stretch, ζ."""
        return self.base.zeta

    def expand(self, batch_shape: Any, _instance: Any = None) -> HardConcrete:
        """The same law with its batch broadcast to `batch_shape`."""
        base = self.base.expand(batch_shape)
        expanded = HardConcrete(base.log_alpha, base.beta, base.gamma, base.zeta, validate_args=False)
        expanded._validate_args = self._validate_args
        return expanded

    @property
    def prob_active(self) -> Tensor:
        r"""$P(z \neq 0) = \sigma(\log\alpha - \beta \log\frac{-\gamma}{\zeta})$ (Eq. 12)."""
        return torch.sigmoid(self.log_alpha - log(-self.gamma / self.zeta) * self.beta)

    def _noise_free(self) -> Tensor:
        """$\\sigma(\\log\\alpha)(\\zeta-\\gamma)+\\gamma$ (Eq. 13: without the temperature)."""
        return torch.sigmoid(self.log_alpha) * (self.zeta - self.gamma) + self.gamma

    def log_alpha_at(self, prob_active: float) -> Tensor:
        """The log α at which gates are active so often: $\\operatorname{logit} P + \\beta \\log(-\\gamma / \\zeta)$.

        >>> HardConcrete(HardConcrete(torch.zeros(())).log_alpha_at(0.9)).prob_active
        tensor(0.9000)
        """
        odds = math.log(prob_active) - math.log1p(-prob_active)
        return odds + self.base.cdf_logit(0.0) + self.log_alpha  # the sum of the last two is the same for all log α

    def log_alpha_for(self, value: Tensor, estimator: Estimator) -> Tensor:
        """The log α at which the estimator gives a value in 0 … 1: of all that give 0 or 1, the nearest to the middle.

        >>> HardConcrete(torch.zeros(())).log_alpha_for(torch.tensor([0.0, 0.5, 1.0]), "eq13")
        tensor([-2.3979,  0.0000,  2.3979])
        """
        location = torch.logit((value - self.gamma) / (self.zeta - self.gamma))
        return location if one_of("estimator", estimator, Estimator) == "eq13" else location * self.beta

    def _log_cdf(self, point: float) -> Tensor:
        return F.logsigmoid(self.base.cdf_logit(point))

    def _log_survival(self, point: float) -> Tensor:
        return F.logsigmoid(-self.base.cdf_logit(point))

    def _inner_quantile(self, u: Tensor) -> Tensor:
        """Eq. 29 through the logit of the probability, mixed in the log domain: exact in both tails."""
        below = torch.logaddexp(torch.log1p(-u) + self._log_cdf(0.0), u.log() + self._log_cdf(1.0))
        above = torch.logaddexp(torch.log1p(-u) + self._log_survival(0.0), u.log() + self._log_survival(1.0))
        return self.base.from_logit(below - above)
