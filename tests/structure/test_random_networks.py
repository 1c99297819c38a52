"""Removal is exact on random networks: the operations that have rules, joined in every way."""

import copy

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from torch import nn

from lzero.compact import compact
from lzero.costs import Costs, decided_alive
from lzero.decision import decide
from lzero.errors import LzeroError
from lzero.gating import INNER
from lzero.sparsify import sparsify
from lzero.verify import verify
from tests.models import set_gates
from tests.test_compact import count_macs

LARGEST = 3000  # numbers in one result
ACTIVATIONS = (nn.Softplus(), nn.Sigmoid(), nn.GELU(), nn.Hardswish(), nn.ELU(), nn.LogSigmoid())


class Step(nn.Module):
    """A function of earlier results and of its own layers; the text says which, where an example fails."""

    def __init__(self, text, function, *layers):
        super().__init__()
        self.text, self.function, self.layers = text, function, nn.ModuleList(layers)

    def forward(self, *tensors):
        return self.function(*tensors, *self.layers)

    def extra_repr(self):
        return self.text


class Network(nn.Module):
    """Steps that each read some of the results before them; the outputs are sums over everything left unread."""

    def __init__(self):
        super().__init__()
        self.steps, self.sources, self.heads, self.ends = nn.ModuleList(), [], nn.ModuleList(), []

    def results(self, x):
        """The input and the result of every step."""
        results = [x]
        for step, sources in zip(self.steps, self.sources, strict=True):
            results.append(step(*(results[k] for k in sources)))
        return results

    def forward(self, x):
        results = self.results(x)
        return sum(head(results[end]) for head, end in zip(self.heads, self.ends, strict=True))

    def extra_repr(self):
        return f"sources={self.sources}, ends={self.ends}"


def pick(draw, *options):
    """One of a few values."""
    return draw(st.sampled_from(options))


def function(draw, where, **functions):
    """A step of one of a few functions."""
    name = pick(draw, *functions)
    return Step(f"{name} {where}", functions[name])


def divisor(draw, size, least=1):
    """A divisor of a size."""
    return pick(draw, *(n for n in range(least, size + 1) if size % n == 0))


def axis(draw, x):
    """A dimension other than the batch."""
    return draw(st.integers(1, x.dim() - 1))


def linear(draw, x):
    """A dense layer over the last dimension."""
    return nn.Linear(x.shape[-1], pick(draw, 3, 4, 6, 8), bias=draw(st.booleans()))


def convolution(draw, x):
    """Plain, grouped, depthwise or transposed."""
    channels, groups = x.shape[1], pick(draw, 1, 1, x.shape[1], divisor(draw, x.shape[1]))
    out = groups * pick(draw, 1, 2) if groups > 1 else pick(draw, 3, 4, 6, 8)
    kernel, stride, padding, dilation = (pick(draw, *o) for o in ((1, 2, 3), (1, 1, 2), (0, 1, 1), (1, 1, 2)))
    name = f"Conv{pick(draw, '', '', 'Transpose')}{x.dim() - 2}d"
    options = {"groups": groups, "bias": draw(st.booleans()), "dilation": dilation}
    return getattr(nn, name)(channels, out, kernel, stride, padding, **options)


def norm(draw, x):
    """Over the batch, a group, an example, or the last dimensions."""
    channels, affine, spatial = x.shape[1], draw(st.booleans()), max(1, x.dim() - 2)
    layers = [nn.LayerNorm(x.shape[-pick(draw, 1, x.dim() - 1) :], elementwise_affine=affine)]
    layers += [nn.GroupNorm(divisor(draw, channels), channels, affine=affine)] * 2
    layers += [getattr(nn, f"BatchNorm{spatial}d")(channels, affine=affine)] * 2
    if x.dim() > 2:
        track = draw(st.booleans())
        layers += [getattr(nn, f"InstanceNorm{spatial}d")(channels, affine=affine, track_running_stats=track)] * 2
    return pick(draw, *layers)


def pointwise(draw, x):
    """An activation, most not 0 at 0, a slope for each channel, or a softmax."""
    return pick(
        draw, *ACTIVATIONS, nn.PReLU(x.shape[1]), nn.Softmax(-1), Step("cos", torch.cos), Step("exp", torch.exp)
    )


