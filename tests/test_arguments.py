"""Checks of arguments: numpy's scalars are as good as Python's, and nothing that is wrong comes through."""

import copy
import json
import re
from typing import Literal

import numpy as np
import pytest
import torch
from torch import nn

import lzero
from lzero import Constraint, Gate, LzeroError, Penalty, compact, sparsify, verify, zoo
from lzero.arguments import number, one_of, whole
from lzero.data.augment import crop
from lzero.errors import ArgumentError
from lzero.latency import latency
from lzero.laws import HardConcrete
from lzero.layers import inputs_read
from lzero.objectives import GroupLasso, VariationalBound
from lzero.objectives.duals import Ascent, ProportionalIntegral, Restarts
from lzero.objectives.sampling import monte_carlo
from lzero.objectives.schedules import linear
from lzero.projection import project
from lzero.subnetwork import Subnetwork

X = torch.randn(3, 4)


@pytest.fixture
def sparsifier():
    return sparsify(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), X)


@pytest.mark.parametrize("value", [2, np.int64(2), np.uint8(2), np.int32(2)])
def test_whole_numbers_are_given_back_as_pythons(value):
    assert type(whole("steps", value)) is int
    assert whole("steps", value, 2) == 2


@pytest.mark.parametrize("value", [2, 0.5, np.float32(0.5), np.float16(0.5), np.int64(1)])
def test_numbers_are_given_back_as_pythons(value):
    assert type(number("rate", value)) is float
    assert number("rate", value, least=0) == value


NO_NUMBERS = [True, np.bool_(True), "a", None, [1], torch.tensor(1.0), np.ones(1), 1j, lambda: 1]


@pytest.mark.parametrize("value", [*NO_NUMBERS, 0, -1, 2.0, np.float64(2)])
def test_what_is_no_whole_number_from_the_least_is_refused(value):
    with pytest.raises(ArgumentError, match=r"steps: expected a whole number from 1, got .*; so many"):
        whole("steps", value, advice="so many")


@pytest.mark.parametrize("value", [*NO_NUMBERS, float("nan"), float("inf"), np.float32("-inf"), 10**400])
def test_what_is_no_finite_number_is_refused(value):
    with pytest.raises(ArgumentError, match="rate: expected a number, got "):
        number("rate", value)


@pytest.mark.parametrize(
    ("bounds", "inside", "outside", "words"),
    [
        ({"least": 0}, (0, 5), (-1e-9,), "a number from 0,"),
        ({"above": 0}, (1e-9,), (0,), "a number above 0,"),
        ({"least": 0, "below": 1}, (0, 0.999), (1,), "a number from 0, below 1,"),
        ({"above": 0, "most": 1}, (1, 0.5), (0, 1.1), "a number above 0, up to 1,"),
        ({"above": 0, "below": 1, "of": "nats"}, (0.5,), (0, 1), "a number of nats above 0, below 1,"),
    ],
)
def test_bounds_hold_and_are_told(bounds, inside, outside, words):
    assert [number("x", value, **bounds) for value in inside] == list(inside)
    for value in (*outside, float("nan")):
        with pytest.raises(ArgumentError, match=f"x: expected {words} got"):
            number("x", value, **bounds)


def test_words_are_those_of_the_literal():
    words = Literal["a", "b", "c"]
    assert one_of("letter", "b", words) == "b"
    for value in ("d", "", 1, None, ["a"], np.array(["a"]), torch.ones(2)):
        with pytest.raises(ArgumentError, match='letter: expected "a" or "b" or "c", got '):
            one_of("letter", value, words)


WELCOME = {
    "a width": lambda s: compact(s.model, round_to=np.int64(4)),
    "a width of a budget": lambda s: project(s.model, 0.5, round_to=np.int64(4)),
    "a width of a part": lambda s: Subnetwork(s, round_to=np.int64(4))(X),
    "a shrink": lambda s: s.shrink(threshold=np.float32(0.1), round_to=np.int64(2)),
    "a strength": lambda s: Penalty(s, np.float32(0.1), l2=np.float32(0.1))(),
    "data": lambda s: Penalty(s, "bic", num_data=np.int64(100))(),
    "a lasso": lambda s: GroupLasso(s, np.float32(0.1), 0.5, steps=np.int64(3), round_to=np.int64(2)).close(),
    "steps": lambda s: Constraint(s, 0.5, steps=np.int64(100), dual=Ascent(np.float32(0.1)))(),
    "a bound": lambda s: VariationalBound(s, np.float32(0.1), num_data=np.int64(9), code_cost=np.float32(1))(),
    "samples": lambda s: monte_carlo(lambda: s.model(X).mean(), np.int64(2)),
    "a gate": lambda _: Gate(np.int64(3), keep_rate=np.float32(0.5), beta=np.float32(0.5))(),
    "a schedule": lambda _: linear(np.int64(4), np.int64(1))(2),
    "rates": lambda s: s.param_groups(lr=np.float32(0.1), gate_lr=torch.tensor(0.1), weight_decay=np.int64(0)),
    "gates' steps": lambda s: s.param_groups(lr=0.1, steps=np.int64(9)),
}


@pytest.mark.parametrize("use", WELCOME.values(), ids=WELCOME)
def test_numpy_scalars_are_welcome(use, sparsifier):
    use(sparsifier)


