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
