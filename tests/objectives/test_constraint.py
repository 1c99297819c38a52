"""The constrained objective: targets, groups, schedules, records, state, and stopping in time."""

import copy
import math
import pickle
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import lzero
from lzero.errors import ArgumentError, BudgetWarning, LzeroError
from lzero.objectives import Constraint, GroupLasso, NotFiniteError, Penalty, extra_gradient_step
from lzero.objectives.duals import Ascent, PastExtrapolation, ProportionalIntegral, RestartedAscent, Restarts
from lzero.objectives.schedules import cosine, linear
from lzero.projection import project
from tests.objectives.conftest import gated


@pytest.mark.parametrize("cost", ["l0", "gates", "params", "macs"])
@pytest.mark.parametrize("name", ["MLP", "LeNet-5", "ResNet-18", "GPT, fused"])
def test_densities_are_those_that_are_measured(name, cost):
    sparsifier = gated(name)
    sparsifier.log_alpha.data.uniform_(-4, 4)
    record = Constraint(sparsifier, 1.0, cost).record
    count = getattr(lzero.measure(sparsifier.model), cost)
    assert record.expected.item() == pytest.approx(count.expected / count.dense, rel=1e-5)


@pytest.mark.parametrize("cost", ["gates", "params", "macs"])
def test_dense_stays_dense_when_units_are_shrunk_away(cost):
    sparsifier = gated("LeNet-5")
    sparsifier.log_alpha.data.uniform_(1, 4)
    sparsifier.log_alpha.data[::2] = -30.0
    objective = Constraint(sparsifier, 0.5, cost)
    before = objective.record.expected.item()
    dense = getattr(lzero.measure(sparsifier.model), cost).dense
    assert sparsifier.shrink() > 0
    objective()
    objective.step()
    assert objective.record.expected.item() == pytest.approx(before, rel=1e-3)
    assert Constraint(sparsifier, 0.5, cost).budgets[0].limit == pytest.approx(0.5 * dense)
    assert getattr(lzero.measure(sparsifier.model), cost).dense == dense


@pytest.mark.parametrize("target", [0.5, "50%", " 50 % ", 310])
def test_targets_are_shares_percentages_or_numbers(sparsifier, target):
    (budget,) = Constraint(sparsifier, target, "l0").budgets
    expected = 310 if target == 310 else 0.5 * budget.dense
    assert budget.limit == pytest.approx(expected)


def test_the_term_is_the_multiplier_times_the_violation(sparsifier):
    objective = Constraint(sparsifier, 0.3, "params", dual=Ascent(2.0))
    share = objective.record.expected.item()
    assert objective().item() == 0
    objective.step()
    violation = torch.tensor(share / 0.3).log().item()
    assert objective.multiplier.item() == pytest.approx(2 * violation, rel=1e-5)
    assert objective().item() == pytest.approx(2 * violation**2, rel=1e-5)


def test_the_gradient_is_that_of_the_density(sparsifier):
    objective = Constraint(sparsifier, 0.3, "l0", dual=Ascent(1.0), violation="difference")
    objective()
    objective.step()
    objective().backward()
    p, weights = sparsifier.law.prob_active.detach(), sparsifier.l0_weights.float()
    expected = objective.multiplier * weights / weights.sum() * p * (1 - p)
    torch.testing.assert_close(sparsifier.log_alpha.grad, expected)


def test_one_constraint_for_each_layer_or_glob(sparsifier):
    layers = Constraint(sparsifier, 0.5, "l0", per="layer")
    assert [budget.name for budget in layers.budgets] == ["0", "2"]
    assert layers.record.names == ("l0 of 0", "l0 of 2")
    globs = Constraint(sparsifier, {"0": 0.4, "*": "60%"}, "l0")
    assert [budget.share for budget in globs.budgets] == pytest.approx([0.4, 0.6])
    sparsifier.log_alpha.data[sparsifier.groups[0].span] = -30.0
    assert globs.record.expected.tolist() == pytest.approx([0, globs.record.expected[1].item()], abs=1e-6)
    globs()
    globs.step()
    assert (globs.multiplier > 0).tolist() == [False, True]


