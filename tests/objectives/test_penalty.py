"""The penalised objective: what it counts, per group and in expectation."""

import math

import pytest
import torch
from torch import nn

import lzero
from lzero.errors import ArgumentError
from lzero.objectives import Penalty
from lzero.objectives.expected_l2 import ExpectedL2
from lzero.objectives.schedules import cosine, linear
from tests.objectives.conftest import gated


@pytest.mark.parametrize("name", ["MLP", "LeNet-5", "ResNet-18"])
@pytest.mark.parametrize("units", ["structure", "paper", "weights"])
def test_it_is_the_strength_times_the_expected_l0_that_is_measured(name, units):
    sparsifier = gated(name, units=units)
    sparsifier.log_alpha.data.normal_()
    measured = lzero.measure(sparsifier.model).l0.expected
    assert Penalty(sparsifier, 0.01)().item() == pytest.approx(0.01 * measured, rel=1e-5)


def test_the_paper_counts_the_weights_of_each_input_and_of_each_map():
    sparsifier = gated("LeNet-5", units="paper")
    groups = {group.name: group for group in sparsifier.groups}
    probability = sparsifier.law.prob_active
    expected = 26 * probability[groups["0"].span].sum() + 151 * probability[groups["3"].span].sum()
    expected += 30 * probability[groups["inputs of 7"].span].sum() + 10 * probability[groups["7"].span].sum()
    assert Penalty(sparsifier, 1.0)().item() == pytest.approx(expected.item(), rel=1e-6)


def test_the_gradient_is_that_of_equation_12(sparsifier):
    Penalty(sparsifier, 1.0)().backward()
    p = sparsifier.law.prob_active.detach()
    torch.testing.assert_close(sparsifier.log_alpha.grad, sparsifier.l0_weights.float() * p * (1 - p))


def test_one_strength_for_each_glob(sparsifier):
    whole = {name: Penalty(sparsifier, {name: 1.0})().item() for name in ("0", "2")}
    both = Penalty(sparsifier, {"0": 3.0, "*": 5.0})
    assert both().item() == pytest.approx(3 * whole["0"] + 5 * whole["2"], rel=1e-6)
    assert both.record.names == ("0", "*")
    torch.testing.assert_close(both.record.multiplier, torch.tensor([3.0, 5.0]))


def test_criteria_are_strengths_by_name(sparsifier):
    assert Penalty(sparsifier, "aic", num_data=50).strength.item() == pytest.approx(1 / 50)
    assert Penalty(sparsifier, "bic", num_data=50).strength.item() == pytest.approx(math.log(50) / 100)


def test_a_schedule_is_a_factor_by_the_step(sparsifier):
    whole = Penalty(sparsifier, 0.1)().item()
    warm = Penalty(sparsifier, 0.1, schedule=linear(4))
    seen = []
    for _ in range(6):
        seen.append(warm().item() / whole)
        warm.step()
    assert seen == pytest.approx([0, 0.25, 0.5, 0.75, 1, 1], abs=1e-6)
    assert cosine(10, start=5)(5) == 0
    assert cosine(10, start=5)(15) == 1


@pytest.mark.parametrize(("name", "units"), [("MLP", "structure"), ("LeNet-5", "paper"), ("ResNet-18", "structure")])
def test_the_expected_l2_norm_is_that_of_sampled_survivors(name, units):
    sparsifier = gated(name, units=units)
    sparsifier.log_alpha.data.normal_(-1)
    law, l2 = sparsifier.law, ExpectedL2(sparsifier)
    with torch.no_grad():
        samples = [l2((law.sample() != 0).float()).item() for _ in range(600)]
        assert l2(law.prob_active).item() == pytest.approx(sum(samples) / len(samples), rel=0.03)


def test_the_expected_l2_norm_by_hand():
    model = nn.Sequential(nn.Linear(2, 3, bias=False), nn.ReLU(), nn.Linear(3, 1, bias=False))
    sparsifier = lzero.sparsify(model, torch.randn(2, 2))
    p = sparsifier.law.prob_active
    by_hand = (p[:, None] * model[0].weight.square()).sum() + (p * model[2].weight.square()).sum()
    assert ExpectedL2(sparsifier)(p).item() == pytest.approx(by_hand.item(), rel=1e-6)


