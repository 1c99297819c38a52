"""Times of forwards: taken in turn, in evaluation, leaving the models as they were. No time is asserted."""

import copy

import pytest
import torch
from torch import nn

import lzero
from lzero.latency import latency, machine, median_seconds, step_latency


class Noted(nn.Module):
    def __init__(self, name, notes):
        super().__init__()
        self.name, self.note = name, notes.append

    def forward(self, x):
        self.note((self.name, self.training, torch.is_inference_mode_enabled()))
        return x


def test_models_take_turns_in_evaluation_and_inference_mode():
    notes = []
    seconds = latency({name: Noted(name, notes) for name in ("a", "b")}, torch.zeros(1), repeats=3)
    assert notes == [("a", False, True), ("b", False, True)] * 4  # one round to warm up
    assert list(seconds) == ["a", "b"]
    assert all(time > 0 for time in seconds.values())


def test_modes_are_left_as_they_were_even_by_an_error():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).train()
    model[1].eval()
    latency({"model": model}, torch.zeros(3, 2), repeats=1)
    with pytest.raises(RuntimeError):
        latency({"model": model}, torch.zeros(3, 5), repeats=1)
    assert [module.training for module in model.modules()] == [True, True, False]


def test_a_gated_model_trains_on_afterwards():
    model, x = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), torch.randn(3, 4)
    sparsifier = lzero.sparsify(model, x)
    latency({"gated": model, "compacted": lzero.compact(model)}, (x,), repeats=1)
    model(x).sum().backward()
    assert sparsifier.log_alpha.grad is not None


class Watched(nn.Module):
    """Notes how it is run, and in which precision."""

    def __init__(self, notes):
        super().__init__()
        self.norm, self.linear, self.notes = nn.BatchNorm1d(4), nn.Linear(4, 2), notes

    def forward(self, x):
        y = self.linear(self.norm(x))
        y.register_hook(lambda gradient: self.notes.append((self.training, gradient.dtype)))
        return {"scores": y, "kept": None}


@pytest.mark.parametrize(("precision", "seen"), [(None, torch.float32), (torch.bfloat16, torch.bfloat16)])
def test_steps_are_forward_and_backward_in_training_on_copies(precision, seen, monkeypatch):
    notes = []
    monkeypatch.setattr("lzero.latency.duplicate", lambda thing, _: _with_notes(copy.deepcopy(thing), notes))
    model = Watched([]).eval()
    before = copy.deepcopy(model.state_dict())
    assert step_latency({"watched": model}, torch.randn(3, 4), repeats=2, precision=precision)["watched"] > 0
    assert notes == [(True, seen)] * 3
    assert not model.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def _with_notes(model, notes):
    model.notes = notes
    return model


def test_the_median_is_that_of_the_rounds_after_the_first(monkeypatch):
    clock = iter([0.0, 9.0, 10.0, 11.0, 20.0, 25.0, 30.0, 32.0])  # rounds of 9, 1, 5 and 2 seconds
    monkeypatch.setattr("lzero.latency.time.perf_counter", lambda: next(clock))
    assert median_seconds({"case": lambda: None}, repeats=3) == {"case": 2.0}


def test_no_repeats_are_refused():
    with pytest.raises(lzero.LzeroError, match="repeats: expected a whole number from 1, got 0"):
        latency({}, torch.zeros(1), repeats=0)


def test_a_machine_is_named_with_its_torch():
    assert machine().endswith(torch.__version__.split("+")[0])


def test_measuring_steps_draws_no_noise_of_the_users():
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Dropout()), torch.randn(3, 4)
    before = torch.get_rng_state()
    step_latency({"one": model}, x, 2)
    assert torch.equal(before, torch.get_rng_state())
