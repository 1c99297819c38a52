"""Removal is exact, for every family of models and every pattern of gates; and the checks have teeth."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.fx import GraphModule
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_structure
from torch.utils.flop_counter import FlopCounterMode

from lzero.compact import compact
from lzero.costs import Costs, decided_alive, expected_alive
from lzero.decision import Decision, decide
from lzero.errors import LzeroError, NotFiniteError, VerificationError
from lzero.measure import measure
from lzero.proof import folded_copy
from lzero.sparsify import sparsify
from lzero.surgery import cut_model
from lzero.verify import verify
from tests.models import AS_GRAPH, MODELS, build, set_gates

SETTINGS = {"MLP": {"inputs": True}, "LeNet-5": {"units": "paper"}}


def gated_model(name, density, dtype=torch.float64):
    model, x = build(name, dtype)
    sparsifier = sparsify(model, x, **SETTINGS.get(name, {}))
    set_gates(sparsifier, density)
    return model, sparsifier, x


def count_macs(model, x):
    """What torch counts, with attention spelled out: its fused kernels for the CPU are not counted."""
    torch.backends.mha.set_fastpath_enabled(False)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), torch.no_grad():
        model.eval()(x)
    torch.backends.mha.set_fastpath_enabled(True)
    return counter.get_total_flops() // 2


@pytest.mark.parametrize("density", [0.05, 0.5, 0.95])
@pytest.mark.parametrize("name", MODELS)
def test_compact_is_exact_and_costs_are_those_of_the_model_that_is_left(name, density):
    model, sparsifier, x = gated_model(name, density)
    before = copy.deepcopy(model.state_dict())
    small = compact(model, fallback="graph" if name in AS_GRAPH else "error")
    assert verify(model, small, x, tolerance=1e-9) <= 1e-9
    costs, alive = Costs(sparsifier), decided_alive(sparsifier, decide(sparsifier))
    assert costs("params", alive).item() == sum(p.numel() for p in small.parameters())
    assert costs("macs", alive).item() == count_macs(small, x)
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    if density < 0.1:
        assert costs("params", alive) < 0.9 * costs("params", torch.ones_like(alive))


@pytest.mark.parametrize("name", MODELS)
def test_compact_is_exact_in_single_precision(name):
    model, _, x = gated_model(name, 0.5, torch.float32)
    small = compact(model, fallback="graph" if name in AS_GRAPH else "error")
    assert verify(model, small, x, tolerance=1e-4) <= 1e-4


@pytest.mark.parametrize("name", MODELS)
def test_inner_dimensions_of_heads_are_exact_as_a_graph(name):
    model, x = build(name)
    sparsifier = sparsify(model, x, exclude=())
    set_gates(sparsifier, 0.4)
    assert verify(model, compact(model, fallback="graph"), x, tolerance=1e-9) <= 1e-9


@pytest.mark.parametrize("name", sorted(set(MODELS) - AS_GRAPH))
def test_wrong_compactions_are_caught(name):
    """A live unit removed, or a gate forgotten: for each site of each model the outputs show it."""
    model, sparsifier, x = gated_model(name, 0.7)
    right = decide(sparsifier)
    for site in sparsifier.structure.sites:
        span = sparsifier.structure.span(site)
        live = [k for k in range(span.start, span.stop) if right.units[k] and 0 < right.gates[k] < 1]
        if len(live) < 1 or right.units[span].sum() < 2:
            continue
        units = right.units.copy()
        units[live[0]] = False
        gates = right.gates.clone()
        gates[live[0]] = 1.0
        for wrong in (Decision(units, right.columns, right.gates), Decision(right.units, right.columns, gates)):
            small = folded_copy(sparsifier, wrong)
            cut_model(small, sparsifier.structure, wrong)
            with pytest.raises((VerificationError, RuntimeError, ValueError, AssertionError)):
                verify(model, small, x, tolerance=1e-7)


def test_torchs_layers_tell_their_new_sizes():
    model, x = nn.Sequential(nn.Linear(4, 8), nn.PReLU(8), nn.Linear(8, 2)), torch.randn(3, 4)
    sparsify(model, x).log_alpha.data[:5] = -9.0
    assert str(compact(model)) == str(nn.Sequential(nn.Linear(4, 3), nn.PReLU(3), nn.Linear(3, 2)))


@pytest.mark.parametrize("name", ["VGG-BN", "ResNet-18", "GPT-2"])
def test_expected_costs_are_means_over_samples(name):
    """At six standard errors, where no unit is on both sides of a weight: a right count fails with probability 2e-9."""
    model, x = build(name)
    sparsifier = sparsify(model, x)
    set_gates(sparsifier, 0.8)
    costs = Costs(sparsifier)
    p = sparsifier.law.prob_active.detach().double()
    samples = torch.stack(
        [costs("macs", expected_alive(sparsifier, (torch.rand_like(p) < p).double())) for _ in range(4000)]
    )
    expected = costs("macs", expected_alive(sparsifier, p))
    if name == "ResNet-18":  # channels of the residual stream stand on both sides of a convolution
        assert expected.item() == pytest.approx(samples.mean().item(), rel=0.03)
    else:
        assert abs(samples.mean() - expected) < 6 * samples.std() / len(samples) ** 0.5


def test_costs_are_differentiable():
    model, x = build("ResNet-18")
    sparsifier = sparsify(model, x)
    Costs(sparsifier)("macs", expected_alive(sparsifier, sparsifier.law.prob_active)).backward()
    assert (sparsifier.log_alpha.grad > 0).all()


def test_empty_sites_keep_one_unit_and_stay_exact():
    model, _, x = gated_model("LeNet-5", 0.0)
    small = compact(model)
    assert [m.out_channels for m in small if isinstance(m, nn.Conv2d)] == [1, 1]
    assert verify(model, small, x) <= 1e-9


@pytest.mark.parametrize("name", ["VGG-BN", "LeNet-5", "GPT-2", "ResNeXt"])
def test_widths_can_be_rounded(name):
    model, sparsifier, x = gated_model(name, 0.4)
    small = compact(model, round_to=4)
    assert verify(model, small, x) <= 1e-9
    decision = decide(sparsifier, round_to=4)
    for site in sparsifier.structure.sites:
        tensor = sparsifier.structure.tensors[site.producers[0].tensor][site.producers[0].dim]
        width = int(decision.positions(tensor).sum())
        assert width % 4 == 0 or width == len(tensor)


def test_rounding_keeps_the_likeliest():
    model = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 1))
    sparsifier = sparsify(model, torch.randn(2, 3))
    sparsifier.log_alpha.data = torch.tensor([-9.0, -4.0, 1.0, -5.0, -3.0, -8.0])
    assert decide(sparsifier, round_to=4).units.tolist() == [False, True, True, True, True, False]


def test_subnormal_numbers_are_flushed():
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    sparsify(model, torch.randn(1, 2))
    with torch.no_grad():
        model[0].bias.fill_(1e-40)
    assert (compact(model)[0].bias == 0).all()


def test_a_graph_trains_and_switches_modes():
    model, _, x = gated_model("GPT, counting", 0.5)
    small = compact(model, fallback="graph")
    assert set(dict(small.named_parameters())) == {n for n, _ in model.named_parameters() if "lzero" not in n}
    assert verify(model, small, torch.cat([x, x, x])) <= 1e-9
    small.train()
    assert not torch.equal(small(x), small(x))  # dropout
    small(x).sum().backward()
    assert all(parameter.grad is not None for parameter in small.parameters())
    small.eval()
    assert torch.equal(small(x), small(x))


class Reshaping(nn.Module):
    """Attention that writes its old width down, and returns what it is told to."""

    def __init__(self, returned):
        super().__init__()
        self.returned, self.drop = returned, nn.Dropout(0.5)
        self.qkv, self.out = nn.Linear(24, 72), nn.Linear(24, 24)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).reshape(batch, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4).unbind(0)
        attended = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width)
        return self.returned(self.drop(self.out(attended)))


RETURNED = {
    "a tensor": lambda y: y,
    "a list of one": lambda y: [y],
    "a dictionary": lambda y: {"out": y, "mean": y.mean(1)},
    "nested": lambda y: (y, {"parts": [y.mean(1), None]}),
}


def reshaping_graph(returned):
    model, x = Reshaping(returned), torch.randn(4, 5, 24)
    sparsify(model, x).log_alpha.data[:2] = -9.0
    return model, compact(model, fallback="graph"), x


@pytest.mark.parametrize("name", RETURNED)
def test_a_graph_returns_what_the_model_returns(name):
    model, graph, x = reshaping_graph(RETURNED[name])
    assert tree_structure(graph(x)) == tree_structure(model(x))
    assert verify(model, graph, x) <= 1e-6


@pytest.mark.parametrize("training", [True, False])
def test_a_graph_switches_modes_after_it_was_pickled(training, tmp_path):
    _, graph, x = reshaping_graph(RETURNED["a tensor"])
    torch.save(graph.train(training), tmp_path / "graph.pt")
    loaded = torch.load(tmp_path / "graph.pt", weights_only=False)
    assert torch.equal(loaded.eval()(x), graph.eval()(x))
    assert torch.equal(loaded(x), loaded(x))
    loaded.train()
    assert not torch.equal(loaded(x), loaded(x))


class DropPath(nn.Module):
    def forward(self, x):
        return x * torch.rand(len(x), 1, 1).round() if self.training else x


def test_a_graph_of_a_model_with_drop_paths_evaluates_and_says_why_it_does_not_train(tmp_path):
    model, x = Reshaping(RETURNED["a tensor"]), torch.randn(4, 5, 24)
    model.drop = DropPath()
    sparsify(model, x).log_alpha.data[:2] = -9.0
    graph = compact(model.train(), fallback="graph")
    assert not graph.training
    assert verify(model, graph, torch.cat([x, x])) <= 1e-6
    torch.save(graph, tmp_path / "graph.pt")
    for each in (graph, torch.load(tmp_path / "graph.pt", weights_only=False)):
        with pytest.raises(LzeroError, match="in training the model runs other operations"):
            each.train()


def test_code_that_insists_on_sizes_is_refused_with_the_way_out():
    model, _, _ = gated_model("GPT, counting", 0.5)
    place = r"models\.py:\d+: q, k, v = \(t\.reshape\(by_head\)"
    with pytest.raises(LzeroError, match=rf'relies on the old sizes \(RuntimeError: .*{place}.*fallback="graph"'):
        compact(model)


class Twice(nn.Module):
    """One norm for two layers, and code that insists on a width."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.norm, self.read = (
            nn.Linear(4, 8), nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 2),
        )  # fmt: skip

    def forward(self, x):
        h = self.norm(self.one(x)).tanh().view(x.shape[0], 8)
        return self.read(self.norm(self.two(h)).tanh())


