"""Weights that are made of parameters: what reads units through them, and what cannot."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import prune
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

import lzero
from lzero.errors import LzeroError
from tests.models import set_gates


class Scaled(nn.Linear):
    """A weight times a number, as for equal learning rates."""

    def forward(self, x):
        return F.linear(x, self.weight * 0.5 / 1.5, self.bias)


class Noisy(nn.Linear):
    """A weight that noise is added to, in training."""

    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.spread = nn.Parameter(torch.rand(outputs, inputs))
        self.register_buffer("noise", torch.randn(outputs, inputs))

    def forward(self, x):
        weight = self.weight + self.spread * self.noise if self.training else self.weight
        return F.linear(x, weight, self.bias)


def masked():
    layer = nn.Linear(8, 3)
    prune.random_unstructured(layer, "weight", 0.5)
    return layer


READERS = {"scaled": lambda: Scaled(8, 3), "noisy": lambda: Noisy(8, 3), "masked": masked}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("reader", READERS)
def test_units_are_read_through_a_computed_weight(reader, training):
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(6, 8), nn.Softplus(), READERS[reader]()).double(), torch.randn(4, 6).double()
    sparsifier = lzero.sparsify(model, x)
    assert [group.name for group in sparsifier.groups] == ["0"]
    sparsifier.log_alpha.data[:] = 60.0
    sparsifier.log_alpha.data[::2] = -60.0
    expected = model.train(training)(x)
    small = lzero.compact(model)
    assert small[0].out_features == 4
    torch.testing.assert_close(small.train(training)(x), expected)
    assert sparsifier.shrink() == 4
    torch.testing.assert_close(model(x), expected)


def test_a_weight_times_what_is_made_of_it_cannot_be_gated():
    class Signs(nn.Linear):
        def forward(self, x):
            return F.linear(x, self.weight / self.weight.abs(), self.bias)

    with pytest.raises(LzeroError, match="multiplies two activations over it"):
        lzero.sparsify(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), Signs(8, 2)), torch.randn(3, 4))


@pytest.mark.parametrize("norm", [weight_norm, partial(weight_norm, dim=None), spectral_norm])
def test_norms_of_weights_are_refused_with_the_way_out(norm):
    model = nn.Sequential(norm(nn.Conv2d(3, 8, 4)), nn.ReLU(), norm(nn.Conv2d(8, 4, 4)))
    with pytest.raises(LzeroError, match="remove_parametrizations"):
        lzero.sparsify(model, torch.randn(2, 3, 9, 9))
    for layer in (model[0], model[2]):
        nn.utils.parametrize.remove_parametrizations(layer, "weight")
    set_gates(lzero.sparsify(model, torch.randn(2, 3, 9, 9)), 0.5)
    assert lzero.verify(model, lzero.compact(model), torch.randn(2, 3, 9, 9)) <= 1e-4
