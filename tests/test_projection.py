"""Budgets really hold: what is left costs at most the target, and hardly less."""

import copy
import logging

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn

import lzero
from lzero.budgets import Budget, Meter, make_budgets
from lzero.costs import OF_GATES
from lzero.decision import decide, decide_from
from lzero.errors import ArgumentError, BudgetWarning, LzeroError
from lzero.laws import HardConcrete
from lzero.objectives import Constraint, Penalty
from lzero.projection import project, project_to
from lzero.search import BORDERLINE
from tests import models
from tests.objectives.conftest import gated

COSTS = ["l0", "gates", "params", "macs"]
FAMILIES = ["MLP", "LeNet-5", "ResNet-18", "MobileNet", "U-Net", "DenseNet", "ResNeXt", "GPT, fused", "Llama"]
known = {name: gated(name) for name in FAMILIES}


def with_gates(name, seed):
    sparsifier = copy.deepcopy(known[name])
    generator = torch.Generator().manual_seed(seed)
    spread = 0.5 + 6 * torch.rand((), generator=generator)
    shift = 6 * torch.rand((), generator=generator) - 3
    with torch.no_grad():
        sparsifier.log_alpha.copy_(spread * torch.randn(sparsifier.log_alpha.shape, generator=generator) + shift)
    return sparsifier


def floor(sparsifier, cost):
    """The share that no choice of gates goes below."""
    smallest = decide_from(sparsifier, torch.zeros_like(sparsifier.log_alpha.detach()))
    return Meter(sparsifier, cost).realised(smallest).item()


def likeliest(sparsifier, gates):
    """Of these gates the likeliest of each group: where widths are rounded, the others wait for it."""
    probability = torch.where(gates, sparsifier.law.prob_active.detach(), -1.0)
    best = [group.start + int(probability[group.span].argmax()) for group in sparsifier.groups]
    return [gate for gate in best if gates[gate]]


@settings(max_examples=60, deadline=None)
@example(name="DenseNet", seed=4951, cost="macs", place=0.0078125, round_to=4)  # less is left with more open
@given(
    name=st.sampled_from(FAMILIES),
    seed=st.integers(0, 10_000),
    cost=st.sampled_from(COSTS),
    place=st.floats(0.001, 0.999),
    round_to=st.sampled_from([1, 1, 2, 4]),
)
def test_what_is_left_fits_and_nothing_more_would(name, seed, cost, place, round_to):
    sparsifier = with_gates(name, seed)
    low = Meter(sparsifier, cost).realised(decide_from(sparsifier, torch.zeros(len(sparsifier.log_alpha)), round_to))
    weights = sparsifier.l0_weights if cost == "l0" else torch.ones(sparsifier.num_gates)
    low = weights.min() / weights.sum() if cost in OF_GATES else low  # less than one gate is refused
    target = low.item() + place * (1 - low.item()) + 1e-9
    before = sparsifier.log_alpha.detach().clone()
    (budget,) = make_budgets(sparsifier, target, cost)
    projection = project_to(sparsifier, [budget], round_to)
    left = Meter(sparsifier, cost).realised(decide(sparsifier, round_to)).item()
    assert left <= target * (1 + 1e-9)
    assert left == pytest.approx(projection.after[0])
    open_ = (sparsifier.law.estimate("eq13") > 0).cpu()
    was_open = sparsifier.bank.law(before).estimate("eq13") > 0
    could_open = ~open_ & (was_open | (sparsifier.bank.law(before).prob_active >= BORDERLINE))
    for gate in likeliest(sparsifier, could_open) if round_to > 1 else np.flatnonzero(could_open.numpy())[:40]:
        trial = open_.double()
        trial[gate] = 1
        more = Meter(sparsifier, cost).realised(decide_from(sparsifier, trial, round_to)).item()
        assert more > target or more <= left  # another unit may take the place of one that was kept against emptiness
    assert sum(projection.closed.values()) == int((was_open & ~open_).sum())
    assert sum(projection.opened.values()) == int((~was_open & open_).sum())
    untouched = (was_open == open_).numpy()
    assert torch.equal(sparsifier.log_alpha.detach()[untouched], before[untouched])


