"""The binary concrete distribution, stretched to an interval."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions import Distribution, constraints

from lzero.laws.checks import Parameter, floating_tensor, hyper_parameter, log, require, validates


class BinaryConcrete(Distribution):
    r"""A relaxed Bernoulli on (γ, ζ) with location log α and temperature β (Eq. 10, 23–25).

    $s = \sigma((\log u - \log(1-u) + \log\alpha)/\beta)$, $\bar s = s(\zeta-\gamma)+\gamma$, $u \sim U(0,1)$,
    with the CDF $Q(\bar s) = \sigma(\beta \log\frac{\bar s-\gamma}{\zeta-\bar s} - \log\alpha)$.

    >>> BinaryConcrete(torch.tensor(0.0), beta=0.5).cdf(torch.tensor(0.5))
    tensor(0.5000)
    """

    arg_constraints = {  # noqa: RUF012 (the interface of torch.distributions)
        "log_alpha": constraints.real,
        "beta": constraints.positive,
        "gamma": constraints.real,
        "zeta": constraints.real,
    }
    has_rsample = True

    def __init__(
        self,
        log_alpha: Tensor,
        beta: Parameter = 2 / 3,
        gamma: Parameter = 0.0,
        zeta: Parameter = 1.0,
        validate_args: bool | None = None,
    ) -> None:
        self.log_alpha = floating_tensor("log_alpha", log_alpha)
        self.beta = hyper_parameter("beta", beta, self.log_alpha)
        self.gamma = hyper_parameter("gamma", gamma, self.log_alpha)
        self.zeta = hyper_parameter("zeta", zeta, self.log_alpha)
        super().__init__(self._broadcast_shape(), validate_args=False)
        self._validate_args = validates(validate_args)
        if self._validate_args:
            require("log_alpha", self.log_alpha, torch.isfinite, "finite numbers")
            require("beta", self.beta, lambda b: b > 0, "a number above 0")
            require("gamma", self.gamma, torch.isfinite, "a finite number")
            require("zeta", self.zeta, lambda z: z > self.gamma, "a number above gamma")

    def _broadcast_shape(self) -> torch.Size:
        parameters = (self.log_alpha, self.beta, self.gamma, self.zeta)
        return torch.Size(torch.broadcast_shapes(*(p.shape for p in parameters if isinstance(p, Tensor))))

    @property
    def support(self) -> constraints.Constraint:
        """The closed interval from γ to ζ, whose ends have no mass."""
        return constraints.interval(self.gamma, self.zeta)

    def __repr__(self) -> str:
        numbers = {"beta": self.beta, "gamma": self.gamma, "zeta": self.zeta}
        settings = "".join(f", {k}={v:.4g}" for k, v in numbers.items() if not isinstance(v, Tensor))
        return f"{type(self).__name__}(log_alpha: {tuple(self.log_alpha.shape)}{settings})"

    def expand(self, batch_shape: Any, _instance: Any = None) -> BinaryConcrete:
        """The same law with its batch broadcast to `batch_shape`."""
        expanded = BinaryConcrete(self.log_alpha.expand(batch_shape), self.beta, self.gamma, self.zeta, False)
        expanded._validate_args = self._validate_args
        return expanded

    def from_logit(self, logit: Tensor) -> Tensor:
        r"""The quantile at probability σ(`logit`): exact in both tails, where the probability rounds."""
        return torch.sigmoid((logit + self.log_alpha) / self.beta) * (self.zeta - self.gamma) + self.gamma

    def cdf_logit(self, value: Tensor | float) -> Tensor:
        r"""$\beta \log\frac{\bar s-\gamma}{\zeta-\bar s} - \log\alpha$, the logit of the CDF (Eq. 24, 25)."""
        # A number is written where it is needed: copying it there would make a GPU wait.
        value = value.to(self.log_alpha) if isinstance(value, Tensor) else self.log_alpha.new_full((), value)
        return (torch.log(value - self.gamma) - torch.log(self.zeta - value)) * self.beta - self.log_alpha

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Reparameterised samples (Eq. 10)."""
        return self.from_logit(self.noise(self._extended_shape(sample_shape)))

    def noise(self, shape: Any, generator: torch.Generator | None = None) -> Tensor:
        """$\\log u - \\log(1-u)$ for uniform $u$: standard logistic noise, free of parameters."""
        uniform = torch.rand(shape, dtype=self.log_alpha.dtype, device=self.log_alpha.device, generator=generator)
        # Uniforms come on a grid that includes 0; half a step inwards keeps the logit finite.
        return uniform.logit_(eps=torch.finfo(uniform.dtype).eps / 2)

    def cdf(self, value: Tensor) -> Tensor:
        """$Q(\\bar s)$ (Eq. 24, 25): 0 below γ, 1 above ζ."""
        inside = value.to(self.log_alpha.dtype).clamp(max=self.zeta).clamp(min=self.gamma)
        return torch.sigmoid(self.cdf_logit(inside))

    def icdf(self, value: Tensor) -> Tensor:
        """$Q^{-1}(u)$: Eq. 10 with `value` in the place of the noise."""
        return self.from_logit(torch.logit(value))

    def log_prob(self, value: Tensor) -> Tensor:
        r"""The log density (Eq. 23 under Eq. 25), written with log σ so that it is finite for every log α.

        $\log q = \log\beta + \log\frac{\zeta-\gamma}{(\bar s-\gamma)(\zeta-\bar s)} + \log Q + \log(1-Q)$
        """
        logit = self.cdf_logit(value)
        slope = log(self.zeta - self.gamma) - torch.log(value - self.gamma) - torch.log(self.zeta - value)
        return log(self.beta) + slope + F.logsigmoid(logit) + F.logsigmoid(-logit)
