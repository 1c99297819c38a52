"""Sizes that code keeps for itself follow the cut."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import lzero
from lzero.subnetwork import Subnetwork


class Attention(nn.Module):
    """Heads whose number the code keeps, and whose depth it keeps too."""

    def __init__(self, heads, depth):
        super().__init__()
        self.heads, self.depth = heads, depth
        self.qkv, self.out = nn.Linear(12, 3 * heads * depth), nn.Linear(heads * depth, 12)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, self.depth).permute(2, 0, 3, 1, 4).unbind(0)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Normed(nn.Module):
    """A norm without weights, whose channels nothing but the norm itself knows."""

    def __init__(self, norm):
        super().__init__()
        self.first, self.second, self.norm = nn.Conv2d(3, 16, 3), nn.Conv2d(16, 4, 3), norm

    def forward(self, x):
        return self.second(self.norm(self.first(x)).relu())


def gated(model, x, closed):
    sparsifier = lzero.sparsify(model.double(), x.double())
    sparsifier.log_alpha.data[:] = 9.0
    sparsifier.log_alpha.data[closed] = -9.0
    return sparsifier


@pytest.mark.parametrize(("heads", "depth"), [(4, 6), (6, 6), (6, 4)])
def test_heads_are_removed_whatever_their_depth(heads, depth):
    model, x = Attention(heads, depth), torch.randn(2, 5, 12)
    sparsifier = gated(model, x, slice(1, 3))
    small = lzero.compact(model)
    assert (small.heads, small.depth) == (heads - 2, depth)
    assert lzero.verify(model, small, torch.randn(3, 7, 12).double()) < 1e-12
    assert sparsifier.shrink() == 2
    assert (model.heads, model.depth) == (heads - 2, depth)


NORMS = {
    "groups": (lambda: nn.GroupNorm(4, 16, affine=False), 1, {"num_groups": 3, "num_channels": 12}),
    "instances": (lambda: nn.InstanceNorm2d(16), 4, {"num_features": 12}),  # which warns where it is given others
    "batches": (lambda: nn.BatchNorm2d(16, affine=False, track_running_stats=False), 4, {"num_features": 12}),
}


@pytest.mark.parametrize(("make", "closed", "sizes"), NORMS.values(), ids=NORMS)
def test_norms_without_weights_follow(make, closed, sizes, tmp_path):
    model, x = Normed(make()), torch.randn(2, 3, 8, 8)
    sparsifier = gated(model, x, slice(closed))
    small = lzero.compact(model)
    assert sizes.items() <= vars(small.norm).items()
    assert lzero.verify(model, small, torch.randn(3, 3, 9, 9).double()) < 1e-12
    lzero.save(small, tmp_path / "small.safetensors")
    assert sizes.items() <= vars(lzero.load(Normed(make()).double(), tmp_path / "small.safetensors").norm).items()
    assert sparsifier.shrink() == closed
    assert sizes.items() <= vars(model.norm).items()
    sparsifier.log_alpha.data[:closed] = -9.0
    assert sparsifier.shrink() == closed  # once more, by the structure of what was left
    assert {name: size * 2 // 3 for name, size in sizes.items()}.items() <= vars(model.norm).items()


class Decoder(nn.Module):
    """Sizes in a tuple of torch's own, as in decoders and generators."""

    def __init__(self):
        super().__init__()
        self.grow, self.shape = nn.Linear(6, 8 * 4 * 4), nn.Unflatten(1, (8, 4, 4))
        self.paint = nn.ConvTranspose2d(8, 3, 4, 2, 1)

    def forward(self, x):
        return self.paint(torch.tanh(self.shape(self.grow(x))))


class Listed(nn.Module):
    """The same in a list of the model's own, and a stream whose width is asserted."""

    def __init__(self):
        super().__init__()
        self.shape, self.grow, self.paint = [8, 4, 4], nn.Linear(6, 8 * 4 * 4), nn.ConvTranspose2d(8, 3, 4, 2, 1)

    def forward(self, x):
        return self.paint(torch.tanh(self.grow(x).view(len(x), *self.shape)))


@dataclass(frozen=True)
class Config:
    """What many modules share."""

    heads: int = 6
    depth: int = 4


