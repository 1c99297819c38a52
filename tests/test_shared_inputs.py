"""Raw inputs that several dense layers read: one gate a column, and what it closes is gone from all of them."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

import lzero
from lzero.decision import decide
from lzero.layers import inputs_read
from lzero.objectives import GroupLasso
from lzero.subnetwork import Subnetwork

COLUMNS = 12


class Table(nn.Module):
    """A gated layer with a way around it: three layers read the table."""

    def __init__(self):
        super().__init__()
        self.value, self.gate = nn.Linear(COLUMNS, 8), nn.Linear(COLUMNS, 8)
        self.around, self.out = nn.Linear(COLUMNS, 3, bias=False), nn.Linear(8, 3)

    def forward(self, x):
        return self.out(self.value(x) * torch.sigmoid(self.gate(x))) + self.around(x)

    def readers(self):
        return self.value, self.gate, self.around


class Mirrored(Table):
    """Of which one layer is given the columns in another order."""

    def forward(self, x):
        return self.out(self.value(x) * torch.sigmoid(self.gate(x))) + self.around(x.flip(-1))


def gated(make=Table, **options):
    torch.manual_seed(0)
    model, x = make().double(), torch.randn(5, COLUMNS).double()
    sparsifier = lzero.sparsify(model, x, inputs=True, **options)
    sparsifier.log_alpha.data.fill_(60.0)
    return model, x, sparsifier


def close(sparsifier, columns):
    group = next(group for group in sparsifier.groups if group.columns)
    sparsifier.log_alpha.data[group.span][columns] = -60.0


def test_there_is_one_gate_for_each_column():
    _, _, sparsifier = gated()
    assert sparsifier.plan().removable[1:] == (
        ("inputs of value", COLUMNS, "value.weight, gate.weight, around.weight"),
    )
    assert sparsifier.l0_weights[8:].tolist() == [8 + 8 + 3] * COLUMNS


def test_layers_that_are_left_out_keep_their_inputs():
    model, x, sparsifier = gated(include=("inputs of gate", "inputs of around"))
    assert [group.name for group in sparsifier.groups] == ["inputs of gate"]
    close(sparsifier, [0, 5])
    small = lzero.compact(model)
    assert [layer.in_features for layer in small.readers()] == [COLUMNS, COLUMNS - 2, COLUMNS - 2]
    assert lzero.verify(model, small, x) < 1e-12


def test_another_order_of_columns_has_gates_of_its_own():
    model, x, sparsifier = gated(Mirrored, include="inputs of *")
    assert [(group.name, len(group.columns)) for group in sparsifier.groups] == [
        ("inputs of value", 2),
        ("inputs of around", 1),
    ]
    close(sparsifier, [0, 1, 7])
    small = lzero.compact(model)
    assert [layer.in_features for layer in small.readers()] == [COLUMNS - 3, COLUMNS - 3, COLUMNS]
    assert lzero.verify(model, small, x) < 1e-12


@pytest.mark.parametrize("closed", [[], [4], [0, 3, 11], list(range(COLUMNS))])
def test_counts_are_those_of_the_real_network(closed):
    model, x, sparsifier = gated()
    close(sparsifier, closed)
    sparsifier.log_alpha.data[:3] = -60.0  # units too
    small, counted = lzero.compact(model), lzero.measure(model)
    with FlopCounterMode(display=False) as flops:
        small(x)
    assert counted.params.realised == sum(parameter.numel() for parameter in small.parameters())
    assert counted.macs.realised == flops.get_total_flops() // 2
    assert lzero.verify(model, small, x) < 1e-12


def test_expected_counts_are_means_over_open_columns():
    model, _, sparsifier = gated()
    torch.manual_seed(1)
    sparsifier.log_alpha.data.uniform_(-3, 3)
    expected, probability = lzero.measure(model), sparsifier.law.prob_active.detach()
    counts, trials = [], 2000
    for _ in range(trials):
        is_open = torch.bernoulli(probability)
        units, columns = is_open[:8].sum().item(), is_open[8:].sum().item()
        counts.append(2 * units * (columns + 1) + 3 * columns + 3 * units + 3)
    mean, spread = torch.tensor(counts).mean().item(), torch.tensor(counts).std().item()
    assert abs(mean - expected.params.expected) < 5 * spread / trials**0.5  # fails once in two million


def test_what_is_shrunk_away_goes_from_all_layers_and_the_training_goes_on(tmp_path):
    model, x, sparsifier = gated()
    other = copy.deepcopy(model)
    optimizers = [torch.optim.Adam(each._lzero_sparsifier.param_groups(lr=1e-2)) for each in (model, other)]
    for each in (model, other):
        close(each._lzero_sparsifier, [1, 2, 9])
    assert sparsifier.shrink(optimizers[0]) == 3
    assert [layer.in_features for layer in model.readers()] == [COLUMNS - 3] * 3
    for each, optimizer in zip((model, other), optimizers, strict=True):
        for _ in range(3):
            with each._lzero_sparsifier.bank.holding(each._lzero_sparsifier.law.estimate("eq13").detach()):
                each(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert lzero.verify(other, model, x) < 1e-12
    close(sparsifier, 0)
    assert sparsifier.shrink() == 1
    small = lzero.compact(model)
    kept = [column for column in range(COLUMNS) if column not in (0, 1, 2, 9)]
    assert [inputs_read(layer) for layer in small.readers()] == [kept] * 3
    lzero.save(small, tmp_path / "small.safetensors")
    assert lzero.verify(small, lzero.load(Table().double(), tmp_path / "small.safetensors"), x) == 0


def test_what_chose_its_inputs_alike_shares_gates_again():
    _, x, sparsifier = gated(include="inputs of *")
    close(sparsifier, [1, 2])
    sparsifier.shrink()
    again = lzero.sparsify(sparsifier.remove(), x, inputs=True, include="inputs of *")
    assert [(group.size, len(group.columns)) for group in again.groups] == [(COLUMNS - 2, 3)]


def check_steps_in_parts(model, x, sparsifier):
    sparsifier.log_alpha.data.uniform_(-2, 1)
    parts, model = Subnetwork(sparsifier), model.train()
    torch.manual_seed(3)
    whole = torch.autograd.grad(model(x).square().mean(), list(model.parameters()))
    torch.manual_seed(3)
    part = torch.autograd.grad(parts(x).square().mean(), list(model.parameters()))
    for one, other in zip(whole, part, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_steps_in_parts_are_full_steps():
    check_steps_in_parts(*gated(keep_rate=0.5))


def test_a_lasso_takes_all_that_reads_a_column_for_one_group():
    model, _, sparsifier = gated(include="inputs of *")
    expected = sum(layer.out_features**0.5 * layer.weight.norm(dim=0).sum() for layer in model.readers())
    torch.testing.assert_close(GroupLasso(sparsifier, 1.0, 0.5)(), expected, check_dtype=False)


def test_a_number_of_features_is_that_of_the_model():
    torch.manual_seed(0)
    model, table = Table(), torch.randn(400, COLUMNS)
    useful = [2, 5, 11]
    labels = (table[:, useful].sum(1) > 0).long()
    sparsifier = lzero.sparsify(model, table[:1], inputs=True, include="inputs of *")
    objective = lzero.Constraint(sparsifier, target=3, cost="gates", steps=600)
    optimizer = torch.optim.Adam(sparsifier.param_groups(lr=1e-2, steps=600))
    for _ in range(600):
        loss = F.cross_entropy(model(table), labels) + objective()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        objective.step()
    small = lzero.compact(model, budget=objective)
    assert [inputs_read(layer) for layer in small.readers()] == [useful] * 3
    assert decide(sparsifier).gates.shape == (COLUMNS,)
