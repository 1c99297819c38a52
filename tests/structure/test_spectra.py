"""Fourier transforms: channels pass, what they are over stays."""

import pytest
import torch
from torch import nn

import lzero
from lzero.errors import LzeroError


class Operator(nn.Module):
    """Lifted to channels, multiplied frequency by frequency, and read, as in a Fourier neural operator."""

    def __init__(self, transform):
        super().__init__()
        self.transform, self.lift, self.read = transform, nn.Conv2d(2, 8, 1), nn.Conv2d(6, 1, 1)
        self.weight = nn.Parameter(torch.randn(8, 6, 3, 3, dtype=torch.cdouble))

    def forward(self, x):
        there, back = self.transform
        lifted = there(self.lift(x).tanh())
        product = torch.einsum("bixy,ioxy->boxy", lifted[:, :, :3, :3], self.weight)
        frequencies = torch.zeros(len(x), product.shape[1], *lifted.shape[2:], dtype=lifted.dtype)
        frequencies[:, :, :3, :3] = product
        return self.read(torch.view_as_real(torch.complex(back(frequencies).real, x[:, :1])).prod(-1).cos())


TRANSFORMS = {
    "real": (torch.fft.rfft2, torch.fft.irfft2),
    "complex": (torch.fft.fft2, torch.fft.ifft2),
    "one by one": (lambda x: torch.fft.fft(x, dim=2), lambda x: torch.fft.ifft(x, dim=2)),
    "of several": (lambda x: torch.fft.rfftn(x, dim=(2, 3)), lambda x: torch.fft.irfftn(x, s=(8, 8))),
}


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_channels_pass(transform):
    model, x = Operator(transform).double(), torch.randn(3, 2, 8, 8).double()
    sparsifier = lzero.sparsify(model, x)
    assert sorted(group.stop - group.start for group in sparsifier.groups) == [6, 8]
    for group in sparsifier.groups:
        sparsifier.log_alpha.data[group.span][:4] = -9.0
    small = lzero.compact(model)
    assert small.weight.shape == (4, 2, 3, 3)
    assert lzero.verify(model, small, x) <= 1e-9


def test_what_is_transformed_stays():
    model = nn.Sequential(nn.Linear(4, 8), Frequencies(), nn.Linear(8, 2))
    with pytest.raises(LzeroError, match=r"aten\.fft_fftn\.default is over it"):
        lzero.sparsify(model, torch.randn(3, 4))


class Frequencies(nn.Module):
    def forward(self, x):
        return torch.fft.fftn(x).real
