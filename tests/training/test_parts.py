"""What recipes are made into: optimizers, who decays whom, and objectives that give slow gates their time."""

import pytest
import torch

from lzero import recipes
from lzero.objectives.expected_l2 import ExpectedL2
from lzero.training.optimizers import make_optimizers, schedule_at, set_rates
from lzero.training.parts import make_gates, make_model, make_objective


def made(*changes):
    recipe = recipes.load("digits", changes)
    model = make_model(recipe)
    sparsifier = make_gates(recipe, model, torch.zeros(1, 1, 8, 8))
    return model, sparsifier, make_optimizers(recipe, model, sparsifier, 1000)


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        ([], [1, 1, 1]),
        (["optimizer.schedule=cosine", "training.epochs=10"], [1, 0.5, 0]),
        (["optimizer.schedule=steps", "optimizer.milestones=[2, 7]", "optimizer.factor=0.1"], [1, 0.1, 0.01]),
    ],
)
def test_schedules(changes, left):
    recipe = recipes.load("digits", changes)
    assert [schedule_at(recipe, epoch) for epoch in (0, 5, 10)] == pytest.approx(left)


@pytest.mark.parametrize("kind", ["adam", "sgd"])
def test_the_schedule_moves_the_weights_and_not_the_gates(kind):
    _, sparsifier, optimizers = made(f"optimizer.kind={kind}", "gates.lr=0.07")
    set_rates(optimizers[0], 0.5)
    rates = {
        id(p): group["lr"] for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]
    }
    assert rates.pop(id(sparsifier.log_alpha)) == 0.07
    assert set(rates.values()) == {0.5 * recipes.load("digits").optimizer.lr}


@pytest.mark.parametrize(("own", "rate"), [([], 0.1), (["gates.lr=0.3"], 0.3)])
@pytest.mark.parametrize("kind", ["adam", "sgd"])
def test_gates_may_have_the_optimizer_of_the_weights_and_its_schedule(kind, own, rate):
    _, sparsifier, (optimizer,) = made(f"optimizer.kind={kind}", "optimizer.lr=0.1", "gates.optimizer=same", *own)
    (gates,) = [g for g in optimizer.param_groups if any(p is sparsifier.log_alpha for p in g["params"])]
    assert gates["lr"] == rate
    assert gates["weight_decay"] == 0
    set_rates(optimizer, 0.2)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.02, 0.2 * rate])


def test_what_the_objective_decays_is_not_decayed_twice():
    penalty = ["objective.kind=penalty", "objective.l2=0.1", "optimizer.weight_decay=0.01"]
    model, sparsifier, (optimizer,) = made(*penalty)
    decay = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    names = ExpectedL2(sparsifier).names()
    assert names
    for name, parameter in model.named_parameters():
        if parameter is not sparsifier.log_alpha:
            assert decay[id(parameter)] == (0.0 if name in names else 0.01)
    _, _, (plain,) = made(*penalty[::2], "objective.kind=constraint")
    assert plain.param_groups[0]["weight_decay"] == 0.01


@pytest.mark.parametrize("dual", ["ascent", "restarts"])
def test_the_papers_rules_have_no_warm_up_and_slow_gates_are_given_time(dual, recwarn):
    recipe = recipes.load("digits", [f"objective.dual={dual}", "objective.target=0.3"])
    sparsifier = make_gates(recipe, make_model(recipe), torch.zeros(1, 1, 8, 8))
    objective = make_objective(recipe, sparsifier, num_data=1000, steps=20_000)
    assert objective.target().tolist() == pytest.approx([0.3])
    for _ in range(3000):  # gates that have hardly moved after a seventh of the training
        sparsifier.log_alpha.data -= 1e-6
        objective.update()
        objective.count()
    assert not recwarn.list


def test_decay_moves_gates_where_the_recipe_says_so():
    moved = []
    for said in ("false", "true"):
        recipe = recipes.load("digits", ["objective.kind=penalty", "objective.l2=1.0", f"l2_moves_gates={said}"])
        torch.manual_seed(0)
        sparsifier = make_gates(recipe, make_model(recipe), torch.zeros(1, 1, 8, 8))
        make_objective(recipe, sparsifier, 1000, 100)().backward()
        moved.append(sparsifier.log_alpha.grad)
    assert (moved[1] > moved[0]).all()