@pytest.mark.parametrize("moves", [False, True])
def test_the_l2_norm_moves_gates_only_on_request(sparsifier, moves):
    Penalty(sparsifier, 0.0, l2=1.0, l2_moves_gates=moves)().backward()
    assert bool(sparsifier.log_alpha.grad is not None and sparsifier.log_alpha.grad.any()) == moves
    weight = sparsifier.model[2].weight
    assert weight.grad.abs().sum() > 0


def test_gates_may_count_one_each(sparsifier):
    probability = sparsifier.law.prob_active
    assert Penalty(sparsifier, 0.5, cost="gates")().item() == pytest.approx(0.5 * probability.sum().item(), rel=1e-5)
    bic = Penalty(sparsifier, "bic", num_data=100, cost="gates")
    assert bic().item() == pytest.approx(math.log(100) / 200 * probability.sum().item(), rel=1e-5)
    assert bic.record.expected.item() == pytest.approx(probability.mean().item(), rel=1e-5)


def test_removed_units_leave_the_penalty_of_the_others_as_it_was():
    sparsifier = gated("LeNet-5")
    sparsifier.log_alpha.data[::3] = -30.0
    before = Penalty(sparsifier, 1.0)().item()
    objective = Penalty(sparsifier, 1.0)
    assert sparsifier.shrink() > 0
    assert objective().item() == pytest.approx(before, rel=1e-5)
    assert objective.record.expected.item() == pytest.approx(before / sum(sparsifier.dense_l0.values()), rel=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"strength": -1.0}, "strength: expected a number from 0"),
        ({"strength": 1.0, "cost": "macs"}, 'cost: expected "l0" or "gates", got \'macs\''),
        ({"strength": float("nan")}, "strength: expected a number from 0"),
        ({"strength": True}, "strength: expected a number from 0"),
        ({"strength": "mdl"}, 'strength: expected a number, "aic" or "bic"'),
        ({"strength": "bic"}, 'num_data: expected a whole number of training examples from 2, got None; "bic"'),
        ({"strength": {}}, "strength: expected at least one glob with its λ"),
        ({"strength": {"nothing": 1.0}}, "strength: expected globs that match one of 0, 2"),
        ({"strength": {"*": 1.0, "0": 2.0}}, "matched by those before"),
        ({"strength": 1.0, "l2": -0.1}, "l2: expected a number from 0"),
        ({"strength": 1.0, "schedule": 3}, "schedule: expected a function of the step"),
        ({"strength": 1.0, "schedule": lambda _: None}, "schedule: .* number from 0, got None at step 0"),
        ({"strength": 1.0, "schedule": lambda _: float("nan")}, "schedule: .* number from 0, got nan at step 0"),
    ],
)
def test_bad_input_is_refused(sparsifier, arguments, message):
    with pytest.raises(ArgumentError, match=message):
        Penalty(sparsifier, **arguments)


def test_a_model_in_place_of_its_sparsifier_is_refused(sparsifier):
    with pytest.raises(ArgumentError, match="pass the sparsifier, not the model"):
        Penalty(sparsifier.model, 1.0)


class WideAndDeep(nn.Module):
    """A layer that reads units beside raw inputs."""

    def __init__(self):
        super().__init__()
        self.deep, self.out = nn.Linear(5, 7), nn.Linear(12, 3)

    def forward(self, x):
        return self.out(torch.cat([torch.tanh(self.deep(x)), x], -1))


def test_weights_that_a_unit_has_counted_are_not_counted_with_its_column():
    sparsifier = lzero.sparsify(WideAndDeep(), torch.randn(2, 5), units="paper")
    assert sparsifier.l0_weights.sum() == 5 * 7 + 12 * 3
    assert lzero.measure(sparsifier.model).l0.dense == 5 * 7 + 12 * 3
