"""The laws as `torch.distributions`: shapes, precision, devices, compilation, memory, and a base of one's own."""

import copy
import math

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.distributions import Distribution, Laplace, constraints, kl_divergence

from lzero.laws import BinaryConcrete, HardConcrete, HardNormal, Rectified

MAKERS = [HardConcrete, HardNormal, lambda loc: Rectified(Laplace(loc, 0.3))]
each_maker = pytest.mark.parametrize("make", MAKERS, ids=["HardConcrete", "HardNormal", "Rectified"])


@each_maker
def test_batch_and_sample_shapes(make, device):
    law = make(torch.zeros(3, 1, device=device)).expand((3, 4))
    value = torch.full((5, 3, 4), 0.4, device=device)
    assert (law.batch_shape, law.event_shape) == ((3, 4), ())
    assert law.rsample((2, 5)).shape == (2, 5, 3, 4)
    for batched in (
        law.mean,
        law.variance,
        law.entropy(),
        law.prob_active,
        law.prob_one,
        law.estimate("median"),
    ):
        assert batched.expand(3, 4).shape == (3, 4)
        assert batched.device.type == device
    for sampled in (law.log_prob(value), law.cdf(value), law.icdf(value)):
        assert sampled.shape == (5, 3, 4)


@each_maker
def test_expanding_changes_no_value(make):
    law = make(torch.tensor([[-1.0], [0.5]], dtype=torch.float64))
    if isinstance(law, HardConcrete):
        law = HardConcrete(law.log_alpha, beta=0.3, gamma=-0.2, zeta=1.4)
    if isinstance(law, HardNormal):
        law = HardNormal(law.loc, scale=0.9)
    expanded = law.expand((6, 2, 3))
    assert type(expanded) is type(law)
    torch.testing.assert_close(expanded.mean, law.mean.expand(6, 2, 3))
    torch.testing.assert_close(expanded.prob_active, law.prob_active.expand(6, 2, 3))


