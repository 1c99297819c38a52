"""Torch's own attention: it computes the same when it goes by shapes, and its heads can be removed."""

import itertools
import pickle

import pytest
import torch
from torch import nn

from lzero import compact, load, measure, save, sparsify, verify
from lzero.attention import SlimAttention, slim
from lzero.subnetwork import Subnetwork
from tests.models import set_gates

KINDS = {
    "plain": {},
    "batch first": {"batch_first": True},
    "without bias": {"bias": False},
    "other keys": {"kdim": 12, "vdim": 10},
    "more to attend to": {"add_bias_kv": True, "add_zero_attn": True, "batch_first": True},
}
ARGUMENTS = list(itertools.product([None, "padding"], [None, "added", "causal", "for each head"], [True, False]))


def attention(kind):
    """A layer without zeros, and queries, keys and values of five positions in three examples."""
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(16, 4, **KINDS[kind]).double()
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.3)
    shape = (3, 5) if layer.batch_first else (5, 3)
    return layer, [torch.randn(*shape, width).double() for width in (16, layer.kdim, layer.vdim)]


def masks(padding, mask):
    hidden = torch.zeros(3, 5, dtype=torch.bool)
    hidden[1, -2:] = True
    causal = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
    of = {"added": torch.randn(5, 5).double(), "causal": causal, "for each head": torch.randn(12, 5, 5).double()}
    return {"key_padding_mask": hidden if padding else None, "attn_mask": of.get(mask)}


