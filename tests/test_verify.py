"""The proof a removal owes, under arithmetic that rounds."""

import copy

import pytest
import torch
from torch import nn

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