def test_tensor_settings_broadcast_with_log_alpha():
    law = HardConcrete(torch.zeros(3), beta=torch.tensor([[0.3], [0.6]]))
    assert law.batch_shape == (2, 3)
    assert law.rsample((4,)).shape == (4, 2, 3)
    assert law.estimate("eq13").shape == law.estimate("median").shape == (2, 3)
    assert law.expand((5, 2, 3)).prob_active.shape == (5, 2, 3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("make", [HardConcrete, HardNormal], ids=lambda make: make.__name__)
def test_computed_in_at_least_single_precision(make, dtype, device):
    location = torch.tensor([-2.0, 0.25, 3.0], dtype=dtype, device=device)
    exact = make(location.double())
    law = make(location)
    expected = torch.promote_types(dtype, torch.float32)
    assert law.rsample().dtype == law.prob_active.dtype == law.mean.dtype == expected
    torch.testing.assert_close(law.mean.double(), exact.mean, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(law.prob_active.double(), exact.prob_active, rtol=1e-6, atol=1e-6)


@each_maker
def test_cdf_and_quantiles_are_inverse_inside(make):
    law = make(torch.tensor(0.2, dtype=torch.float64))
    z = torch.linspace(0.01, 0.99, 99, dtype=torch.float64)
    torch.testing.assert_close(law.icdf(law.cdf(z)), z)
    assert law.cdf(torch.tensor([-1.0, -1e-9])).eq(0).all()
    assert law.cdf(torch.tensor([1.0, 7.0])).eq(1).all()


def test_sampling_without_gradients_and_copying():
    law = HardConcrete(torch.zeros(2, requires_grad=True))
    assert not law.sample().requires_grad
    assert law.rsample().requires_grad
    assert torch.equal(copy.deepcopy(law).prob_active, law.prob_active)


def test_repr_names_the_settings():
    assert repr(HardConcrete(torch.zeros(3))) == (
        "HardConcrete(BinaryConcrete(log_alpha: (3,), beta=0.6667, gamma=-0.1, zeta=1.1))"
    )


@pytest.mark.parametrize("make", [HardConcrete, HardNormal], ids=lambda make: make.__name__)
def test_compiles_as_one_graph(make, device):
    location = torch.linspace(-1, 1.5, 64, device=device).requires_grad_()
    draw = torch.compile(lambda loc: make(loc).rsample((1000,)), fullgraph=True)
    active = torch.compile(lambda loc: make(loc).prob_active, fullgraph=True)
    torch.testing.assert_close(active(location), make(location).prob_active)
    z = draw(location)
    (gradient,) = torch.autograd.grad(z.sum(), location)
    error = 6 * make(location).stddev / math.sqrt(len(z))
    assert ((z.mean(0) - make(location).mean).abs() < error).all()
    assert gradient.isfinite().all()


def test_a_sample_keeps_two_tensors_for_backward():
    log_alpha = torch.zeros(1000, requires_grad=True)
    kept = set()

    def pack(tensor):
        if tensor.numel() == log_alpha.numel():
            kept.add(tensor.untyped_storage().data_ptr())
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        HardConcrete(log_alpha).rsample()
    assert 1 <= len(kept) <= 2


def test_vectorises_over_models():
    stacked = torch.randn(5, 7)
    probabilities = torch.vmap(lambda log_alpha: HardConcrete(log_alpha, validate_args=False).prob_active)(stacked)
    torch.testing.assert_close(probabilities, HardConcrete(stacked).prob_active)
    samples = torch.vmap(lambda a: HardConcrete(a, validate_args=False).rsample(), randomness="different")(stacked)
    assert samples.shape == (5, 7)


def test_the_concrete_s_own_moments_of_support():
    concrete = BinaryConcrete(torch.zeros(10_000), beta=0.5, gamma=-0.1, zeta=1.1)
    s = concrete.rsample()
    assert s.min() >= -0.1
    assert s.max() <= 1.1
    assert concrete.support.check(s).all()
    assert concrete.cdf(torch.tensor(-1.0)).eq(0).all()
    assert concrete.cdf(torch.tensor(2.0)).eq(1).all()
    assert concrete.expand((2, 10_000)).batch_shape == (2, 10_000)


class Triangular(Distribution):
    """A user's base with no `icdf`: density 2(s − a)/w² on (a, a + w)."""

    has_rsample = True
    support = constraints.real
    arg_constraints = {"low": constraints.real, "width": constraints.positive}  # noqa: RUF012

    def __init__(self, low, width):
        self.low, self.width = low, width
        super().__init__(low.shape)

    def rsample(self, sample_shape=()):
        noise = torch.rand(self._extended_shape(torch.Size(sample_shape)), dtype=self.low.dtype)
        return self.low + self.width * noise.sqrt()

    def cdf(self, value):
        return ((value - self.low) / self.width).clamp(0, 1).square()

    def log_prob(self, value):
        return torch.log(2 * (value - self.low) / self.width.square())


def test_a_base_of_ones_own_needs_no_quantile_function():
    low = torch.tensor([-0.5, -0.2], dtype=torch.float64, requires_grad=True)
    law = Rectified(Triangular(low, torch.tensor(1.6, dtype=torch.float64)))
    closed_form = low + 1.6 * law.cdf(torch.zeros(2, dtype=torch.float64)).sqrt()
    torch.testing.assert_close(closed_form, torch.zeros(2, dtype=torch.float64), atol=1e-12, rtol=0)
    p = torch.tensor([0.3, 0.6], dtype=torch.float64)
    torch.testing.assert_close(law.icdf(p), (low + 1.6 * p.sqrt()).clamp(0, 1))
    assert torch.autograd.gradcheck(lambda a: Rectified(Triangular(a, torch.tensor(1.6, dtype=a.dtype))).mean, low)
    assert kl_divergence(law, law).abs().max() == 0
    z = law.sample((200_000,))
    assert ((z.mean(0) - law.mean).abs() < 6 * z.std(0) / math.sqrt(len(z))).all()
