"""The rectified Gaussian, the classical hard gate."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributions import Normal, constraints

from lzero.laws.checks import Parameter, floating_tensor, hyper_parameter, require
from lzero.laws.rectified import Rectified


class HardNormal(Rectified):
    r"""A Gaussian rectified to [0, 1]: $z = \min(1, \max(0, \mu + \sigma\epsilon))$, $\epsilon \sim N(0, 1)$.

    Known from feature selection as a stochastic gate. $P(z \neq 0) = \Phi(\mu/\sigma)$. Noise-free gate and median
    coincide here, at $\min(1, \max(0, \mu))$.

    >>> HardNormal(torch.tensor([0.0, 0.5]), scale=0.5).prob_active
    tensor([0.5000, 0.8413])
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}  # noqa: RUF012
    base: Normal

    def __init__(self, loc: Tensor, scale: Parameter = 0.5, validate_args: bool | None = None) -> None:
        loc = floating_tensor("loc", loc)
        scale = hyper_parameter("scale", scale, loc)
        super().__init__(Normal(loc, scale, validate_args=False), validate_args)
        if self._validate_args:
            require("loc", self.loc, torch.isfinite, "finite numbers")
            require("scale", self.scale, lambda s: s > 0, "a number above 0")

    @property
    def loc(self) -> Tensor:
        """The mean of the Gaussian, μ."""
        return self.base.loc

    @property
    def scale(self) -> Tensor:
        """The standard deviation of the Gaussian, σ."""
        return self.base.scale

    def expand(self, batch_shape: Any, _instance: Any = None) -> HardNormal:
        """The same law with its batch broadcast to `batch_shape`."""
        expanded = HardNormal(self.loc.expand(batch_shape), self.scale.expand(batch_shape), validate_args=False)
        expanded._validate_args = self._validate_args
        return expanded

    def _log_cdf(self, point: float) -> Tensor:
        log_probability: Tensor = torch.special.log_ndtr((point - self.loc) / self.scale)
        return log_probability

    def _log_survival(self, point: float) -> Tensor:
        log_probability: Tensor = torch.special.log_ndtr((self.loc - point) / self.scale)
        return log_probability

    def _inner_quantile(self, u: Tensor) -> Tensor:
        """Eq. 29 from the nearer tail, where the probability keeps its digits."""
        below = (1 - u) * self._log_cdf(0.0).exp() + u * self._log_cdf(1.0).exp()
        above = (1 - u) * self._log_survival(0.0).exp() + u * self._log_survival(1.0).exp()
        tail = torch.minimum(below, above).clamp_min(torch.finfo(self.loc.dtype).tiny)
        distance: Tensor = torch.special.ndtri(tail)
        return self.loc + self.scale * torch.where(below < above, distance, -distance)
