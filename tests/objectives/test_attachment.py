"""An objective inside an optimizer trains exactly like one in the loop."""

import copy

import pytest
import torch
from torch import nn

import lzero
from lzero.errors import ArgumentError, BudgetWarning, LzeroError
from lzero.objectives import Constraint, Penalty
from lzero.objectives.duals import Ascent
from tests.objectives.conftest import gated

OPTIMIZERS = {
    "SGD": lambda groups: torch.optim.SGD(groups, momentum=0.9),
    "Adam": torch.optim.Adam,
    "fused Adam": lambda groups: torch.optim.Adam(groups, fused=True),
}


def both(sparsifier):
    return Constraint(sparsifier, 0.3, "macs", dual=Ascent(1.0)) + Penalty(sparsifier, 0.01, l2=0.1)


def loop(optimizer, model, x, objective=None, steps=12):
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        (loss if objective is None else loss + objective()).backward()
        optimizer.step()
        if objective is not None:
            objective.step()


def prepared(make):
    sparsifier = gated()
    return sparsifier, make(sparsifier.param_groups(lr=0.05, gate_lr=0.1)), sparsifier.example_inputs[0]


def assert_same(one, other):
    for (name, mine), (_, theirs) in zip(one.named_parameters(), other.named_parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6, msg=name)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_attached_is_the_same_as_in_the_loop(name):
    inside, optimizer, x = prepared(OPTIMIZERS[name])
    objective = both(inside)
    inside.attach(optimizer, objective)
    torch.manual_seed(1)
    loop(optimizer, inside.model, x)
    outside, other, x = prepared(OPTIMIZERS[name])
    torch.manual_seed(1)
    loop(other, outside.model, x, its := both(outside))
    assert_same(inside.model, outside.model)
    torch.testing.assert_close(objective.record.multiplier, its.record.multiplier)


def test_a_closure_is_followed_by_the_gradient():
    inside, optimizer, x = prepared(torch.optim.Adam)
    inside.attach(optimizer, Penalty(inside, 0.1))

    def closure():
        optimizer.zero_grad()
        loss = inside.model(x).square().mean()
        loss.backward()
        return loss

    torch.manual_seed(1)
    for how in ({"closure": closure}, {}) * 3:
        optimizer.step(**how) if how else optimizer.step(closure)
    outside, other, x = prepared(torch.optim.Adam)
    torch.manual_seed(1)
    loop(other, outside.model, x, Penalty(outside, 0.1), steps=6)
    assert_same(inside.model, outside.model)


def test_gradients_are_accumulated_and_clipped_without_it():
    inside, optimizer, x = prepared(torch.optim.SGD)
    objective = Penalty(inside, 1.0)
    inside.attach(optimizer, objective)
    torch.manual_seed(1)
    for _ in range(2):
        (inside.model(x).square().mean() / 2).backward()
    nn.utils.clip_grad_norm_(inside.model.parameters(), 1e-4)
    task = inside.log_alpha.grad.clone()
    term = torch.autograd.grad(objective(), inside.log_alpha)[0]
    before = inside.log_alpha.detach().clone()
    optimizer.step()
    torch.testing.assert_close(inside.log_alpha.detach(), before - 0.1 * (task + term))
    assert objective.steps == 1


