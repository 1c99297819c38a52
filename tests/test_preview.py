"""Networks of the size a budget leaves, before training: within it, in the widths asked for; the model stays."""

import pytest
import torch
from torch import nn

import lzero
from lzero.cutting import plan_of
from lzero.preview import preview
from tests.models import build

FAMILIES = ["MLP", "VGG-BN", "ResNet-18", "MobileNet", "GPT-2", "recurrent"]


def sizes(model, x):
    measured = lzero.measure(model, x)
    return {"params": measured.params.dense, "macs": measured.macs.dense}


def left(small):
    return {name: len(kept) for name, kept in plan_of(small)["sites"].items()}


def wide():
    return nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(96, 96), nn.Tanh())), nn.Linear(96, 5))


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("cost", ["params", "macs"])
def test_they_are_within_the_budget_and_use_most_of_it(name, cost):
    model, x = build(name)
    dense = sizes(model, x)[cost]
    small = preview(lzero.sparsify(model, x), 0.6, cost)
    assert 0.45 < sizes(small, x)[cost] / dense <= 0.6


def test_the_gated_model_stays_as_it_is():
    model, x = wide(), torch.randn(3, 96)
    sparsifier = lzero.sparsify(model, x)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    generator = torch.get_rng_state()
    preview(sparsifier, "30%")
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), generator)


@pytest.mark.parametrize("multiple", [8, 16, 32])
def test_widths_are_multiples(multiple):
    small = preview(lzero.sparsify(wide(), torch.randn(1, 96)), "40%", round_to=multiple)
    assert {width % multiple for width in left(small).values()} == {0}


def test_widths_differ_between_layers_and_draws_and_not_between_calls():
    sparsifier = lzero.sparsify(wide(), torch.randn(1, 96))
    one, again, other = (left(preview(sparsifier, "40%", seed=seed)) for seed in (0, 0, 1))
    assert one == again != other
    assert len(set(one.values())) > 2


def test_multiples_in_which_nothing_fits_are_refused():
    sparsifier = lzero.sparsify(wide(), torch.randn(1, 96))
    with pytest.raises(lzero.LzeroError, match="multiples of 96"):
        preview(sparsifier, "40%", round_to=96)