@pytest.mark.parametrize("name", FAMILIES)
def test_the_compacted_model_is_counted_not_the_plan(name):
    for cost in ("params", "macs"):
        sparsifier = with_gates(name, 3)
        x = sparsifier.example_inputs
        objective = Constraint(sparsifier, (1 + floor(sparsifier, cost)) / 2, cost)
        small = lzero.compact(sparsifier.model, budget=objective)
        assert getattr(lzero.measure(small, x), cost).dense <= objective.budgets[0].limit
        assert lzero.verify(sparsifier.model, small, x) < 1e-4


@pytest.mark.filterwarnings("ignore::lzero.errors.BudgetWarning")  # gates that nobody trained
def test_compaction_to_a_budget_leaves_the_gated_model_alone(caplog):
    sparsifier = gated("LeNet-5")
    models.set_gates(sparsifier, 0.7)
    before = {name: value.clone() for name, value in sparsifier.model.state_dict().items()}
    objective = Constraint(sparsifier, 0.3, "params")
    with caplog.at_level(logging.INFO, logger="lzero"):
        small = lzero.compact(sparsifier.model, budget=objective)
    assert all(torch.equal(value, before[name]) for name, value in sparsifier.model.state_dict().items())
    assert "parameters (30.0% of" in caplog.text
    assert "closed " in caplog.text
    x = sparsifier.example_inputs
    lzero.verify(sparsifier.model, small, x)
    with torch.no_grad():  # and without the moved gates, it would not be the same
        assert not torch.allclose(sparsifier.model.eval()(*x), small.eval()(*x))


def test_gates_close_by_alpha_per_cost():
    sparsifier = gated("MLP")
    first = sparsifier.groups[0]
    sparsifier.log_alpha.data.fill_(6.0)
    sparsifier.log_alpha.data[first.start : first.start + 6] = torch.tensor([1.0, -1.0, 0.0, -2.0, 2.0, -1.5])
    weights = sparsifier.l0_weights
    project(sparsifier.model, 1 - float(3 * weights[0] / weights.sum()), "l0")
    closed = (sparsifier.law.estimate("eq13") == 0).nonzero().flatten()
    assert (closed - first.start).tolist() == [1, 3, 5]


def test_of_gates_that_are_all_sure_the_surest_stays():
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3))
    sparsifier = lzero.sparsify(model, torch.randn(1, 4))
    sparsifier.log_alpha.data.copy_(torch.tensor([20.0, 30.0, 25.0, 22.0]))  # active with a probability of 1, all four
    for left, kept in ((0.75, [1, 2, 3]), (0.5, [1, 2]), (0.25, [1])):
        project(model, left)
        assert (sparsifier.law.estimate("eq13") > 0).nonzero().flatten().tolist() == kept


def test_of_gates_that_were_sure_and_all_close_the_surest_is_kept_against_emptiness():
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3))
    sparsifier = lzero.sparsify(model, torch.randn(1, 4))
    sparsifier.log_alpha.data.copy_(torch.tensor([20.0, 30.0, 25.0, 22.0]))
    assert project_to(sparsifier, [Budget("l0", 1.2, 12.0, "model", ())]).closed == {"0": 4}
    assert torch.equal(lzero.compact(model)[0].weight, model[0].weight[1:2])


def test_the_last_gate_of_a_group_closes_after_all_others():
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 20), nn.ReLU(), nn.Linear(20, 1))
    lzero.sparsify(model, torch.randn(1, 3))
    # Two gates cost 20, twenty cost 1. By mass per cost the two are least, and without them 20 of 60 would be left.
    assert project(model, 21 / 60, "l0").closed == {"0": 1, "2": 19}


def test_closed_gates_have_no_part_in_their_groups_mass():
    model = nn.Sequential(nn.Linear(3, 204), nn.ReLU(), nn.Linear(204, 5), nn.ReLU(), nn.Linear(5, 5))
    sparsifier = lzero.sparsify(model, torch.randn(1, 3))
    wide, _ = sparsifier.groups
    sparsifier.log_alpha.data.fill_(2.0)
    sparsifier.log_alpha.data[wide.start + 4 : wide.stop] = -2.5  # closed, and together half as heavy as the open ones
    target = 8 / len(sparsifier.log_alpha)  # of nine open gates of the same cost, four of the wide layer
    assert project(model, target, "l0").closed == {"2": 1}


