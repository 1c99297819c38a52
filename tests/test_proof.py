"""A wrong cut is refused even where the model's own numbers do not show it."""

import pytest
import torch
from torch import nn

import lzero
from lzero import cutting
from lzero.decision import decide
from lzero.proof import Proof
from lzero.subnetwork import Subnetwork


class Swapping(nn.Module):
    """Code that takes a width in two: right for the old size alone."""

    def __init__(self, *, loud: bool = False) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 16, bias=False), nn.Linear(16, 8, bias=False)
        self.head, self.loud = nn.Linear(8, 3), loud

    def forward(self, x):
        h = self.first(x).tanh()
        half = h.shape[-1] // 2
        scores = self.head(self.second(torch.cat([h[..., half:], h[..., :half]], -1)).tanh())
        return torch.cat([x * 1e7, scores], -1) if self.loud else scores


def gated(model, x):
    sparsifier = lzero.sparsify(model, x)
    first = next(group for group in sparsifier.groups if group.name == "first")
    sparsifier.log_alpha.data[first.span][:6] = -9.0
    return sparsifier


def with_zero_head():
    model = Swapping()
    nn.init.zeros_(model.head.weight)
    return model, torch.randn(4, 6)


HIDDEN = {
    "inputs of zeros": lambda: (Swapping(), torch.zeros(4, 6)),
    "a head of zeros": with_zero_head,
    "a loud neighbour": lambda: (Swapping(loud=True), torch.randn(4, 6)),
    "eight bits": lambda: (Swapping(loud=True).bfloat16(), torch.randn(4, 6).bfloat16()),
}


@pytest.mark.parametrize("make", HIDDEN.values(), ids=HIDDEN)
def test_a_wrong_cut_is_refused_where_outputs_do_not_show_it(make):
    model, x = make()
    sparsifier = gated(model, x)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(lzero.LzeroError, match="relies on the old sizes"):
        lzero.compact(model)
    with pytest.raises(lzero.LzeroError, match="relies on the old sizes"):
        sparsifier.shrink()
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_a_model_with_a_head_of_zeros_cannot_run_in_parts_by_luck():
    model, x = with_zero_head()
    with pytest.raises(lzero.LzeroError, match="cannot run in parts"):
        Subnetwork(gated(model, x))


class Heads(nn.Module):
    """Attention by two attributes, either of which makes it run when one head of four is left."""

    def __init__(self) -> None:
        super().__init__()
        self.heads, self.depth = 4, 4
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x):
        q, k, v = (t.view(*x.shape[:2], self.heads, self.depth) for t in self.qkv(x).chunk(3, -1))
        attended = nn.functional.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)))
        return x + self.out(attended.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("depth", [4, 8])
def test_a_head_that_is_left_closed_is_still_a_head(depth):
    """All are closed and one stays, with weights of zero: its sizes show in no output."""
    model, x = Heads(), torch.randn(2, 5, 16)
    model.heads, model.depth = 16 // depth, depth
    sparsifier = lzero.sparsify(model, x)
    sparsifier.log_alpha.data[:] = -9.0
    small = lzero.compact(model)
    assert (small.heads, small.depth) == (1, depth)
    assert lzero.measure(small, x).macs.dense == lzero.measure(model, x).macs.realised
    assert sparsifier.shrink() > 0
    assert (model.heads, model.depth) == (1, depth)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_model_may_change_its_precision(dtype):
    model, x = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2)), torch.randn(4, 6)
    sparsifier = lzero.sparsify(model, x)
    sparsifier.log_alpha.data[:3] = -9.0
    model.to(dtype)
    assert lzero.compact(model)[0].weight.dtype == dtype
    assert sparsifier.shrink() == 3


class SharedHead(nn.Module):
    """In training alone a head reads a second layer, of which it must then lose the same units."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.head = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        hidden = self.one(x).tanh()
        scores = self.head(self.two(hidden).tanh())
        return (scores, self.head(hidden)) if self.training else scores


def test_outputs_of_training_are_compared_too():
    model, x = SharedHead(), torch.randn(4, 6)
    sparsifier = lzero.sparsify(model, x)
    sparsifier.log_alpha.data[:] = 50.0
    sparsifier.log_alpha.data[:4] = sparsifier.log_alpha.data[12:] = -50.0  # as many of both, but others
    with pytest.raises(lzero.LzeroError, match="in training its outputs differ"):
        sparsifier.shrink()


class Counting(nn.Module):
    """A model that says in training alone which width it wants."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        y = self.first(x).tanh()
        assert not self.training or y.shape[1] != 5, "not five"
        return self.second(y)


def test_what_fails_in_training_alone_is_told_in_its_own_words():
    model, x = Counting(), torch.randn(4, 6)
    lzero.sparsify(model, x).log_alpha.data[:3] = -50.0
    with pytest.raises(lzero.LzeroError, match="in training: AssertionError: not five"):
        lzero.compact(model)


def test_a_proof_that_cannot_be_made_is_none(monkeypatch):
    def fail(*_, **__):
        raise torch.OutOfMemoryError("no memory for a copy")

    monkeypatch.setattr("lzero.proof._wide_awake", fail)
    model, x = Right(), torch.randn(4, 6)
    lzero.sparsify(model, x).log_alpha.data[:3] = -50.0
    with pytest.raises(lzero.LzeroError, match="no memory for a copy"):
        lzero.compact(model)


def test_where_there_is_no_double_precision_cuts_are_proven_in_single(monkeypatch):
    def fail(_):
        raise TypeError("Cannot convert a tensor to float64, which this device does not have")

    model, x = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)), torch.randn(4, 6)
    lzero.sparsify(model, x).log_alpha.data[:3] = -50.0
    monkeypatch.setattr(nn.Module, "double", fail)
    assert lzero.compact(model)[0].out_features == 5


