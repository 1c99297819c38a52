"""Sizes that code keeps for itself follow the cut."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import lzero


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
    """A group norm without weights, whose channels nothing but the norm itself knows."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 3), nn.Conv2d(16, 4, 3)
        self.norm = nn.GroupNorm(4, 16, affine=False)

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


def test_norms_without_weights_follow():
    model, x = Normed(), torch.randn(2, 3, 8, 8)
    sparsifier = gated(model, x, slice(1))
    small = lzero.compact(model)
    assert (small.norm.num_groups, small.norm.num_channels) == (3, 12)
    assert lzero.verify(model, small, torch.randn(3, 3, 9, 9).double()) < 1e-12
    assert sparsifier.shrink() == 1
    assert (model.norm.num_groups, model.norm.num_channels) == (3, 12)