def test_a_layers_cost_is_that_of_all_its_units_touch():
    sparsifier = gated("MLP")
    first, second = Constraint(sparsifier, 1.0, "params", per="layer").budgets
    assert first.dense == 12 * 24 + 24 + 24 * 16
    assert second.dense == 24 * 16 + 16 + 16 * 5


def test_several_constraints_at_once(sparsifier):
    both = Constraint(sparsifier, 0.3, "macs", dual=Ascent(1.0)) + Constraint(sparsifier, 0.2, "params")
    assert [budget.cost for budget in both.budgets] == ["macs", "params"]
    three = both + Penalty(sparsifier, 0.1)
    assert len(three.parts) == 3
    assert three().item() == pytest.approx(sum(part().item() for part in three.parts))
    three.step(torch.tensor(2.0))
    assert three.steps == three.parts[1].steps == 1
    assert three.record.names == ("0: macs", "1: params", "2: model")
    assert three.record.task_loss.item() == 2.0
    assert len(three.state_dict()) > len(both.parts[0].state_dict())
    with pytest.raises(ArgumentError, match="objectives of one model"):
        both + Penalty(gated(), 0.1)
    with pytest.raises(ArgumentError, match="parts: expected each objective once"):
        both + both.parts[0]
    assert len(sum([Penalty(sparsifier, 0.1), Penalty(sparsifier, 0.2)]).parts) == 2


def test_the_target_comes_down_from_one():
    sparsifier = gated()
    objective = Constraint(sparsifier, 0.25, "l0", schedule=linear(2))
    targets = []
    for _ in range(4):
        targets.append(objective.target().item())
        objective.step()
    assert targets == pytest.approx([1.0, 0.5, 0.25, 0.25])
    warmed = Constraint(sparsifier, 0.25, "l0", steps=100)
    warmed.set_extra_state(torch.tensor(30))
    assert warmed.target().item() == pytest.approx(0.25)
    warmed.set_extra_state(torch.tensor(15))
    assert warmed.target().item() == pytest.approx(0.5)


def test_with_realised_densities_multipliers_follow_the_test_time_network(sparsifier):
    sparsifier.log_alpha.data.fill_(-2.5)  # closed at test time, active with a probability of 0.29
    expected = Constraint(sparsifier, 0.2, "l0", dual=Ascent(1.0))
    realised = Constraint(sparsifier, 0.2, "l0", dual=Ascent(1.0), dual_density="realised")
    for objective in (expected, realised):
        objective()
        objective.step()
    assert expected.multiplier.item() > 0
    assert realised.multiplier.item() == 0
    sparsifier.log_alpha.data.fill_(-2.0)
    realised()
    realised.step()
    assert realised.multiplier.item() == pytest.approx(-torch.tensor(0.2).log().item())
    realised().backward()
    assert sparsifier.log_alpha.grad.abs().min() > 0  # by the expected density


def test_with_realised_densities_multipliers_move_by_what_was_there_before_the_optimizers_step(sparsifier):
    sparsifier.log_alpha.data = torch.linspace(-3, 0, sparsifier.num_gates)
    objective = Constraint(sparsifier, 0.3, "l0", dual=Ascent(1.0), dual_density="realised")
    objective()
    density = objective.record.realised.item()
    sparsifier.log_alpha.data -= 1.0
    objective.step()
    assert objective.multiplier.item() == pytest.approx(math.log(density / 0.3), rel=1e-5)


def test_the_record_has_plain_numbers_and_reads_well(sparsifier):
    objective = Constraint(sparsifier, 0.3)
    objective()
    objective.step(torch.tensor(1.5))
    numbers = objective.record.as_dict()
    assert numbers["task_loss"] == 1.5
    assert numbers["step"] == 1
    assert set(numbers["groups"]["macs"]) == {"expected", "realised", "violation", "multiplier"}
    assert str(objective.record).startswith("step 1: loss 1.5, term 0\n  macs: 98")


