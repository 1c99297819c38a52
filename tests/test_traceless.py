"""Looking at somebody's model leaves it as it was, and what it does to itself is seen."""

import copy
import random
from collections import Counter, deque

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lzero import Constraint, LzeroError, compact, sparsify, verify
from lzero.latency import latency
from lzero.subnetwork import Subnetwork
from lzero.traceless import evaluating, running
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
    sparsifier = sparsify(model, x)
    with pytest.raises(LzeroError, match=r'forward of \w+ sets second\.weight in training.*add \["first"\] to'):
        sparsifier.check()
    sparsifier.remove()
    assert all(torch.equal(number, before[name]) for name, number in model.state_dict().items())
    assert dict(vars(model)) == flags
    assert type(model) is make


def test_a_first_batch_before_gates_is_the_way_out():
    torch.manual_seed(0)
    model, x = FirstBatch(), torch.randn(5, 6)
    model(x)
    sparsifier = sparsify(model, x)
    sparsifier.check()
    set_gates(sparsifier, 0.5)
    assert verify(model, compact(model), x) <= 1e-5


class Clipping(nn.Module):
    """Keeps all its weights small, parameter by parameter."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        if self.training and not torch.compiler.is_exporting():
            with torch.no_grad():
                for parameter in self.parameters():
                    parameter.clamp_(-0.1, 0.1)
        return self.second(F.softplus(self.first(x)))


def test_what_sets_parameters_one_by_one_as_optimizers_do_is_welcome():
    torch.manual_seed(0)
    model, x = Clipping(), torch.randn(5, 6)
    sparsifier = sparsify(model, x)
    sparsifier.check()
    assert model.second.weight.abs().max() > 0.1
    model(x)
    assert model.second.weight.abs().max() <= 0.1


class Halving(nn.Module):
    """Every layer's weight is set, or the last one's is taken away."""

    def __init__(self, *, last):
        super().__init__()
        self.layers, self.last = nn.ModuleList([nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)]), last

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = F.softplus(layer(x))
        y = self.layers[-1](x)
        if self.training and not torch.compiler.is_exporting():
            for layer in self.layers:
                layer.weight.data.mul_(0.5)
            if self.last == "gone":
                del self.layers[-1]._parameters["weight"]
            if self.last == "another":
                self.layers[-1].weight = nn.Parameter(self.layers[-1].weight * 3)
        return y


@pytest.mark.parametrize("last", ["set", "gone", "another"])
def test_all_that_is_lost_is_named_with_the_gates_to_leave_out(last):
    model, x = Halving(last=last), torch.randn(5, 6)
    sparsifier = sparsify(model, x)
    words = r'sets layers\.1\.weight, layers\.2\.weight in .*add \["layers\.0", "layers\.1"\]'
    with pytest.raises(LzeroError, match=words):
        sparsifier.check()
    assert len(model.layers) == 3
    assert model.layers[2].weight.shape == (3, 8)


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
    x = x.float()
    torch.testing.assert_close(layer(torch.ones(2, 8)), layer.weight.sum(1) + layer.bias.expand(2, 3))
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


class Keeping(nn.Module):
    """Counts in whatever can be counted in, and adds a number that is there but once."""

    def __init__(self):
        super().__init__()
        self.layer, self.norm = nn.Linear(6, 3), nn.BatchNorm1d(3)
        self.register_buffer("once", torch.ones(1).expand(3))
        self.calls, self.last, self.names = torch.zeros(()), deque(maxlen=3), Counter()

    def forward(self, x):
        self.calls += 1
        self.last.append(1)
        self.names["x"] += 1
        return self.norm(self.layer(x)) + self.once


def test_whatever_a_forward_counts_in_is_put_back():
    model, x = Keeping(), torch.randn(5, 6)
    before = copy.deepcopy(model.state_dict())
    with running(model, training=True):
        model(x)
        model(x)
        assert model.calls == 2
    assert (model.calls, model.last, model.names) == (0, deque(), Counter())
    assert all(torch.equal(number, before[name]) for name, number in model.state_dict().items())
    assert latency({"it": model}, x, repeats=1)["it"] > 0
    assert model.calls == 0


class Merging(nn.Linear):
    """Adds an adapter to its weight for evaluation, and takes it off again for training, as low-rank adapters do."""

    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.down, self.up = nn.Parameter(torch.randn(2, inputs)), nn.Parameter(torch.randn(outputs, 2))
        self.is_merged = False

    def train(self, mode=True):
        super().train(mode)
        if mode == self.is_merged:
            self.weight.data += (-1 if mode else 1) * self.up @ self.down
            self.is_merged = not mode
        return self

    def forward(self, x):
        y = super().forward(x)
        return y if self.is_merged else y + x @ self.down.T @ self.up.T


def test_a_model_that_merges_for_evaluation_trains_on_as_before():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(6, 8), nn.Softplus(), Merging(8, 3)), torch.randn(5, 6)
    before = model[2].weight.detach().clone()
    latency({"it": model}, x, repeats=1)
    verify(model, copy.deepcopy(model), x)
    sparsify(model, x).remove()
    assert torch.equal(model[2].weight, before)
    assert (model[2].is_merged, model[2].training) == (False, True)
    with evaluating(model):
        assert model[2].is_merged
    assert not model[2].is_merged


def test_a_layer_without_numbers_yet_can_be_timed():
    model = nn.Sequential(nn.LazyLinear(8), nn.Softplus())
    assert latency({"it": model}, torch.randn(5, 6), repeats=1)["it"] > 0


def test_a_forward_that_is_exchanged_later_runs():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)

        def forward(self, x):
            return self.second(F.softplus(self.first(x)))

    first, x = Scaled(), torch.randn(5, 6)
    sparsify(first, x)
    expected = first.eval()(x)
    Scaled.forward = lambda self, x: 100 + self.second(F.softplus(self.first(x)))
    torch.testing.assert_close(first(x), 100 + expected)
    second = Scaled().eval()
    own = second(x)
    sparsify(second, x)
    torch.testing.assert_close(second(x), own)  # gates begin at 1


def test_a_part_without_units_may_go():
    class Cached(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)
            self.register_buffer("cache", torch.ones(3), persistent=False)

        def forward(self, x):
            y = self.second(F.softplus(self.first(x)))
            return y if self.cache is None else y * self.cache

    model = Cached()
    objective = Constraint(sparsify(model, torch.randn(5, 6)), 0.5, steps=100)
    model.cache = None
    objective.step()
    assert objective.steps == 1


def test_gates_that_were_removed_are_not_those_the_model_has_now():
    model, x, old = gated()
    objective = Constraint(old, 0.5, steps=100)
    old.remove()
    with pytest.raises(LzeroError, match=r"have been removed; call lzero\.sparsify again"):
        objective.step()
    new = sparsify(model, x)
    for fails in (old.remove, objective.step, lambda: old.law, lambda: old.drawn().__enter__()):
        with pytest.raises(LzeroError, match=r"use what lzero\.sparsify returned last"):
            fails()
    assert model(x).isfinite().all()
    new.remove()


def test_example_inputs_without_memory_differ_from_one_another():
    class Difference(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)

        def forward(self, a, b):
            return self.second(F.softplus(self.first(a - b)))

    with torch.device("meta"):
        model, inputs = Difference(), (torch.randn(5, 6), torch.randn(5, 6))
    sparsifier = sparsify(model, inputs)
    model.to_empty(device="cpu")
    one, other = sparsifier.example_inputs
    assert not torch.equal(one, other)
    assert torch.equal(one, sparsifier.example_inputs[0])