class Right(nn.Module):
    """A model that is cut rightly, and insists on single precision."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 16), nn.Linear(16, 3)
        nn.init.zeros_(self.second.weight)

    def forward(self, x):
        return self.second(self.first(x.float()).relu())


def test_code_that_insists_on_its_precision_is_proven_in_it():
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    model = Right()
    sparsifier = lzero.sparsify(model, torch.zeros(4, 6))
    sparsifier.log_alpha.data[:5] = -9.0
    torch.manual_seed(3)
    small = lzero.compact(model)
    assert torch.equal(torch.rand(1), expected)  # the proof's numbers are its own
    assert small.first.out_features == 11
    assert Proof(sparsifier, decide(sparsifier))._rehearsal.inputs[0].dtype == torch.float32
    assert not model.second.weight.any()


class Telling(nn.Module):
    """Features are returned in training alone, for a loss on them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 16), nn.Linear(16, 3)

    def forward(self, x):
        features = self.first(x).tanh()
        return (self.second(features), features) if self.training else self.second(features)


def test_what_training_alone_returns_is_not_cut_away():
    model = Telling()
    sparsifier = gated(model, torch.randn(4, 6))
    with pytest.raises(lzero.LzeroError, match="in training it returns units that it does not return in evaluation"):
        sparsifier.shrink()
    assert model(torch.randn(2, 6))[1].shape == (2, 16)


class Keeping(nn.Module):
    """Keeps an activation for later, as models with an auxiliary loss do."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 16), nn.Linear(16, 3)

    def forward(self, x):
        self.features = self.first(x).tanh()
        return self.second(self.features)


@pytest.mark.filterwarnings("ignore:The tensor attribute")  # torch.export's, which tells of the assignment
def test_a_model_may_keep_what_it_computed():
    model, x = Keeping(), torch.randn(4, 6)
    sparsifier = gated(model, x)
    assert "features" not in vars(model)  # the capture leaves nothing
    model(x).sum().backward()
    features = model.features
    small = lzero.compact(model)
    assert small.first.out_features == 10
    assert sparsifier.shrink() == 6
    assert model.features is features
    assert model.features.grad_fn is not None


class Frozen(dict):
    """Settings that nobody changes."""

    def update(self, *_):
        raise TypeError("frozen")

    clear = update


class Caching(nn.Module):
    """Looks its biases up once, and counts its calls by a hook that it adds at the first one."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.bias = nn.Linear(6, 16), nn.Linear(16, 3), nn.Parameter(torch.randn(9, 3))
        self.cache, self.calls, self.is_hooked, self.settings = {}, [], False, Frozen(width=16)

    def forward(self, x):
        if not self.is_hooked:
            self.first.register_forward_hook(lambda *_: self.calls.append(1))
            self.is_hooked = True
        if not self.training and "bias" not in self.cache:
            self.cache["bias"] = self.bias[torch.tensor([4])]
        return self.second(self.first(x).tanh()) + self.cache.get("bias", self.bias[4])


@pytest.mark.filterwarnings("ignore:The tensor attribute")
def test_caches_and_hooks_of_a_model_are_its_own():
    model, x = Caching(), torch.randn(4, 6)
    gated(model, x)
    assert (model.cache, model.calls, model.is_hooked) == ({}, [], False)
    assert not model.first._forward_hooks
    small = lzero.compact(model)
    assert (model.cache, model.calls, model.is_hooked) == ({}, [], False)
    assert lzero.verify(model, small, x) < 1e-5
    model.eval()(x)
    assert model.calls == [1]
    assert type(model.cache["bias"]) is torch.Tensor


class Off(nn.Module):
    """A graph that is wrong wherever its inputs are not zero."""

    def __init__(self, graph):
        super().__init__()
        self.graph = graph

    def forward(self, x):
        return self.graph(x) + 0.01 * x.sum(-1, keepdim=True)


def test_a_wrong_graph_is_refused_where_outputs_do_not_show_it(monkeypatch):
    model, x = Swapping(), torch.zeros(4, 6)
    gated(model, x)
    assert lzero.verify(model, lzero.compact(model, fallback="graph"), torch.randn(4, 6)) < 1e-5
    right = cutting.graph_model
    monkeypatch.setattr(cutting, "graph_model", lambda *arguments: Off(right(*arguments)))
    with pytest.raises(lzero.LzeroError, match="the outputs differ"):
        lzero.compact(model, fallback="graph")


class Doubling(nn.Module):
    """A net whose code takes the first eight units for others: cut, it takes the wrong ones."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 32), nn.Linear(32, 4)

    def forward(self, x, mask=None):
        h = torch.relu(self.first(x))
        h = self.last(torch.cat([2 * h[:, :8], h[:, 8:]], 1))
        return h if mask is None else (h + mask).softmax(-1)


@pytest.mark.parametrize("mask", [(), (torch.tensor([0.0, -torch.inf, 0.0, 0.0]),)])
def test_units_that_are_silent_on_the_examples_hide_no_mistake(mask):
    for seed in range(30):
        torch.manual_seed(seed)
        model = Doubling()
        sparsifier = lzero.sparsify(model, (torch.randn(1, 6), *mask))
        sparsifier.log_alpha.data.copy_(torch.where(torch.rand(32) < 0.3, -9.0, 4.0))
        if (sparsifier.estimate()[:8] > 0).all():  # which is right by chance
            assert lzero.verify(model, lzero.compact(model), (torch.randn(64, 6), *mask)) < 1e-4
            continue
        with pytest.raises(lzero.LzeroError, match="relies on the old sizes"):
            lzero.compact(model.eval())
        assert lzero.verify(model, lzero.compact(model, fallback="graph"), (torch.randn(64, 6), *mask)) < 1e-4