@pytest.mark.parametrize(
    "make", [lambda: Ascent(0.1), lambda: PastExtrapolation(0.1), ProportionalIntegral, Restarts, lambda: None]
)
def test_state_goes_to_disk_and_back(sparsifier, make):
    def run(objective, steps):
        for _ in range(steps):
            objective()
            objective.step()
        return objective

    first = run(Constraint(sparsifier, 0.3, "macs", dual=make(), schedule=linear(20)), 7)
    saved = copy.deepcopy(first.state_dict())
    second = Constraint(sparsifier, 0.3, "macs", dual=make(), schedule=linear(20))
    second.load_state_dict(saved)
    assert second.steps == 7
    assert torch.equal(run(first, 5).multiplier, run(second, 5).multiplier)


def test_targets_are_arguments_and_no_state(sparsifier):
    half, fifth = Constraint(sparsifier, 0.5), Constraint(sparsifier, 0.2)
    fifth.load_state_dict(half.state_dict())
    assert fifth.target().item() == pytest.approx(0.2)


def test_objectives_are_pickled_with_their_model(sparsifier):
    objective = Constraint(sparsifier, 0.3, "macs", steps=100) + Penalty(sparsifier, 0.1, schedule=cosine(5))
    objective()
    objective.step()
    again = pickle.loads(pickle.dumps(objective))  # noqa: S301 (our own)
    assert again().item() == pytest.approx(objective().item())
    assert again.sparsifier is not sparsifier


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("cost", ["l0", "gates", "params", "macs"])
def test_autocast_leaves_counts_alone(dtype, cost):
    sparsifier = lzero.sparsify(nn.Sequential(nn.Linear(600, 400), nn.ReLU(), nn.Linear(400, 600)), torch.randn(2, 600))
    objective = Constraint(sparsifier, 0.3, cost, dual=Ascent(1.0))
    objective.step()
    expected = objective()
    with torch.autocast("cpu", dtype=dtype):
        assert objective().item() == pytest.approx(expected.item(), rel=1e-6)


def test_a_target_may_be_the_least_there_is(sparsifier):
    with pytest.raises(ArgumentError, match="at least 25 parameters"):
        Constraint(sparsifier, 24, "params")
    assert Constraint(sparsifier, 25, "params").budgets[0].limit == 25


def test_multipliers_are_cast_with_the_objective(sparsifier):
    objective = Constraint(sparsifier, 0.3).double()
    objective()
    objective.step()
    assert objective.multiplier.dtype == torch.float64
    assert objective.dual.rate.dtype == torch.float64
    assert objective().dtype == torch.float64


def test_extra_gradient_steps_with_what_it_finds_one_step_ahead():
    """On min over w, max over λ ≥ 0 of w²/2 + λ·(density − ε), with plain gradient descent: by hand."""
    model = nn.Linear(4, 1, bias=False).double()
    sparsifier = lzero.sparsify(model, torch.randn(2, 4).double(), inputs=True)
    model.double()
    objective = Constraint(sparsifier, 0.25, "l0", dual=Ascent(0.5), violation="difference").double()
    objective.dual.multiplier.fill_(1.0)
    optimizer = torch.optim.SGD(sparsifier.param_groups(lr=0.1, gate_lr=3.0))
    weight, location = model._parameters["weight"].detach().clone(), sparsifier.log_alpha.detach().clone()

    def gradient(at, multiplier):
        p = sparsifier.bank.law(at).prob_active
        return multiplier / 4 * p * (1 - p), p.mean() - 0.25

    slope, violation = gradient(location, 1.0)
    ahead, ahead_multiplier = location - 3.0 * slope, 1.0 + 0.5 * violation
    slope, violation = gradient(ahead, ahead_multiplier)
    extra_gradient_step(optimizer, objective, lambda: model._parameters["weight"].square().sum() / 2)
    torch.testing.assert_close(sparsifier.log_alpha.detach(), location - 3.0 * slope)
    torch.testing.assert_close(objective.multiplier, (1.0 + 0.5 * violation).reshape(1))
    torch.testing.assert_close(model._parameters["weight"].detach(), weight - 0.1 * (weight - 0.1 * weight))
    assert objective.steps == 1


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD])
def test_extra_gradient_trains_a_sum_as_it_does_its_parts(kind):
    def gates(alone):
        sparsifier = gated()
        optimizer = kind(sparsifier.param_groups(lr=1e-3, gate_lr=0.1))
        objective = Constraint(sparsifier, 0.3, "l0", dual=Ascent(1.0))
        objective = objective if alone else objective + Penalty(sparsifier, 0.0)
        x = sparsifier.example_inputs[0]
        for _ in range(5):
            extra_gradient_step(optimizer, objective, lambda: sparsifier.model.eval()(x).square().mean())
        return sparsifier.log_alpha.detach()

    torch.testing.assert_close(gates(True), gates(False))


