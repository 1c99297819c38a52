"""Operations on images: which channels may go, and that removing them is exact."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lzero import LzeroError, compact, sparsify, verify
from tests.models import set_gates


class Images(nn.Module):
    """A convolution, something in between, a convolution."""

    def __init__(self, between, maps=8):
        super().__init__()
        self.make, self.between, self.read = nn.Conv2d(2, 8, 1), between, nn.Conv2d(maps, 3, 1)

    def forward(self, x):
        return self.read(self.between(F.softplus(self.make(x))))


def sampled(h):
    return F.grid_sample(h, torch.linspace(-1, 1, 24, dtype=h.dtype).view(2, 3, 2, 2), align_corners=False)


def unpooled(h):
    return F.max_unpool2d(*F.max_pool2d(h, 2, return_indices=True), 2)


# What is in between, the maps it returns, and how many units it leaves of eight maps.
FOLLOWED = {
    "pixel shuffle": (nn.PixelShuffle(2), 2, 2),
    "pixel unshuffle": (nn.PixelUnshuffle(2), 32, 8),
    "channel shuffle": (nn.ChannelShuffle(2), 8, 4),
    "unfolded": (lambda h: F.unfold(h, 2).unflatten(2, (3, 3)), 32, 8),
    "folded": (lambda h: F.fold(h.flatten(2)[..., :9], (4, 4), 2), 2, 2),
    "gated linear units": (nn.GLU(dim=1), 4, 4),
    "unpooled": (unpooled, 8, 8),
    "sampled by a grid": (sampled, 8, 8),
    "resized": (lambda h: F.interpolate(h, scale_factor=2.0, mode="nearest-exact"), 8, 8),
    "resized smoothly": (lambda h: F.interpolate(h, (3, 3), mode="bilinear", antialias=True), 8, 8),
    "differences": (lambda h: h.diff(dim=-1), 8, 8),
    "its middle first": (lambda h: torch.fft.fftshift(h, dim=(2, 3)), 8, 8),
    "the largest so far": (lambda h: h.cummax(-1)[0], 8, 8),
    "the second of each row": (lambda h: h.kthvalue(2, dim=-1, keepdim=True)[0], 8, 8),
    "the log of a sigmoid": (nn.LogSigmoid(), 8, 8),
    "flipped and rolled": (lambda h: h.flip(1, 2).roll((1, -1), (2, 3)), 8, 8),
}


@pytest.mark.parametrize(("between", "maps", "units"), FOLLOWED.values(), ids=FOLLOWED)
@pytest.mark.parametrize("fallback", ["error", "graph"])
def test_channels_are_removed_through_them(between, maps, units, fallback):
    model, x = Images(between, maps).double(), torch.randn(2, 2, 4, 4).double()
    sparsifier = sparsify(model, x)
    assert [count for name, count, _ in sparsifier.plan().removable if name == "make"] == [units]
    with torch.no_grad():
        sparsifier.log_alpha.copy_(torch.linspace(-5, 4, units))  # the first goes, others are partly open
    small = compact(model, fallback=fallback)
    assert verify(model, small, x, tolerance=1e-9) <= 1e-9
    assert small.get_parameter("make.weight").shape[0] <= 8 - 8 // units


PLACES = {
    "rolled": (lambda h: h.roll(1, 1), "moves its positions by a number of them"),
    "a grid": (
        lambda h: F.grid_sample(torch.ones(2, 1, 4, 4), h.unflatten(1, (4, 2)).transpose(2, 3)[..., 0]),
        "reads places from it",
    ),
    "as places": (lambda h: F.pixel_shuffle(h.transpose(1, 3), 2), "pixel_shuffle.default rearranges it"),
    "unfolded as places": (lambda h: F.unfold(h.transpose(1, 3), 2), "im2col.default rearranges it"),
    "folded as places": (lambda h: F.fold(h.flatten(2).mT, (3, 5), 2), "col2im.default rearranges it"),
}


@pytest.mark.parametrize(("between", "reason"), PLACES.values(), ids=PLACES)
@pytest.mark.filterwarnings("ignore:Default grid_sample")
def test_channels_that_stand_for_places_stay(between, reason):
    class Places(nn.Module):
        def __init__(self):
            super().__init__()
            self.make, self.read = nn.Conv2d(2, 8, 1), nn.Conv2d(8, 3, 1)

        def forward(self, x):
            hidden = F.softplus(self.make(x))
            return self.read(hidden), between(hidden)

    with pytest.raises(LzeroError, match=reason):
        sparsify(Places(), torch.randn(2, 2, 4, 4))


class Halving(nn.Module):
    """A layer whose units two others read, half each."""

    def __init__(self):
        super().__init__()
        self.up, self.one, self.two = nn.Linear(4, 12), nn.Linear(6, 2), nn.Linear(6, 2)

    def forward(self, x):
        one, two = torch.sigmoid(self.up(x)).chunk(2, dim=1)
        return self.one(one) + self.two(two)


def test_equal_parts_lose_the_same_units():
    model, x = Halving().double(), torch.randn(3, 4).double()
    sparsifier = sparsify(model, x)
    assert [(group.name, group.stop - group.start) for group in sparsifier.groups] == [("up", 6)]
    sparsifier.log_alpha.data[[0, 4]] = -60.0
    small = compact(model)
    assert torch.equal(small.up.weight, model.up.weight[[1, 2, 3, 5, 7, 8, 9, 11]])
    assert verify(model, small, x) < 1e-12


class Shuffling(nn.Module):
    """A block of ShuffleNetV2: half of the maps pass, the others are computed, and all are shuffled."""

    def __init__(self, width):
        super().__init__()
        half = width // 2
        self.inner = nn.Sequential(nn.Conv2d(half, 8, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, 1, 1, groups=8))
        self.outer = nn.Sequential(nn.BatchNorm2d(8), nn.Conv2d(8, half, 1), nn.ReLU())

    def forward(self, x):
        passed, read = x.chunk(2, dim=1)
        x = torch.cat([passed, self.outer(self.inner(read))], 1)
        batch, maps, *size = x.shape
        return x.view(batch, 2, maps // 2, *size).transpose(1, 2).reshape(batch, maps, *size)


def test_shuffled_halves_are_no_obstacle():
    """What is passed on and shuffled stays as it is; all that is computed within blocks can be cut."""
    body = nn.Sequential(nn.Conv2d(3, 12, 1), Shuffling(12), Shuffling(12), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model, x = nn.Sequential(body, nn.Linear(12, 5)).double().eval(), torch.randn(2, 3, 6, 6).double()
    sparsifier = sparsify(model, x)
    sparsifier.check()
    assert {"0.1.inner.0", "0.2.inner.0"} <= {group.name for group in sparsifier.groups}
    set_gates(sparsifier, 0.5)
    assert verify(model, compact(model), x) < 1e-9


class InParts(nn.Module):
    """Each stretch of the maps but the first has a convolution of its own and meets what came of the one before."""

    def __init__(self, split):
        super().__init__()
        self.width, self.split = 5, split
        self.first, self.last = nn.Conv2d(3, 20, 1), nn.Conv2d(20, 4, 1)
        self.each = nn.ModuleList(nn.Conv2d(5, 5, 3, padding=1) for _ in range(3))

    def forward(self, x):
        first, *parts = self.split(self.first(x).tanh(), self.width)
        done = [first]
        for conv, part in zip(self.each, parts, strict=True):
            done.append(conv(done[-1] + part).tanh())
        return self.last(torch.cat(done, 1)).mean((2, 3))


@pytest.mark.parametrize(
    "split",
    [
        lambda x, _: x.chunk(4, 1),
        lambda x, _: x.tensor_split(4, 1),
        lambda x, width: x.split(width, 1),
        lambda x, width: x.split((width, width, width, width), 1),
    ],
    ids=["chunk", "tensor_split", "split", "split by sizes"],
)
def test_equal_parts_stay_equal(split):
    torch.manual_seed(0)
    model, x = InParts(split).double().eval(), torch.randn(2, 3, 6, 6).double()
    sparsifier = sparsify(model, x)
    sparsifier.check()
    assert [group.site.size for group in sparsifier.groups] == [
        5 + 5
    ]  # those of the parts, and of the last convolution
    set_gates(sparsifier, 0.5)
    small = compact(model)
    assert verify(model, small, x) < 1e-9
    assert small.first.out_channels == 4 * small.each[0].in_channels < 20


@pytest.mark.parametrize("split", [torch.chunk, torch.tensor_split])
def test_parts_that_are_not_equal_keep_their_sizes(split):
    """After a cut of 4, 4 and 2 to 9 the code would make 3, 3 and 3 of them."""

    class Unequal(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.heads = nn.Linear(4, 10), nn.ModuleList(nn.LazyLinear(3) for _ in range(3))

        def forward(self, x):
            parts = split(self.first(x).tanh(), 3, dim=1)
            return sum(head(part) for head, part in zip(self.heads, parts, strict=True))

    model, x = Unequal(), torch.randn(2, 4)
    model(x)
    with pytest.raises(LzeroError, match="makes parts of it that are not equal"):
        sparsify(model, x)
