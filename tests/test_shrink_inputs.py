"""Inputs of dense layers that close singly while training, in models whose code makes it hard."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel

from lzero import LzeroError, compact, load, measure, save, sparsify, verify
from lzero.errors import ArgumentError
from lzero.subnetwork import Subnetwork

X = torch.randn(3, 1, 8, 8, dtype=torch.float64)


class Flattening(nn.Module):
    """Maps, flattened by a size that is kept in an attribute."""

    def __init__(self):
        super().__init__()
        self.conv, self.flat = nn.Conv2d(1, 6, 5), 96
        self.first, self.second, self.head = nn.Linear(96, 7), nn.Linear(96, 5), nn.Linear(12, 3)

    def forward(self, x):
        return self.read(torch.tanh(self.conv(x)).view(-1, self.flat))

    def read(self, x):
        return self.head(torch.cat([torch.tanh(self.first(x)), torch.sin(self.second(input=x))], -1))


class Written(Flattening):
    """The same by a size that is written into the code."""

    def forward(self, x):
        return self.read(torch.tanh(self.conv(x)).view(-1, 96))


class Sizeless(Flattening):
    """The same by whatever size there is, with a layer whose weight alone is used."""

    def forward(self, x):
        x = torch.tanh(self.conv(x)).flatten(1)
        second = F.linear(x, self.second.weight, self.second.bias)
        return self.head(torch.cat([torch.tanh(self.first(x)), torch.sin(second)], -1))


def opened(make):
    torch.manual_seed(0)
    model = make().double()
    sparsifier = sparsify(model, X, units="paper")
    sparsifier.log_alpha.data.fill_(60.0)
    return model, sparsifier


def close(sparsifier, name, where):
    group = next(group for group in sparsifier.groups if group.name == name)
    sparsifier.log_alpha.data[group.span][where] = -60.0


def test_code_with_sizes_in_attributes_is_cut_again_and_again():
    model, sparsifier = opened(Flattening)
    for _ in range(3):
        close(sparsifier, "conv", 0)
        close(sparsifier, "inputs of first", slice(20, 27))
        before = copy.deepcopy(model)
        assert sparsifier.shrink() == 1 + 7
        assert verify(before, model, X) < 1e-12
        loss, in_parts = model(X).sum(), Subnetwork(sparsifier)(X).sum()
        assert in_parts.item() == pytest.approx(loss.item(), rel=1e-12)
        assert verify(before, compact(model), X) < 1e-12
    assert model.flat == 48


def test_a_graph_can_still_be_made():
    model, sparsifier = opened(Written)
    close(sparsifier, "inputs of first", 0)
    assert sparsifier.shrink() == 1
    close(sparsifier, "conv", 0)
    with pytest.raises(LzeroError, match="relies on the old sizes"):
        sparsifier.shrink()
    assert verify(model, compact(model, fallback="graph"), X) < 1e-12


def test_costs_for_other_inputs_are_those_of_the_compacted_model():
    model, sparsifier = opened(Flattening)
    close(sparsifier, "inputs of first", [3, 50])
    sparsifier.shrink()
    two = torch.cat([X, X])
    assert measure(model, two).macs.realised == measure(compact(model), two).macs.dense


def test_columns_of_one_layer_go_though_another_reads_the_unit():
    model, sparsifier = opened(Flattening)
    close(sparsifier, "inputs of second", slice(0, 16))  # all of map 0
    assert sparsifier.shrink() == 16
    assert (model.conv.out_channels, model.first.in_features, model.second.in_features) == (6, 96, 80)
    close(sparsifier, "inputs of first", slice(0, 16))
    assert sparsifier.shrink() > 0
    assert model.conv.out_channels == 5


def test_columns_stay_where_code_needs_them_all():
    model, sparsifier = opened(Sizeless)
    before = copy.deepcopy(model)
    close(sparsifier, "inputs of second", 5)
    close(sparsifier, "conv", 0)
    for group in sparsifier.groups:
        close(before.__dict__["_lzero_sparsifier"], group.name, sparsifier.log_alpha.data[group.span] < 0)
    assert sparsifier.shrink() == 1
    assert model.second.in_features == 80
    assert verify(before, model, X) < 1e-12


def test_averages_may_differ_in_numbers_of_their_own():
    model, sparsifier = opened(Flattening)
    average = AveragedModel(model)
    for step in range(1, 4):
        model.steps = step
        close(sparsifier, "inputs of first", 0)
        assert sparsifier.shrink(averages=[average.module]) == 1
    assert average.module.first.in_features == model.first.in_features == 93


def test_what_chose_its_inputs_can_get_gates_again(tmp_path):
    _, sparsifier = opened(Flattening)
    close(sparsifier, "inputs of first", slice(None, None, 2))
    sparsifier.shrink()
    plain = sparsifier.remove()
    again = sparsify(plain, X, units="paper")
    assert {group.name for group in again.groups} >= {"conv", "inputs of first"}
    again.log_alpha.data.fill_(60.0)
    close(again, "conv", 1)
    close(again, "inputs of first", 0)
    small = compact(plain)
    assert (small.conv.out_channels, small.first.in_features) == (5, 39)
    save(small, tmp_path / "small.safetensors")
    loaded = load(Flattening().double(), tmp_path / "small.safetensors")
    assert verify(small, loaded, X) == 0


def test_inputs_of_single_weights_are_refused():
    with pytest.raises(ArgumentError, match="an input goes when all its weights"):
        sparsify(nn.Linear(4, 2), torch.randn(3, 4), units="weights", inputs=True)


def features():
    return nn.Sequential(nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 3)).double()


def test_features_alone_are_chosen_by_name():
    model, x = features(), torch.randn(4, 12).double()
    sparsifier = sparsify(model, x, inputs=True, include="inputs of *")
    assert [(group.name, group.stop) for group in sparsifier.groups] == [("inputs of 0", 12)]
    close(sparsifier, "inputs of 0", slice(0, 7))
    small = compact(model)
    assert (small[0].in_features, small[2].in_features) == (5, 8)
    assert verify(model, small, x) < 1e-12


def test_inputs_with_gates_of_their_own_are_not_said_to_stay():
    x = torch.randn(4, 12).double()
    plan = sparsify(features(), x, inputs=True).plan()
    assert [name for name, _, _ in plan.removable] == ["0", "inputs of 0"]
    assert [reason for _, _, reason in plan.fixed] == ["model output"]
    without = sparsify(features(), x, inputs=True, exclude="inputs of 0").plan()
    assert [name for name, _, _ in without.removable] == ["0"]
    assert "inputs of 0" in [name for name, _, _ in without.fixed]
    with pytest.raises(ArgumentError, match=r"expected globs that match one of 0, inputs of 0, .*, got 'features'"):
        sparsify(features(), x, inputs=True, include="features")