def test_extra_gradient_goes_back_where_the_loss_ahead_is_not_to_be_had():
    sparsifier = gated()
    optimizer = torch.optim.Adam(sparsifier.param_groups(lr=1e-3, gate_lr=0.1))
    objective = Constraint(sparsifier, 0.3, "l0", dual=Ascent(1.0))
    state, calls = copy.deepcopy(sparsifier.model.state_dict()), []

    def task_loss():
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return sparsifier.model(sparsifier.example_inputs[0]).square().mean()

    with pytest.raises(KeyboardInterrupt):
        extra_gradient_step(optimizer, objective, task_loss)
    assert all(torch.equal(state[name], now) for name, now in sparsifier.model.state_dict().items())
    assert objective.multiplier.item() == 0
    assert not optimizer.state[sparsifier.log_alpha]


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD])
def test_extra_gradient_trains(kind):
    sparsifier = gated()
    optimizer = kind(sparsifier.param_groups(lr=1e-3, gate_lr=0.1 if kind is torch.optim.Adam else 10.0))
    objective = Constraint(sparsifier, 0.3, "l0", dual=RestartedAscent(1.0))
    x = sparsifier.example_inputs[0]
    for _ in range(150):
        extra_gradient_step(optimizer, objective, lambda: sparsifier.model(x).square().mean())
    assert objective.record.expected.item() < 0.5
    with pytest.raises(ArgumentError, match="an optimizer that holds the gates"):
        extra_gradient_step(kind([torch.nn.Parameter(torch.zeros(1))], lr=1.0), objective, lambda: 0)
    sparsifier.attach(optimizer, objective)
    with pytest.raises(LzeroError, match="an objective is attached"):
        extra_gradient_step(optimizer, objective, lambda: 0)


def test_gates_that_are_no_numbers_stop_the_training_with_their_site(sparsifier):
    objective = Constraint(sparsifier, 0.3)
    objective()
    objective.step()
    sparsifier.log_alpha.data[sparsifier.groups[1].start] = float("nan")
    objective()
    with pytest.raises(NotFiniteError, match="the gates of 2 are not finite at step 1; go back to the last checkpoint"):
        objective.step()
    assert objective.multiplier.isfinite().all()


@pytest.mark.parametrize("make", [lambda s: Constraint(s, 0.3), lambda s: Penalty(s, 0.1)])
def test_a_loss_that_is_no_number_stops_the_training(sparsifier, make):
    objective = make(sparsifier)
    objective()
    with pytest.raises(NotFiniteError, match="the task's loss is not finite at step 0"):
        objective.step(torch.tensor(float("inf")))


def steps(objective, count, fall=0.0):
    """So many steps in which all gates fall alike."""
    for _ in range(count):
        objective.sparsifier.log_alpha.data -= fall
        objective.step()


def test_a_term_that_is_no_number_stops_the_training(sparsifier):
    objective = Penalty(sparsifier, 0.1, l2=1.0)
    sparsifier.model[0].weight.data[0, 0] = float("nan")
    objective()
    with pytest.raises(
        NotFiniteError, match="the objective's term, from its multipliers or from weights, is not finite"
    ):
        objective.step(0.5)
    constrained = Constraint(sparsifier, 0.3, dual=Ascent(1.0))
    constrained.multiplier.fill_(float("nan"))
    constrained()
    with pytest.raises(NotFiniteError, match="the objective's term"):
        constrained.step()


def test_a_warning_says_when_gates_hardly_move(sparsifier):
    with pytest.warns(BudgetWarning, match=r"30.0% MACs will not be met: 98.\d% expected at step 1000"):
        steps(Constraint(sparsifier, 0.3), 1002, fall=1e-6)


