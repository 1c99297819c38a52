"""What is told of a compacted network is what it has."""

import torch

import lzero
from lzero.training.outcome import layers_of, widths_of
from lzero.zoo import make


def told(closed, first):
    """The layers of a LeNet some of whose gates are closed: from `first` on in each group named."""
    model = make("lenet5")
    sparsifier = lzero.sparsify(model, torch.zeros(1, 1, 28, 28), units="paper")
    widths = widths_of(sparsifier)
    for group in sparsifier.groups:
        if group.name in closed:
            sparsifier.log_alpha.data[group.span][first:] = -30.0
    small = lzero.compact(model)
    return {layer.name: (layer.before, layer.after) for layer in layers_of(small, widths)}, small


def test_inputs_are_told_where_they_went_with_their_maps():
    layers, small = told({"conv2"}, 15)
    assert layers["conv2"] == (50, 15)
    assert layers["inputs of hidden"] == (800, 240)
    assert small.hidden.in_features == 240


def test_inputs_are_told_where_they_went_one_by_one():
    layers, small = told({"conv2", "inputs of hidden"}, 30)
    assert layers["inputs of hidden"] == (800, 30)
    assert len(small.hidden.index) == 30


def test_a_network_that_was_not_cut_has_no_layers_to_tell():
    assert layers_of(make("lenet5"), {"conv1": 20}) == ()