def spatial(draw, x):
    """Pooling, resizing, padding with values of the border."""
    n = x.dim() - 2
    smooth = ("linear", "bilinear", "trilinear")[n - 1]
    return function(
        draw,
        n,
        max_pool=lambda x: getattr(F, f"max_pool{n}d")(x, 2),
        avg_pool=lambda x: getattr(F, f"avg_pool{n}d")(x, 2, 1),
        adaptive_avg_pool=lambda x: getattr(F, f"adaptive_avg_pool{n}d")(x, 2),
        adaptive_max_pool=lambda x: getattr(F, f"adaptive_max_pool{n}d")(x, 2),
        nearest=lambda x: F.interpolate(x, scale_factor=2),
        smooth=lambda x: F.interpolate(x, size=(3,) * n, mode=smooth),
        replicate=lambda x: F.pad(x, (1, 1) * n, mode="replicate"),
        unpool=lambda x: getattr(F, f"max_unpool{n}d")(*getattr(F, f"max_pool{n}d")(x, 2, return_indices=True), 2),
        pixel_shuffle=lambda x: F.pixel_shuffle(x, 2),
        pixel_unshuffle=lambda x: F.pixel_unshuffle(x, 2),
        channel_shuffle=lambda x: F.channel_shuffle(x, 2),
        unfold=lambda x: F.unfold(x, 2),
        fold=lambda x: F.fold(x, (x.shape[-1] + 1, 2), 2),
    )