class Configured(nn.Module):
    """Two blocks whose heads stand in one configuration, of which different numbers stay."""

    def __init__(self, config):
        super().__init__()
        self.first, self.second = ConfiguredAttention(config), ConfiguredAttention(config)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


class ConfiguredAttention(nn.Module):
    """Heads by a configuration."""

    def __init__(self, config):
        super().__init__()
        self.config, self.tags = config, {"heads": 1}
        self.qkv = nn.Linear(12, 3 * heads_of(config) * 4)
        self.out = nn.Linear(heads_of(config) * 4, 12)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, heads_of(self.config), 4).permute(2, 0, 3, 1, 4).unbind(0)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


def heads_of(config):
    return config["heads"] if isinstance(config, dict) else config.heads


KEPT_INSIDE = {
    "torch's own tuple": (Decoder, slice(0, 3), {"shape": "(5, 4, 4)"}),
    "a list": (Listed, slice(0, 3), {"": "[5, 4, 4]"}),
}


@pytest.mark.parametrize(("make", "closed", "left"), KEPT_INSIDE.values(), ids=KEPT_INSIDE)
def test_sizes_in_tuples_and_lists_follow(make, closed, left, tmp_path):
    torch.manual_seed(0)
    model = make()
    sparsifier, x = gated(model, torch.randn(2, 6), closed), torch.randn(5, 6).double()
    small = lzero.compact(model)
    assert small.paint.in_channels == 5
    assert lzero.verify(model, small, x) < 1e-12
    lzero.save(small, tmp_path / "small.safetensors")
    assert lzero.verify(small, lzero.load(make().double(), tmp_path / "small.safetensors"), x) == 0
    sparsifier.check()
    assert sparsifier.shrink() == 3
    assert lzero.verify(model, small, x) < 1e-12
    for path, shape in left.items():
        holder = model.get_submodule(path)
        assert str(getattr(holder, "unflattened_size", None) or holder.shape) == shape


CONFIGS = {
    "a frozen dataclass": Config(),
    "a namespace": SimpleNamespace(heads=6, depth=4),
    "a dictionary": {"heads": 6, "depth": 4},
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_sizes_in_a_shared_configuration_follow_each_its_own_cut(config, tmp_path):
    torch.manual_seed(0)
    model, x = Configured(config), torch.randn(2, 5, 12)
    sparsifier = gated(model, x, [0, 1, 18])  # two heads of the first, one of the second
    small = lzero.compact(model)
    assert [heads_of(block.config) for block in (small.first, small.second)] == [4, 5]
    assert heads_of(config) == 6  # which others may hold
    assert lzero.verify(model, small, x.double()) < 1e-12
    lzero.save(small, tmp_path / "small.safetensors")
    again = lzero.load(Configured(config).double(), tmp_path / "small.safetensors")
    assert lzero.verify(small, again, x.double()) == 0
    assert sparsifier.shrink() == 3
    assert [heads_of(block.config) for block in (model.first, model.second)] == [4, 5]


def test_steps_in_parts_set_sizes_in_a_configuration_and_put_the_very_one_back():
    torch.manual_seed(0)
    config = Config()
    model, x = Configured(config), torch.randn(2, 5, 12)
    sparsifier = gated(model, x, [0, 1, 18])
    parts = Subnetwork(sparsifier)
    whole = model.train()(x.double())
    assert torch.allclose(parts(x.double()), whole)
    assert model.first.config is model.second.config is config


class Remembering(nn.Module):
    """Asserts the width of what it is given, and looks back as many steps, for no reason of its own."""

    def __init__(self):
        super().__init__()
        self.dim = self.longest = 16
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        assert x.shape[-1] == self.dim
        return x + self.down(torch.tanh(self.up(x[:, -self.longest :]))).mean(1, keepdim=True)


def test_a_number_that_happens_to_be_as_large_stays():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(11, 16), Remembering(), nn.Linear(16, 11)).double()
    sparsifier = lzero.sparsify(model, torch.randint(0, 11, (2, 6)))
    sparsifier.log_alpha.data[:] = 9.0
    sparsifier.log_alpha.data[:7] = -9.0
    small = lzero.compact(model)
    assert (small[1].dim, small[1].longest) == (9, 16)
    assert lzero.verify(model, small, torch.randint(0, 11, (2, 24))) < 1e-12
