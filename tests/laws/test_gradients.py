"""Gradients: against finite differences, at the extremes, and of samples against exact expectations."""

import math

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.distributions import kl_divergence

from lzero.laws import HardConcrete, HardNormal

LOCATIONS = torch.tensor([-3.0, -1.1, 0.1, 0.7, 2.5], dtype=torch.float64)
NOISE = torch.tensor([[0.03], [0.35], [0.5], [0.71], [0.96]], dtype=torch.float64)
INSIDE = torch.tensor([[0.0], [0.2], [0.9], [1.0]], dtype=torch.float64)
PRIOR = HardConcrete(torch.tensor(-1.0, dtype=torch.float64))

QUANTITIES = {
    "sample": lambda law: law.icdf(NOISE),
    "prob_active": lambda law: law.prob_active,
    "prob_one": lambda law: law.prob_one,
    "mean": lambda law: law.mean,
    "variance": lambda law: law.variance,
    "entropy": lambda law: law.entropy(),
    "log_prob": lambda law: law.log_prob(INSIDE),
    "cdf": lambda law: law.cdf(INSIDE),
    "kl": lambda law: kl_divergence(law, PRIOR),
    "reverse kl": lambda law: kl_divergence(PRIOR, law),
    "eq13": lambda law: law.estimate("eq13"),
    "median": lambda law: law.estimate("median"),
}


@pytest.mark.parametrize("quantity", QUANTITIES.values(), ids=QUANTITIES)
@pytest.mark.parametrize("make", [HardConcrete, HardNormal], ids=lambda make: make.__name__)
def test_gradient_in_the_location(make, quantity):
    assert gradcheck(lambda location: quantity(make(location)), LOCATIONS.clone().requires_grad_())


@pytest.mark.parametrize("quantity", QUANTITIES.values(), ids=QUANTITIES)
def test_gradient_in_every_parameter_of_the_hard_concrete(quantity):
    shape = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (0.6, -0.2, 1.15)]
    assert gradcheck(
        lambda *parameters: quantity(HardConcrete(*parameters)), (LOCATIONS.clone().requires_grad_(), *shape)
    )


def test_second_derivatives_of_a_sample():
    assert gradgradcheck(lambda location: HardConcrete(location).icdf(NOISE), LOCATIONS.clone().requires_grad_())


@pytest.mark.parametrize("quantity", QUANTITIES.values(), ids=QUANTITIES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_values_and_gradients_are_finite_for_extreme_log_alpha(quantity, dtype, device):
    log_alpha = torch.linspace(-100, 100, 201, device=device).to(dtype).requires_grad_()
    value = _on(device, quantity, HardConcrete(log_alpha))
    (gradient,) = torch.autograd.grad(value.sum(), log_alpha)
    assert value.isfinite().all()
    assert gradient.isfinite().all()


def _on(device, quantity, law):
    """The quantity with its constants on the law's device."""
    with torch.device(device):
        moved = {
            "NOISE": NOISE.to(device, law.log_alpha.dtype),
            "INSIDE": INSIDE.to(device, law.log_alpha.dtype),
        }
        moved["PRIOR"] = HardConcrete(PRIOR.log_alpha.to(device, law.log_alpha.dtype))
        return type(quantity)(quantity.__code__, globals() | moved)(law)


@pytest.mark.parametrize("log_alpha", [-100.0, -3.0, 0.0, 3.0, 100.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_noise_next_to_0_and_1_gives_finite_gradients(log_alpha, dtype):
    step = torch.finfo(dtype).eps
    noise = torch.tensor([0.0, torch.finfo(dtype).tiny, step, 1 - step, 1.0], dtype=dtype)
    location = torch.tensor(log_alpha, dtype=dtype, requires_grad=True)
    z = HardConcrete(location).icdf(noise)
    (gradient,) = torch.autograd.grad(z.sum(), location)
    assert z.isfinite().all()
    assert gradient.isfinite()
    assert z[0] == 0
    assert z[-1] == 1


def test_a_uniform_of_exactly_zero_gives_finite_gradients_in_every_parameter(monkeypatch):
    def zeros(*shape, generator=None, **options):
        assert generator is None
        return torch.zeros(*shape, **options)

    monkeypatch.setattr(torch, "rand", zeros)
    parameters = [torch.tensor(v, requires_grad=True) for v in (2.0, 0.6, -0.2, 1.15)]
    HardConcrete(*parameters).rsample((3,)).sum().backward()
    assert all(parameter.grad.isfinite() for parameter in parameters)


FUNCTIONS = {
    "identity": lambda z: z,
    "square": lambda z: z**2,
    "exponential": lambda z: torch.exp(2 * z),
    "a loss with a minimum inside": lambda z: (z - 0.3) ** 2,
    "oscillating": lambda z: torch.sin(5 * z),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("make", [HardConcrete, HardNormal], ids=lambda make: make.__name__)
@pytest.mark.parametrize("location", [-1.5, 0.2, 2.0])
def test_reparameterisation_gradient_is_that_of_the_exact_expectation(make, function, location):
    """The mean of 10⁶ pathwise gradients at six standard errors: a right one fails with probability 2e-9.

    The exact gradient is a central difference of E[f(z)] by quadrature.
    """
    location = torch.tensor(location, dtype=torch.float64)
    step = 1e-4
    exact = (make(location + step).expect(function) - make(location - step).expect(function)) / (2 * step)
    copies = location.expand(1_000_000).clone().requires_grad_()
    function(make(copies).rsample()).sum().backward()
    error = 6 * copies.grad.std() / math.sqrt(len(copies))
    assert abs(copies.grad.mean() - exact) < error + 1e-7
