"""Sums of products are followed, and counted where they are not, as torch counts them."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import lzero


class Between(nn.Module):
    """A dense layer, a contraction of it with a parameter, and a head."""

    def __init__(self, contraction, *shapes):
        super().__init__()
        self.first, self.head = nn.Linear(6, 10), nn.Linear(7, 3)
        self.contraction = contraction
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(shape)) for shape in shapes)

    def forward(self, x):
        return self.head(self.contraction(self.first(x).tanh(), *self.weights).tanh())


FOLLOWED = {
    "letters": (lambda h, w: torch.einsum("bni,io->bno", h, w), (10, 7)),
    "dots": (lambda h, w: torch.einsum("...i,io->...o", h, w), (10, 7)),
    "dots of both": (lambda h, w: torch.einsum("...i,...io->...o", h, w), (5, 10, 7)),
    "tensordot": (lambda h, w: torch.tensordot(h, w, dims=([2], [0])), (10, 7)),
    "inner": (torch.inner, (7, 10)),
    "no result": (lambda h, w: torch.einsum("bni,io", h, w), (10, 7)),
    "dots and no result": (lambda h, w: torch.einsum("...i,io", h, w), (10, 7)),
}
COUNTED = {
    "three operands": (lambda h, v, w: torch.einsum("bni,ij,jo->bno", h, v, w), (10, 9), (9, 7)),
    "chained": (lambda h, v, w: torch.linalg.multi_dot([h.flatten(0, 1), v, w]), (10, 9), (9, 7)),
}


def macs(model, x):
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model.eval()(x)
    return counter.get_total_flops() // 2


@pytest.mark.parametrize("case", [*FOLLOWED, *COUNTED])
def test_the_work_is_what_torch_counts(case):
    model, x = Between(*(FOLLOWED | COUNTED)[case]), torch.randn(2, 5, 6)
    assert lzero.measure(model, x).macs.dense == macs(model, x)


@pytest.mark.parametrize("case", FOLLOWED)
def test_units_are_removed_through_einsum(case):
    model, x = Between(*FOLLOWED[case]).double(), torch.randn(2, 5, 6).double()
    sparsifier = lzero.sparsify(model, x)
    first = next(group for group in sparsifier.groups if group.name == "first")
    sparsifier.log_alpha.data[first.span][:4] = -9.0
    small = lzero.compact(model)
    assert small.first.out_features == 6
    assert lzero.verify(model, small, x) < 1e-12
    assert lzero.measure(model, x).macs.realised == macs(small, x)


@pytest.mark.parametrize(("equation", "inner"), [("bii->b", 0), ("bii,k->bk", 0), ("bii->bi", 0), ("bij,ij->b", 16)])
def test_a_diagonal_is_no_product(equation, inner):
    class Diagonal(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.other = nn.Linear(4, 16), nn.Parameter(torch.randn(4, 4))

        def forward(self, x):
            square = self.first(x).view(-1, 4, 4)
            operands = {1: (square,), 2: (square, self.other[0] if "k" in equation else self.other)}
            return torch.einsum(equation, *operands[equation.count(",") + 1])

    model, x = Diagonal(), torch.randn(2, 4)
    assert lzero.measure(model, x).macs.dense == 2 * (64 + inner)


def test_what_einsum_stretches_stays():
    class Stretching(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.weight = nn.Linear(4, 1), nn.Parameter(torch.randn(2, 8))

        def forward(self, x):
            return torch.einsum("bi,oi->bo", self.first(x), self.weight)

    with pytest.raises(lzero.LzeroError, match="einsum stretches its only unit"):
        lzero.sparsify(Stretching(), torch.randn(3, 4))


@pytest.mark.parametrize("case", COUNTED)
def test_what_is_not_followed_stays_and_the_plan_says_so(case):
    model, x = Between(*COUNTED[case]), torch.randn(2, 5, 6)
    with pytest.raises(lzero.LzeroError, match="can be removed") as error:
        lzero.sparsify(model, x)
    assert "first" in str(error.value)


def test_sizes_that_depend_on_values_are_refused_in_words():
    class Choosing(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)

        def forward(self, x):
            h = self.first(x).relu()
            return self.second(h[h.sum(-1) > 0])

    with pytest.raises(lzero.LzeroError, match=r"index.*, in the model itself: a size depends on the values"):
        lzero.sparsify(Choosing(), torch.randn(4, 6))


@pytest.mark.parametrize(("units", "shape"), [(8, (1, 3)), (1, (8, 3)), (8, (8, 3))])
def test_what_einsum_stretches_is_counted_as_torch_counts_it(units, shape):
    class Stretching(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.weight, self.last = nn.Linear(4, units), nn.Parameter(torch.randn(shape)), nn.Linear(3, 2)

        def forward(self, x):
            return self.last(torch.einsum("bi,io->bo", self.first(x).tanh(), self.weight).tanh())

    model, x = Stretching(), torch.randn(3, 4)
    with FlopCounterMode(display=False) as counted:
        model(x)
    assert lzero.measure(model, x).macs.dense == counted.get_total_flops() // 2


class Joining(nn.Module):
    """Two layers and a matrix, joined by an operation."""

    def __init__(self, join, width):
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(6, 8)
        self.matrix, self.last, self.join = nn.Parameter(torch.randn(5, 8)), nn.Linear(width, 3), join

    def forward(self, x):
        return self.last(self.join(self.first(x).tanh().add(1), self.second(x).tanh().add(1), self.matrix))


JOINED = {
    "hstack": (lambda a, b, _: torch.hstack([a, b]), 16),
    "column_stack": (lambda a, b, _: torch.column_stack([a, b]), 16),
    "vstack": (lambda a, b, _: torch.vstack([a, b]), 8),
    "tensordot": (lambda a, b, m: torch.tensordot(a + b, m, dims=([1], [1])), 5),
    "tensordot, by their number": (lambda a, b, m: torch.tensordot(a * b, m.T, dims=1), 5),
    "inner": (lambda a, b, m: torch.inner(a + b, m), 5),
}


@pytest.mark.parametrize("case", JOINED)
def test_units_are_removed_through_what_joins_or_sums(case):
    model, x = Joining(*JOINED[case]).double(), torch.randn(4, 6).double()
    sparsifier = lzero.sparsify(model, x)
    sparsifier.log_alpha.data.fill_(9.0)
    sparsifier.log_alpha.data[:3] = -9.0
    small = lzero.compact(model)
    assert small.first.out_features == 5
    assert lzero.verify(model, small, x) < 1e-12
    assert lzero.measure(model).macs.realised == macs(small, x)


@pytest.mark.parametrize(
    "join", [lambda a, m: torch.hstack([a, m]), lambda a, m: torch.inner(a, m[0]), lambda a, m: torch.vstack([a, m])]
)
def test_what_vectors_and_numbers_become_stays(join):
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.vector = nn.Linear(6, 8), nn.Parameter(torch.randn(8))

        def forward(self, x):
            return join(self.first(x).tanh().sum(0), self.vector)

    with pytest.raises(lzero.LzeroError, match=r"is not followed|nothing in Odd can be removed"):
        lzero.sparsify(Odd(), torch.randn(4, 6))
