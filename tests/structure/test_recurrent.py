"""Recurrent layers and cells: they lose units, count as the cells they are made of do, and learn as those do."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import lzero
from lzero.errors import LzeroError
from lzero.subnetwork import Subnetwork

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


class Between(nn.Module):
    """A recurrent layer between dense layers, whose states, or what they end in, are read."""

    def __init__(self, kind, reads="states", **settings):
        super().__init__()
        self.before, self.recurrent = nn.Linear(6, 8), kind(8, 16, **settings)
        states = self.recurrent.proj_size or self.recurrent.hidden_size
        states *= 1 if reads == "end" else 1 + self.recurrent.bidirectional
        self.reads, self.after = reads, nn.Linear(states, 3)

    def forward(self, x):
        states, end = self.recurrent(self.before(x).tanh())
        end = end[0] if isinstance(end, tuple) else end
        return self.after(states if self.reads == "states" else end[-1])


SETTINGS = {
    "one layer": {},
    "without bias": {"bias": False},
    "both ways": {"bidirectional": True},
    "two layers": {"num_layers": 2, "batch_first": True},
    "a projection": {"proj_size": 6, "num_layers": 2, "bidirectional": True},
    "two layers, both ways": {"num_layers": 2, "bidirectional": True},
}


def seeded(model, x):
    torch.manual_seed(0)
    return model(x)


CASES = [(kind, name) for kind in CELLS for name in SETTINGS if kind is nn.LSTM or name != "a projection"]


def half_closed(model, x):
    sparsifier = lzero.sparsify(model, x)
    sparsifier.log_alpha.data[:] = 3.0
    for group in sparsifier.groups:
        size = group.stop - group.start
        sparsifier.log_alpha.data[group.span][torch.randperm(size)[: size // 2]] = -9.0
    return sparsifier


@pytest.mark.parametrize("reads", ["states", "end"])
@pytest.mark.parametrize(("kind", "name"), CASES)
def test_units_are_removed(kind, name, reads):
    settings = SETTINGS[name]
    model, x = Between(kind, reads, **settings).double(), torch.randn(5, 3, 6).double()
    part = Subnetwork(half_closed(model, x))
    small = lzero.compact(model)
    assert small.recurrent.input_size == 4
    assert small.recurrent.hidden_size == (16 if "proj_size" in settings else 8)
    assert small.recurrent.proj_size == settings.get("proj_size", 0) // 2
    for other in (x, torch.randn(2, 4, 6).double()):
        assert lzero.verify(model, small, other) <= 1e-9
        torch.testing.assert_close(*(seeded(each, other) for each in (part, model)))
    counted, realised = lzero.measure(small, x), lzero.measure(model, x)
    assert counted.macs.dense == realised.macs.realised
    assert counted.params.dense == realised.params.realised == sum(p.numel() for p in small.parameters())


def test_states_that_are_returned_stay():
    with pytest.raises(LzeroError, match="model output"):
        lzero.sparsify(nn.GRU(8, 16), torch.zeros(5, 3, 8))


class Unrolled(nn.Module):
    """The same by a cell, called in every step."""

    def __init__(self, kind):
        super().__init__()
        self.before, self.cell, self.after = nn.Linear(6, 8), kind(8, 16), nn.Linear(16, 3)

    def forward(self, x):
        state = None
        for step in self.before(x).tanh():
            state = self.cell(step, state)
        return self.after(state[0] if isinstance(state, tuple) else state)


@pytest.mark.parametrize("kind", CELLS)
def test_a_layer_learns_as_its_cell_does(kind):
    """Forward, and the gradients of weights and gates, as when each step is written down."""
    layer, cell = Between(kind, "end").double(), Unrolled(CELLS[kind]).double()
    names = {name: name.replace("recurrent", "cell").replace("_l0", "") for name, _ in layer.named_parameters()}
    cell.load_state_dict({names[name]: value for name, value in layer.state_dict().items()})
    x = torch.randn(5, 3, 6).double()
    outputs = []
    for model in (layer, cell):
        sparsifier = lzero.sparsify(model, x)
        sparsifier.log_alpha.data.copy_(torch.linspace(-2, 2, 8 + 16))
        torch.manual_seed(1)
        outputs.append(model(x))
        outputs[-1].square().sum().backward()
    torch.testing.assert_close(*outputs)
    gradients = {name: parameter.grad for name, parameter in cell.named_parameters()}
    for name, parameter in layer.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[names.get(name, name)])


@pytest.mark.parametrize("kind", CELLS.values())
def test_a_cell_counts_in_every_step(kind):
    model, x = Unrolled(kind).double(), torch.randn(5, 2, 6).double()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(x)
    assert lzero.measure(model, x).macs.dense == counter.get_total_flops() // 2
    half_closed(model, x)
    small = lzero.compact(model)
    assert (small.cell.input_size, small.cell.hidden_size) == (4, 8)
    assert lzero.verify(model, small, x) <= 1e-9


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
