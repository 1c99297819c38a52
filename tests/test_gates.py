"""Gate: how it starts, what it gives when, and that it survives what users do to modules."""

import copy
import io
import math
import pickle

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from lzero import Gate, HardConcrete, LzeroError
from lzero.errors import ArgumentError


class Twice(nn.Module):
    """A model that reads its gate twice in one forward, through a submodule."""

    def __init__(self):
        super().__init__()
        self.gate = Gate(6, keep_rate=0.5).follow(self)

    def forward(self, x):
        return x * self.gate(), self.gate()


def test_keep_rate_sets_log_alpha():
    gate = Gate(40_000, keep_rate=0.7)
    assert gate.log_alpha.mean().item() == pytest.approx(math.log(0.7 / 0.3), abs=6 * 0.01 / 200)
    assert gate.log_alpha.std().item() == pytest.approx(0.01, rel=0.05)


@pytest.mark.parametrize("settings", [{}, {"beta": 0.4, "gamma": -0.3, "zeta": 1.2}])
def test_prob_active_sets_the_probability(settings):
    gate = Gate(40_000, prob_active=0.1, **settings)
    assert gate.law.prob_active.mean().item() == pytest.approx(0.1, abs=1e-4)


def test_default_starts_mostly_open():
    assert Gate(10).law.prob_active.min() > 0.95


def test_shapes_and_examples():
    gate = Gate((3, 4))
    assert gate().shape == (3, 4)
    assert gate(examples=5).shape == (5, 3, 4)
    assert gate.eval()(examples=5).shape == (5, 3, 4)


def test_examples_have_samples_of_their_own():
    rows = Gate(50, keep_rate=0.5)(examples=4)
    assert len(rows.unique(dim=0)) == 4


def test_a_gate_by_itself_draws_anew():
    gate = Gate(50, keep_rate=0.5)
    assert not torch.equal(gate(), gate())


def test_one_sample_per_forward_of_the_model():
    model = Twice()
    ones = torch.ones(6)
    first, again = model(ones)
    other, _ = model(ones)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


