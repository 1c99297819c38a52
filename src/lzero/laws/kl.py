"""The Kullback–Leibler divergence between rectified laws (Eq. 27–29)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.distributions import Distribution, register_kl

from lzero.errors import UnsupportedError
from lzero.laws.rectified import Rectified

if TYPE_CHECKING:
    from torch import Tensor


@register_kl(Rectified, Rectified)
def _kl_rectified(q: Rectified, p: Rectified) -> Tensor:
    r"""$KL(q\,\|\,p) = E_q[\log q(z) - \log p(z)]$ over both atoms and (0, 1) (Eq. 28), by quadrature."""
    return _expected_log_ratio(q, p)


def kl_monte_carlo(q: Rectified, p: Rectified, num_samples: int = 16) -> Tensor:
    """The same divergence with the paper's estimate of the inner integral: exact atoms, sampled interior (Eq. 29).

    >>> import torch
    >>> from lzero.laws import HardConcrete
    >>> q, p = HardConcrete(torch.tensor(0.0)), HardConcrete(torch.tensor(-2.0))
    >>> bool((kl_monte_carlo(q, p, 4096) - torch.distributions.kl_divergence(q, p)).abs() < 0.05)
    True
    """
    if not isinstance(q, Rectified):
        raise _mismatch("q", q)
    if not isinstance(p, Rectified):
        raise _mismatch("p", p)
    return _expected_log_ratio(q, p, num_samples)


def _expected_log_ratio(q: Rectified, p: Rectified, num_samples: int | None = None) -> Tensor:
    joint = torch.broadcast_shapes(q.batch_shape, p.batch_shape)
    q = q if q.batch_shape == joint else q.expand(joint)
    return q.expect(lambda z: q.log_prob(z) - p.log_prob(z), num_samples)


@register_kl(Rectified, Distribution)
def _kl_from_rectified(_: Rectified, p: Distribution) -> Tensor:
    raise _mismatch("p", p)


@register_kl(Distribution, Rectified)
def _kl_to_rectified(q: Distribution, _: Rectified) -> Tensor:
    raise _mismatch("q", q)


def _mismatch(argument: str, given: object) -> UnsupportedError:
    return UnsupportedError(
        f"{argument}: expected a rectified law, because both laws must have atoms at 0 and 1, got "
        f"{type(given).__name__}; rectify it: lzero.laws.Rectified({argument})"
    )