class Starting(nn.Module):
    """A recurrent layer with a state to start from, whose width is written in the code."""

    def __init__(self):
        super().__init__()
        self.embed, self.recurrent, self.read = nn.Embedding(20, 6), nn.GRU(6, 8, batch_first=True), nn.Linear(8, 2)

    def forward(self, tokens):
        start = torch.zeros(1, tokens.size(0), 8, dtype=torch.float64)
        return self.read(self.recurrent(self.embed(tokens), start)[0])


def test_constants_of_a_graph_follow_the_batch_after_pickling():
    model, tokens = Starting().double(), torch.randint(0, 20, (3, 5))
    sparsifier = sparsify(model, tokens)
    sparsifier.log_alpha.data[:] = 9.0
    sparsifier.log_alpha.data[::2] = -9.0
    graph = compact(model, fallback="graph")
    again = pickle.loads(pickle.dumps(graph))  # noqa: S301
    assert graph.read.weight.shape == (2, 4)
    assert verify(model, again, torch.randint(0, 20, (7, 5))) <= 1e-9


class Deep(nn.Module):
    """A second head with units of its own, which runs in training alone, behind code that insists on a width."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 16), nn.Linear(16, 3)
        self.second = nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3))

    def forward(self, x):
        h = self.body(x).tanh().view(-1, 8 * 2)
        return (self.head(h), self.second(h)) if self.training else self.head(h)


def test_a_graph_evaluates_where_training_has_units_of_its_own():
    model, x = Deep().double().eval(), torch.randn(6, 4).double()
    sparsify(model, x).log_alpha.data[::2] = -9.0
    graph = compact(model, fallback="graph")
    assert isinstance(graph, GraphModule)
    assert len(graph.body.weight) == 8
    assert verify(model, graph, x) <= 1e-9


def test_a_graph_with_a_norm_that_runs_twice_trains():
    model, x = Twice().double(), torch.randn(4, 4).double()
    sparsify(model, x).log_alpha.data[:3] = -9.0
    graph = compact(model, fallback="graph")
    assert isinstance(graph, GraphModule)
    graph.train()(x)
    assert graph.norm.num_batches_tracked == 2


def test_a_model_without_gates_is_refused():
    with pytest.raises(LzeroError, match=r"call lzero\.sparsify"):
        compact(nn.Linear(2, 2))
    with pytest.raises(LzeroError, match='fallback: expected "error" or "graph"'):
        compact(nn.Linear(2, 2), fallback="maybe")


def test_weights_with_gates_of_their_own():
    model, x = build("LeNet-5")
    sparsifier = sparsify(model, x, units="weights")
    assert len(sparsifier.log_alpha) == sum(p.numel() for p in model.parameters() if p.dim() > 1)
    set_gates(sparsifier, 0.005)
    small = compact(model)
    assert verify(model, small, x) <= 1e-9
    assert sum(p.numel() for p in small.parameters()) < 0.5 * sum(p.numel() for p in model.parameters() if p.dim() > 1)


def test_autocast_leaves_the_weights_of_the_smaller_model_in_their_precision():
    model, x = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2)), torch.randn(3, 4)
    sparsify(model, x).log_alpha.data[:5] = -9.0
    with torch.autocast("cpu", torch.bfloat16):
        small = compact(model)
    assert {parameter.dtype for parameter in small.parameters()} == {torch.float32}
    assert verify(model, small, x) <= 1e-5


class Halves(nn.Module):
    """Takes its batch in two halves, and a scale for all of it."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.width = nn.Linear(5, 12), nn.Linear(4, 2), 3

    def forward(self, x, scale):
        one, other = torch.tanh(self.first(x) * scale).view(-1, 4, 3).amax(-1).chunk(2, 0)
        return self.second(one), self.second(other)


