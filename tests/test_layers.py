"""What dense layers read of what they are given."""

import torch
from torch import nn

from lzero import compact, sparsify
from lzero.layers import IndexedLinear, inputs_read


def test_inputs_that_are_left_are_read_off_by_their_numbers():
    model, x = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)), torch.randn(3, 6)
    sparsifier = sparsify(model, x, inputs=True, include="inputs of *")
    log_alpha = sparsifier.log_alpha.data.fill_(9.0)
    assert inputs_read(compact(model)[0]) == [0, 1, 2, 3, 4, 5]
    log_alpha[[0, 2, 3, 5]] = -9.0
    assert inputs_read(compact(model)[0]) == [1, 4]


def test_a_layer_that_had_to_keep_an_input_reads_none():
    model, x = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)), torch.randn(3, 6)
    sparsify(model, x, inputs=True, include="inputs of *").log_alpha.data.fill_(-9.0)
    small = compact(model)
    assert small[0].in_features == 1
    assert inputs_read(small[0]) == []


def test_a_layer_that_chooses_its_inputs_can_be_scripted():
    layer = IndexedLinear.over(nn.Linear(2, 3), torch.tensor([1, 4]))
    x = torch.randn(5, 6)
    assert torch.equal(torch.jit.script(layer)(x), layer(x))
