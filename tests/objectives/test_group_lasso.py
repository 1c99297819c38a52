"""Group lasso: its known solution, what it counts, and the budget it is closed to."""

import copy

import pytest
import torch
from torch import nn

import lzero
from lzero import recipes
from lzero.data import Dataset, Split, digits
from lzero.errors import ArgumentError
from lzero.objectives.group_lasso import GroupLasso
from lzero.training import fit
from tests.objectives.conftest import gated

N, FEATURES, OUTPUTS = 200, 8, 3


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def few():
    """A part of the digits, for speed."""
    whole = digits()
    return Dataset("digits", Split(whole.train.images[:128], whole.train.labels[:128]), whole.test, whole.classes)


def test_it_is_group_soft_thresholding_in_an_orthogonal_design():
    """With XᵀX = N·I and |Y − XWᵀ|²/(2N), column j is its least-squares b_j shortened by λ√3, or 0."""
    x = torch.linalg.qr(torch.randn(N, FEATURES))[0] * N**0.5
    directions = torch.nn.functional.normalize(torch.randn(OUTPUTS, FEATURES), dim=0)
    strength, factors = 0.2, torch.tensor([0.0, 0.3, 0.7, 0.9, 1.2, 2.0, 3.0, 5.0])
    threshold = strength * OUTPUTS**0.5
    least_squares = directions * factors * threshold
    model = nn.Linear(FEATURES, OUTPUTS, bias=False)
    objective = GroupLasso(lzero.sparsify(model, x[:2], inputs=True), strength, 0.5, "l0")
    y, steps = x @ least_squares.T, 200
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
    for _ in range(steps):
        optimizer.zero_grad()
        ((model(x) - y).square().sum() / (2 * N) + objective()).backward()
        optimizer.step()
        objective.step()
        decay.step()
    expected = directions * (factors - 1).clamp_min(0) * threshold
    torch.testing.assert_close(model.weight.detach(), expected, atol=0.01, rtol=0.01)
    objective.close()
    assert (lzero.compact(model).index == torch.arange(4, 8)).all()


def test_filters_and_channels_have_a_norm_each():
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Softplus(), nn.Flatten(), nn.Linear(3 * 4, 5))
    objective = GroupLasso(lzero.sparsify(model, torch.randn(1, 2, 4, 4)), 0.1, 0.5)
    filters, channels = model[0].weight.flatten(1), model[3].weight.view(5, 3, 4).transpose(0, 1).flatten(1)
    expected = sum(group.shape[1] ** 0.5 * group.norm(dim=1).sum() for group in (filters, channels))
    assert objective().item() == pytest.approx(0.1 * expected.item(), rel=1e-6)


def test_columns_with_gates_of_their_own_are_groups_of_their_own():
    sparsifier = gated("LeNet-5", units="paper")
    columns, units = sparsifier.model[7].weight, GroupLasso(gated("LeNet-5"), 1.0, 0.5)()
    expected = units + columns.shape[0] ** 0.5 * columns.norm(dim=0).sum()
    assert GroupLasso(sparsifier, 1.0, 0.5)().item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_group_of_zeros_has_no_gradient(sparsifier):
    weight = sparsifier.model[0].weight
    weight.data.zero_()
    GroupLasso(sparsifier, 1.0, 0.5)().backward()
    assert not weight.grad.any()
    assert sparsifier.log_alpha.grad is None


def test_gates_do_nothing_until_it_closes_them(sparsifier):
    plain, model, x = copy.deepcopy(sparsifier).remove(), sparsifier.model.train(), sparsifier.example_inputs[0]
    objective = GroupLasso(sparsifier, 0.1, 0.5, steps=3)
    optimizer = torch.optim.Adam(sparsifier.param_groups(lr=0.01))
    torch.testing.assert_close(model(x), plain(x))
    for _ in range(3):
        assert objective.record.realised.item() == 1
        optimizer.zero_grad()
        (model(x).square().mean() + objective()).backward()
        assert not sparsifier.log_alpha.grad.any()
        optimizer.step()
        objective.step()
    assert objective.record.realised.item() <= 0.5


@pytest.mark.parametrize("name", ["MLP", "LeNet-5", "ResNet-18", "GPT, separate"])
@pytest.mark.parametrize(("target", "cost"), [(0.2, "macs"), (0.6, "params"), (0.5, "l0")])
def test_the_budget_holds_is_used_and_removal_is_exact(name, target, cost):
    sparsifier = gated(name, torch.float64)
    objective = GroupLasso(sparsifier, 0.1, f"{target:.0%}", cost)
    objective.close()
    realised = getattr(lzero.measure(sparsifier.model), cost)
    assert realised.realised <= target * realised.dense
    is_open = sparsifier.log_alpha > 0
    with torch.no_grad():
        for closed in (~is_open).nonzero().flatten().tolist()[::7]:  # one more of them would be too much
            sparsifier.log_alpha[closed] = 30.0
            assert getattr(lzero.measure(sparsifier.model), cost).realised > target * realised.dense
            sparsifier.log_alpha[closed] = -30.0
    small = lzero.compact(sparsifier.model, budget=objective)
    assert lzero.verify(sparsifier.model, small, sparsifier.example_inputs, tolerance=1e-9) <= 1e-9
    assert ((sparsifier.log_alpha > 0) == is_open).all()