def test_a_graph_takes_its_batch_apart_as_the_model_does():
    torch.manual_seed(0)
    model, scale = Halves().double(), torch.ones(1, 1).double()
    sparsifier = sparsify(model, (torch.randn(4, 5).double(), scale))
    sparsifier.log_alpha.data.fill_(9.0)[:1] = -9.0
    graph = compact(model, fallback="graph")
    for batch in (4, 6):
        assert verify(model, graph, (torch.randn(batch, 5).double(), scale)) < 1e-12


class Bits(nn.Module):
    """Looks at the bits of what it was given, and keeps a size in an attribute."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.width = nn.Linear(4, 8), nn.Linear(8, 2), 8

    def forward(self, x):
        sign = (x.view(torch.int64) < 0).sum(-1, keepdim=True)
        return self.second(torch.tanh(self.first(x)).view(-1, self.width)) + sign


def test_a_view_as_another_type_is_no_other_shape():
    model, x = Bits().double(), torch.randn(3, 4).double()
    sparsify(model, x).log_alpha.data[:3] = -9.0
    assert compact(model).width == 5


def test_gates_that_are_no_numbers_are_refused_by_name():
    model, x = build("MLP")
    sparsifier = sparsify(model, x)
    sparsifier.log_alpha.data[0] = float("nan")
    for use in (compact, measure, lambda _: sparsifier.shrink()):
        with pytest.raises(NotFiniteError, match="the gates of 0 are not finite"):
            use(model)


class Drawing(nn.Module):
    """Draws noise in evaluation too."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x):
        h = self.first(x)
        return self.second(h + torch.randn_like(h))