@pytest.mark.parametrize("length", [None, 10_000])
def test_a_warning_asks_for_gates_that_no_optimizer_has(sparsifier, length):
    with pytest.warns(BudgetWarning, match=r"not moved at all between steps 0 and 1000; are they in the optimizer\?"):
        steps(Constraint(sparsifier, 0.3, steps=length), 1002)


def test_gates_that_move_too_little_for_the_density_are_not_said_to_stand_still(sparsifier):
    """A warning that they do would send their owner looking in the wrong place, and hide the one that helps."""
    with pytest.warns(BudgetWarning) as told:
        steps(Constraint(sparsifier, 0.3, steps=100), 60, fall=3e-7)
    assert len(told) == 1
    assert "will not be met" in str(told[0].message)


def test_gates_that_stood_still_and_are_then_too_slow_are_warned_of_twice(sparsifier):
    objective = Constraint(sparsifier, 0.3, steps=100)
    with pytest.warns(BudgetWarning, match="not moved at all between steps 0 and 10") as first:
        steps(objective, 30)
    with pytest.warns(BudgetWarning, match="will not be met") as second:
        steps(objective, 60, fall=1e-3)
    assert first[0].filename == second[0].filename == __file__  # where the objective was told to step


def test_a_learning_rate_that_begins_at_zero_is_not_warned_of(sparsifier):
    objective = Constraint(sparsifier, 0.3, steps=10)
    with warnings.catch_warnings(record=True) as told:
        steps(objective, 1)
        steps(objective, 3, fall=1.0)
    assert not told


def test_the_record_after_loading_is_of_what_was_loaded(sparsifier):
    objective = Constraint(sparsifier, 0.3, dual=Ascent(0.1))
    steps(objective, 2, fall=0.1)
    saved, log_alpha = objective.state_dict(), sparsifier.log_alpha.detach().clone()
    macs = lzero.measure(sparsifier.model).macs
    steps(objective, 20, fall=0.1)
    sparsifier.log_alpha.data.copy_(log_alpha)
    objective.load_state_dict(saved)
    assert objective.record.expected.item() == pytest.approx(macs.expected / macs.dense, rel=1e-5)


def test_a_refused_budget_says_of_which_layer_it_is():
    model = nn.Sequential(nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 10), nn.ReLU(), nn.Linear(10, 3))
    sparsifier = lzero.sparsify(model, torch.randn(2, 12))
    with pytest.raises(ArgumentError, match=r"at least 3 gated parameters for 2 \(10.00% of dense\)"):
        Constraint(sparsifier, 0.06, "l0", per="layer")


def test_a_budget_of_less_than_a_gate_is_refused():
    """Ten of sixty features are a share; ten gated parameters are not a sixth of one feature's."""
    model = nn.Sequential(nn.Linear(60, 64), nn.ReLU(), nn.Linear(64, 2))
    sparsifier = lzero.sparsify(model, torch.randn(2, 60), include="inputs of *", inputs=True)
    with pytest.raises(
        ArgumentError,
        match=r'at least 64 gated parameters \(1.67% of dense\), .* got 10; to keep 10 units count them: cost="gates"',
    ):
        Constraint(sparsifier, 10, "l0")
    project(model, 10, "gates")
    assert lzero.compact(model)[0].in_features == 10


@pytest.mark.parametrize(
    ("target", "limit"), [(1, 1), (1.0, 1), (10, 10), (0.5, 30), ("100%", 60), ({"inputs of *": 3}, 3)]
)
def test_of_gates_one_is_one_and_shares_are_below(target, limit):
    model = nn.Sequential(nn.Linear(60, 64), nn.ReLU(), nn.Linear(64, 2))
    sparsifier = lzero.sparsify(model, torch.randn(2, 60), include="inputs of *", inputs=True)
    assert Constraint(sparsifier, target, "gates").budgets[0].limit == pytest.approx(limit)
    project(model, target if not isinstance(target, dict) else 3, "gates")
    assert lzero.compact(model)[0].in_features == limit
    with pytest.raises(
        ArgumentError, match=r"target: expected at least 1 open gates \(1.67% of dense\), which one gate"
    ):
        Constraint(sparsifier, 0.01, "gates")


