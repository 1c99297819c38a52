"""Looking at somebody's model leaves it as it was, and what it does to itself is seen."""

import copy
import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lzero import Constraint, LzeroError, compact, sparsify, verify
from lzero.latency import latency
from lzero.subnetwork import Subnetwork
from tests.models import set_gates


class FirstBatch(nn.Module):
    """Scales its weight by the first batch it sees in training, as data-dependent starts do."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.is_set = nn.Linear(6, 8), nn.Linear(8, 3), False

    def forward(self, x):
        hidden = F.softplus(self.first(x))
        if self.training and not self.is_set:
            self.second.weight.data.div_(hidden.std())
            self.is_set = True
        return self.second(hidden)


class LargestNorm(nn.Module):
    """Keeps the norm of its weight below 1 at every forward."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                self.second.weight.copy_(self.second.weight.renorm(2, 0, 0.1))
        return self.second(F.softplus(self.first(x)))


@pytest.mark.parametrize("make", [FirstBatch, LargestNorm])
def test_weights_that_a_forward_sets_are_refused_where_gates_would_act_on_them(make):
    torch.manual_seed(0)
    model, x = make(), torch.randn(5, 6)
    before, flags = copy.deepcopy(model.state_dict()), dict(vars(model))
    with pytest.raises(LzeroError, match=r"forward of \w+ sets second\.weight in training.*gates on first act on it"):
        sparsify(model, x)
    assert all(torch.equal(number, before[name]) for name, number in model.state_dict().items())
    assert dict(vars(model)) == flags
    assert type(model) is make


def test_a_first_batch_before_gates_is_the_way_out():
    torch.manual_seed(0)
    model, x = FirstBatch(), torch.randn(5, 6)
    model(x)
    sparsifier = sparsify(model, x)
    set_gates(sparsifier, 0.5)
    assert verify(model, compact(model), x) <= 1e-5


class Noisy(nn.Module):
    """Draws noise from everywhere, counts its calls in a buffer, and keeps an average in a parameter."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)
        self.register_buffer("calls", torch.zeros(1))
        self.average = nn.Parameter(torch.zeros(8), requires_grad=False)

    def forward(self, x):
        hidden = F.softplus(self.first(x))
        if not torch.compiler.is_compiling():
            self.calls += 1
            self.average.data.lerp_(hidden.mean(0).detach().mean().expand(8), 0.1)
        noise = random.random() + float(np.random.rand()) + torch.rand(())  # noqa: NPY002, S311
        return self.second(hidden) * (1 + noise)


def noise_state():
    return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002


def test_models_that_draw_and_count_are_compared_with_the_same_noise_and_left_as_they_were():
    torch.manual_seed(0)
    model, x = Noisy(), torch.randn(5, 6)
    sparsifier = sparsify(model, x, exclude=())
    set_gates(sparsifier, 0.5)
    before, noise = copy.deepcopy(model.state_dict()), noise_state()
    small = compact(model)
    assert verify(model, small, x) <= 1e-5
    assert noise_state() == noise
    assert all(torch.equal(number, before[name]) for name, number in model.state_dict().items())
    assert small.calls == 0


def test_timing_leaves_numbers_noise_and_counts_as_they_were():
    torch.manual_seed(0)
    model, x = Noisy(), torch.randn(5, 6)
    forward = Subnetwork(sparsify(model, x))
    before, noise = copy.deepcopy(model.state_dict()), noise_state()
    assert forward.relative_time(x, repeats=2) > 0
    assert latency({"it": model}, x, repeats=2)["it"] > 0
    assert noise_state() == noise
    assert all(torch.equal(number, before[name]) for name, number in model.state_dict().items())


class Remembering(nn.Module):
    """Keeps the square of its bias from its first forward on, as positions are kept for later."""

    def __init__(self):
        super().__init__()
        self.layer, self.scale, self.square = nn.Linear(6, 3), nn.Parameter(torch.ones(3)), None

    def forward(self, x):
        if self.square is None:
            self.square = self.scale.detach().square()
        return self.layer(x) * self.square * self.scale


def test_what_a_model_keeps_while_it_is_timed_does_not_stay():
    model, x = Remembering(), torch.randn(5, 6)
    assert latency({"it": model}, x, repeats=2)["it"] > 0
    assert model.square is None
    model(x).sum().backward()


def test_a_backward_that_still_waits_does_not_mind():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Softplus(), nn.Linear(8, 3)), torch.randn(5, 6)
    sparsifier = sparsify(model, x)
    loss = model(x).square().mean()
    sparsifier.check()
    verify(model, compact(model), x)
    loss.backward()
    assert model[3].weight.grad.isfinite().all()


def test_the_models_own_forward_has_no_gates_and_is_refused():
    model, x = nn.Sequential(nn.Linear(6, 8), nn.Softplus(), nn.Linear(8, 3)), torch.randn(5, 6)
    sparsifier = sparsify(model, x)
    with pytest.raises(LzeroError, match=r"write model\(…\) for model\.forward\(…\)"):
        model.forward(x)
    with sparsifier.drawn():
        expected = model.forward(x)
        assert torch.equal(model(x), expected)
    assert torch.equal(sparsifier.remove().forward(x), model(x))


class Cloning(nn.Module):
    """Makes a layer like its own one, by its class."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.second(F.softplus(self.first(x)))

    def like(self):
        return type(self)(), type(self.second)(8, 3)


def test_what_code_makes_by_the_class_of_a_gated_layer_has_no_gates():
    model, x = Cloning(), torch.randn(5, 6)
    sparsify(model, x)
    whole, layer = model.like()
    torch.testing.assert_close(whole.double()(x.double()), whole.second(F.softplus(whole.first(x.double()))))
    assert layer.weight is layer._parameters["weight"]
    with pytest.raises(AttributeError, match="nothing"):
        _ = layer.nothing


def gated():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(6, 8), nn.Softplus(), nn.Linear(8, 3)), torch.randn(5, 6)
    return model, x, sparsify(model, x)


def test_a_layer_that_is_replaced_is_refused_at_the_next_look():
    model, _, sparsifier = gated()
    objective = Constraint(sparsifier, 0.5, steps=100)
    model[2] = nn.Linear(8, 3)
    for fails in (objective.step, lambda: compact(model)):
        with pytest.raises(LzeroError, match=r"2\.weight is not what it was: .* replaced, wrapped or changed"):
            fails()


def test_a_weight_that_is_gone_is_missed_in_words():
    model, x, _ = gated()
    del model[2]._parameters["weight"]
    with pytest.raises(LzeroError, match="the weight of a Linear is not what it was"):
        model(x)


def test_a_copy_of_a_model_without_one_of_its_gated_layers_can_be_made():
    model, x, _ = gated()
    model[2] = nn.Linear(8, 3)
    again = copy.deepcopy(model)
    torch.testing.assert_close(again.eval()(x), model.eval()(x))


def test_a_model_captured_without_memory_can_be_checked_once_it_has_some():
    with torch.device("meta"):
        model = nn.Sequential(nn.Embedding(20, 6), nn.Linear(6, 8), nn.Softplus(), nn.Linear(8, 3))
    sparsifier = sparsify(model, torch.zeros(5, dtype=torch.int64, device="meta"))
    model.to_empty(device="cpu")
    with torch.no_grad():
        for parameter in model.parameters():
            nn.init.normal_(parameter)
    sparsifier.check()
    assert sparsifier.example_inputs[0].device.type == "cpu"
