"""Operations that mix what stands in other dimensions than their channels must pin it."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lzero import LzeroError, compact, sparsify, verify
from tests.models import set_gates


class Mixing(nn.Module):
    """Units of a dense layer stand in the last dimension of [2, 6, 8]; something mixes over it; a layer reads them."""

    def __init__(self, mix):
        super().__init__()
        self.make, self.mix, self.read = nn.Linear(4, 8), mix, nn.Linear(8, 3)

    def forward(self, x):
        hidden = F.softplus(self.make(x))
        return self.read(hidden), self.mix(hidden)


MIXERS = {
    "conv": nn.Conv1d(6, 5, 3),
    "transposed conv": nn.ConvTranspose1d(6, 5, 3),
    "group norm": nn.GroupNorm(3, 6),
    "instance norm": nn.InstanceNorm1d(6),
    "pooling": nn.MaxPool1d(2),
    "attention": lambda h: F.scaled_dot_product_attention(*(h.transpose(1, 2),) * 3),
    "resizing": nn.Upsample(scale_factor=2),
}


@pytest.mark.parametrize("mix", MIXERS.values(), ids=MIXERS)
def test_units_in_a_mixed_dimension_stay(mix):
    with pytest.raises(LzeroError, match=r"is over it|multiplies two activations"):
        sparsify(Mixing(mix), torch.randn(2, 6, 4))


class Lone(nn.Module):
    def __init__(self, body, classes=3):
        super().__init__()
        self.conv, self.body, self.read = nn.Conv2d(2, 8, 1), body, nn.Linear(8, classes)

    def forward(self, x):
        return self.read(self.body(F.softplus(self.conv(x))).flatten(1))


BODIES = {
    "squeeze() when one channel is left": lambda h: h.mean((2, 3), keepdim=True).squeeze(),
    "a split part that would be empty": lambda h: torch.cat([F.max_pool2d(p, 4) for p in h.split([1, 7], 1)], 1),
    "narrow beyond what is left": lambda h: torch.cat([h.narrow(1, 6, 2), h[:, :6]], 1).mean((2, 3)),
    "a new tensor like the units": lambda h: (h + torch.ones_like(h)).mean((2, 3)),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("density", [0.0, 0.3])
def test_sizes_that_python_or_torch_would_stumble_over(body, density):
    model, x = Lone(body).double(), torch.randn(2, 2, 4, 4).double()
    sparsifier = sparsify(model, x)
    set_gates(sparsifier, density)
    assert verify(model, compact(model, fallback="graph"), x, tolerance=1e-9) <= 1e-9


def test_a_token_repeated_for_each_example():
    class Token(nn.Module):
        def __init__(self):
            super().__init__()
            self.token, self.embed, self.read = nn.Parameter(torch.randn(1, 1, 8)), nn.Linear(4, 8), nn.Linear(8, 3)

        def forward(self, x):
            tokens = torch.cat([self.token.repeat(x.shape[0], 1, 1), self.embed(x)], 1)
            return self.read(F.softplus(tokens).view(x.shape[0], 6, 8))

    model, x = Token().double(), torch.randn(2, 5, 4).double()
    set_gates(sparsify(model, x), 0.5)
    small = compact(model, fallback="graph")
    assert verify(model, small, torch.cat([x, x]), tolerance=1e-9) <= 1e-9


def test_a_buffer_that_reads_units_cannot_carry_gates():
    class Projected(nn.Module):
        def __init__(self):
            super().__init__()
            self.make = nn.Linear(4, 8)
            self.register_buffer("projection", torch.randn(8, 3))

        def forward(self, x):
            return F.softplus(self.make(x)) @ self.projection

    with pytest.raises(LzeroError, match="multiplies two activations over it"):
        sparsify(Projected(), torch.randn(2, 4))


class Latents(nn.Module):
    """Queries that are weights themselves, mixed by another weight behind an attention, or behind a norm."""

    def __init__(self, is_attention):
        super().__init__()
        self.latents, self.mix = nn.Parameter(torch.randn(6, 8)), nn.Parameter(torch.randn(5, 6))
        self.keys, self.out, self.is_attention = nn.Linear(4, 8), nn.Linear(8, 3), is_attention

    def forward(self, x):
        keys = torch.tanh(self.keys(x))
        if self.is_attention:
            hidden = F.scaled_dot_product_attention(self.latents.expand(len(x), -1, -1), keys, keys)
        else:
            hidden = F.layer_norm(self.latents, (8,)) + keys.mean(1, keepdim=True)
        return self.out(self.mix @ hidden)


@pytest.mark.parametrize("is_attention", [True, False])
def test_what_is_computed_from_a_weight_is_no_view_of_it(is_attention):
    torch.manual_seed(0)
    model, x = Latents(is_attention).double(), torch.randn(2, 7, 4).double()
    sparsifier = sparsify(model, x)
    read = {name: by for name, _, by in sparsifier.plan().removable}
    assert read.get("latents", "mix") == "mix"
    for density in (0.3, 0.6):
        set_gates(sparsifier, density)
        assert verify(model, compact(model), x) < 1e-12


def test_layouts_without_numbers_or_with_all_dimensions_reversed():
    class Reversed(nn.Module):
        def __init__(self, order):
            super().__init__()
            self.make, self.read, self.order = nn.Linear(4, 8), nn.Linear(2, 3), order

        def forward(self, x):
            return self.read(self.order(torch.tanh(self.make(x))))

    with pytest.raises(LzeroError, match="nothing in Reversed can be removed"):
        sparsify(Reversed(lambda h: h.permute(2, 1, 0)), torch.randn(2, 3, 4))
    with (
        pytest.warns(UserWarning, match=r"The use of `x\.T`"),
        pytest.raises(LzeroError, match="nothing in Reversed can be"),
    ):
        sparsify(Reversed(lambda h: h.T), torch.randn(2, 3, 4))
    empty = nn.Sequential(nn.Linear(4, 8), nn.Flatten(0, 1), nn.Linear(8, 3))
    with pytest.raises(LzeroError, match="expected at least one example, got a tensor of"):
        sparsify(empty, torch.randn(0, 5, 4))