def test_what_cannot_be_compared_is_not_blamed_on_sizes():
    model, x = Drawing(), torch.randn(3, 4)
    sparsifier = sparsify(model, x)
    sparsifier.log_alpha.data[:3] = -9.0
    with pytest.raises(LzeroError, match="no cut of Drawing can be proven: its outputs are others each time"):
        compact(model)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    sparsify(model, x).log_alpha.data[:3] = -9.0
    model[2].bias.data[:] = float("nan")
    with pytest.raises(LzeroError, match="no cut of Sequential can be proven: its outputs hold no numbers"):
        compact(model)


def test_channels_stay_last():
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.Tanh(), nn.Conv2d(16, 4, 3)).to(memory_format=torch.channels_last)
    sparsifier = sparsify(model, torch.randn(2, 3, 8, 8))
    sparsifier.log_alpha.data[:5] = -9.0
    small = compact(model)
    sparsifier.shrink()
    for each in (small, model):
        for conv in (each[0], each[2]):
            assert conv._parameters["weight"].is_contiguous(memory_format=torch.channels_last)


class OverTime(nn.Module):
    """A mean over time, or over the batch, that takes their length as a number."""

    def __init__(self, is_time):
        super().__init__()
        self.up, self.out, self.is_time = nn.Linear(4, 24), nn.Linear(8, 2), is_time

    def forward(self, x):
        h = torch.tanh(self.up(x))
        h = h.sum(1) / x.shape[1] if self.is_time else h.mean(1) + h.sum((0, 1)) / len(x)
        return self.out(h.view(-1, 8, 3).amax(-1))


@pytest.mark.parametrize("is_time", [True, False])
def test_a_graph_refuses_sizes_for_which_it_has_other_numbers(is_time):
    model = OverTime(is_time).double()
    sparsify(model, torch.randn(3, 5, 4).double()).log_alpha.data.fill_(9.0)[:3] = -9.0
    graph = compact(model, fallback="graph")
    assert verify(model, graph, torch.randn(3, 5, 4).double()) < 1e-12
    others = [(3, 10, 4), (3, 5, 4, 1)] if is_time else [(6, 5, 4)]
    for again in (graph, pickle.loads(pickle.dumps(graph))):  # noqa: S301
        for sizes in others:
            with pytest.raises(LzeroError, match=r"this graph is for inputs of sizes \(.*5, 4\), got "):
                again(torch.randn(*sizes).double())
    if is_time:
        assert verify(model, graph, torch.randn(7, 5, 4).double()) < 1e-12
