"""Moments, entropy and KL against adaptive integration and closed forms."""

import math

import pytest
import torch
from scipy import stats
from torch.distributions import kl_divergence

from lzero.laws import HardConcrete, HardNormal, kl_monte_carlo
from tests.laws.cases import ALL, HARD_CONCRETES, HARD_NORMALS, OTHERS, brute_force, name

each_law = pytest.mark.parametrize("law", ALL, ids=name)


@each_law
def test_mean_and_variance(law):
    mean = brute_force(law, lambda z: z)
    assert law.mean.item() == pytest.approx(mean, abs=1e-8)
    assert law.variance.item() == pytest.approx(brute_force(law, lambda z: (z - mean) ** 2), abs=1e-8)


@each_law
def test_entropy(law):
    assert law.entropy().item() == pytest.approx(-brute_force(law, law.log_prob), abs=1e-7)


@pytest.mark.parametrize("law", [*HARD_CONCRETES, *HARD_NORMALS], ids=name)
def test_single_precision_is_accurate_to_1e_6(law):
    settings = (law.beta, law.gamma, law.zeta) if isinstance(law, HardConcrete) else (law.scale.float(),)
    location = law.log_alpha if isinstance(law, HardConcrete) else law.loc
    single = type(law)(location.float(), *settings)
    assert single.mean.dtype == torch.float32
    assert single.mean.item() == pytest.approx(law.mean.item(), abs=1e-6)
    assert single.variance.item() == pytest.approx(law.variance.item(), abs=1e-6)


@pytest.mark.parametrize("law", HARD_NORMALS, ids=name)
def test_mean_of_a_rectified_gaussian_in_closed_form(law):
    loc, scale = law.loc.item(), law.scale.item()
    low, high = -loc / scale, (1 - loc) / scale
    inner = loc * (stats.norm.cdf(high) - stats.norm.cdf(low)) + scale * (stats.norm.pdf(low) - stats.norm.pdf(high))
    assert law.mean.item() == pytest.approx(inner + stats.norm.sf(high), abs=1e-9)


@pytest.mark.parametrize(
    "p", [HARD_CONCRETES[0], HARD_CONCRETES[7], HARD_NORMALS[4], HARD_NORMALS[8], OTHERS[0]], ids=name
)
@pytest.mark.parametrize(
    "q", [HARD_CONCRETES[3], HARD_CONCRETES[10], HARD_NORMALS[1], HARD_NORMALS[7], OTHERS[0]], ids=name
)
def test_kl_between_any_two_rectified_laws(q, p):
    expected = brute_force(q, lambda z: q.log_prob(z) - p.log_prob(z))
    assert kl_divergence(q, p).item() == pytest.approx(expected, rel=1e-6, abs=1e-8)
    assert kl_divergence(q, p) > -1e-12


@each_law
def test_kl_of_a_law_from_itself_is_zero(law):
    assert kl_divergence(law, law).item() == 0


def test_kl_is_not_that_of_the_unrectified_laws():
    q, p = HardNormal(torch.tensor(0.2)), HardNormal(torch.tensor(0.9))
    unrectified = kl_divergence(q.base, p.base)
    assert kl_divergence(q, p) < 0.95 * unrectified  # rectification loses information


def test_kl_broadcasts_like_torch():
    q, p = HardConcrete(torch.zeros(3, 1)), HardConcrete(torch.ones(4))
    assert kl_divergence(q, p).shape == (3, 4)
    one, many = HardConcrete(torch.tensor(0.3)), HardConcrete(torch.zeros(5))
    assert kl_divergence(one, many).shape == kl_divergence(many, one).shape == (5,)


def test_monte_carlo_kl_is_unbiased():
    """At six standard errors: a right estimate fails with probability 2e-9."""
    q, p = (
        HardConcrete(torch.tensor(0.5, dtype=torch.float64)),
        HardNormal(torch.tensor(0.1, dtype=torch.float64)),
    )
    estimates = torch.stack([kl_monte_carlo(q, p, num_samples=10) for _ in range(2000)])
    error = 6 * estimates.std() / math.sqrt(len(estimates))
    assert abs(estimates.mean() - kl_divergence(q, p)) < error
    assert error < 0.05 * kl_divergence(q, p)


def test_sampled_expectations_are_unbiased():
    law = HardConcrete(torch.tensor(0.3, dtype=torch.float64))
    estimates = torch.stack([law.expect(lambda z: z, num_samples=3) for _ in range(2000)])
    assert abs(estimates.mean() - law.mean) < 6 * estimates.std() / math.sqrt(len(estimates))


@pytest.mark.parametrize("log_alpha", [-40.0, -20.0, -9.0])
def test_a_gate_that_is_almost_surely_closed_keeps_its_digits(log_alpha):
    """Relative accuracy in single precision, far below the resolution of 1 − Q."""
    single, double = (HardConcrete(torch.tensor(log_alpha, dtype=d)) for d in (torch.float32, torch.float64))
    assert single.mean.item() == pytest.approx(double.mean.item(), rel=1e-5)
    assert single.variance.item() == pytest.approx(double.variance.item(), rel=1e-5)
    opened = HardConcrete(torch.tensor(-log_alpha))
    assert opened.variance.item() == pytest.approx(double.variance.item(), rel=1e-5)


def test_a_hard_normal_far_out_keeps_its_digits():
    single, double = (HardNormal(torch.tensor(-3.0, dtype=d), scale=0.5) for d in (torch.float32, torch.float64))
    assert single.mean.item() == pytest.approx(double.mean.item(), rel=1e-4)


def test_kl_stays_finite_far_out():
    q, p = HardConcrete(torch.linspace(-100, 100, 21).requires_grad_()), HardConcrete(torch.tensor(-2.0))
    divergence = kl_divergence(q, p)
    (gradient,) = torch.autograd.grad(divergence.sum(), q.log_alpha)
    assert divergence.isfinite().all()
    assert gradient.isfinite().all()
