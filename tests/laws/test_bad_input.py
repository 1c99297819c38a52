"""Wrong input is refused with the argument's name, what was expected, and what came."""

import pytest
import torch
from torch.distributions import Bernoulli, Categorical, MultivariateNormal, Normal, kl_divergence

from lzero import LzeroError
from lzero.laws import BinaryConcrete, HardConcrete, HardNormal, Rectified, kl_monte_carlo

ZERO = torch.tensor(0.0)

REFUSED = [
    (lambda: HardConcrete(ZERO, beta=0.0), "beta: expected a number above 0, got 0"),
    (lambda: HardConcrete(ZERO, beta=-1), "beta: expected a number above 0, got -1"),
    (
        lambda: HardConcrete(ZERO, beta=torch.tensor([0.5, -2.0])),
        "beta: .* above 0, got -2 in 1 of 2 entries",
    ),
    (lambda: HardConcrete(ZERO, beta=float("nan")), "beta: expected a number above 0, got nan"),
    (lambda: HardConcrete(ZERO, beta="0.5"), "beta: expected a number or a tensor, got str"),
    (lambda: HardConcrete(ZERO, beta=True), "beta: expected a number or a tensor, got bool"),
    (lambda: HardConcrete(ZERO, gamma=0.0), "gamma: expected a number below 0, got 0"),
    (lambda: HardConcrete(ZERO, zeta=1.0), "zeta: expected a number above 1, got 1"),
    (
        lambda: HardConcrete(torch.tensor([0.0, float("nan")])),
        "log_alpha: .* finite numbers, got nan in 1 of 2",
    ),
    (lambda: HardConcrete(torch.tensor(float("inf"))), "log_alpha: expected finite numbers, got inf"),
    (
        lambda: HardConcrete([0.0, 1.0]),
        r"log_alpha: expected a tensor, got list; wrap it: torch.tensor\(\[0.0, 1.0\]\)",
    ),
    (lambda: HardConcrete(0.5), "log_alpha: expected a tensor, got float"),
    (
        lambda: HardConcrete(torch.tensor([1, 2])),
        "log_alpha: .* floating-point tensor, got a tensor of torch.int64",
    ),
    (lambda: HardConcrete(ZERO).estimate("mode"), 'estimator: expected "eq13" or "median", got \'mode\''),
    (lambda: HardConcrete(ZERO).log_prob(torch.tensor(1.5)), "value: expected numbers from 0 to 1, got 1.5"),
    (lambda: BinaryConcrete(ZERO, gamma=float("nan")), "gamma: expected a finite number, got nan"),
    (
        lambda: BinaryConcrete(ZERO, gamma=torch.tensor([0.0, 2.0])),
        "zeta: expected a number above gamma, got 1 in 1 of 2",
    ),
    (lambda: HardConcrete(ZERO).expand((2,)).log_prob(torch.tensor(3.0)), "value: expected numbers from 0 to 1, got 3"),
    (lambda: kl_monte_carlo(HardConcrete(ZERO), Normal(0.0, 1.0)), "p: expected a rectified law.* got Normal"),
    (lambda: HardConcrete(ZERO).expect(lambda z: z, 0), "num_samples: .* got 0"),
    (lambda: BinaryConcrete(ZERO, gamma=1.0, zeta=0.0), "zeta: expected a number above gamma, got 0"),
    (lambda: HardNormal(ZERO, scale=0), "scale: expected a number above 0, got 0"),
    (lambda: HardNormal(torch.tensor(float("nan"))), "loc: expected finite numbers, got nan"),
    (lambda: HardNormal(None), "loc: expected a tensor, got NoneType"),
    (lambda: Rectified("normal"), "base: expected a torch.distributions.Distribution, got str"),
    (lambda: Rectified(Bernoulli(ZERO)), "base: .* reparameterised samples, got Bernoulli"),
    (lambda: Rectified(MultivariateNormal(torch.zeros(2), torch.eye(2))), "base: .* single numbers"),
    (lambda: kl_divergence(HardConcrete(ZERO), Normal(0.0, 1.0)), "p: expected a rectified law.* got Normal"),
    (lambda: kl_divergence(Categorical(torch.ones(2)), HardNormal(ZERO)), "q: expected .* got Categorical"),
    (lambda: kl_monte_carlo(HardConcrete(ZERO), HardNormal(ZERO), num_samples=0), "num_samples: .* got 0"),
]


@pytest.mark.parametrize(("act", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_refused_with_a_message_that_helps(act, message):
    with pytest.raises(LzeroError, match=message):
        act()


def test_the_kind_of_error_is_also_python_s():
    with pytest.raises(ValueError, match="beta"):
        HardConcrete(ZERO, beta=0.0)
    with pytest.raises(NotImplementedError, match="rectified"):
        kl_divergence(HardConcrete(ZERO), Normal(0.0, 1.0))


def test_checks_can_be_switched_off_as_in_torch():
    law = HardConcrete(torch.tensor(float("nan")), validate_args=False)
    assert law.prob_active.isnan()
    unchecked = HardConcrete(ZERO, validate_args=False).log_prob(torch.tensor([-1.0, 2.0, float("nan")]))
    assert unchecked[:2].eq(-torch.inf).all()
    assert unchecked[2].isnan()


def test_small_numbers_are_checked_in_double_precision():
    assert HardConcrete(ZERO.double(), zeta=1 + 1e-9).zeta > 1


def test_checks_survive_the_compiler():
    torch.compile(torch.sin, fullgraph=True)(torch.ones(1))  # switches the checks of torch.distributions off
    with pytest.raises(LzeroError, match="beta"):
        HardConcrete(ZERO, beta=0.0)
