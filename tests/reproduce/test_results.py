"""What is published is what was recorded, and every constraint holds in the compacted networks."""

from functools import cache
from pathlib import Path

import pytest
import torch

from lzero.recipes import load
from lzero.reproduce import EXPERIMENTS, past, records, tables
from lzero.training.parts import make_gates, make_model

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "results" / "reproduction"
NAMES = [name for name in EXPERIMENTS if (KEPT / f"{name}.jsonl").exists()]
SHAPES = {"mnist": (1, 28, 28), "cifar10": (3, 32, 32), "cifar100": (3, 32, 32)}


def kept(name):
    return records.read(KEPT / f"{name}.jsonl")


def table_of(name):
    if name == "past-the-papers":
        return past.markdown((EXPERIMENTS[each], records.read_all(KEPT, each)) for each in NAMES)
    return tables.markdown(EXPERIMENTS[name], records.read_all(KEPT, name))


@pytest.mark.parametrize("name", [*NAMES, "past-the-papers"])
def test_tables_are_made_from_records_and_the_page_shows_them(name):
    table = table_of(name)
    assert (KEPT / f"{name}.md").read_text(encoding="utf-8") == table
    page = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    for line in table.splitlines():
        assert not line.startswith("|") or line in page


@cache
def gate_weights(recipe_name):
    """The parameters that each gate of a group stands for, by group."""
    recipe = load(recipe_name)
    sparsifier = make_gates(recipe, make_model(recipe), torch.zeros(1, *SHAPES[recipe.data.name]))
    return {group.name: sparsifier.l0_weights[group.span].tolist() for group in sparsifier.groups}


def shares(record, row, aim):
    """What a compacted network has of what its constraint counts, with the target of each."""
    if aim.cost in ("params", "macs"):
        size, dense = (getattr(record, f"{dense}{aim.cost}") for dense in ("", "dense_"))
        return {"model": (size / dense, aim.target if aim.target <= 1 else aim.target / dense)}
    weights = gate_weights(row.recipe)
    if aim.per == "layer" or isinstance(aim.target, dict):
        targets = aim.target if isinstance(aim.target, dict) else dict.fromkeys(weights, aim.target)
        return {name: (record.widths[name] / len(weights[name]), target) for name, target in targets.items()}
    used = sum(record.widths[name] * each[0] for name, each in weights.items())
    return {"model": (used / sum(map(sum, weights.values())), aim.target)}


@pytest.mark.parametrize("name", NAMES)
def test_constraints_hold_in_the_compacted_networks(name):
    experiment = EXPERIMENTS[name]
    for record in kept(name):
        row = next(row for row in experiment.rows if row.label == record.row)
        aim = load(row.recipe, row.changes).objective
        if aim.kind == "constraint":
            for where, (share, target) in shares(record, row, aim).items():
                assert share <= target + 1e-9, (record.row, record.seed, where)
