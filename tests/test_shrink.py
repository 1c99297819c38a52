"""Shrinking while training changes sizes, not the trajectory."""

import copy

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from lzero import Constraint, LzeroError, compact, sparsify, verify
from lzero.belonging import sparsifier_of
from lzero.measure import measure
from lzero.shrink import decide_shrink
from lzero.subnetwork import Subnetwork
from lzero.surgery import cut
from tests.models import AS_GRAPH, MODELS, build

OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, nesterov=True),
    "Adam amsgrad": lambda p: torch.optim.Adam(p, lr=1e-3, amsgrad=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=1e-3, weight_decay=0.1),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-2),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=1e-3, momentum=0.9, centered=True),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=1e-3),
}


def certain_gates(name, **settings):
    """A model whose gates are surely open or surely closed, without dropout: nothing random is left in a step."""
    torch.manual_seed(0)
    model, x = build(name)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    sparsifier = sparsify(model.train(), x, **settings)
    with torch.no_grad():
        sparsifier.log_alpha.copy_(torch.where(torch.rand_like(sparsifier.log_alpha) < 0.5, 60.0, -60.0))
    return model, sparsifier, x


def losses(name, make_optimizer, *, shrink, steps=5):
    model, sparsifier, x = certain_gates(name)
    optimizer = make_optimizer(sparsifier.param_groups(lr=1e-3))
    seen, output, loss = [], None, None
    for step in range(steps):
        if shrink and step == 2:
            before = sum(p.numel() for p in model.parameters())
            assert sparsifier.shrink(optimizer) > 0
            assert sum(p.numel() for p in model.parameters()) < before
        output = model(x)
        loss = ((output if isinstance(output, torch.Tensor) else output[0]) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen.append(loss.item())
    return seen


@pytest.mark.parametrize("name", sorted(set(MODELS) - AS_GRAPH))
def test_the_trajectory_is_that_without_shrinking(name):
    plain, shrunk = (losses(name, OPTIMIZERS["AdamW"], shrink=shrink) for shrink in (False, True))
    assert shrunk == pytest.approx(plain, rel=1e-10)


@pytest.mark.parametrize("make_optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_every_optimizer_goes_on(make_optimizer):
    plain, shrunk = (losses("VGG-BN", make_optimizer, shrink=shrink) for shrink in (False, True))
    assert shrunk == pytest.approx(plain, rel=1e-10)


@pytest.mark.parametrize("units", ["structure", "paper", "weights"])
def test_shrinking_changes_no_output_and_what_is_left_can_be_compacted(units):
    model, sparsifier, x = certain_gates("LeNet-5", units=units)
    before = copy.deepcopy(model)
    removed = sparsifier.shrink()
    assert (removed > 0) == (units != "weights")
    assert verify(before, model, x) < 1e-9
    small = compact(model)
    assert verify(before, small, x) < 1e-9
    assert measure(model).params.realised == sum(p.numel() for p in small.parameters())


def losses_with_inputs(name, *, shrink, in_parts=False):
    """The loss of eight steps; after two and after five, half of the gates that are left close, and are removed."""
    model, sparsifier, x = certain_gates(name, units="paper")
    average = AveragedModel(model)
    optimizer = OPTIMIZERS["AdamW"](sparsifier.param_groups(lr=1e-3))
    closing, seen = sparsifier.log_alpha.detach().clone(), []
    places = {group.name: torch.arange(len(closing))[group.span] for group in sparsifier.groups}
    later = torch.rand(len(closing), generator=torch.Generator().manual_seed(1)) < 0.5
    for step in range(8):
        if step == 5:  # gates by their place in the dense model, of which those that are left stand in the same order
            left = torch.cat([places[group.name] for group in sparsifier.groups])
            for each in (sparsifier, sparsifier_of(average.module)):
                each.log_alpha.data[later[left]] = -60.0
        if shrink and step in (2, 5):
            kept = remaining(sparsifier)
            assert sparsifier.shrink(optimizer, averages=[average.module]) > 0
            places = {name: places[name][mask] for name, mask in remaining(sparsifier, kept).items()}
        forward = Subnetwork(sparsifier) if in_parts else model
        loss = (forward(x) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update_parameters(model)
        seen += [loss.item(), (average.module.eval()(x) - 1).square().mean().item()]
    return seen, compact(model)


def remaining(sparsifier, before=None):
    """What is left of each group, by the units and columns of the dense model; as masks of what was before."""
    history = sparsifier.history
    now = {
        group.name: history.columns.get(group.columns[0].tensor, list(range(group.size)))
        if group.columns
        else history.sites[group.name]
        for group in sparsifier.groups
    }
    return now if before is None else {n: torch.tensor([k in set(now[n]) for k in old]) for n, old in before.items()}


@pytest.mark.parametrize("in_parts", [False, True])
@pytest.mark.parametrize("name", ["LeNet-5", "MLP"])
def test_inputs_with_gates_of_their_own_are_removed_again_and_again(name, in_parts):
    plain, dense = losses_with_inputs(name, shrink=False)
    shrunk, small = losses_with_inputs(name, shrink=True, in_parts=in_parts)
    assert shrunk == pytest.approx(plain, rel=1e-10)
    assert [p.shape for p in small.parameters()] == [p.shape for p in dense.parameters()]


def test_what_budgets_count_stays_the_same_when_closed_inputs_go():
    _, sparsifier, _ = certain_gates("LeNet-5", units="paper")
    objective = Constraint(sparsifier, 0.5, cost="params")
    before = objective.record.expected.tolist()
    sparsifier.shrink()
    assert objective.record.expected.tolist() == pytest.approx(before, rel=1e-9)


def test_widths_stay_rounded_with_inputs_that_close_singly():
    model, sparsifier, x = certain_gates("LeNet-5", units="paper")
    group = next(group for group in sparsifier.groups if group.columns)
    sparsifier.log_alpha.data[group.span][16:] = -60.0  # only one map is read
    before = copy.deepcopy(model)
    sparsifier.shrink(round_to=4)
    assert model[3].out_channels == 4
    assert verify(before, model, x) < 1e-9
    assert model[7].in_features > 16  # the columns of maps that round a width stay with them


def test_gradients_buffers_and_hooks_come_along():
    model, sparsifier, x = certain_gates("VGG-BN")
    calls = []
    model[0][0]._parameters["weight"].register_hook(lambda gradient: calls.append(gradient.shape))
    model(x).sum().backward()
    structure, decision = sparsifier.structure, decide_shrink(sparsifier, 0.1, 1)
    before = {name: parameter.grad for name, parameter in model.named_parameters() if name in structure.tensors}
    sparsifier.shrink()
    for name, gradient in before.items():
        expected = None if gradient is None else cut(gradient, structure, decision, name)
        torch.testing.assert_close(model.get_parameter(name).grad, expected, rtol=0, atol=0)
    assert sum(gradient is not None for gradient in before.values()) > 4
    assert model[0][1].running_mean.shape == model[0][1].bias.shape
    model(x).sum().backward()
    assert calls[-1] == model[0][0]._parameters["weight"].shape


def test_averaged_copies_are_cut_alike():
    model, sparsifier, x = certain_gates("VGG-BN")
    averaged = AveragedModel(model)
    with torch.no_grad():
        for parameter in averaged.parameters():
            parameter.add_(0.01 * torch.randn_like(parameter))
    whole = copy.deepcopy(averaged.module)
    sparsifier.shrink(averages=[averaged.module])
    assert verify(whole, averaged.module, x) < 1e-9
    averaged.update_parameters(model)
    assert [p.shape for p in averaged.module.parameters()] == [p.shape for p in model.parameters()]
    assert averaged(x).shape == model(x).shape


class Noting(nn.Module):
    """A model that notes how much it was given."""

    def __init__(self):
        super().__init__()
        self.first, self.last, self.batch = nn.Linear(4, 8), nn.Linear(8, 2), 0

    def forward(self, x):
        self.batch = len(x)
        return self.last(self.first(x).tanh())


def test_an_averaged_copy_keeps_whole_numbers_of_its_own():
    model = Noting()
    sparsifier = sparsify(model, torch.randn(3, 4))
    averaged = AveragedModel(model)
    model(torch.randn(32, 4))
    averaged(torch.randn(5, 4))
    sparsifier.log_alpha.data[:3] = sparsifier_of(averaged.module).log_alpha.data[:3] = -60.0
    assert sparsifier.shrink(averages=[averaged]) == 3
    assert averaged.module.first.out_features == 5
    assert (model.batch, averaged.module.batch) == (32, 5)


@pytest.mark.parametrize("beta", [2 / 3, 0.3, 0.05])
@pytest.mark.parametrize("threshold", [0.1, 0.4, 1.0])
def test_what_is_open_at_test_time_stays_whatever_the_threshold(beta, threshold):
    model, x = nn.Sequential(nn.Linear(4, 40), nn.Tanh(), nn.Linear(40, 2)).double(), torch.randn(3, 4).double()
    sparsifier = sparsify(model, x, beta=beta)
    sparsifier.log_alpha.data.copy_(torch.linspace(-6, 3, 40))
    before = copy.deepcopy(model)
    is_closed, is_rare = sparsifier.estimate() == 0, sparsifier.law.prob_active < threshold
    assert sparsifier.shrink(threshold=threshold) == (is_closed & is_rare).sum() > 0
    assert verify(before, model, x) < 1e-12


def test_rounded_widths():
    _, sparsifier, _ = certain_gates("VGG-BN")
    sparsifier.shrink(round_to=4)
    assert all(site.size % 4 == 0 for site in sparsifier.structure.sites)


def test_nothing_to_remove_changes_nothing():
    model, x = build("MLP")
    sparsifier = sparsify(model, x)
    structure, weights = sparsifier.structure, list(model.parameters())
    places = [weight.data_ptr() for weight in weights]
    assert sparsifier.shrink() == 0
    assert sparsifier.structure is structure
    assert [weight.data_ptr() for weight in model.parameters()] == places


REFUSED = {
    "Adafactor": (lambda m: torch.optim.Adafactor(m.parameters()), "Adafactor keeps state that mixes units"),
    "LBFGS": (lambda m: torch.optim.LBFGS(m.parameters()), "LBFGS keeps state that mixes units"),
    "another model's": (lambda _: torch.optim.SGD(nn.Linear(2, 2).parameters()), "optimizer: expected this model's"),
}


@pytest.mark.parametrize(("make", "message"), REFUSED.values(), ids=REFUSED)
def test_refused_before_anything_changes(make, message):
    model, sparsifier, _ = certain_gates("MLP")
    before = [p.shape for p in model.parameters()]
    with pytest.raises(LzeroError, match=message):
        sparsifier.shrink(make(model))
    with pytest.raises(LzeroError, match="threshold: expected"):
        sparsifier.shrink(threshold=1.5)
    assert [p.shape for p in model.parameters()] == before


def test_code_that_insists_on_sizes_is_refused_before_anything_changes():
    model, sparsifier, x = certain_gates("GPT, counting")
    before = copy.deepcopy(model)
    with pytest.raises(LzeroError, match="relies on the old sizes"):
        sparsifier.shrink()
    assert verify(before, model, x) == 0


def test_buffers_that_modules_share_stay_shared():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)
            self.one, self.other = nn.BatchNorm1d(8), nn.BatchNorm1d(8)
            self.other.running_mean, self.other.running_var = self.one.running_mean, self.one.running_var

        def forward(self, x):
            return self.second(self.other(self.one(self.first(x)).tanh()))

    model, x = Twice().eval(), torch.randn(16, 4)
    sparsifier = sparsify(model, x)
    sparsifier.log_alpha.data[:4] = -60.0
    expected = model(x)
    assert sparsifier.shrink() == 4
    assert model.other.running_mean is model.one.running_mean
    torch.testing.assert_close(model(x), expected)


def test_what_was_dense_stays_dense_in_all_counts():
    model, x = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), torch.randn(3, 4)
    sparsifier = sparsify(model, x)
    sparsifier.log_alpha.data[:5] = -60.0
    before, _ = measure(model), sparsifier.shrink()
    after = measure(model)
    assert measure(model, torch.randn(5, 4)).params.dense == before.params.dense
    for one, other in ((after.gates, before.gates), (after.sites[0].units, before.sites[0].units)):
        assert (one.dense, one.realised) == (other.dense, other.realised) == (8, 3)


def test_a_model_without_memory_cannot_shrink():
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    sparsifier = sparsify(model, torch.randn(3, 4, device="meta"))
    with pytest.raises(LzeroError, match="on the meta device, where gates have no values"):
        sparsifier.shrink(torch.optim.SGD(sparsifier.param_groups(lr=0.1)))


@pytest.mark.parametrize("wrong", ["a model", "a scheduler", "an average beside an optimizer", "an average"])
def test_what_is_no_optimizer_and_no_copy_is_refused(wrong):
    model, sparsifier, _ = certain_gates("MLP")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    given = {
        "a model": (model,),
        "a scheduler": (torch.optim.lr_scheduler.StepLR(optimizer, 1),),
        "an average beside an optimizer": ([optimizer, AveragedModel(model)],),
        "an average": (AveragedModel(model),),
    }[wrong]
    with pytest.raises(LzeroError, match="optimizer: expected an optimizer, or several in a list; averages="):
        sparsifier.shrink(*given)
    with pytest.raises(LzeroError, match="averages: expected averaged copies of the model in a list, got SGD"):
        sparsifier.shrink(averages=optimizer)
    assert sparsifier.shrink(optimizer, averages=copy.deepcopy(model)) > 0
