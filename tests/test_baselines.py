"""What trade-offs are compared with: trained under one schedule, within its budget, with records that can be read."""

import importlib.util
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import lzero
from lzero import recipes, zoo
from lzero.data import Dataset, Split, digits
from lzero.reproduce import records
from lzero.training import fit
from lzero.training.loop import dense_recipe

BASELINES = {
    "mnist-lenet5-dense": [],
    "mnist-lenet5-dense, narrower": ["model.options={widths = [8, 21, 212]}"],
    "mnist-lenet5-dropout": [],
    "mnist-lenet5-lasso": [],
    "mnist-lenet5-macs": [],
}
BENCHMARK = Path(__file__).parent.parent / "benchmarks" / "torch_pruning_tradeoff.py"


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("name", BASELINES)
def test_baselines_train_as_the_gated_network_does(name):
    recipe, gated = recipes.load(name.partition(",")[0]), recipes.load("mnist-lenet5-macs")
    assert (recipe.data, recipe.optimizer, recipe.training) == (gated.data, gated.optimizer, gated.training)
    assert replace(dense_recipe(gated), title=recipe.title) == recipes.load(
        "mnist-lenet5-dense", [f"title={recipe.title}"]
    )


@pytest.mark.filterwarnings("ignore::lzero.errors.BudgetWarning")  # so short a training cannot get far
@pytest.mark.parametrize("name", BASELINES)
def test_baselines_end_at_their_size(name):
    images = Split(torch.randint(256, (128, 1, 28, 28), dtype=torch.uint8), torch.arange(128) % 10)
    recipe = recipes.load(name.partition(",")[0], [*BASELINES[name], "training.epochs=2"])
    outcome = fit(recipe, dataset=Dataset("mnist", images, images, tuple("0123456789")), accelerator="cpu")
    share = outcome.compacted.macs / 2_293_000
    assert share == 1 if name in ("mnist-lenet5-dense", "mnist-lenet5-dropout") else 0.15 < share <= 0.2


@pytest.fixture(scope="module")
def benchmark():
    pytest.importorskip("torch_pruning")
    spec = importlib.util.spec_from_file_location(BENCHMARK.stem, BENCHMARK)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("by_layer", [False, True])
def test_a_pruned_network_costs_at_most_its_share_and_the_first_is_left_alone(by_layer, benchmark):
    model, x, share = zoo.SmallConv(), torch.zeros(1, 1, 8, 8), 0.4
    before = lzero.measure(model, x)
    small = benchmark.pruned(model, x, share * before.macs.dense, by_layer=by_layer)
    assert 0.5 * share * before.macs.dense < lzero.measure(small, x).macs.dense <= share * before.macs.dense
    assert benchmark.macs(small, x) == lzero.measure(small, x).macs.dense
    assert lzero.measure(model, x) == before


@pytest.mark.parametrize("epochs", [1, 2, 7, 200])
def test_the_last_pruning_is_to_the_share_itself(epochs, benchmark):
    due = benchmark.schedule(epochs, 0.1)
    assert due[max(due)] == pytest.approx(0.1)
    assert list(due.values()) == sorted(due.values(), reverse=True)
    assert 0 < max(due) <= epochs


def test_a_training_leaves_a_record(benchmark, tmp_path):
    whole = digits()
    few = Dataset("digits", Split(whole.train.images[:128], whole.train.labels[:128]), whole.test, whole.classes)
    recipe = dense_recipe(recipes.load("digits", ["training.epochs=2", "training.seed=5"]))
    made = benchmark.train(recipe, few, 0.6)
    assert made.macs <= 0.6 * made.dense_macs
    assert (made.row, made.seed, made.epochs) == ("Torch-Pruning, 60 % of MACs", 5, 2)
    assert made.widths.keys() == made.dense_widths.keys() == {"conv1.0", "conv2.0", "conv3.0"}
    records.write([made], tmp_path / "records.jsonl")
    assert records.read(tmp_path / "records.jsonl") == [made]


@pytest.mark.usefixtures("benchmark")
def test_trainings_at_once_are_those_one_by_one_and_none_is_trained_twice(tmp_path):
    def run(workers, name):
        options = f"digits --shares 0.5 0.6 --set training.epochs=1 --workers {workers}".split()
        command = [sys.executable, str(BENCHMARK), *options, "--out", str(tmp_path / name)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        kept = records.read(tmp_path / name)
        assert [each.row for each in kept] == [f"Torch-Pruning, {share} % of MACs" for share in (50, 60)]
        return done.stdout.splitlines(), {each.row: each.error for each in kept}

    printed, errors = run(2, "at-once.jsonl")
    assert len(printed) == len(errors) == 2
    assert run(2, "at-once.jsonl") == ([], errors)
    assert run(1, "by-one.jsonl")[1] == errors