def test_a_budget_is_met_by_closing_gates_of_an_objective_that_never_stepped(sparsifier):
    with pytest.warns(BudgetWarning, match="nothing was trained towards it"):
        lzero.compact(sparsifier.model, budget=Constraint(sparsifier, 0.3))


def test_a_warning_says_what_will_not_be_met_in_the_steps_left(sparsifier):
    sparsifier.log_alpha.data.fill_(0.0)
    with pytest.warns(BudgetWarning, match="at the end, at this pace.*param_groups"):
        steps(Constraint(sparsifier, 0.3, "l0", steps=100), 60, fall=0.001)


def test_a_density_that_falls_faster_and_faster_is_left_alone_till_late(sparsifier):
    sparsifier.log_alpha.data.fill_(2.0)
    objective = Constraint(sparsifier, 0.3, "l0", steps=100)
    with warnings.catch_warnings(record=True) as seen:
        for step in range(80):
            sparsifier.log_alpha.data -= 0.0005 * step
            objective.step()
    assert seen == []
    with pytest.warns(BudgetWarning, match="at step 80"):
        steps(objective, 1)


def test_no_warning_where_the_target_will_be_met(sparsifier):
    sparsifier.log_alpha.data.fill_(0.0)
    objective = Constraint(sparsifier, 0.3, "l0", steps=100)
    with warnings.catch_warnings(record=True) as seen:
        steps(objective, 100, fall=0.03)
    assert seen == []
    assert objective.record.expected.item() <= 0.3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target": 0.0}, "target: expected a share such as 0.3"),
        ({"target": -0.5}, "target: expected a share"),
        ({"target": float("nan")}, "target: expected a share"),
        ({"target": True}, "target: expected a share"),
        ({"target": "0.3"}, "target: expected a share"),
        ({"target": "half"}, "target: expected a share"),
        ({"target": "abc%"}, "target: expected a share"),
        ({"target": None}, "target: expected a share"),
        ({"target": "150%"}, "the dense network needs no budget"),
        ({"target": 10_000_000}, "the dense network needs no budget"),
        ({"target": 0.3, "cost": "flops"}, 'cost: expected "l0" or "gates" or "params" or "macs", got \'flops\''),
        ({"target": 0.3, "per": "block"}, 'per: expected "model" or "layer"'),
        ({"target": {}}, "target: expected at least one glob"),
        ({"target": {"conv*": 0.3}}, "target: expected globs that match one of 0, 2"),
        ({"target": 0.3, "violation": "ratio"}, "violation: expected"),
        ({"target": 0.3, "dual_density": "median"}, "dual_density: expected"),
        ({"target": 0.3, "steps": 0}, "steps: expected a whole number of optimizer steps from 1"),
        ({"target": 0.3, "schedule": 5}, "schedule: expected a function of the step"),
        ({"target": 0.3, "steps": True}, "steps: expected a whole number of optimizer steps from 1"),
        ({"target": 0.3, "steps": "10"}, "steps: expected a whole number of optimizer steps from 1"),
        ({"target": 0.3, "dual": Ascent}, "dual: expected a rule of lzero.objectives.duals"),
        ({"target": {"*": 0.3}, "per": "layer"}, "per: expected nothing beside one target for each glob"),
    ],
)
def test_bad_input_is_refused(sparsifier, arguments, message):
    with pytest.raises(ArgumentError, match=message):
        Constraint(sparsifier, **arguments)


def test_a_target_below_what_is_pinned_says_how_much_that_is_and_whose():
    sparsifier = gated("GPT, separate")
    message = (
        r"target: expected at least [\d,]+ parameters \(\d+\.\d+% of dense\), which cannot be removed, got 3; "
        r'3 counts parameters, a share is 0.03 or "3%"; most of it: .*weight [\d,]+'
    )
    with pytest.raises(ArgumentError, match=message):
        Constraint(sparsifier, 3, "params")
    floor = Constraint(sparsifier, 1.0, "params").budgets[0].dense
    with pytest.raises(ArgumentError, match="for "):
        Constraint(sparsifier, 0.0001, "macs", per="layer")
    assert floor > 3


