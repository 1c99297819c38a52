"""Every formula against a million samples.

A mean of n samples is compared at six standard errors: by the central limit theorem a right formula fails with
probability 2e-9. The CDF is compared by the Dvoretzky–Kiefer–Wolfowitz inequality,
P(sup |F_n − F| > ε) ≤ 2 exp(−2nε²), at the same probability. With fewer than 200 comparisons in this file, a
change of the seed makes a right formula fail with probability below 1e-6.
"""

import itertools
import math

import pytest
import torch

from tests.laws.cases import HARD_CONCRETES, HARD_NORMALS, OTHERS, name

COUNT = 1_000_000
STANDARD_ERRORS = 6
FAILURE_RATE = math.erfc(STANDARD_ERRORS / math.sqrt(2))


@pytest.fixture(params=HARD_CONCRETES[::2] + HARD_NORMALS[::2] + OTHERS, ids=name, scope="module")
def sampled(request):
    torch.manual_seed(1)
    return request.param, request.param.sample((COUNT,)).sort().values


def assert_mean(samples, expected):
    expected = float(expected)
    # The spread of a rare event is not seen in a sample that missed it: take at least that of one occurrence.
    error = max(float(samples.std()) / math.sqrt(COUNT), 1 / COUNT)
    assert abs(float(samples.mean()) - expected) < STANDARD_ERRORS * error


def test_moments(sampled):
    law, z = sampled
    assert_mean(z, law.mean)
    assert_mean((z - float(law.mean)).square(), law.variance)


def test_atoms(sampled):
    law, z = sampled
    assert_mean((z != 0).double(), law.prob_active)
    assert_mean((z == 1).double(), law.prob_one)


def test_cdf(sampled):
    law, z = sampled
    epsilon = math.sqrt(math.log(2 / FAILURE_RATE) / (2 * COUNT))
    points = torch.linspace(-0.2, 1.2, 1401, dtype=z.dtype)
    empirical = torch.searchsorted(z, points, right=True) / COUNT
    assert (empirical - law.cdf(points)).abs().max() < epsilon


def test_quantiles(sampled):
    """The sample quantile at p lies between the law's at p ± ε, by the same inequality."""
    law, z = sampled
    epsilon = math.sqrt(math.log(2 / FAILURE_RATE) / (2 * COUNT))
    p = torch.linspace(0.01, 0.99, 99, dtype=z.dtype)
    quantiles = z[(p * COUNT).long()]
    assert (law.icdf(p - epsilon) <= quantiles).all()
    assert (quantiles <= law.icdf(p + epsilon)).all()


def test_density(sampled):
    """Counts in bins against the integral of exp(log_prob) over each bin, by Simpson's rule on a fine grid."""
    law, z = sampled
    edges = torch.linspace(0, 1, 11, dtype=z.dtype)
    for low, high in itertools.pairwise(edges):
        points = low + (high - low) * torch.linspace(0, 1, 2001, dtype=z.dtype)
        density = law.base.log_prob(points).exp()
        weights = torch.tensor([1.0, *[4.0, 2.0] * 999, 4.0, 1.0], dtype=z.dtype) / 6000
        mass = (high - low) * (weights * density).sum()
        assert_mean(((z > low) & (z < high)).double(), mass)


def test_log_prob_is_minus_the_entropy_on_average(sampled):
    law, z = sampled
    assert_mean(law.log_prob(z), -law.entropy())


def test_samples_are_in_the_unit_interval(sampled):
    _, z = sampled
    assert z[0] >= 0
    assert z[-1] <= 1
