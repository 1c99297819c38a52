"""Experiments: every row can be built, tables say what records hold, and small versions give what they must."""

import base64
import html
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from shutil import rmtree

import pytest
import torch
from matplotlib.figure import Figure
from rich.console import Console
from torch.utils.flop_counter import FlopCounterMode

from lzero import data
from lzero.data import Dataset, Split
from lzero.errors import ArgumentError, LzeroError
from lzero.recipes import load
from lzero.report import density_figures
from lzero.report.paper_networks import LENET, MLP, architecture_share
from lzero.reproduce import EXPERIMENTS, records, reproduce, tables
from lzero.reproduce.cifar import NARROWER
from lzero.reproduce.figures import draw
from lzero.reproduce.mnist import SIZES
from lzero.reproduce.page import write_page
from lzero.reproduce.rows import Experiment, Row
from lzero.reproduce.running import plan, run
from lzero.training import fit
from lzero.training.together import Trial
from lzero.zoo import make
from lzero.zoo.scaling import factor_for

DATA = Path("data")
FULL = "training.precision=32-true"  # half of it is slow on a CPU
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("quick", [False, True])
def test_every_row_has_a_recipe_and_a_folder_of_its_own(name, quick, tmp_path):
    experiment = EXPERIMENTS[name]
    trials = plan(experiment, tmp_path, quick=quick, seeds=2)
    assert len({trial.folder for trial in trials}) == len(trials) == 2 * len(experiment.rows)
    assert len({row.label for row in experiment.rows}) == len(experiment.rows)


