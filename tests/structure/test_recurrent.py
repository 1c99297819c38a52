"""Recurrent layers keep their units, and count as the cells they are made of do."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import lzero
from lzero.errors import LzeroError

CELLS = {nn.LSTM: nn.LSTMCell, nn.GRU: nn.GRUCell, nn.RNN: nn.RNNCell}


def macs_of_cells(layer, steps, batch):
    """Counted by torch, over cells that are called in every step, in each layer and direction."""
    directions = 1 + layer.bidirectional
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        for depth in range(layer.num_layers):
            size = layer.input_size if depth == 0 else layer.hidden_size * directions
            cell = CELLS[type(layer)](size, layer.hidden_size)
            for _ in range(steps * directions):
                cell(torch.zeros(batch, size))
    return counter.get_total_flops() // 2


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("kind", CELLS)
def test_a_layer_counts_as_its_cells(kind, bidirectional, bias):
    layer = kind(8, 16, 2, bias=bias, bidirectional=bidirectional, batch_first=True)
    assert lzero.measure(layer, torch.zeros(3, 5, 8)).macs.dense == macs_of_cells(layer, 5, 3)


def test_single_sequences_and_projections_count():
    layer = nn.LSTM(8, 16)
    assert lzero.measure(layer, torch.zeros(5, 8)).macs.dense == macs_of_cells(layer, 5, 1)
    narrow = nn.LSTM(8, 16, proj_size=4)
    assert lzero.measure(narrow, torch.zeros(5, 8)).macs.dense == 5 * (64 * 8 + 64 * 4 + 4 * 16)


class Unrolled(nn.Module):
    """A cell, called in every step, between dense layers."""

    def __init__(self, kind):
        super().__init__()
        self.before, self.cell, self.after = nn.Linear(6, 8), kind(8, 16), nn.Linear(16, 3)
        self.inner = nn.Linear(3, 3)

    def forward(self, x):
        state = None
        for step in self.before(x).relu().unbind(1):
            state = self.cell(step, state)
        last = state[0] if isinstance(state, tuple) else state
        return self.inner(self.after(last).relu())


@pytest.mark.parametrize("kind", CELLS.values())
def test_a_cell_counts_in_every_step_and_its_neighbours_are_still_removed(kind):
    model, x = Unrolled(kind), torch.randn(2, 5, 6)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(x)
    assert lzero.measure(model, x).macs.dense == counter.get_total_flops() // 2
    sparsifier = lzero.sparsify(model, x)
    assert [group.name for group in sparsifier.groups] == ["after"]
    reasons = {name: reason for name, _, reason in sparsifier.plan().fixed}
    assert reasons["before"] == "units of a recurrent layer stay, in cell"
    sparsifier.log_alpha.data[:2] = -9.0
    small = lzero.compact(model)
    assert small.after.weight.shape == (1, 16)
    torch.testing.assert_close(small(x), model.eval()(x))


class Remembering(nn.Module):
    """Keeps its last output as an attribute, as a model may have by mistake."""

    def __init__(self):
        super().__init__()
        self.recurrent, self.last = nn.GRU(8, 16), torch.zeros(())

    def forward(self, x):
        out = self.recurrent(x)[0]
        self.last = out.mean()
        return out


def test_what_torch_says_of_the_model_itself_is_still_heard():
    with pytest.warns(UserWarning, match="self.last"):
        lzero.measure(Remembering(), torch.zeros(5, 3, 8))


def test_nothing_but_a_recurrent_layer_is_refused_with_the_reason():
    with pytest.raises(LzeroError, match="units of a recurrent layer stay"):
        lzero.sparsify(nn.GRU(8, 16), torch.zeros(5, 3, 8))
