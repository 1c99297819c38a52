"""Models that people write and that a careless removal would get wrong."""

from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import AveragedModel

from lzero import LzeroError, compact, load, measure, save, sparsify, verify
from tests.models import Unrolled, build, checking, set_gates


class Auxiliary(nn.Module):
    """A second head that runs in training only."""

    def __init__(self):
        super().__init__()
        self.body, self.head, self.second = nn.Linear(4, 8), nn.Linear(8, 2), nn.Linear(8, 3)

    def forward(self, x):
        hidden = F.softplus(self.body(x))
        return (self.head(hidden), self.second(hidden)) if self.training else self.head(hidden)


def test_units_that_training_reads_elsewhere_are_cut_there_too():
    model, x = Auxiliary().double(), torch.randn(3, 4).double()
    sparsifier = sparsify(model, x)
    assert sparsifier.plan().removable == (("body", 8, "head.weight, second.weight"),)
    sparsifier.log_alpha.data[:] = 60.0
    sparsifier.log_alpha.data[:4] = -60.0
    expected = model.train()(x)
    small = compact(model)
    assert small.second.in_features == 4
    for cut in (small.train(), (sparsifier.shrink(), model)[1]):
        assert all(torch.allclose(a, b) for a, b in zip(cut(x), expected, strict=True))


class Wasteful(nn.Module):
    """Computes what nobody asks for, as a last block of several may, and has a layer for other inputs."""

    def __init__(self):
        super().__init__()
        self.body, self.head, self.spare, self.other = (nn.Linear(4, 8), *(nn.Linear(8, 2) for _ in range(3)))
        self.spread = nn.Linear(8, 8)

    def forward(self, x, task="one"):
        hidden = F.softplus(self.body(x))
        self.spare(hidden + self.spread(hidden))
        return self.head(hidden) if task == "one" else self.other(hidden)


def test_what_is_computed_for_nobody_is_cut_and_what_is_not_reached_is_named():
    model, x = Wasteful().double(), torch.randn(3, 4).double()
    sparsifier = sparsify(model, x)
    assert ("other", 2, "not used with these example inputs") in sparsifier.plan().fixed
    sparsifier.log_alpha.data[:4] = -60.0
    small = compact(model)
    assert (small.spare.in_features, small.spread.out_features) == (4, 4)
    assert verify(model, small, x) <= 1e-9
    assert measure(small, x).macs.dense == measure(model, x).macs.realised == 3 * (4 * 4 + 4 * 4 + 2 * 4 * 2)