def finished(folder, seed, error):
    """What a training leaves."""
    folder.mkdir(parents=True)
    size = {"params": 1000, "macs": 5000, "latency": 0.002}
    small = {"params": 100 + seed, "macs": 1000, "latency": 0.001, "error": error}
    layers = [{"name": name, "before": 9, "after": k + seed} for k, name in enumerate(MLP.keep)]
    facts = {"epochs": 2, "seconds": 3.0, "machine": "a machine", "commit": "abc1234", "layers": layers}
    (folder / "outcome.json").write_text(json.dumps({"dense": {**size, "error": None}, "compacted": small, **facts}))
    group = {"l0": {"expected": 0.3, "multiplier": 2.0, "realised": 0.2, "violation": 0.0}}
    macs = {"dense": 5000, "expected": 2500.0, "realised": 1000}
    rows = [
        {"epoch": 1, "loss": 0.5, "error": error / 2, "objective": {"groups": group}, "size": {"macs": macs}},
        {"epoch": 2, "loss": 0.4, "error": error},
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Trial({"row": "λ = 0.1/N", "seed": seed}, load("digits"), folder)


def test_records_keep_what_tables_and_figures_need(tmp_path):
    kept = [records.Record.of(finished(tmp_path / str(seed), seed, 0.01 * (seed + 1))) for seed in range(3)]
    assert kept[0].curves["macs"] == [0.5, None]
    assert kept[0].curves["multiplier l0"] == [2.0, None]
    assert kept[1].best_error == 0.01
    records.write(kept, tmp_path / "kept.jsonl")
    assert records.read(tmp_path / "kept.jsonl") == kept
    table = tables.markdown(EXPERIMENTS["table-1-mlp"], kept)
    assert (
        "| λ = 0.1/N | 219-214-100 | 261 | 1.4 | 1-2-3 | 101 (10.1%) | 1,000 (20.0%) | 2.00 ± 2.48 | 0.50 | 0.50× |"
        in table
    )
    assert "| ε = 33 % | 198-233-100 |  | 1.4 best / 1.69 | not run |" in table
    assert table.endswith("2 epochs; median wall clock of a training 3 s; a machine; lzero at abc1234.\n")
    went_on = [replace(kept[0], commit="abc1234, def5678"), replace(kept[1], commit="")]
    assert tables.foot(went_on).endswith("; lzero at abc1234, def5678, others.")
    assert tables.foot(went_on[1:]).endswith("; a machine.")


def test_records_that_are_not_there_are_told_from_damaged_ones(tmp_path):
    kept = [records.Record.of(finished(tmp_path / str(seed), seed, 0.01)) for seed in range(2)]
    path = tmp_path / "dynamics.jsonl"
    with pytest.raises(LzeroError, match=r"dynamics\.jsonl: there is no such file; run lzero reproduce dynamics first"):
        records.read(path)
    records.write(kept, path)
    path.write_text(path.read_text()[:-20])
    with pytest.raises(LzeroError, match=r"dynamics\.jsonl, line 2: damaged, not a record \("):
        records.read(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(LzeroError, match=r"dynamics\.jsonl: cannot be read"):
        records.read(path)


def test_a_figure_shows_rows_with_a_budget_of_its_own_cost_where_there_are_any(tmp_path, monkeypatch):
    whole = records.Record.of(finished(tmp_path / "run", 0, 0.02))
    rows = ("narrower, 10% of MACs", "lzero, 10% of MACs", "lzero, 1.4% of parameters")
    records.write([replace(whole, row=row) for row in rows], tmp_path / "trade-off-lenet5.jsonl")
    shown = {}
    monkeypatch.setattr(density_figures, "trade_off", lambda curves, _, cost: shown.update({cost: curves}) or Figure())
    for cost in ("macs", "params"):
        draw(f"trade-off-lenet5-{cost}", tmp_path)
    names = {cost: [record.row for records in curves.values() for record in records] for cost, curves in shown.items()}
    assert names == {"macs": [rows[1], rows[0]], "params": [rows[2], rows[0]]}


def test_trade_offs_are_drawn_with_the_papers_rows(tmp_path):
    whole = records.Record.of(finished(tmp_path / "run", 0, 0.02))
    kept = [
        replace(whole, row=f"{method}, {share:.0%} of MACs", macs=int(5000 * share), error=0.01 / share, seed=seed)
        for method in ("lzero", "narrower")
        for share in (0.1, 0.5)
        for seed in (0, 1)
    ]
    records.write([replace(whole, row="dense", macs=5000), *kept], tmp_path / "trade-off-lenet5.jsonl")
    others = [replace(record, row=record.row.replace("narrower", "another library")) for record in kept[4:]]
    records.write(others, tmp_path / "trade-off-lenet5-by-another.jsonl")
    drawn = draw("trade-off-lenet5-macs", tmp_path)
    svg = next(path for path in drawn if path.name == "trade-off-lenet5-macs.svg").read_text()
    assert svg.startswith("<?xml")
    assert len(drawn) == 4
    assert "another library" in svg
    table = tables.markdown(EXPERIMENTS["trade-off-lenet5"], records.read_all(tmp_path, "trade-off-lenet5"))
    assert "| another library, 10% of MACs | – | 100 (10.0%) | 500 (10.0%) | 10.00 (2 runs) | 1.00 |" in table


def test_the_page_has_the_tables_and_figures_of_its_folder(tmp_path):
    kept = [records.Record.of(finished(tmp_path / "run", 0, 0.02))]
    records.write(kept, tmp_path / "table-1-mlp.jsonl")
    draw("figure-1", tmp_path)
    page = write_page(tmp_path).read_text()
    for cell in (cell for line in tables.lines(EXPERIMENTS["table-1-mlp"], kept) for cell in line):
        assert f">{html.escape(cell)}<" in page
    drawn = re.findall('data:image/svg[+]xml;base64,([^"]+)', page)
    dark, light = (tmp_path / f"figure-1{kind}.svg" for kind in ("-dark", ""))
    assert [base64.b64decode(image) for image in drawn] == [dark.read_bytes(), light.read_bytes()]
    assert "Penalties" in page
    assert "<script" not in page


@pytest.mark.filterwarnings("ignore::lzero.errors.BudgetWarning")
@pytest.mark.parametrize("name", ["table-2-cifar100", "trade-off-wrn"])
def test_rows_on_cifar_can_be_trained(name):
    experiment = EXPERIMENTS[name]
    for row in experiment.rows:
        recipe = load(row.recipe, [*experiment.settings(row, quick=True), "training.batch_size=16", FULL])
        classes = recipe.model.options.get("classes", 10)
        few = Split(torch.randint(256, (32, 3, 32, 32), dtype=torch.uint8), torch.arange(32) % classes)
        data = Dataset(recipe.data.name, few, few, tuple(map(str, range(classes))))
        outcome = fit(recipe, dataset=data, accelerator="cpu")
        assert outcome.compacted.macs <= outcome.dense.macs * (
            recipe.objective.target if recipe.objective.kind in ("constraint", "lasso") else 1
        ), row.label


def test_narrower_networks_are_the_widest_within_each_share():
    def macs(factor):
        with torch.device("meta"), FlopCounterMode(display=False) as counter:
            make("wrn-16-4", hidden=factor).eval()(torch.zeros(1, 3, 32, 32))
        return counter.get_total_flops()

    assert {share: factor_for(share, macs) for share in NARROWER} == NARROWER


def test_widths_are_told_in_the_networks_order_where_papers_name_no_layers(tmp_path):
    record = records.Record.of(finished(tmp_path / "run", 0, 0.02))
    wide = replace(record, widths={"b.2": 3, "b.10": 4}, dense_widths={"b.2": 5, "b.10": 6})
    others = [replace(wide, seed=seed, widths={"b.2": 3, "b.10": 4 + seed}) for seed in (1, 2)]
    assert tables.architecture(EXPERIMENTS["table-2-cifar10"], [wide, *others]) == "3-5"
    assert tables.architecture(EXPERIMENTS["table-2-cifar10"], [replace(wide, widths={})]) == "–"
    assert tables.architecture(EXPERIMENTS["table-1-mlp"], [wide]) == "–"


def test_shares_are_of_the_largest_network(tmp_path):
    whole = records.Record.of(finished(tmp_path / "run", 0, 0.02))
    narrow = replace(whole, dense_macs=500, macs=500, dense_latency=0.0005, latency=0.0005)
    shown = tables.against_the_largest([whole, narrow])
    assert [record.macs / record.dense_macs for record in shown] == [0.2, 0.1]
    assert [record.latency / record.dense_latency for record in shown] == [0.5, 0.25]


@pytest.mark.parametrize("network", [MLP, LENET], ids=lambda network: network.name)
def test_our_defaults_get_the_parameters_of_the_papers_architectures(network):
    dense = sum(parameter.numel() for parameter in make(network.name).parameters())
    for architecture, params in SIZES[network.name].items():
        assert params == round(dense * architecture_share(network, architecture, "params"))


def epoch(error, expected=None, violation=0.0):
    """What is noted of an epoch with gates, or without."""
    group = {"expected": expected, "realised": expected, "multiplier": 1.0, "violation": violation}
    gated = {"size": {}, "objective": {"groups": {"macs": group}}}
    return {"epoch": 1, "loss": 0.5, "error": error, **({} if expected is None else gated)}


@pytest.mark.parametrize(
    ("kind", "rows", "best"),
    [
        ("constraint", [epoch(0.01, 0.3), epoch(0.03, 0.3)], 0.01),
        # Outside; the target came down; gates were folded in; no epoch counts, not even the last.
        ("constraint", [epoch(0.01, 0.33, math.log(1.1)), epoch(0.015, 0.3), epoch(0.03, 0.3)], 0.015),
        ("constraint", [epoch(0.01, 0.9), epoch(0.03, 0.3)], 0.02),
        ("constraint", [epoch(0.01, 0.9, 1.0), epoch(0.012, 0.4, math.log(4 / 3)), epoch(0.018)], 0.018),
        ("constraint", [epoch(0.01, 0.4, math.log(4 / 3))], 0.02),
        ("penalty", [epoch(0.01, 0.9), epoch(0.03, 0.3)], 0.01),
        ("lasso", [epoch(0.01, 0.9), epoch(0.03, 0.3), epoch(0.025)], 0.02),
        ("none", [epoch(0.01), epoch(0.03)], 0.01),
    ],
)
def test_the_best_epoch_is_one_within_the_budget_or_the_end(kind, rows, best, tmp_path):
    trial = finished(tmp_path / "run", 0, 0.02)
    recipe = load("digits", [f"objective.kind={kind}", *(["gates.units=none"] if kind == "none" else [])])
    (trial.folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert records.Record.of(replace(trial, recipe=recipe)).best_error == best


SMALL = Experiment(
    "small",
    "Digits",
    (
        Row("gated", "digits", ("training.epochs=1",)),
        Row("dense", "digits", ("training.epochs=1", "gates.units=none", "objective.kind=none")),
    ),
    1,
    (),
)


@pytest.mark.filterwarnings("ignore::lzero.errors.BudgetWarning")
def test_only_what_has_no_record_is_trained(tmp_path):
    told = []
    first = run(SMALL, tmp_path, accelerator="cpu", workers=1, on_record=told.append)
    assert [record.row for record in told] == ["gated", "dense"]
    rmtree(tmp_path / "runs")  # records alone are enough to go on
    assert run(SMALL, tmp_path, accelerator="cpu", on_record=told.append) == first
    assert len(told) == 2
    run(SMALL, tmp_path, accelerator="cpu", workers=1, seeds=2, on_record=told.append)
    assert [(record.row, record.seed) for record in told[2:]] == [("gated", 1), ("dense", 1)]
    assert len(run(SMALL, tmp_path, accelerator="cpu")) == 4  # seeds beyond those asked for are kept


def changed(experiment):
    """The same rows, to be trained anew."""
    return replace(
        experiment, rows=tuple(replace(row, changes=(*row.changes, "optimizer.lr=0.002")) for row in experiment.rows)
    )


@pytest.mark.filterwarnings("ignore::lzero.errors.BudgetWarning")
def test_rows_are_chosen_by_a_part_of_their_label_and_others_are_left_as_they_are(tmp_path):
    assert [record.row for record in run(SMALL, tmp_path, only=["den"], accelerator="cpu", workers=1)] == ["dense"]
    assert "| gated |" in (tmp_path / "small.md").read_text()
    whole = run(SMALL, tmp_path, accelerator="cpu", workers=1)
    assert [record.row for record in whole] == ["dense", "gated"]
    dense, gated = run(changed(SMALL), tmp_path, only=["den"], accelerator="cpu", workers=1)
    assert dense.recipe != whole[0].recipe
    assert gated == whole[1]


def test_only_is_checked_before_anything_is_trained(tmp_path):
    with pytest.raises(ArgumentError, match=r"only: expected a part of one of .*'ε = 33 %'.*, got 'sparse'"):
        reproduce(["table-1-mlp", "dynamics"], tmp_path, console=Console(), only=["sparse"])
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore::lzero.errors.BudgetWarning")
def test_records_of_other_settings_do_not_count(tmp_path):
    run(SMALL, tmp_path, accelerator="cpu", workers=1)
    gated, dense = SMALL.rows
    other = replace(SMALL, rows=(gated, replace(dense, changes=(*dense.changes, "optimizer.lr=0.002"))))
    told = []
    assert len(run(other, tmp_path, accelerator="cpu", workers=1, on_record=told.append)) == 2
    assert [record.row for record in told] == ["dense"]


@pytest.mark.slow
@pytest.mark.skipif(not (DATA / "mnist").is_dir(), reason="no MNIST in data/")
@pytest.mark.filterwarnings("ignore::lzero.errors.BudgetWarning")
@pytest.mark.parametrize(("name", "bound"), [("table-1-mlp", 0.1), ("table-1-lenet5", 0.2), ("dynamics", 0.06)])
def test_small_versions_give_what_they_must(name, bound, tmp_path):
    assert data.check("mnist", DATA)
    for record in run(EXPERIMENTS[name], tmp_path, quick=True, data_dir=DATA, accelerator="cpu"):
        tiny = record.params < 0.02 * record.dense_params  # few epochs are too few for that; better than chance it is
        assert record.error < (0.89 if tiny else bound), record.row
        if "ε = 33" in record.row or "dual" in record.row:
            assert record.params < 0.4 * record.dense_params
    assert (tmp_path / f"{name}.md").read_text().count("not run") == 0
