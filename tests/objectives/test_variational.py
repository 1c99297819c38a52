"""The bound of appendix A: an exact divergence, a prior in words, L samples."""

import pytest
import torch
from torch.distributions import kl_divergence

from lzero.errors import ArgumentError
from lzero.laws import HardConcrete
from lzero.objectives import VariationalBound, monte_carlo
from tests.objectives.conftest import gated


def test_it_is_the_divergence_and_the_code_cost_per_example(sparsifier):
    sparsifier.log_alpha.data.normal_()
    bound = VariationalBound(sparsifier, 0.1, num_data=100, code_cost=0.5)
    prior = HardConcrete(torch.tensor(0.1).logit() - HardConcrete(torch.zeros(())).prob_active.logit())
    assert prior.prob_active.item() == pytest.approx(0.1)
    divergence = kl_divergence(sparsifier.law, prior).sum()
    code = (sparsifier.l0_weights.float() * sparsifier.law.prob_active).sum()
    assert bound().item() == pytest.approx(((divergence + 0.5 * code) / 100).item(), rel=1e-5)
    assert bound.relaxed()().item() == pytest.approx((0.5 * code / 100).item(), rel=1e-5)
    assert bound().item() > bound.relaxed()().item()  # the KL is positive: Eq. 22 relaxes Eq. 21


def test_without_data_gates_go_to_their_prior(sparsifier):
    bound = VariationalBound(sparsifier, {"0": 0.1, "*": 0.7}, num_data=1)
    optimizer = torch.optim.Adam([sparsifier.log_alpha], lr=0.05)
    for _ in range(400):
        optimizer.zero_grad()
        bound().backward()
        optimizer.step()
        bound.step()
    p = sparsifier.law.prob_active
    first, second = (p[group.span] for group in sparsifier.groups)
    assert (first - 0.1).abs().max() < 0.01
    assert (second - 0.7).abs().max() < 0.01
    assert bound.record.term.item() == pytest.approx(0, abs=1e-2)


def test_a_law_can_be_the_prior_and_units_may_be_removed(sparsifier):
    same = VariationalBound(sparsifier, HardConcrete(torch.tensor(2.0)), num_data=10)
    sparsifier.log_alpha.data.fill_(2.0)
    assert same().item() == pytest.approx(0, abs=1e-5)
    bound = VariationalBound(sparsifier, 0.5, num_data=10)
    sparsifier.log_alpha.data[:5] = -9.0
    sparsifier.shrink()
    assert bound.prior().batch_shape == sparsifier.log_alpha.shape
    assert bound().isfinite()


def test_l_samples_have_the_mean_of_one_and_less_variance():
    sparsifier = gated()
    sparsifier.log_alpha.data.fill_(0.0)
    x = sparsifier.example_inputs[0]

    def loss():
        return sparsifier.model(x).square().mean()

    with torch.no_grad():
        one = torch.stack([monte_carlo(loss, 1) for _ in range(1000)])
        eight = torch.stack([monte_carlo(loss, 8) for _ in range(1000)])
    assert eight.var().item() == pytest.approx(one.var().item() / 8, rel=0.3)
    assert eight.mean().item() == pytest.approx(one.mean().item(), abs=4 * (one.var().item() / 1000) ** 0.5)
    with pytest.raises(ArgumentError, match="samples: expected a whole number from 1, got 0"):
        monte_carlo(loss, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prior": 0.0, "num_data": 5}, "prior: expected a number above 0, below 1, got .*, or a law"),
        ({"prior": 1.5, "num_data": 5}, "prior: expected a number above 0, below 1, got .*, or a law"),
        ({"prior": "10%", "num_data": 5}, "prior: expected a number above 0, below 1, got .*, or a law"),
        ({"prior": {"0": 0.5}, "num_data": 5}, "prior: expected one for every group, got none for 2"),
        ({"prior": {"conv": 0.5}, "num_data": 5}, "prior: expected globs that match"),
        ({"prior": 0.1, "num_data": 0}, "num_data: expected a whole number of training examples from 1"),
        ({"prior": 0.1, "num_data": 5, "code_cost": -1.0}, "code_cost: expected a number of nats from 0"),
        ({"prior": HardConcrete(torch.zeros(40)), "num_data": 5}, "prior: expected one law for all gates"),
    ],
)
def test_bad_input_is_refused(sparsifier, arguments, message):
    with pytest.raises(ArgumentError, match=message):
        VariationalBound(sparsifier, **arguments)
