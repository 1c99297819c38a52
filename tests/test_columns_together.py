"""Columns that go together, as those of one category do, have one gate: they stay, close and count together."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

import lzero
from lzero.decision import decide
from lzero.errors import ArgumentError
from lzero.layers import inputs_read
from lzero.objectives import GroupLasso
from lzero.projection import project
from tests.test_shared_inputs import COLUMNS, Mirrored, Table, check_steps_in_parts, close

TOGETHER = [[0, 4, 7], [2, 3]]  # gates 0 and 1; the seven other columns have the next ones
ALONE = [column for column in range(COLUMNS) if column not in (0, 4, 7, 2, 3)]


def columns_of(gate):
    return TOGETHER[gate] if gate < 2 else [ALONE[gate - 2]]


def gated(make=Table, **options):
    torch.manual_seed(0)
    model, x = make().double(), torch.randn(5, COLUMNS).double()
    sparsifier = lzero.sparsify(model, x, **{"inputs": TOGETHER, "include": "inputs of *"} | options)
    sparsifier.log_alpha.data.fill_(60.0)
    return model, x, sparsifier


def test_a_gate_acts_on_all_of_its_columns():
    model, x, sparsifier = gated()
    assert sparsifier.num_gates == 2 + len(ALONE)
    assert sparsifier.l0_weights.tolist() == [19 * 3, 19 * 2, *[19] * 7]
    close(sparsifier, [0, 5])
    without = x.clone()
    without[:, [0, 4, 7, ALONE[3]]] = 0
    model.eval()
    torch.testing.assert_close(model(x), copy.deepcopy(model)(without), rtol=0, atol=1e-12)


@pytest.mark.parametrize("closed", [[], [0], [1, 2], [0, 1], list(range(9))])
def test_what_is_left_computes_the_same_and_is_counted(closed):
    model, x, sparsifier = gated(include="*")
    close(sparsifier, closed)
    small, counted = lzero.compact(model), lzero.measure(model)
    with FlopCounterMode(display=False) as flops:
        small(x)
    assert counted.params.realised == sum(parameter.numel() for parameter in small.parameters())
    assert counted.macs.realised == flops.get_total_flops() // 2
    assert lzero.verify(model, small, x) < 1e-12
    kept = sorted(column for gate in range(9) if gate not in closed for column in columns_of(gate))
    assert [inputs_read(layer) for layer in small.readers()] == [kept] * 3
    assert small.value.in_features == len(kept or [0, 4, 7])  # no width is 0: columns stay, with weights of zero


def test_expected_counts_are_means():
    model, _, sparsifier = gated()
    torch.manual_seed(1)
    sparsifier.log_alpha.data.uniform_(-2, 2)
    probability = sparsifier.law.prob_active.detach()
    width = sum(p * len(columns_of(gate)) for gate, p in enumerate(probability.tolist()))
    assert lzero.measure(model).params.expected == pytest.approx(19 * width + 8 + 8 + 8 * 3 + 3)


def test_what_is_shrunk_away_goes_as_a_whole_and_the_training_goes_on(tmp_path):
    model, x, sparsifier = gated()
    optimizer = torch.optim.Adam(sparsifier.param_groups(lr=1e-2))
    close(sparsifier, [1, 2])
    whole = copy.deepcopy(model)
    assert sparsifier.shrink(optimizer) == 3
    assert lzero.verify(whole, model, x) < 1e-12
    assert sparsifier.num_gates == 7
    model(x).square().mean().backward()
    optimizer.step()
    close(sparsifier, [0, 6])  # the first list again, and the last column
    assert sparsifier.shrink() == 4
    small = lzero.compact(model)
    kept = ALONE[1:-1]
    assert [inputs_read(layer) for layer in small.readers()] == [kept] * 3
    lzero.save(small, tmp_path / "small.safetensors")
    assert lzero.verify(small, lzero.load(Table().double(), tmp_path / "small.safetensors"), x) == 0


def test_a_number_of_features_counts_each_list_as_one():
    torch.manual_seed(0)
    model, category = Table(), torch.randint(3, (600,))
    table = torch.randn(600, COLUMNS)
    table[:, [0, 4, 7]] = F.one_hot(category, 3).float()
    labels = (category == 1).long() + ((category == 2) & (table[:, 11] > 0)).long()
    sparsifier = lzero.sparsify(model, table[:1], inputs=TOGETHER, include="inputs of *")
    objective = lzero.Constraint(sparsifier, target=2, cost="gates", steps=800)
    optimizer = torch.optim.Adam(sparsifier.param_groups(lr=1e-2, steps=800))
    for _ in range(800):
        loss = F.cross_entropy(model(table), labels) + objective()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        objective.step()
    small = lzero.compact(model, budget=objective)
    assert [inputs_read(layer) for layer in small.readers()] == [[0, 4, 7, 11]] * 3


@pytest.mark.parametrize(("target", "cost"), [(4, "gates"), (0.5, "l0"), (0.5, "params"), (0.6, "macs")])
def test_budgets_hold(target, cost):
    model, x, sparsifier = gated(include="*")
    torch.manual_seed(2)
    sparsifier.log_alpha.data.normal_(std=3)
    after = project(model, target, cost).after[0]
    small, count = lzero.compact(model), getattr(lzero.measure(model), cost)
    limit = target if cost == "gates" else target * count.dense
    assert count.realised <= limit
    assert after == pytest.approx(count.realised / count.dense)
    assert lzero.verify(model, small, x) < 1e-12


def test_a_lasso_takes_a_list_for_one_group():
    model, _, sparsifier = gated()
    expected = sum(
        (layer.out_features * len(columns_of(gate))) ** 0.5 * layer.weight[:, columns_of(gate)].norm()
        for layer in model.readers()
        for gate in range(9)
    )
    torch.testing.assert_close(GroupLasso(sparsifier, 1.0, 0.5)(), expected, check_dtype=False)


def test_steps_in_parts_are_full_steps():
    check_steps_in_parts(*gated(keep_rate=0.5))


def test_numpys_numbers_are_columns_and_what_was_gated_can_be_gated_anew():
    model, x, sparsifier = gated(inputs=[list(np.array([1, 2]))])
    assert sparsifier.groups[0].gate_of_column.tolist() == [1, 0, 0, *range(2, 11)]
    close(sparsifier, [0])
    sparsifier.shrink()
    again = lzero.sparsify(sparsifier.remove(), x, inputs=[[0, 1]], include="inputs of *")  # of those that are left
    assert decide(again).gates.shape == (9,)
    assert [layer.in_features for layer in model.readers()] == [10] * 3


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (
            [[0, 12]],
            r"inputs: expected True, or lists of columns .* 0 to 11, each in one list, got \[\[0, 12\]\]",
        ),
        ([[0, -1]], "from 0 to 11"),
        ([[0, 1], [1, 2]], "each in one list"),
        ([[0, 0]], "each in one list"),
        ([[]], "from 0 to 11"),
        ([[0.5, 1]], "whole numbers"),
        ([0, 1], "inputs: expected True, False, or lists of columns that go together, got"),
        ("all", "inputs: expected True, False, or lists"),
        (3, "inputs: expected True, False, or lists"),
    ],
)
def test_columns_that_cannot_go_together_are_refused(inputs, message):
    model = Table()
    with pytest.raises(ArgumentError, match=message):
        lzero.sparsify(model, torch.randn(2, COLUMNS), inputs=inputs)
    assert type(model.value) is nn.Linear


@pytest.mark.parametrize(
    ("make", "shape", "options", "got"),
    [
        (Mirrored, (2, COLUMNS), {}, "got inputs of value, inputs of around; choose it by include"),
        (lambda: nn.Sequential(nn.Conv1d(1, 4, 3), nn.Flatten(), nn.Linear(40, 3)), (2, 1, 12), {}, "got none"),
    ],
)
def test_it_must_be_clear_of_which_table_they_are(make, shape, options, got):
    with pytest.raises(ArgumentError, match=f"inputs: expected columns of one table .*{got}"):
        lzero.sparsify(make(), torch.randn(shape), inputs=TOGETHER, **options)


def test_a_table_is_chosen_by_its_name():
    model, x, sparsifier = gated(Mirrored, include="inputs of around")
    close(sparsifier, [0])
    small = lzero.compact(model)
    assert [layer.in_features for layer in small.readers()] == [12, 12, 9]
    assert lzero.verify(model, small, x) < 1e-12
