"""The proof a removal owes, under arithmetic that rounds."""

import copy
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import lzero
from lzero.errors import VerificationError
from lzero.verify import verify


class Rounding(nn.Module):
    """A model whose products are rounded to ten bits in single precision, as a GPU rounds them."""

    def __init__(self, noise):
        super().__init__()
        self.linear, self.noise = nn.Linear(8, 4), noise

    def forward(self, x):
        y = self.linear(x)
        return y * (1 + self.noise) if y.dtype == torch.float32 else y


def test_double_precision_decides_where_single_precision_rounds():
    torch.manual_seed(0)
    one, x = Rounding(0.0), torch.randn(3, 8)
    other = copy.deepcopy(one)
    other.noise = 1e-3
    assert verify(one, other, x) < 1e-12
    with torch.no_grad():
        other.linear.weight[0, 0] += 0.01
    with pytest.raises(VerificationError, match="the outputs differ by"):
        verify(one, other, x)


class Beside(nn.Module):
    """A layer whose result is a little off, and another output beside it."""

    def __init__(self, off, beside):
        super().__init__()
        self.off, self.beside = off, beside

    def forward(self, x):
        return x * (1 + self.off), self.beside(x)


@pytest.mark.parametrize(
    "beside",
    [lambda x: x.argmax(-1), lambda x: x.half(), lambda x: x > 0, torch.fft.fft],
    ids=["whole numbers", "half precision", "truths", "complex"],
)
def test_each_output_has_the_tolerance_of_its_own_type(beside):
    x = torch.randn(3, 8).double()
    assert verify(Beside(0.0, beside), Beside(1e-12, beside), x) < 1e-9
    with pytest.raises(VerificationError, match="more than 1e-09"):
        verify(Beside(0.0, beside), Beside(1e-6, beside), x)


def test_complex_outputs_may_be_rounded_otherwise():
    class Turned(Beside):
        def forward(self, x):
            return torch.fft.fft(x * (1 + self.off))

    x = torch.randn(3, 8)
    assert 0 < verify(Turned(0.0, None), Turned(3e-6, None), x, tolerance=1e-4) < 1e-5
    with pytest.raises(VerificationError, match="the outputs differ by"):
        verify(Turned(0.0, None), Turned(1e-2, None), x)


@pytest.mark.parametrize("at", [0, 1])
def test_numbers_that_are_none_are_seen_in_every_output(at):
    class Several(nn.Module):
        def __init__(self, *factors):
            super().__init__()
            self.factors = factors

        def forward(self, x):
            return tuple(x * factor for factor in self.factors)

    factors = [1.0, 1.0]
    factors[at] = float("nan")
    with pytest.raises(VerificationError, match="differ by inf"):
        verify(Several(1.0, 1.0), Several(*factors), torch.ones(2))


def test_attention_is_compared_without_fused_kernels():
    class Asking(nn.Module):
        def forward(self, x):
            seen.append(torch.backends.mha.get_fastpath_enabled())
            return x

    seen = []
    verify(Asking(), Asking(), torch.ones(2))
    assert seen == [False, False]
    assert torch.backends.mha.get_fastpath_enabled()


class Wrapped(nn.Module):
    """Returns what torch cannot look into."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def forward(self, x):
        return SimpleNamespace(logits=self.linear(x))


def test_where_nothing_was_compared_nothing_is_proven():
    for make, x in ((Wrapped, torch.ones(3, 2)), (lambda: nn.Linear(2, 2), torch.ones(0, 2))):
        with pytest.raises(VerificationError, match="the outputs hold no numbers: give a batch of at least one"):
            verify(make(), make(), x)


class Rooted(nn.Module):
    """With another output that is no number where a sum is below zero."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 2)

    def forward(self, x):
        y = self.second(torch.tanh(self.first(x)))
        return y, y.sum(-1).clamp_max(-1).sqrt()


def test_what_is_no_number_in_both_is_equal_and_may_be_cut():
    model, x = Rooted().double(), torch.randn(3, 4).double()
    lzero.sparsify(model, x).log_alpha.data[:2] = -9.0
    small = lzero.compact(model)
    assert verify(model, small, x) < 1e-12
    with torch.no_grad():
        small.second.bias += 50.0  # the clamp still gives no numbers
    with pytest.raises(VerificationError, match="differ"):
        verify(model, small, x)
