"""The rules of multipliers, by numbers."""

import math

import pytest
import torch

from lzero.errors import ArgumentError
from lzero.objectives.duals import Ascent, PastExtrapolation, ProportionalIntegral, RestartedAscent, Restarts


def multipliers(dual, violations):
    dual.prepare(1, torch.device("cpu"))
    seen = []
    for violation in violations:
        dual.step(torch.tensor([violation]))
        seen.append(dual.multiplier.item())
    return seen


def test_ascent_follows_the_violation_down_to_zero():
    assert multipliers(Ascent(0.5), [1.0, 2.0, -1.0, -5.0, 1.0]) == pytest.approx([0.5, 1.5, 1.0, 0.0, 0.5])


def test_restarts_forget_as_soon_as_the_constraint_holds():
    assert multipliers(RestartedAscent(0.5), [1.0, 2.0, 0.0, 1.0, -0.1]) == pytest.approx([0.5, 1.5, 0.0, 0.5, 0.0])


def test_extrapolation_looks_where_the_violation_is_going():
    seen = multipliers(PastExtrapolation(0.5), [1.0, 2.0, 0.0])
    assert seen == pytest.approx([0.5, 0.5 + 0.5 * (4 - 1), max(0, 2.0 + 0.5 * (0 - 2))])


def test_extrapolation_spirals_in_where_ascent_spirals_out():
    """On min over x, max over y of (x − 50)·(y − 50), with the same rule for both players, far from 0."""

    def distance(rule):
        x, y = rule(0.1), rule(0.1)
        for player in (x, y):
            player.prepare(1, torch.device("cpu"))
            player.double().multiplier.fill_(51.0)
        for _ in range(400):
            right, up = x.multiplier - 50, y.multiplier - 50
            x.step(-up)
            y.step(right)
        return math.hypot(x.multiplier.item() - 50, y.multiplier.item() - 50)

    assert distance(Ascent) > 5
    assert distance(PastExtrapolation) < 1


def test_the_controller_is_proportional_and_integral_and_leaks():
    seen = multipliers(ProportionalIntegral(2.0, 0.5, leak=0.5), [1.0, 1.0, -0.1])
    integrals = [0.5, 1.0, max(0, 0.5 * 1.0 - 0.05)]
    assert seen == pytest.approx([integrals[0] + 2, integrals[1] + 2, integrals[2] - 0.2])


def test_the_step_grows_while_violated_and_shrinks_with_each_restart():
    dual = Restarts(lr=0.1, growth=0.05, period=10)
    assert multipliers(dual, [0.5] * 20)[-1] > 20 * 0.1 * dual.bound  # faster than plain ascent
    assert dual.rate.item() == pytest.approx(0.1 * math.exp(1), rel=1e-4)
    for _ in range(2):  # a constraint that goes on holding changes nothing more
        dual.step(torch.tensor([-0.1]))
        assert dual.multiplier.item() == 0
        assert dual.rate.item() == pytest.approx(0.1 * math.exp(0.5), rel=1e-4)


def test_the_multiplier_goes_down_where_the_violation_falls_fast():
    dual = Restarts(pace=0.03)
    multipliers(dual, [2.0] * 50)
    before, rate = dual.multiplier.item(), dual.rate.item()
    dual.step(torch.tensor([1.96]))  # a fall of 0.04
    assert dual.multiplier.item() == pytest.approx(before * 0.75, rel=1e-3)
    assert dual.rate.item() == pytest.approx(rate)
    dual.step(torch.tensor([1.94]))  # a fall within the pace, and within a fortieth of what is left
    assert dual.multiplier.item() > before * 0.75
    dual.step(torch.tensor([0.2]))
    before = dual.multiplier.item()
    dual.step(torch.tensor([0.19]))  # a fall of 0.01 where 0.19 / 40 is allowed
    assert dual.multiplier.item() == pytest.approx(before * 0.5, rel=1e-3)


@pytest.mark.parametrize("scale", [1e-2, 1.0, 1e2, 1e4])
def test_the_multiplier_needed_is_found_in_logarithmic_time(scale):
    seen = multipliers(Restarts(), [0.3] * 900)
    reached = next(k for k, multiplier in enumerate(seen) if multiplier > scale)
    assert reached < 170 + 240 * max(0, math.log10(scale))
    assert seen[reached] < 2 * scale  # and not by a leap


def test_a_rule_serves_one_constraint():
    dual = Ascent(0.1)
    dual.prepare(1, torch.device("cpu"))
    with pytest.raises(ArgumentError, match="dual: expected a rule for this constraint alone"):
        dual.prepare(1, torch.device("cpu"))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Ascent(0.0),
        lambda: RestartedAscent(-1.0),
        lambda: PastExtrapolation(float("nan")),
        lambda: ProportionalIntegral(leak=1.0),
        lambda: ProportionalIntegral(integral=0.0),
        lambda: Restarts(period=0),
        lambda: Restarts(settle=-1),
        lambda: Restarts(growth=float("inf")),
    ],
)
def test_impossible_rates_are_refused(make):
    with pytest.raises(ArgumentError, match="expected a number"):
        make()