def regroup(draw, x):
    """Dimensions merged, split, shuffled."""
    dim = axis(draw, x)
    outer = divisor(draw, x.shape[dim], least=2) if x.shape[dim] > 1 else 1
    last = draw(st.integers(dim, x.dim() - 1))
    order = [0, *draw(st.permutations(range(1, x.dim())))]
    return function(
        draw,
        (dim, last, outer, order),
        permute=lambda x: x.permute(order),
        flatten=lambda x: x.flatten(dim, last),
        unflatten=lambda x: x.unflatten(dim, (outer, -1)),
        view=lambda x: x.reshape(*x.shape[:dim], x.shape[dim] // outer, outer, *x.shape[dim + 1 :]),
        shuffle=lambda x: x.unflatten(dim, (outer, -1)).transpose(dim, dim + 1).flatten(dim, dim + 1),
        unsqueeze=lambda x: x.unsqueeze(dim),
        constant=lambda x: x * torch.full(x.shape[1:], 0.5, dtype=x.dtype) + x.new_ones(x.shape),
        squeeze=lambda x: x.squeeze(dim),
        squeeze_all=lambda x: x.squeeze(),
        tokens=lambda x: torch.cat([x, torch.ones_like(x[:1]).repeat(x.shape[0], *[1] * (x.dim() - 1))], dim),
    )


def part(draw, x):
    """Some positions of a dimension, or all of them in another order."""
    dim = axis(draw, x)
    start, half = draw(st.integers(0, x.shape[dim] - 1)), max(1, x.shape[dim] // 2)
    stop = draw(st.integers(start + 1, x.shape[dim]))
    pooled = torch.cos if x.dim() == 2 else lambda t: getattr(F, f"max_pool{t.dim() - 2}d")(t, 1)
    return function(
        draw,
        (dim, start, stop),
        narrow=lambda x: x.narrow(dim, start, stop - start),
        slice=lambda x: x.movedim(dim, 0)[start:stop].movedim(0, dim),
        swap=lambda x: torch.cat(x.chunk(2, dim)[::-1], dim),
        flip=lambda x: x.flip(dim),
        roll=lambda x: x.roll(start, dim),
        index=lambda x: x.movedim(dim, 1)[:, [start, -1]],
        gather=lambda x: x.gather(dim, x.argsort(dim)),
        glu=lambda x: F.glu(x, dim),
        gate=lambda x: x.chunk(2, dim)[0] * torch.sigmoid(x.chunk(2, dim)[-1]),
        last=lambda x: x.split(half, dim)[-1],
        half=lambda x: torch.cat([pooled(x.split(half, dim)[0]), *x.split(half, dim)[1:]], dim),
        pad=lambda x: F.pad(x, [0, 0] * (x.dim() - 1 - dim) + [start % 3, stop % 3], value=0.5),
        repeat=lambda x: x.repeat(*(2 if k == dim else 1 for k in range(x.dim()))),
        interleave=lambda x: torch.stack([x, x.cos()], dim + 1).flatten(dim, dim + 1),
        repeat_interleave=lambda x: x.repeat_interleave(2, dim),
    )


def reduce(draw, x):
    """A mean, a maximum or a sum over one dimension or all but the channels."""
    dims = pick(draw, [axis(draw, x)], list(range(2, x.dim())) or [1])
    f, keep = pick(draw, torch.mean, torch.amax, torch.sum, torch.logsumexp, torch.max), draw(st.booleans())
    if f is torch.max:
        return Step(f"max {dims} {keep}", lambda x: f(x, dims[0], keepdim=keep)[0])
    return Step(f"{f.__name__} {dims} {keep}", lambda x: f(x, dims, keepdim=keep))


def beside(draw, x):
    """A layer next to the identity: a residual connection, or channels scaled by what is made of their means."""
    dense = pick(draw, True, x.dim() == 2)
    size, n = x.shape[-1 if dense else 1], x.dim() - 2
    layer = nn.Linear(size, size) if dense else getattr(nn, f"Conv{n}d")(size, size, 3, padding=1)
    if n and pick(draw, False, True):
        excite = nn.Linear(x.shape[1], x.shape[1])
        ones = (1,) * n
        return Step("excite", lambda x, f: x * f(x.flatten(2).mean(2)).sigmoid().unflatten(1, (-1, *ones)), excite)
    return Step("residual", lambda x, layer: x + F.softplus(layer(x)), layer)


def attention(draw, x):
    """Heads of fused or separate q, k and v, by torch's kernel or by hand; or places that attend to each other bare."""
    heads, fused, by_hand = pick(draw, 1, 2, 3), draw(st.booleans()), draw(st.booleans())
    if pick(draw, False, False, True):
        return Step("attend bare", lambda x: F.scaled_dot_product_attention(x, x, x))
    width = heads * pick(draw, 2, 4)
    qkv = [nn.Linear(x.shape[-1], 3 * width)] if fused else [nn.Linear(x.shape[-1], width) for _ in range(3)]

    def forward(x, *qkv):
        q, k, v = qkv[0](x).chunk(3, -1) if fused else (layer(x) for layer in qkv)
        q, k, v = (t.unflatten(-1, (heads, -1)).transpose(-2, -3) for t in (q, k, v))
        out = (q @ k.mT).softmax(-1) @ v if by_hand else F.scaled_dot_product_attention(q, k, v)
        return out.transpose(-2, -3).flatten(-2)

    return Step(f"attend {heads} {fused} {by_hand}", forward, *qkv)


def torch_attention(draw, x):
    """Torch's layer, of places to themselves or to what a dense layer makes of them."""
    heads, other, settings = pick(draw, 1, 2, 3), pick(draw, None, 4), {"batch_first": draw(st.booleans())}
    width, settings["bias"] = x.shape[-1], draw(st.booleans())
    settings |= {"add_zero_attn": draw(st.booleans()), "add_bias_kv": draw(st.booleans()), "kdim": other, "vdim": other}
    layer = nn.MultiheadAttention(width, heads, **settings)
    needs = draw(st.booleans())
    if other is None:
        return Step(f"{heads} heads {needs}", lambda x, layer: layer(x, x, x, need_weights=needs)[0], layer)
    keys = nn.Linear(width, other)
    return Step(f"{heads} heads {needs}", lambda x, f, k: f(x, k(x), k(x), need_weights=needs)[0], layer, keys)


def recurrence(draw, x):
    """Torch's layers, whose states or last ones are read."""
    kind, size, settings = pick(draw, nn.LSTM, nn.GRU, nn.RNN), pick(draw, 3, 5), {"batch_first": draw(st.booleans())}
    settings |= {"num_layers": pick(draw, 1, 2), "bidirectional": draw(st.booleans()), "bias": draw(st.booleans())}
    settings |= {"proj_size": pick(draw, 0, 2)} if kind is nn.LSTM else {}
    layer = kind(x.shape[-1], size, **settings)
    if settings["batch_first"] and draw(st.booleans()):
        last = (lambda end: end[0]) if kind is nn.LSTM else (lambda end: end)
        return Step("the end", lambda x, layer: last(layer(x)[1])[-1], layer)
    return Step("states", lambda x, layer: layer(x)[0], layer)


def join(draw, x, _):
    """A sum, a product, a concatenation or a matrix product of two results."""
    dim = axis(draw, x)
    products = {"matmul": torch.matmul, "matmul_t": lambda a, b: a @ b.mT} if x.dim() > 2 else {}
    return function(draw, dim, add=torch.add, mul=torch.mul, cat=lambda a, b: torch.cat([a, b], dim), **products)


ANY = [linear, linear, norm, pointwise, pointwise, regroup, regroup, part, part, reduce, beside]
SPATIAL = [convolution, convolution, convolution, spatial, attention]
SEQUENCES = [torch_attention, recurrence]
INPUTS = [(2, 2, 5, 5), (2, 6), (2, 3, 6), (2, 1, 4, 4, 4), (2, 4, 6)]


def add_step(draw, network, results, make=None):
    """One more step, on results it can work with; what torch refuses, or what is too large, is left out."""
    last = len(results) - 1
    sources = [pick(draw, last, *range(min(1, last), last + 1))]
    if last > 1 and draw(st.integers(0, 3)) == 0:
        make = join
        sources.append(pick(draw, *range(1, last + 1)))
    rank = results[sources[0]].dim()
    make = make or pick(draw, *ANY, *(SPATIAL if rank > 2 else []), *(SEQUENCES if rank == 3 else []))
    try:
        step = make(draw, *(results[k] for k in sources)).double().eval()
        result = step(*(results[k] for k in sources))
    except (RuntimeError, ValueError, IndexError, AssertionError):
        return
    if 1 < result.dim() < 6 and len(result) == 2 and 0 < result.numel() <= LARGEST and result.isfinite().all():
        network.steps.append(step)
        network.sources.append(sources)
        results.append(result)


def head(draw, x):
    """A dense layer that reads all of a result, or its mean over some dimensions."""
    first = pick(draw, 1, *range(1, x.dim()))
    dims = [k for k in range(1, x.dim()) if k != first]
    flat = not dims or draw(st.booleans())
    text, f = ("flatten", lambda x: x.flatten(1)) if flat else (f"mean {dims}", lambda x: x.mean(dims))
    return Step(text, lambda x, layer: layer(f(x)), nn.Linear(f(x).shape[1], 3))


def randomise(network):
    """Random values wherever a fresh model has zeros or ones."""
    for tensor in network.parameters():
        if tensor.dim() == 1:
            tensor.normal_(0.5, 0.5)
    for name, buffer in network.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_()
        elif name.endswith("running_var"):
            buffer.uniform_(0.5, 2.0)


@st.composite
def networks(draw):
    """A network and inputs for it."""
    torch.manual_seed(draw(st.integers(0, 2**16)))
    network, shape = Network(), pick(draw, *INPUTS, None)
    x = torch.randint(0, 9, (2, 4)) if shape is None else torch.randn(shape, dtype=torch.float64)
    results = [x]
    with torch.no_grad():
        stem = (lambda *_: nn.Embedding(9, 6)) if shape is None else pick(draw, *(linear, convolution)[: x.dim() - 1])
        add_step(draw, network, results, stem)
        for _ in range(draw(st.integers(2, 10))):
            add_step(draw, network, results)
        read = {k for sources in network.sources for k in sources}
        network.ends = [k for k in range(1, len(results)) if k not in read]
        network.heads.extend(head(draw, results[k]) for k in network.ends)
        randomise(network.double())
    return network, x


@torch.no_grad()
def check(network, x, density, exclude):
    """Removal is exact, costs are those of what is left, and gates come off without a trace."""
    if not network.ends or any(result.abs().max() > 1e6 for result in network.eval().results(x)):
        reject()
    before = copy.deepcopy(network.state_dict())
    try:
        sparsifier = sparsify(network, x, exclude=exclude)
    except LzeroError as error:
        if "can be removed" not in str(error):
            raise
        reject()
    set_gates(sparsifier, density)
    small = compact(network, fallback="graph")
    assert verify(network, small, x, tolerance=1e-9) <= 1e-9
    costs, alive = Costs(sparsifier), decided_alive(sparsifier, decide(sparsifier))
    assert costs("params", alive).item() == sum(p.numel() for p in small.parameters())
    assert costs("macs", alive).item() == count_macs(small, x)
    after = sparsifier.remove().state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(before[key], value) for key, value in after.items())


EXAMPLES = (networks(), st.floats(0.05, 0.95), st.sampled_from([INNER, ()]))
UNHURRIED = settings(deadline=None, derandomize=True, print_blob=True, suppress_health_check=list(HealthCheck))


@given(*EXAMPLES)
@settings(UNHURRIED, max_examples=60)
def test_random_networks(example, density, exclude):
    check(*example, density, exclude)


@pytest.mark.slow
@given(*EXAMPLES)
@settings(UNHURRIED, max_examples=500)
def test_many_random_networks(example, density, exclude):
    check(*example, density, exclude)