@pytest.mark.parametrize("side", [0, 3])
def test_units_that_nothing_makes_or_nothing_reads_go_first(side):
    sparsifier = gated("LeNet-5")
    where = sparsifier.model[side].weight
    (where[::2] if side == 0 else where[:, ::2]).data.zero_()
    GroupLasso(sparsifier, 0.1, 0.5).close()
    kept = sparsifier.log_alpha[:6] > 0
    assert not kept[::2].any()
    assert kept[1::2].any()


def test_norms_do_not_change_when_one_side_is_scaled_up_and_the_other_down(sparsifier):
    objective = GroupLasso(sparsifier, 0.1, 0.5)
    before = objective.norms.relative()
    factors = torch.rand(24) + 0.5
    with torch.no_grad():
        sparsifier.model[0].weight *= factors[:, None]
        sparsifier.model[2].weight /= factors
    torch.testing.assert_close(objective.norms.relative()[:24], before[:24])


def test_no_layer_is_lost_as_long_as_others_have_units_to_give():
    sparsifier = gated("LeNet-5")
    sparsifier.model[3].weight.data.mul_(1e-3)
    GroupLasso(sparsifier, 0.1, 0.1).close()
    for group in sparsifier.groups:
        assert (sparsifier.log_alpha[group.span] > 0).any()


def test_removed_units_leave_the_sum_of_the_others():
    sparsifier = gated("LeNet-5")
    objective = GroupLasso(sparsifier, 1.0, 0.5)
    sparsifier.log_alpha.data[:3] = -30.0
    with torch.no_grad():
        sparsifier.model[0].weight[:3] = 0
        sparsifier.model[3].weight[:, :3] = 0
    before = objective.norms.relative()
    assert sparsifier.shrink() == 3
    torch.testing.assert_close(objective.norms.relative(), before[3:])


@pytest.mark.parametrize("after", [None, 0.5])
def test_a_recipe_trains_it_to_its_budget(after, few):
    settings = ["objective.kind=lasso", "objective.target=0.3", "training.epochs=2", "shrink.every=0"]
    frozen = [] if after is None else [f"shrink.freeze_after={after}"]
    outcome = fit(recipes.load("digits", [*settings, *frozen]), dataset=few, accelerator="cpu")
    assert 0.25 * outcome.dense.macs < outcome.compacted.macs <= 0.3 * outcome.dense.macs


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("objective.strength=aic", "objective.strength: expected a number for group lasso, got aic"),
        ('objective.target={"*" = 0.5}', "objective.target: expected one target"),
        ("objective.per=layer", "objective.target: expected one target"),
        ("training.average=0.9", "training.average: expected 0"),
    ],
)
def test_recipes_that_ask_for_more_are_refused(change, message, few):
    with pytest.raises(ArgumentError, match=message):
        fit(recipes.load("digits", ["objective.kind=lasso", change]), dataset=few, accelerator="cpu")


def test_bad_input_is_refused(sparsifier):
    for strength in (-1.0, float("nan"), True, "aic"):
        with pytest.raises(ArgumentError, match="strength: expected a number from 0"):
            GroupLasso(sparsifier, strength, 0.5)
    with pytest.raises(ArgumentError, match="steps: expected a whole number of optimizer steps from 1, got 0"):
        GroupLasso(sparsifier, 0.1, 0.5, steps=0)
    with pytest.raises(ArgumentError, match="target: expected a share"):
        GroupLasso(sparsifier, 0.1, 2.0e9)
    with pytest.raises(ArgumentError, match="sparsifier: expected gates on units, got gates on weights"):
        GroupLasso(gated(units="weights"), 0.1, 0.5)


@pytest.mark.parametrize("round_to", [1, 4])
def test_units_of_least_norm_close_and_nothing_else_when_widths_are_rounded(round_to):
    model = nn.Sequential(nn.Linear(5, 24, bias=False), nn.ReLU(), nn.Linear(24, 3, bias=False))
    objective = GroupLasso(lzero.sparsify(model, torch.randn(1, 5)), 0.1, 0.6, round_to=round_to)
    norms = torch.rand(24)
    with torch.no_grad():
        model[0].weight.copy_(norms[:, None])
        model[2].weight.copy_(norms)
    objective.close()
    small = lzero.compact(model, budget=objective, round_to=round_to)
    width = int(0.6 * 24) // round_to * round_to
    assert torch.equal(small[0].weight[:, 0].sort().values, norms.sort().values[-width:])


def test_a_training_with_rounded_widths_keeps_what_it_closed_to(few, caplog):
    changes = ["objective.kind=lasso", "shrink.every=0", "shrink.freeze_after=0.5", "shrink.round_to=4"]
    outcome = fit(recipes.load("digits", [*changes, "training.epochs=2", "objective.target=0.4"]), dataset=few)
    assert outcome.compacted.macs <= 0.4 * outcome.dense.macs
    assert "closed" not in caplog.text
    assert all(layer.after % 4 == 0 for layer in outcome.layers)


def test_a_width_is_rounded_to_a_number_from_one(sparsifier):
    with pytest.raises(ArgumentError, match="round_to: expected a whole number from 1, got 0"):
        GroupLasso(sparsifier, 1.0, 0.5, round_to=0)


def test_it_closes_gates_that_are_frozen():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)), torch.randn(64, 4)
    sparsifier = lzero.sparsify(model, x[:2])
    objective = GroupLasso(sparsifier, 0.01, 0.5, steps=3)
    sparsifier.log_alpha.requires_grad_(False)
    for _ in range(3):
        assert (sparsifier.estimate() > 0).all()
        objective.step()
    assert objective.steps == 3
    assert (sparsifier.estimate() > 0).sum() == 4
