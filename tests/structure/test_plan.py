"""What can be removed, what cannot and why; and how a user chooses or teaches."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from lzero import Constraint, LzeroError, compact, measure, sparsify, verify
from lzero.costs import l0_weights
from lzero.structure import registry
from lzero.structure.op import Value
from lzero.structure.registry import register_rule
from tests.models import build, lenet, set_gates


class Model(nn.Module):
    """A dense layer, something in between, a dense layer."""

    def __init__(self, between, width=12, out=None):
        super().__init__()
        self.one, self.two, self.between = nn.Linear(3, width), nn.Linear(out or width, 2), between

    def forward(self, x):
        return self.two(self.between(F.softplus(self.one(x))))


def reasons(model, x):
    return {name: reason for name, _, reason in sparsify(model, x).plan().fixed}


def plan_of(between, **settings):
    model, x = Model(between, **settings).double(), torch.randn(4, 3).double()
    return model, x, sparsify(model, x)


KEEPS_UNITS = {
    "dropout": lambda h: F.dropout(h, 0.5, training=False),
    "clamp": lambda h: h.clamp(-1, 1),
    "a constant": lambda h: 2 * h + 1,
    "two views": lambda h: h.view(4, 3, 4).flatten(1),
    "transposes": lambda h: h.t().contiguous().t(),
    "stacking and taking apart": lambda h: torch.stack([h, 2 * h]).sum(0),
    "split and joined again": lambda h: torch.cat(h.split([5, 7], dim=1)[::-1], dim=1),
    "an expanded copy": lambda h: h[:, None, :].expand(-1, 3, -1).mean(1),
    "padding that is cut off again": lambda h: F.pad(h, (2, 3))[:, 2:-3],
    "unsqueezed and squeezed": lambda h: h.unsqueeze(1).squeeze(1),
    "where": lambda h: torch.where(h > 0, h, torch.exp(h)),
    "repeated in place": lambda h: h.repeat_interleave(2, dim=0)[::2],
    "einsum": lambda h: torch.einsum("bc,bd->bc", h, torch.ones(4, 1, dtype=h.dtype)),
    "one position for all": lambda h: h * h[:, :1],
    "masked fill": lambda h: h.masked_fill(h < 0.1, 0.0),
    "turned around": lambda h: h.flip(1),
    "rolled over the others": lambda h: h.roll(1, 0),
    "tiled": lambda h: h.tile(2, 1)[:4],
    "the largest of the others": lambda h: h + h.max(0, keepdim=True)[0] + h.median(0)[0] + h.argmax(0),
    "sorted over the others": lambda h: h.sort(0)[0] + h.topk(2, 0)[0].mean(0) + torch.var_mean(h, 0)[1],
    "others by number": lambda h: h[torch.tensor([3, 1, 0, 2])],
    "a part of the others": lambda h: torch.cat([h[: h.shape[0] // 2], h[h.shape[0] // 2 :]]),
    "narrowed from the end": lambda h: torch.cat([h.narrow(1, -4, 4), h.narrow(1, 0, 8)], 1),
    "broadcast": lambda h: h[:, None].broadcast_to(4, 3, 12).mean(1),
    "laid out flat": lambda h: h.unsqueeze(2).ravel().view(4, -1),
    "others gathered": lambda h: h.gather(0, h.argsort(0)),
}


@pytest.mark.parametrize("between", KEEPS_UNITS.values(), ids=KEEPS_UNITS)
def test_units_pass_and_removal_is_exact(between):
    model, x, sparsifier = plan_of(between)
    removable = sum(count for _, count, _ in sparsifier.plan().removable)
    assert removable in (12, 11, 3)  # one unit is read by number, or a view makes 3 groups of 4
    set_gates(sparsifier, 0.5)
    small = compact(model, fallback="graph")
    assert verify(model, small, x, tolerance=1e-9) <= 1e-9


def test_layers_whose_weight_is_a_length_and_a_direction_lose_outputs():
    def make():
        first, second = nn.Linear(3, 12), nn.Linear(12, 6)
        return nn.Sequential(first, nn.Tanh(), weight_norm(second), nn.Tanh(), nn.Linear(6, 2)).double()

    model, x = make(), torch.randn(4, 3).double()
    sparsifier = sparsify(model, x)
    plan = sparsifier.plan()
    assert [count for _, count, _ in plan.removable] == [6]
    assert any(reason.startswith("the norm of a weight is over it, in 2") for _, _, reason in plan.fixed)
    set_gates(sparsifier, 0.5)
    small = compact(model)
    assert small[2].weight.shape[0] == small[4].in_features < 6
    assert verify(model, small, x, tolerance=1e-9) <= 1e-9


PINS = {
    "LayerNorm": (nn.LayerNorm(12), "LayerNorm is over it, in between"),
    "RMSNorm": (nn.RMSNorm(12), "RMSNorm is over it, in between"),
    "softmax": (nn.Softmax(dim=-1), "aten.softmax.int is along it, in between"),
    "a sum": (lambda h: h + h.sum(1, keepdim=True), r"aten.sum.dim_IntList is over it"),
    "a maximum": (lambda h: h / h.amax(1, keepdim=True), "aten.amax.default is over it"),
    "by number": (lambda h: h + h.select(1, 3)[:, None], "one of its positions is read by number"),
    "by index": (lambda h: h.index_select(1, torch.arange(12)), "aten.index_select.default chooses its positions"),
    "a step": (lambda h: h[:, ::2].repeat(1, 2), "it is sliced with a step"),
    "plain values": (lambda h: h * torch.arange(12), "joins it with something of another make-up"),
    "an unknown operation": (lambda h: h.rot90(2, (0, 1)), "aten.rot90.default has no rule, in the model itself"),
    "a mean and variance": (
        lambda h: F.batch_norm(h.t(), None, None, training=True).t(),
        "the mean and variance of this batch are over it",
    ),
    "a roll": (lambda h: h.roll(1, 1), "aten.roll.default moves its positions by a number of them"),
    "places": (lambda h: h[:, torch.arange(12)], "aten.index.Tensor chooses positions by it"),
    "sorted": (lambda h: h.sort(1)[0], "aten.sort.default is along it"),
    "the largest": (lambda h: h / h.max(1, keepdim=True)[0], "aten.max.dim is over it"),
    "gathered": (lambda h: h.gather(1, h.argsort(1)), "aten.argsort.default is along it"),
    "two activations": (lambda h: h * (h @ h.t()).mean(), "multiplies two activations over it"),
}


class OverPlaces(nn.Module):
    """A norm whose statistics, in training, are over what a dense layer makes."""

    def __init__(self):
        super().__init__()
        self.one, self.norm, self.two = nn.Linear(4, 8), nn.BatchNorm1d(5), nn.Linear(8, 2)

    def forward(self, x):
        return self.two(self.norm(self.one(x)).relu())


class Pooled(nn.Module):
    """Places that are weighed by scores: a parameter multiplied them before a layer that adds a bias to each."""

    def __init__(self):
        super().__init__()
        self.mix, self.places = nn.Linear(6, 5), nn.Parameter(torch.rand(1, 5, 4))
        self.one, self.score = nn.Linear(4, 3), nn.Linear(3, 1)

    def forward(self, x):
        y = self.one(self.places * self.mix(x).mT)
        return self.score(y).sigmoid().mT @ y


OVER = {
    "statistics": (OverPlaces, (3, 5, 4), r"one +8 +the mean and variance of this batch are over it, in norm"),
    "scores": (Pooled, (2, 4, 6), r"places#3 +5 +aten\.matmul\.default multiplies two activations over it"),
}


@pytest.mark.parametrize(("make", "shape", "reason"), OVER.values(), ids=OVER)
def test_what_is_summed_over_stays(make, shape, reason):
    with pytest.raises(LzeroError, match=reason):
        sparsify(make(), torch.randn(shape))


@pytest.mark.parametrize(("between", "reason"), PINS.values(), ids=PINS)
def test_units_that_cannot_be_removed_say_why(between, reason):
    model = Model(between)
    with pytest.raises(LzeroError, match=reason):
        sparsify(model, torch.randn(4, 3))
    assert type(model) is Model


def test_the_plan_reads_well():
    model, x = build("ResNet-18")
    text = str(sparsify(model, x).plan())
    assert text.startswith("can be removed:")
    assert "inputs of 0.0" in text
    assert "model input" in text


def test_include_exclude_and_keep_rates():
    model, x = build("VGG-BN")
    sparsifier = sparsify(model, x, include=("0*", "9"), exclude="9", keep_rate={"0*": 0.5})
    assert [group.name for group in sparsifier.groups] == ["0.0"]
    assert sparsifier.log_alpha.abs().max() < 0.1
    sparsifier.remove()
    rates = sparsify(model, x, keep_rate={"0.0": 0.5, "*": 0.9})
    assert rates.log_alpha[:8].abs().max() < 0.1
    assert rates.log_alpha[8:].min() > 2


def test_the_papers_gates_and_their_sizes():
    """LeNet-5-Caffe: 20 and 50 maps, 800 and 500 inputs; |g| of Eq. 16."""
    model = nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10),
    )  # fmt: skip
    sparsifier = sparsify(model, torch.randn(1, 1, 28, 28), units="paper")
    sizes = {group.name: group.stop - group.start for group in sparsifier.groups}
    assert sizes == {"0": 20, "3": 50, "7": 500, "inputs of 7": 800}
    weights = l0_weights(sparsifier)
    expected = {"0": 1 * 25 + 1, "3": 20 * 25 + 1, "7": 10, "inputs of 7": 500}
    for group in sparsifier.groups:
        assert weights[group.span].unique().tolist() == [expected[group.name]]


def test_the_papers_mlp_gates_its_inputs():
    model = nn.Sequential(nn.Linear(784, 300), nn.ReLU(), nn.Linear(300, 100), nn.ReLU(), nn.Linear(100, 10))
    sparsifier = sparsify(model, torch.randn(1, 784), units="paper")
    assert {g.name: g.stop - g.start for g in sparsifier.groups} == {"0": 300, "2": 100, "inputs of 0": 784}
    assert l0_weights(sparsifier).sum() == 784 * 300 + 300 * 100 + 100 * 10


def test_measuring_counts_what_is_left():
    model, x = lenet(), torch.randn(2, 1, 28, 28)
    dense = measure(model, x)
    sparsifier = sparsify(model, x)
    assert measure(model).params.dense == dense.params.dense
    assert measure(model).macs.dense == dense.macs.dense
    set_gates(sparsifier, 0.3)
    small = compact(model)
    record = measure(model)
    assert (record.params.realised, record.macs.realised) == (
        measure(small, x).params.dense,
        measure(small, x).macs.dense,
    )
    assert measure(model, torch.cat([x, x])).macs.realised == 2 * record.macs.realised
    assert record.gates.realised == int((sparsifier.law.estimate("eq13") > 0).sum())
    assert sum(site.units.realised for site in record.sites) >= record.gates.realised
    first = record.sites[0]  # 6 maps: made by 25 weights and a bias each, read by 10 × 25 weights each
    assert (first.units.dense, first.params.dense) == (6, 6 * 25 + 6 + 10 * 6 * 25)
    kept, read = first.units.realised, record.sites[1].units.realised
    assert first.params.realised == kept * 25 + kept + read * kept * 25
    with pytest.raises(LzeroError, match="inputs: expected inputs"):
        measure(small)


@torch.library.custom_op("lzero_tests::scale_channels", mutates_args=())
def scale_channels(x: Tensor, scale: Tensor) -> Tensor:
    return x * scale


@scale_channels.register_fake
def _(x, _):
    return torch.empty_like(x)


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(12))

    def forward(self, x):
        return torch.ops.lzero_tests.scale_channels(x, self.scale)


def test_a_user_teaches_an_operation_in_a_few_lines(monkeypatch):
    monkeypatch.setattr(registry, "_RULES", dict(registry._RULES))
    x = torch.randn(4, 3).double()
    with pytest.raises(LzeroError, match=r"lzero_tests\.scale_channels\.default has no rule, in between"):
        sparsify(Model(Scaled()).double(), x)

    @register_rule("lzero_tests.scale_channels")
    def rule(op, x, scale):
        return [*x[:-1], op.unite(x[-1], scale[0])]

    model = Model(Scaled()).double()
    sparsifier = sparsify(model, x)
    set_gates(sparsifier, 0.5)
    small = compact(model)
    assert len(small.between.scale) < 12
    assert verify(model, small, x) <= 1e-9


REFUSED = {
    "a compiled model": (lambda m, x: sparsify(torch.compile(m), x), "gate the model itself, then compile it"),
    "unknown units": (lambda m, x: sparsify(m, x, units="neurons"), 'units: expected "structure" or "paper" or'),
    "a list of inputs": (lambda m, x: sparsify(m, [x]), r"expected a tensor or a tuple .* is given as \(inputs,\)"),
    "a branch": (
        lambda *_: sparsify(Model(lambda h: h if h.sum() > 0 else -h), torch.randn(4, 3)),
        r"torch\.export cannot capture Model: its forward must not branch on .*, in test_plan.py:\d+: .*sum\(\) > 0",
    ),
    "a glob without match": (
        lambda m, x: sparsify(m, x, include="layer*"),
        "include: expected globs that match one of",
    ),
    "an exclusion without match": (lambda m, x: sparsify(m, x, exclude="layer*"), "exclude: expected globs"),
    "everything excluded": (lambda m, x: sparsify(m, x, exclude="*"), "nothing in Sequential can be removed"),
    "wrong shapes": (
        lambda m, _: sparsify(m, torch.randn(2, 5).double()),
        "Sequential does not run with these example",
    ),
    "a bad keep rate": (lambda m, x: sparsify(m, x, keep_rate=1.5), "keep_rate: expected a number above 0, below 1"),
    "a bad temperature": (lambda m, x: sparsify(m, x, beta=0.0), "beta: expected a number above 0"),
    "an unknown estimator": (lambda m, x: sparsify(m, x, estimator="mean"), "estimator: expected"),
    "twice": (lambda m, x: (sparsify(m, x), sparsify(m, x)), "has gates already"),
    "a name without a namespace": (lambda *_: register_rule("relu"), "operation: expected namespace.operation"),
}


@pytest.mark.parametrize(("act", "message"), REFUSED.values(), ids=REFUSED)
def test_refused_with_a_message_that_helps(act, message, capfd):
    model, x = build("MLP")
    with pytest.raises(LzeroError, match=message):
        act(model, x)
    assert capfd.readouterr() == ("", "")  # and not pages by torch
    if "already" not in message:
        assert "lzero_log_alpha" not in model.state_dict()


def test_flattened_images_have_one_gate_for_each_pixel():
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 300), nn.ReLU(), nn.Linear(300, 10))
    sparsifier = sparsify(model, torch.randn(2, 1, 28, 28), units="paper")
    assert [(group.name, group.stop - group.start) for group in sparsifier.groups] == [("1", 300), ("inputs of 1", 784)]


def test_weights_are_chosen_by_the_names_that_the_plan_shows():
    model, x = build("MLP")
    names = [name for name, _, _ in sparsify(copy.deepcopy(model), x, units="weights").plan().removable]
    chosen = sparsify(model, x, units="weights", include=names[0])
    assert [group.name for group in chosen.groups] == names[:1]


def test_inputs_in_containers_are_told_apart_by_their_sizes():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 2, 3)

        def forward(self, named):
            return self.second(self.first(named["x"]).tanh())

    model, large = Named(), ({"x": torch.randn(1, 1, 32, 32)},)
    expected = measure(model, large).macs.dense
    sparsify(model, ({"x": torch.randn(1, 1, 8, 8)},))
    assert measure(model, large).macs.dense == expected


def test_inputs_that_lead_elsewhere_are_refused():
    class Branching(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.third = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3), nn.Conv2d(4, 2, 3)

        def forward(self, x):
            x = self.first(x).tanh()
            return self.third(self.second(x).tanh() if x.shape[-1] > 8 else x)

    model = Branching()
    sparsify(model, torch.randn(1, 1, 12, 12))
    with pytest.raises(LzeroError, match="with these inputs the model runs other operations"):
        measure(model, torch.randn(1, 1, 8, 8))


def test_statistics_stay_where_training_cannot_be_captured():
    class Deciding(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm, self.second = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)
            self.aside = nn.Linear(8, 2)

        def forward(self, x):
            x = self.norm(self.first(x)).tanh()
            return self.second(x) + (self.aside(x) if self.training and x.sum() > -1e9 else 0)

    model = Deciding()
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    sparsify(model, torch.randn(16, 4))
    assert all(torch.equal(buffer, before[name]) for name, buffer in model.named_buffers() if name in before)


def test_torch_says_nothing_beside_an_error_of_ours(capfd):
    with pytest.raises(LzeroError, match="does not run with these example inputs"):
        sparsify(nn.Linear(6, 3), torch.randn(1, 5))
    assert capfd.readouterr() == ("", "")


def test_a_model_without_products_has_gates_on_its_weights():
    sparsifier = sparsify(nn.Sequential(nn.Embedding(10, 4)), torch.zeros(2, 3, dtype=torch.long), units="weights")
    assert sparsifier.num_gates == 40


def test_a_unit_that_is_alone_stays():
    model = nn.Sequential(nn.Conv1d(4, 12, 1), nn.GroupNorm(1, 12), nn.SiLU(), nn.Conv1d(12, 6, 1), nn.Conv1d(6, 2, 1))
    plan = sparsify(model, torch.randn(4, 4, 10)).plan()
    assert [name for name, _, _ in plan.removable] == ["3"]
    assert ("0", 1, "the only unit that its layer makes") in plan.fixed


def test_a_rule_that_gives_other_sizes_than_its_operation_is_refused(monkeypatch):
    monkeypatch.setitem(registry._RULES, "aten.tanh.default", lambda _, x: Value(x[:-1]))
    with pytest.raises(LzeroError, match=r"the rule of aten\.tanh\.default gives dimensions of \[3\]"):
        sparsify(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)), torch.randn(3, 4))


class Squeezing(nn.Module):
    """Drops dimensions of one position, whichever they are, or one that has units."""

    def __init__(self, squeezed):
        super().__init__()
        self.conv, self.pool, self.out = nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Linear(8, 2)
        self.squeezed = squeezed

    def forward(self, x):
        return self.out(self.squeezed(self.pool(torch.tanh(self.conv(x)))))


SQUEEZED = {
    "all": lambda h: h.squeeze(),
    "one of units": lambda h: h.flatten(1).squeeze(1),
    "several": lambda h: torch.squeeze(h, (1, 2, 3)),
}


@pytest.mark.parametrize("squeezed", SQUEEZED.values(), ids=SQUEEZED)
def test_code_that_drops_lone_units_keeps_two(squeezed):
    torch.manual_seed(0)
    model, x = Squeezing(squeezed).double(), torch.randn(4, 3, 8, 8).double()
    sparsifier = sparsify(model, x)
    sparsifier.log_alpha.data.fill_(9.0)[1:] = -9.0
    small = compact(model)
    assert small.conv.out_channels == 2
    assert verify(model, small, x) < 1e-12
    assert sparsifier.shrink() == 6
    assert measure(model).params.realised == sum(parameter.numel() for parameter in small.parameters())
    small = compact(model, budget=Constraint(sparsifier, "30%", "macs"))
    assert small.conv.out_channels == 2