def test_budgets_in_parameters_need_units_to_remove():
    sparsifier = gated("MLP", units="weights")
    with pytest.raises(ArgumentError, match='cost: expected "l0" or "gates" for gates on single weights'):
        Constraint(sparsifier, 0.5, "params")
    assert Constraint(sparsifier, 100, "gates").budgets[0].dense == sparsifier.num_gates


@pytest.mark.parametrize("make", [lambda s: Constraint(s, 0.3), lambda s: Penalty(s, 0.1)])
def test_after_numbers_that_were_none_the_last_state_goes_on(sparsifier, make):
    objective = make(sparsifier)
    objective()
    objective.step(1.0)
    good = copy.deepcopy(objective.state_dict())
    objective()
    with pytest.raises(NotFiniteError):
        objective.step(float("nan"))
    objective.load_state_dict(good)
    assert objective.record.task_loss is None
    objective()
    objective.step(1.0)
    assert objective.steps == 2


def test_a_training_that_went_back_to_a_checkpoint_forgets_what_was_not_finite(sparsifier):
    objective, optimizer = Constraint(sparsifier, 0.5, "params"), torch.optim.Adam([sparsifier.log_alpha], lr=0.1)

    def step():
        optimizer.zero_grad()
        objective().backward()
        optimizer.step()
        objective.step()

    for _ in range(3):
        step()
    saved = copy.deepcopy([each.state_dict() for each in (sparsifier.model, objective, optimizer)])
    step()
    expected = objective.multiplier.clone()
    sparsifier.log_alpha.data.fill_(float("nan"))
    with pytest.raises(NotFiniteError):
        step()
    for each, state in zip((sparsifier.model, objective, optimizer), saved, strict=True):
        each.load_state_dict(state)
    step()
    assert torch.equal(objective.multiplier, expected)


def test_multipliers_wait_for_gates_that_are_frozen():
    sparsifier = gated()
    optimizer = torch.optim.Adam(sparsifier.param_groups(lr=1e-3))
    objective = Constraint(sparsifier, 0.3, "l0", steps=50)
    sparsifier.model.requires_grad_(False)
    for _ in range(60):
        objective()
        optimizer.step()
        objective.step()
    assert (objective.steps, objective.multiplier.item()) == (0, 0)
    sparsifier.model.requires_grad_(True)
    for _ in range(2):
        objective().backward()
        optimizer.step()
        objective.step()
    assert objective.steps == 2
    assert objective.multiplier.item() > 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_multipliers_are_never_in_half_precision(sparsifier, dtype):
    """Where steps of a thousandth would be lost."""
    holder = nn.ModuleList([Constraint(sparsifier, 0.3, dual=Ascent(1e-3)), Penalty(sparsifier, 1e-6)]).to(dtype)
    assert {buffer.dtype for buffer in holder.buffers()} == {torch.float32}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(
    "make", [lambda s: Constraint(s, 0.3), lambda s: Penalty(s, 1e-6), lambda s: GroupLasso(s, 1.0, 0.5)]
)
def test_the_default_precision_changes_no_objective(sparsifier, make, dtype):
    expected = make(sparsifier)().item()
    torch.set_default_dtype(dtype)
    try:
        objective = make(sparsifier)
        objective.step()
    finally:
        torch.set_default_dtype(torch.float32)
    assert {buffer.dtype for buffer in objective.buffers()} == {torch.float32}
    assert make(sparsifier)().item() == pytest.approx(expected)


def test_an_extra_gradient_step_counts_as_one_for_the_averages_of_a_norm():
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2))
    sparsifier, x = lzero.sparsify(model, torch.randn(3, 4)), torch.randn(16, 4)
    optimizer = torch.optim.SGD(sparsifier.param_groups(lr=0.1))
    hidden = F.linear(x, model[0].weight, model[0].bias)
    expected = 0.1 * hidden.mean(0).detach()
    extra_gradient_step(optimizer, Constraint(sparsifier, 0.5), lambda: model(x).square().mean())
    assert model[1].num_batches_tracked == 1
    torch.testing.assert_close(model[1].running_mean, expected)