@pytest.mark.filterwarnings("ignore:Support for mismatched")
@pytest.mark.parametrize(("padding", "mask", "need_weights"), ARGUMENTS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_numbers_as_torch(kind, padding, mask, need_weights):
    layer, given = attention(kind)
    several = [{"average_attn_weights": average, "is_causal": mask == "causal"} for average in (True, False)]
    for settings in several:
        settings |= {"need_weights": need_weights, **masks(padding, mask)}
        expected = layer(*given, **settings)
        with slim(layer):
            got = layer(*given, **settings)
        assert torch.allclose(got[0], expected[0], rtol=1e-12)
        assert got[1] is expected[1] is None or torch.allclose(got[1], expected[1], rtol=1e-12)
    assert type(layer) is nn.MultiheadAttention


@pytest.mark.parametrize("kind", KINDS)
def test_one_example_alone(kind):
    layer, given = attention(kind)
    alone = [x[0] if layer.batch_first else x[:, 0] for x in given]
    padding = masks("padding", None)["key_padding_mask"][1]
    expected = layer(*alone, key_padding_mask=padding)
    with slim(layer):
        got = layer(*alone, key_padding_mask=padding)
    assert all(torch.allclose(a, b, rtol=1e-12) for a, b in zip(got, expected, strict=True))


def test_the_hint_needs_its_mask():
    layer, given = attention("plain")
    with slim(layer), pytest.raises(RuntimeError, match="must be given too"):
        layer(*given, is_causal=True)


class Reader(nn.Module):
    """Reads what attention returns, and its weights if it is told to; keys and values are queries of another width."""

    def __init__(self, kind, **settings):
        super().__init__()
        self.attention, given = attention(kind)
        self.settings = settings
        self.key, self.value = (nn.Linear(16, x.shape[-1]).double() for x in given[1:])
        self.read = nn.Linear(16, 3).double()

    def forward(self, x):
        attended, weights = self.attention(x, self.key(x), self.value(x), **self.settings)
        return self.read(attended) if weights is None or not self.settings else (self.read(attended), weights)


def given_to(model):
    return torch.randn(3, 5, 16).double() if model.attention.batch_first else torch.randn(5, 3, 16).double()


@pytest.mark.parametrize("exclude", ["*/inner", ()], ids=["heads", "heads and depths"])
@pytest.mark.parametrize("kind", KINDS)
def test_heads_are_removed(kind, exclude, tmp_path):
    model = Reader(kind)
    x = given_to(model)
    sparsifier = sparsify(model, x, exclude=exclude)
    set_gates(sparsifier, 0.6)
    sparsifier.log_alpha.data[next(group.span for group in sparsifier.groups if group.name == "attention")][1] = -9.0
    part = Subnetwork(sparsifier)
    small = compact(model)
    assert type(small.attention) is SlimAttention
    assert small.attention.num_heads < 4 == model.attention.num_heads
    assert sum(p.numel() for p in small.attention.parameters()) < sum(p.numel() for p in model.attention.parameters())
    assert verify(model, small, x) <= 1e-9
    torch.testing.assert_close(*(seeded(each, x) for each in (part, model)))
    assert type(sparsifier.remove().attention) is nn.MultiheadAttention
    save(small, tmp_path / "small.safetensors")
    for other in (load(Reader(kind), tmp_path / "small.safetensors"), pickle.loads(pickle.dumps(small))):  # noqa: S301
        assert verify(small, other, x) <= 1e-12


def seeded(model, x):
    torch.manual_seed(0)
    return model(x)


def names_of_heads(model):
    return [name for name, _, _ in sparsify(model, given_to(model)).plan().removable if name == "attention"]


def test_heads_that_are_read_elsewhere_stay():
    """The average of all heads' weights is no longer that of all when one is gone; a mask knows how many there are."""
    assert names_of_heads(Reader("plain")) == ["attention"]
    assert names_of_heads(Reader("plain", need_weights=False)) == ["attention"]
    assert names_of_heads(Reader("plain", need_weights=True)) == []
    assert names_of_heads(Reader("plain", average_attn_weights=False)) == []
    assert names_of_heads(Reader("plain", need_weights=False, **masks(None, "for each head"))) == []


class Language(nn.Module):
    """A language model as tutorials have it: time first, and a mask that nobody says is causal."""

    def __init__(self, kind):
        super().__init__()
        self.embed, self.read, self.kind = nn.Embedding(20, 16), nn.Linear(16, 20), kind
        layer = {"encoder": nn.TransformerEncoderLayer, "decoder": nn.TransformerDecoderLayer}[kind]
        stack = {"encoder": nn.TransformerEncoder, "decoder": nn.TransformerDecoder}[kind]
        more = {"enable_nested_tensor": False} if kind == "encoder" else {}
        self.stack = stack(layer(16, 4, 32, dropout=0.0), 2, **more)

    def forward(self, tokens, mask):
        x = self.embed(tokens)
        return self.read(self.stack(x, mask) if self.kind == "encoder" else self.stack(x, x, mask))


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_a_mask_is_not_looked_at(kind):
    torch.manual_seed(0)
    mask = nn.Transformer.generate_square_subsequent_mask(7)
    model, given = Language(kind), (torch.randint(0, 20, (7, 3)), mask)
    sparsifier = sparsify(model, given)
    assert any(name.endswith("self_attn") for name, _, _ in sparsifier.plan().removable)
    set_gates(sparsifier, 0.5)
    assert verify(model, compact(model), given) <= 1e-4
    assert not any(module._forward_pre_hooks for module in model.stack.modules() if module is model.stack)


class Sentences(nn.Module):
    """Torch's encoder over sentences that are filled up with zeros: in evaluation torch would nest them."""

    def __init__(self, first_alone):
        super().__init__()
        self.embed, self.read = nn.Embedding(20, 16), nn.Linear(16, 3)
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.first_alone = first_alone

    def forward(self, tokens):
        x = self.encoder(self.embed(tokens), src_key_padding_mask=tokens == 0)
        return self.read(x[:, 0] if self.first_alone else x)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")  # once there are no gates
@pytest.mark.parametrize("first_alone", [True, False])
@pytest.mark.parametrize("closed", ["*.self_attn", "*.linear1", "nothing"])
def test_sentences_of_several_lengths(first_alone, closed, tmp_path):
    torch.manual_seed(0)
    model, tokens = Sentences(first_alone).eval(), torch.randint(1, 20, (3, 7))
    tokens[0, 5:] = 0
    sparsifier = sparsify(model, tokens)
    for group in sparsifier.groups:
        sparsifier.log_alpha.data[group.span] = 9.0
        sparsifier.log_alpha.data[group.span][1:3] = -9.0 if group.name.endswith(closed[1:]) else 9.0
    with torch.no_grad():
        expected = model(tokens)
    small = compact(model)
    assert verify(model, small, tokens) <= 1e-4
    save(small, tmp_path / "small.safetensors")
    assert verify(small, load(Sentences(first_alone), tmp_path / "small.safetensors"), tokens) == 0
    assert sparsifier.shrink() == {"*.self_attn": 4, "*.linear1": 4, "nothing": 0}[closed]
    with torch.no_grad():
        assert torch.allclose(model(tokens), expected, atol=1e-5)
        assert torch.allclose(sparsifier.remove()(tokens)[:, 0], expected[:, 0], atol=1e-5)


def test_an_encoder_nests_again_without_gates():
    model, tokens = Sentences(first_alone=True), torch.randint(1, 20, (3, 7))
    before = dict(vars(model.encoder))
    sparsifier = sparsify(model, tokens)
    assert not model.encoder.use_nested_tensor
    sparsifier.remove()
    assert vars(model.encoder) == before
    assert model.encoder.use_nested_tensor


class Insisting(nn.Module):
    """Attention, and a hidden layer whose width the code keeps in an attribute."""

    def __init__(self):
        super().__init__()
        self.attention, self.hidden = nn.MultiheadAttention(16, 4, batch_first=True), 32
        self.first, self.second, self.head = nn.Linear(16, 32), nn.Linear(32, 16), nn.Linear(16, 3)

    def forward(self, x):
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return self.head(x + self.second(torch.tanh(self.first(x)).view(len(x), -1, self.hidden)))


def test_a_model_with_a_lone_head_left_is_measured_shrunk_and_compacted_further():
    """No view tells a lone head from its depth: a new look at the model does not find it."""
    model, x = Insisting().double(), torch.randn(2, 6, 16).double()
    sparsifier = sparsify(model, x)
    groups = {group.name: group for group in sparsifier.groups}
    sparsifier.log_alpha.data[groups["attention"].start + 1 : groups["attention"].stop] = -9.0
    assert sparsifier.shrink() == 3
    (hidden,) = (group for group in sparsifier.groups if group.name == "first")
    sparsifier.log_alpha.data[hidden.start + 20 : hidden.stop] = -9.0
    small = compact(model)
    assert (small.first.out_features, small.hidden) == (20, 20)
    longer = torch.randn(2, 9, 16).double()
    assert verify(model, small, longer) <= 1e-9
    assert measure(model, longer).macs.realised == measure(small, longer).macs.dense
    assert sparsifier.shrink() == 12
    assert model.hidden == 20