@pytest.mark.parametrize("name", ["Adam", "fused Adam"])
def test_a_grad_scaler_leaves_it_as_it_is(name):
    inside, optimizer, x = prepared(OPTIMIZERS[name])
    inside.attach(optimizer, Penalty(inside, 0.1))
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    torch.manual_seed(1)
    for _ in range(5):
        optimizer.zero_grad()
        scaler.scale(inside.model(x).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()
    outside, other, x = prepared(OPTIMIZERS[name])
    torch.manual_seed(1)
    loop(other, outside.model, x, Penalty(outside, 0.1), steps=5)
    assert_same(inside.model, outside.model)


def test_a_step_that_a_fused_optimizer_skips_moves_no_multiplier():
    sparsifier, optimizer, x = prepared(OPTIMIZERS["fused Adam"])
    objective = Constraint(sparsifier, 0.3, dual=Ascent(1.0))
    sparsifier.attach(optimizer, objective)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for factor in (1.0, float("inf"), 1.0):
        optimizer.zero_grad()
        scaler.scale(sparsifier.model(x).square().mean() * factor).backward()
        scaler.step(optimizer)
        scaler.update()
    assert objective.steps == 2


def test_line_searches_see_the_value_whose_gradient_they_get():
    def value(attached):
        sparsifier = gated()
        model, x = sparsifier.model.eval(), sparsifier.example_inputs[0]
        optimizer = torch.optim.LBFGS(model.parameters(), line_search_fn="strong_wolfe")
        objective = Penalty(sparsifier, 0.05)
        if attached:
            sparsifier.attach(optimizer, objective)

        def closure():
            optimizer.zero_grad()
            loss = (model(x) - 1).square().mean()
            loss = loss if attached else loss + objective()
            loss.backward()
            return loss

        for _ in range(3):
            optimizer.step(closure)
        return ((model(x) - 1).square().mean() + objective()).item()

    assert value(True) == pytest.approx(value(False), rel=1e-3)


def test_gates_that_are_frozen_are_left_alone():
    sparsifier, optimizer, x = prepared(torch.optim.SGD)
    sparsifier.attach(optimizer, Penalty(sparsifier, 0.1))
    sparsifier.log_alpha.requires_grad_(False)
    before = sparsifier.log_alpha.clone()
    loop(optimizer, sparsifier.model, x, steps=2)
    assert torch.equal(sparsifier.log_alpha, before)


def test_frozen_weights_and_gates_without_a_gradient_of_the_task():
    sparsifier = gated()
    optimizer = torch.optim.SGD([sparsifier.log_alpha], lr=1.0)
    sparsifier.attach(optimizer, Penalty(sparsifier, 1.0))
    before = sparsifier.log_alpha.detach().clone()
    optimizer.step()
    assert (sparsifier.log_alpha < before).all()


def test_detaching_ends_it_and_attaching_again_is_possible():
    sparsifier, optimizer, x = prepared(torch.optim.SGD)
    objective = Penalty(sparsifier, 1.0)
    sparsifier.attach(optimizer, objective)
    sparsifier.detach()
    loop(optimizer, sparsifier.model, x, steps=1)
    assert objective.steps == 0
    with pytest.raises(LzeroError, match="no objective is attached"):
        sparsifier.detach()
    sparsifier.attach(optimizer, objective)
    loop(optimizer, sparsifier.model, x, steps=1)
    assert objective.steps == 1


def test_it_goes_on_after_shrinking_and_is_not_copied():
    sparsifier, optimizer, x = prepared(torch.optim.Adam)
    objective = Constraint(sparsifier, 0.3)
    sparsifier.attach(optimizer, objective)
    loop(optimizer, sparsifier.model, x, steps=2)
    sparsifier.log_alpha.data[::2] = -9.0
    assert sparsifier.shrink(optimizer) > 0
    loop(optimizer, sparsifier.model, x, steps=2)
    assert objective.steps == 4
    assert copy.deepcopy(sparsifier)._attached is None
    with pytest.warns(BudgetWarning, match="closing 3 of 20 gates, 3 of them in use"):
        small = lzero.compact(sparsifier.model, budget=objective)
    assert lzero.measure(small, x).macs.dense <= objective.budgets[0].limit


def test_removing_the_gates_detaches():
    sparsifier, optimizer, x = prepared(torch.optim.SGD)
    objective = Penalty(sparsifier, 1.0)
    sparsifier.attach(optimizer, objective)
    model = sparsifier.remove()
    loop(optimizer, model, x, steps=1)
    assert objective.steps == 0
    assert sparsifier.attached is None


def test_the_objective_of_an_optimizer_is_not_stepped_by_the_loop_too():
    sparsifier, optimizer, x = prepared(torch.optim.SGD)
    objective = Constraint(sparsifier, 0.5)
    sparsifier.attach(optimizer, objective)
    with pytest.raises(LzeroError, match=r"steps with the optimizer it is attached to: leave objective.step\(\) out"):
        objective.step()
    loop(optimizer, sparsifier.model, x, steps=2)
    assert objective.steps == 2
    sparsifier.detach()
    objective.step()
    assert objective.steps == 3


def test_what_cannot_work_is_refused():
    sparsifier, optimizer, _ = prepared(torch.optim.SGD)
    weights, gates = sparsifier.param_groups(lr=0.1)
    with pytest.raises(ArgumentError, match="an optimizer that holds the gates"):
        sparsifier.attach(torch.optim.SGD([weights]), Penalty(sparsifier, 1.0))
    with pytest.raises(ArgumentError, match="objective: expected an objective, got str"):
        sparsifier.attach(optimizer, "penalty")
    with pytest.raises(ArgumentError, match="an objective of this sparsifier"):
        sparsifier.attach(optimizer, Penalty(gated(), 1.0))
    sparsifier.attach(optimizer, Penalty(sparsifier, 1.0))
    with pytest.raises(LzeroError, match="attached already"):
        sparsifier.attach(optimizer, Penalty(sparsifier, 1.0))
    sparsifier.detach()
    alone = torch.optim.Adam([gates])
    sparsifier.attach(alone, Penalty(sparsifier, 1.0, l2=0.1))
    with pytest.raises(ArgumentError, match="holds every parameter the objective moves"):
        alone.step()
    assert sparsifier.log_alpha.grad is None
    sparsifier.detach()
    with pytest.raises(ArgumentError, match="optimizer: expected a torch optimizer, got Penalty"):
        sparsifier.attach(Penalty(sparsifier, 1.0), optimizer)