class Shortcut(nn.Module):
    """A residual stream that is made wider by zeros, whose number is in the code."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.read = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 16, 1), nn.Conv2d(16, 2, 1)

    def forward(self, x):
        h = F.softplus(self.one(x))
        zeros = torch.zeros(h.shape[0], 8, *h.shape[2:], dtype=h.dtype)
        return self.read(F.softplus(self.two(h) + torch.cat([h, zeros], 1)))


def test_as_many_zeros_stay_as_code_puts_beside():
    model, x = Shortcut().double(), torch.randn(2, 3, 4, 4).double()
    sparsifier = sparsify(model, x)
    assert [(group.name, group.stop - group.start) for group in sparsifier.groups] == [("one", 8)]
    sparsifier.log_alpha.data[::2] = -9.0
    small = compact(model)
    assert small.two.weight.shape[:2] == (12, 4)
    assert verify(model, small, x) <= 1e-9


class Limited(nn.Module):
    """Heads by an attribute, and another attribute of the same value that has nothing to do with them."""

    def __init__(self):
        super().__init__()
        self.heads, self.longest, self.qkv, self.out = 4, 4, nn.Linear(12, 36), nn.Linear(12, 2)

    def forward(self, x):
        x = x[:, : self.longest]
        q, k, v = (t.reshape(len(x), -1, self.heads, 3).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("batch", [2, 4])
def test_attributes_that_are_not_sizes_keep_their_value(batch):
    model, x = Limited().double(), torch.randn(batch, 2, 12).double()
    sparsifier = sparsify(model, x)
    sparsifier.log_alpha.data[:2] = -60.0
    small = compact(model)
    assert (small.heads, small.longest) == (2, 4)
    longer = torch.randn(batch, 4, 12).double()
    assert verify(model, small, longer) <= 1e-9


class Pairs(nn.Module):
    """A bilinear layer, of two hidden layers or twice of one."""

    def __init__(self, twice):
        super().__init__()
        self.one, self.other = nn.Linear(6, 8), None if twice else nn.Linear(6, 5)
        self.both, self.out = nn.Bilinear(8, 8 if twice else 5, 7), nn.Linear(7, 3)

    def forward(self, x):
        one = self.one(x).relu()
        other = one if self.other is None else self.other(x).relu()
        return self.out(self.both(one, other).relu())


@pytest.mark.parametrize("units", ["structure", "paper", "weights"])
@pytest.mark.parametrize("twice", [False, True])
def test_bilinear_layers_lose_inputs_on_both_sides_and_outputs(twice, units, tmp_path):
    model, x = Pairs(twice), torch.randn(4, 6)
    left, right, out = model.both.in1_features, model.both.in2_features, model.both.out_features
    before = out * (left + 1) * right + sum(
        layer.weight.numel() for layer in (model.one, model.other, model.out) if layer
    )
    assert measure(model, x[:1]).macs.dense == before
    sparsifier = sparsify(model, x, units=units)
    set_gates(sparsifier, 0.5)
    small = compact(model)
    assert verify(model, small, x) < 1e-5
    assert small.both.weight.shape == (small.both.out_features, small.both.in1_features, small.both.in2_features)
    assert measure(model).macs.realised == measure(small, x).macs.dense
    if units == "structure":
        assert small.both.weight.numel() < model.both.weight.numel()
    save(small, tmp_path / "small.safetensors")
    torch.testing.assert_close(load(Pairs(twice), tmp_path / "small.safetensors")(x), small(x))


def test_masked_logits_and_noise_in_evaluation():
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(4, 8), nn.Linear(8, 3)

        def forward(self, x):
            logits = self.two(torch.sigmoid(self.one(x) + torch.randn(len(x), 1, dtype=x.dtype)))
            return logits.masked_fill(torch.tensor([False, True, False]), -torch.inf)

    model, x = Noisy().double(), torch.randn(2, 4).double()
    set_gates(sparsify(model, x), 0.5)
    assert verify(model, compact(model), x) <= 1e-9


def test_a_model_that_calls_itself_is_one_forward():
    class Recursive(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(4, 8), nn.Linear(8, 4)

        def forward(self, x, depth=1):
            x = self.two(torch.sigmoid(self.one(x)))
            return self(x, depth - 1) if depth else x

    model, x = Recursive().double(), torch.randn(2, 4).double()
    set_gates(sparsify(model, x), 0.5)
    assert verify(model, compact(model), x) <= 1e-9
    model.train()(x).sum().backward()


def test_single_inputs_in_a_graph_stay_as_zeros():
    class Grid(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.conv = nn.Linear(5, 24), nn.Conv1d(6, 2, 1)

        def forward(self, x):
            return self.conv(F.softplus(self.fc(x)).view(-1, 6, 4))

    model, x = Grid().double(), torch.randn(3, 5).double()
    set_gates(sparsify(model, x, inputs=True), 0.4)
    assert verify(model, compact(model, fallback="graph"), x) <= 1e-9


def test_a_weight_used_twice_does_not_choose_its_inputs():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode = nn.Linear(6, 4)

        def forward(self, x):
            return F.linear(torch.tanh(self.encode(x)), self.encode.weight.t())

    model, x = Tied().double(), torch.randn(2, 6).double()
    sparsifier = sparsify(model, x, inputs=True)
    assert [group.name for group in sparsifier.groups] == ["encode"]
    set_gates(sparsifier, 0.5)
    assert verify(model, compact(model), x) <= 1e-9


def test_example_inputs_may_come_from_another_model():
    model = nn.Sequential(nn.Linear(4, 8), nn.Sigmoid(), nn.Linear(8, 2))
    sparsify(model, nn.Linear(3, 4)(torch.randn(2, 3)))
    assert compact(model)[0].out_features == 8


def test_overlapping_buffers_are_saved_both(tmp_path):
    class Overlapping(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("whole", torch.randn(4))
            self.register_buffer("part", self.whole[:2])

        def forward(self, x):
            return x * self.part.sum() + self.whole.sum()

    model, x = Overlapping(), torch.ones(1)
    save(model, tmp_path / "a")
    assert torch.equal(load(Overlapping(), tmp_path / "a")(x), model(x))


def test_a_buffer_that_is_not_saved_pins_what_it_meets():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(3, 8), nn.Linear(8, 2)
            self.register_buffer("scale", torch.linspace(1, 2, 8), persistent=False)

        def forward(self, x):
            return self.two(torch.sigmoid(self.one(x)) * self.scale)

    with pytest.raises(LzeroError, match="buffer scale is not saved with the model"):
        sparsify(Scaled(), torch.randn(2, 3))


def test_misuse_is_refused_in_words():
    model, x = build("MLP")
    sparsifier = sparsify(model, x)
    with pytest.raises(LzeroError, match="has gates already"):
        sparsify(nn.Sequential(model), x)
    with pytest.raises(LzeroError, match="round_to: expected a whole number from 1, got 0"):
        sparsifier.shrink(round_to=0)
    with pytest.raises(LzeroError, match=r"round_to: .* got 2\.5"):
        compact(model, round_to=2.5)
    with pytest.raises(LzeroError, match=r"averages: expected copies|a model with gates"):
        sparsifier.shrink(averages=[nn.Linear(2, 2)])  # also where nothing is removed
    stale = AveragedModel(model)
    sparsifier.log_alpha.data[:3] = -60.0
    sparsifier.shrink()
    sparsifier.log_alpha.data[:3] = -60.0
    with pytest.raises(LzeroError, match="averages: expected copies of this model"):
        sparsifier.shrink(averages=[stale])
    sparsifier.remove()
    with pytest.raises(LzeroError, match="have been removed"):
        sparsifier.shrink()
    with pytest.raises(LzeroError, match="have been removed"):
        sparsifier.remove()
    with pytest.raises(LzeroError, match="keep_rate: expected globs that match"):
        sparsify(build("MLP")[0], x, keep_rate={"typo": 0.1})
    with pytest.raises(LzeroError, match="keep_rate: expected globs that each add something"):
        sparsify(build("MLP")[0], x, keep_rate={"*": 0.9, "0*": 0.5})


STATES = {
    "an attribute": Unrolled.zeros,
    "the input": lambda self, x: torch.full_like(self.read(x[:, 0]), 0.5),
    "the shape of another": lambda self, x: x.new_ones(self.read(x[:, 0]).shape),
    "its code alone": lambda self, x: torch.zeros(x.shape[0], 8, dtype=x.dtype),  # noqa: ARG005
}


@pytest.mark.parametrize("name", STATES)
def test_states_that_begin_as_constants_shrink_with_what_they_meet(name):
    model, x = Unrolled(STATES[name]).double(), torch.randn(2, 4, 3).double()
    sparsifier = sparsify(model, x)
    assert [count for _, count, _ in sparsifier.plan().removable] == [8]
    set_gates(sparsifier, 0.5)
    graph = compact(model, fallback="graph")
    assert verify(model, graph, torch.cat([x, x])) <= 1e-9
    if name == "its code alone":
        with pytest.raises(LzeroError, match="relies on the old sizes"):
            compact(model)
    else:
        assert compact(model).width == (graph.read.out_features if name == "an attribute" else 8)


def test_widths_that_code_asserts_are_set(tmp_path):
    model, x = checking().double(), torch.randn(2, 2, 4, 4).double()
    sparsifier = sparsify(model, x)
    with torch.no_grad():
        sparsifier.log_alpha.copy_(torch.tensor([-9.0] * 3 + [3.0] * 5 + [-9.0] * 2 + [3.0] * 6 + [-9.0] + [3.0] * 7))
    small = compact(model)
    assert [small[1].channels, small[2].channels] == [5, 6]
    assert verify(model, small, x) <= 1e-9
    assert (model[1].channels, model[2].channels) == (8, 8)
    save(small, tmp_path / "small.safetensors")
    assert verify(small, load(checking().double(), tmp_path / "small.safetensors"), x) == 0


@dataclass
class Answer:
    """What no tree of torch's knows."""

    logits: torch.Tensor


class DynamicCache(Answer):
    """What Hugging Face calls keys and values."""


@pytest.mark.parametrize(
    ("kind", "advice"), [(Answer, "register_dataclass"), (DynamicCache, "model.config.use_cache = False")]
)
def test_outputs_of_unknown_classes_are_told_with_the_way_out(kind, advice):
    class Answering(nn.Linear):
        def forward(self, x):
            return kind(super().forward(x))

    message = (
        rf"cannot capture Answering: it returns <class .*{kind.__name__}'>, of which torch knows nothing; .*{advice}"
    )
    with pytest.raises(LzeroError, match=message):
        sparsify(Answering(4, 2), torch.randn(3, 4))