def test_a_few_dear_gates_close_before_most_of_a_cheap_layer():
    sparsifier = lzero.sparsify(
        nn.Sequential(nn.Linear(100, 20), nn.ReLU(), nn.Linear(20, 200), nn.ReLU(), nn.Linear(200, 2)),
        torch.randn(1, 100),
    )
    dear, cheap = sparsifier.groups
    sparsifier.log_alpha.data[dear.span] = torch.linspace(3.0, 6.0, 20)  # all of them fully open
    sparsifier.log_alpha.data[cheap.span] = 2.0  # none of them
    assert project(sparsifier.model, 0.9, "l0").closed == {"0": 3}


def test_gates_that_are_as_good_as_gone_stay_closed():
    sparsifier = gated("MLP")
    sparsifier.log_alpha.data.fill_(-9.0)
    sparsifier.log_alpha.data[:4] = 5.0
    sparsifier.log_alpha.data[4:8] = -2.6  # closed, active with a probability of 0.27
    projection = project(sparsifier.model, 0.9, "l0")
    assert projection.opened == {"0": 4}
    mean = sparsifier.bank.law(torch.tensor(-2.6)).mean
    torch.testing.assert_close(sparsifier.law.estimate("eq13")[4:8], mean.expand(4), rtol=1e-3, atol=1e-4)


def test_several_budgets_hold_together():
    sparsifier = with_gates("ResNet-18", 5)
    objective = Constraint(sparsifier, 0.4, "macs") + Constraint(sparsifier, 0.25, "params")
    small = lzero.compact(sparsifier.model, budget=objective)
    measured = lzero.measure(small, sparsifier.example_inputs)
    macs, params = (budget.limit for budget in objective.budgets)
    assert measured.macs.dense <= macs
    assert measured.params.dense <= params


def test_budgets_for_layers_hold_in_each():
    sparsifier = with_gates("LeNet-5", 5)
    objective = Constraint(sparsifier, {"0": 0.5, "3": 0.3, "*": "20%"}, "l0")
    projection = project_to(sparsifier, objective.budgets)
    for budget, after in zip(projection.budgets, projection.after, strict=True):
        assert after * budget.dense <= budget.limit + 1e-6
    lzero.compact(sparsifier.model)


@pytest.mark.parametrize("estimator", ["eq13", "median"])
def test_each_estimator_has_its_own_edge(estimator):
    sparsifier = gated("MLP", estimator=estimator)
    sparsifier.log_alpha.data.normal_()
    project(sparsifier.model, 0.5, "params")
    realised = lzero.measure(sparsifier.model).params
    assert 0.45 * realised.dense < realised.realised <= 0.5 * realised.dense


def test_means_are_computed_of_gates_that_may_open_alone(monkeypatch):
    """They are integrals: of the millions that weights may have, they would take minutes."""
    asked, mean = [], HardConcrete.mean.fget
    monkeypatch.setattr(HardConcrete, "mean", property(lambda law: asked.append(law.log_alpha.numel()) or mean(law)))
    sparsifier = with_gates("MLP", 0)
    law = sparsifier.law
    borderline = (law.estimate("eq13") == 0) & (law.prob_active >= BORDERLINE)
    project_to(sparsifier, make_budgets(sparsifier, 0.5, "params"))
    assert 0 < sum(asked) == borderline.sum() < sparsifier.num_gates


def test_rounded_widths_fit_the_budget():
    sparsifier = gated("LeNet-5")
    objective = Constraint(sparsifier, 0.5, "params")
    with pytest.warns(BudgetWarning) as told:
        small = lzero.compact(sparsifier.model, budget=objective, round_to=4)
    assert told[0].filename == __file__  # where it was called
    assert [small[k].weight.shape[0] in (size, *range(4, size, 4)) for k, size in ((0, 6), (3, 10), (7, 30))] == [
        True
    ] * 3
    assert lzero.measure(small, sparsifier.example_inputs).params.dense <= objective.budgets[0].limit


def test_it_can_be_trained_on():
    sparsifier = with_gates("MLP", 1)
    project(sparsifier.model, 0.3, "macs")
    sparsifier.model.train()(sparsifier.example_inputs[0]).square().mean().backward()
    assert sparsifier.log_alpha.grad.isfinite().all()