REFUSED = {
    "samples": lambda s: monte_carlo(lambda: s.model(X).mean(), 2.5),
    "l2": lambda s: Penalty(s, 0.1, l2="a"),
    "num_data": lambda s: VariationalBound(s, 0.1, num_data=float("inf")),
    "code_cost": lambda s: VariationalBound(s, 0.1, num_data=5, code_cost=None),
    "threshold": lambda s: s.shrink(threshold="a"),
    "steps": lambda s: s.param_groups(lr=0.1, steps=0),
    "lr": lambda _: Ascent("a"),
    "leak": lambda _: ProportionalIntegral(leak=None),
    "steps of a rule": lambda _: Restarts.within(0),
    "steps of a schedule": lambda _: linear("a"),
    "start": lambda _: linear(4, 0.5),
    "num_samples": lambda s: s.law.expect(torch.square, num_samples="a"),
    "estimator": lambda s: s.law.log_alpha_for(torch.ones(8), "mean"),
    "estimator of a gate": lambda _: Gate(3, estimator=["eq13"]),
    "beta": lambda _: Gate(3, beta="a"),
    "keep_rate": lambda _: Gate(3, keep_rate=True),
    "per": lambda s: Constraint(s, 0.5, per=["model"]),
    "repeats": lambda s: latency({"one": s.model}, X, repeats="a"),
    "models": lambda s: latency([s.model], X),
    "models['one']": lambda _: latency({"one": "lenet5"}, X),
    "lr of weights": lambda s: s.param_groups(lr="a"),
    "gate_lr": lambda s: s.param_groups(lr=0.1, gate_lr=-1),
    "weight_decay": lambda s: s.param_groups(lr=0.1, weight_decay="a"),
    "sparsifier": lambda s: Subnetwork(s.model),
    "tolerance": lambda s: verify(s.model, s.model, X, tolerance="a"),
    "tolerance below nothing": lambda s: verify(s.model, s.model, X, tolerance=-1),
    "include": lambda s: sparsify(copy.deepcopy(s).remove(), X, include=[0]),
    "example_inputs": lambda s: sparsify(copy.deepcopy(s).remove(), X.double()),
    "example_inputs of none": lambda s: sparsify(copy.deepcopy(s).remove(), X[:0]),
    "model": lambda _: sparsify(torch.jit.script(nn.Linear(4, 2)), X),
    "layer": lambda _: inputs_read(nn.Conv2d(1, 2, 3)),
    "schedule": lambda s: Penalty(s, 0.1, schedule=lambda _: -1.0),
    "pad": lambda _: crop(torch.ones(1, 1, 4, 4), 1.5, torch.Generator()),
}


@pytest.mark.parametrize(("name", "use"), REFUSED.items(), ids=REFUSED)
def test_what_does_not_fit_is_refused_by_its_name(name, use, sparsifier):
    before = sparsifier.log_alpha.clone()
    with pytest.raises(LzeroError, match=f"^{re.escape(name.split()[0])}: expected "):
        use(sparsifier)
    assert torch.equal(before, sparsifier.log_alpha)


def test_an_estimator_is_checked_by_its_name_alone(monkeypatch):
    monkeypatch.setattr(HardConcrete, "_noise_free", lambda _: pytest.fail("it was computed"))
    law = HardConcrete(torch.zeros(2))
    assert law.log_alpha_for(torch.full((2,), 0.5), "eq13").tolist() == [0, 0]
    assert Gate(3).estimator == "eq13"


@pytest.mark.parametrize(
    ("name", "options", "x"),
    [
        ("mlp", {"inputs": np.int64(4), "widths": np.array([8, 6]).tolist(), "classes": np.int64(3)}, X),
        ("lenet5", {"widths": tuple(np.array([4, 6, 8])), "size": np.int64(16)}, torch.randn(1, 1, 16, 16)),
        (
            "vit",
            dict(zip(("size", "patch", "width", "depth", "heads"), np.array([8, 4, 12, 1, 3]), strict=True)),
            torch.randn(1, 3, 8, 8),
        ),
    ],
)
def test_networks_of_numpy_sizes_are_cut_saved_and_loaded(name, options, x, tmp_path):
    model = zoo.make(name, **options)
    lzero.save(compact(sparsify(model, x).model), tmp_path / "small.safetensors")
    lzero.load(zoo.make(name, **json.loads(json.dumps(options, default=int))), tmp_path / "small.safetensors")
    sizes = [value for module in model.modules() for value in vars(module).values()]
    assert not any(isinstance(value, np.generic) for value in sizes)


CALLS = {
    "sparsify": lambda model, _: sparsify(model, X),
    "compact": lambda model, _: compact(model),
    "project": lambda model, _: project(model, 0.5),
    "measure": lambda model, _: lzero.measure(model, X),
    "verify": lambda model, _: lzero.verify(model, nn.Linear(4, 2), X),
    "save": lzero.save,
    "load": lzero.load,
    "export": lambda model, path: lzero.export(model, path.with_suffix(".pt2"), X),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_what_is_no_model_is_refused_with_where_it_is(call, sparsifier, tmp_path):
    for thing in (sparsifier, "lenet5", tmp_path / "a", nn.Linear, None):
        with pytest.raises(ArgumentError, match=r"model: expected a torch\.nn\.Module, got .*sparsifier\.model"):
            call(thing, tmp_path / "a")
    assert not list(tmp_path.iterdir())


def test_what_a_model_is_compared_with_is_one(sparsifier):
    with pytest.raises(ArgumentError, match=r"small: expected a torch\.nn\.Module, got Sparsifier"):
        lzero.verify(sparsifier.model, sparsifier, X)


def test_what_is_no_path_is_refused_with_the_call():
    model = nn.Linear(4, 2)
    for path in (model, 3, None):
        for call in (lzero.save, lzero.load, lambda model, path: lzero.export(model, path, X)):
            with pytest.raises(ArgumentError, match=r"path: expected a path, got \w+; \w+\(model, path"):
                call(model, path)