class Checkpointed(nn.Module):
    """A model whose gated part is run again during the backward."""

    def __init__(self, use_reentrant):
        super().__init__()
        self.use_reentrant = use_reentrant
        self.linear = nn.Linear(6, 1)
        self.gate = Gate(6, keep_rate=0.5).follow(self)

    def forward(self, x):
        if self.use_reentrant is None:
            return self.part(x)
        return checkpoint(self.part, x, use_reentrant=self.use_reentrant)

    def part(self, x):
        return self.linear(x * self.gate()).square().sum()


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_activation_checkpointing_gives_the_same_gradients(use_reentrant):
    x = torch.randn(3, 6, requires_grad=True)
    plain, saving = Checkpointed(None), Checkpointed(use_reentrant)
    saving.load_state_dict(plain.state_dict())
    for model in (plain, saving):
        torch.manual_seed(3)
        model(x).backward()
    assert plain.gate.log_alpha.grad.abs().sum() > 0
    for one, other in zip(plain.parameters(), saving.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_reading_without_gradients_first_takes_none_away():
    model = Twice()

    def log_open_gates(*_):
        with torch.no_grad():
            model.gate()

    model.register_forward_pre_hook(log_open_gates)
    first, _ = model(torch.ones(6))
    assert first.requires_grad


def test_shared_and_per_example_samples_in_one_forward():
    model = Twice()
    model(torch.ones(6))
    assert model.gate().shape == (6,)
    assert model.gate(examples=3).shape == (3, 6)
    assert torch.equal(model.gate(examples=3), model.gate(examples=3))
    assert model.gate(examples=2).shape == (2, 6)
    assert torch.equal(model.gate(), model.gate())


def test_evaluation_gives_the_named_estimator():
    gate = Gate(5, keep_rate=0.1, estimator="median").eval()
    assert torch.equal(gate(), HardConcrete(gate.log_alpha).estimate("median"))
    assert torch.equal(gate(), gate())
    gate.estimator = "eq13"
    assert torch.equal(gate(), HardConcrete(gate.log_alpha).estimate("eq13"))


def test_gradient_reaches_log_alpha():
    gate = Gate(200, keep_rate=0.5)
    gate().sum().backward()
    assert (gate.log_alpha.grad > 0).any()
    assert gate.log_alpha.grad.isfinite().all()


def test_log_alpha_is_not_clamped():
    gate = Gate(3)
    optimizer = torch.optim.SGD(gate.parameters(), lr=1e4)
    for _ in range(2):
        optimizer.zero_grad()
        gate.law.prob_active.sum().backward()
        optimizer.step()
    assert (gate.log_alpha < -50).all()
    assert (gate.law.prob_active < 0.01).all()  # the clamp of published code stops at 0.047


def test_single_precision_under_autocast(device):
    gate = Gate(8, device=device)
    with torch.autocast(device, dtype=torch.bfloat16):
        assert gate().dtype == torch.float32
        assert gate.eval()().dtype == torch.float32


@pytest.mark.parametrize("cast", [nn.Module.half, nn.Module.bfloat16, lambda m: m.to(torch.float16)])
def test_log_alpha_stays_in_single_precision(cast):
    model = nn.Sequential(nn.Linear(2, 2), Gate(2))
    before = model[1].log_alpha.detach().clone()
    cast(model)
    assert model[0].weight.dtype.itemsize == 2
    assert torch.equal(model[1].log_alpha, before)


def test_log_alpha_comes_back_to_single_precision():
    assert Gate(3).double().half().log_alpha.dtype == torch.float32


def test_double_precision_and_devices_are_followed(device):
    gate = Gate(3).to(device).double()
    assert gate.log_alpha.dtype == gate().dtype == torch.float64
    assert gate().device.type == device


def test_a_copy_follows_its_own_model():
    model = Twice()
    model(torch.ones(6))
    twin = copy.deepcopy(model)
    twin(torch.ones(6))
    kept = model.gate()
    first, again = twin(torch.ones(6))
    assert torch.equal(first, again)
    assert torch.equal(model.gate(), kept)


def test_a_copy_of_a_part_draws_anew():
    model = nn.Sequential(Twice())
    gate = copy.deepcopy(model[0].gate)
    assert not torch.equal(gate(), gate())


def test_pickling_and_state_dict():
    model = Twice()
    model(torch.ones(6))
    twin = pickle.loads(pickle.dumps(model))  # noqa: S301
    first, again = twin(torch.ones(6))
    assert torch.equal(first, again)
    assert list(model.state_dict()) == ["gate.log_alpha"]
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    buffer.seek(0)
    fresh = Twice()
    fresh.load_state_dict(torch.load(buffer, weights_only=True))
    assert torch.equal(fresh.gate.log_alpha, model.gate.log_alpha)


def test_a_followed_gate_compiles_as_one_graph():
    model = Twice()
    compiled = torch.compile(model, fullgraph=True)
    first, again = compiled(torch.ones(6))
    other, _ = compiled(torch.ones(6))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_print_shows_the_settings():
    assert "(6,), beta=0.6667, gamma=-0.1, zeta=1.1, estimator='eq13'" in repr(Twice())


REFUSED = [
    (lambda: Gate(3, keep_rate=0.5, prob_active=0.5), "keep_rate, prob_active: expected one of them"),
    (lambda: Gate(3, keep_rate=1.0), "keep_rate: expected a number above 0, below 1, got 1.0"),
    (lambda: Gate(3, prob_active=0.0), "prob_active: expected a number above 0, below 1, got 0.0"),
    (lambda: Gate(3, keep_rate="0.5"), "keep_rate: expected a number above 0, below 1, got '0.5'"),
    (lambda: Gate(3.5), "shape: expected a whole number or a sequence of them, got 3.5"),
    (lambda: Gate(-1), "shape: expected a whole number"),
    (lambda: Gate(3, beta=torch.tensor(0.5)), "beta: expected a number, got tensor"),
    (lambda: nn.Sequential(nn.Linear(3, 3), Gate(3))(torch.ones(1, 3)), "examples: .* multiply by them"),
    (lambda: Gate(3, beta=0.0), "beta: expected a number above 0"),
    (lambda: Gate(3, gamma=0.1), "gamma: expected a number below 0"),
    (lambda: Gate(3, estimator="mean"), 'estimator: expected "eq13" or "median"'),
    (lambda: Gate(3).follow("model"), "root: expected a torch.nn.Module, got str"),
    (lambda: Twice().gate.follow(Twice()), "follows a model already"),
]


@pytest.mark.parametrize(("act", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_refused_with_a_message_that_helps(act, message):
    with pytest.raises(LzeroError, match=message):
        act()


def test_two_forwards_before_one_backward_are_refused_with_checkpointing():
    model, x = Checkpointed(use_reentrant=False), torch.randn(5, 6)
    loss = model(x).sum() + model(2 * x).sum()
    with pytest.raises(LzeroError, match="two forwards before one backward"):
        loss.backward()


@pytest.mark.parametrize("examples", [2.5, -1, 0, "a", True])
def test_a_number_of_examples_is_one(examples):
    for gate in (Gate(4), Gate(4).eval()):
        with pytest.raises(ArgumentError, match="examples: expected a whole number of examples from 1"):
            gate(examples=examples)