def test_overlapping_budgets_of_one_cost_hold_together():
    sparsifier = gated("MLP")
    whole, first = make_budgets(sparsifier, 0.3, "l0")[0], make_budgets(sparsifier, {"0": 0.9}, "l0")[0]
    projection = project_to(sparsifier, [whole, first])
    assert projection.before == pytest.approx((1.0, 1.0))
    assert lzero.measure(sparsifier.model).l0.realised <= whole.limit


class Insistent(torch.nn.Module):
    """A model whose code wants the old size."""

    def __init__(self):
        super().__init__()
        self.one, self.two = torch.nn.Linear(20, 30), torch.nn.Linear(30, 4)

    def forward(self, x):
        return self.two(torch.tanh(self.one(x)).view(-1, 30))


def test_a_graph_which_keeps_closed_columns_fits_the_budget():
    torch.manual_seed(0)
    model, x = Insistent(), torch.randn(3, 20)
    sparsifier = lzero.sparsify(model, x, inputs=True)
    sparsifier.log_alpha.data[30:45] = -6.0
    objective = Constraint(sparsifier, 0.3, "params")
    with pytest.warns(BudgetWarning):
        small = lzero.compact(model, budget=objective, fallback="graph")
    assert sum(p.numel() for p in small.parameters()) <= objective.budgets[0].limit
    lzero.verify(model, small, x)


def test_units_kept_against_empty_widths_are_counted_when_others_must_close():
    class Stream(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.out = torch.nn.Embedding(9, 8), torch.nn.Linear(8, 3)
            self.up, self.down = torch.nn.Linear(8, 32), torch.nn.Linear(32, 8)

        def forward(self, tokens):
            stream = self.embed(tokens)
            return self.out(stream + self.down(torch.tanh(self.up(stream))))

    torch.manual_seed(0)
    model = Stream()
    sparsifier = lzero.sparsify(model, torch.randint(0, 9, (2, 4)))
    stream = max(sparsifier.groups, key=lambda group: group.stop - group.start == 8)
    sparsifier.log_alpha.data.fill_(3.0)
    sparsifier.log_alpha.data[stream.span] = -6.0
    project(model, 200, "macs")
    assert lzero.measure(model).macs.realised <= 200


def test_rounding_that_cannot_fit_says_so():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
    sparsifier = lzero.sparsify(model, torch.randn(1, 20))
    with pytest.raises(LzeroError, match="widths that are multiples of 16: with every gate closed there is left 25"):
        lzero.compact(model, budget=Constraint(sparsifier, 0.1, "params"), round_to=16)


def test_rounded_widths_open_a_block_where_one_gate_alone_would_not_fit():
    torch.manual_seed(0)
    sparsifier = lzero.sparsify(
        torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2)), x := torch.randn(1, 20)
    )
    with pytest.warns(BudgetWarning):
        small = lzero.compact(sparsifier.model, budget=Constraint(sparsifier, 0.8, "params"), round_to=16)
    assert small[0].out_features == 48
    assert (small[2].weight.abs().sum(0) > 0).all()  # every unit that is kept is used
    assert lzero.measure(small, x).params.dense <= 0.8 * 1474


def test_what_has_no_budget_is_refused():
    sparsifier = gated("MLP")
    with pytest.raises(ArgumentError, match="budget: expected an objective with a budget, got Penalty"):
        lzero.compact(sparsifier.model, budget=Penalty(sparsifier, 1.0))
    with pytest.raises(ArgumentError, match=r"budget: expected an objective with a budget, got 0\.3; use a Constraint"):
        lzero.compact(sparsifier.model, budget=0.3)
    with pytest.raises(ArgumentError, match="budget: expected the objective of this model"):
        lzero.compact(sparsifier.model, budget=Constraint(gated("MLP"), 0.5))
    with pytest.raises(ArgumentError, match=r"a model with gates.*call lzero.sparsify"):
        project(torch.nn.Linear(2, 2), 0.5)
    with pytest.raises(ArgumentError, match=r"a model with gates.*not what torch.compile or DDP made of it"):
        project(torch.nn.Sequential(sparsifier.model), 0.5)
