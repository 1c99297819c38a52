"""A run that is taken up again is the one that was trained, and is judged as it was."""

import warnings

import pytest
import torch

import lzero
from lzero import data, recipes
from lzero.data import Dataset, Split
from lzero.errors import BudgetWarning, LzeroError
from lzero.training.building import build
from lzero.training.reopening import judged, reopened

pytestmark = pytest.mark.usefixtures("one_thread")
CHANGES = [
    "model.name=mlp", "model.options={inputs=64, widths=[24, 12]}", "training.epochs=2", "training.average=0.9",
    "gates.lr=0.3", "objective.target=0.6", "data.normalise=true", "data.held_out=0.2",
]  # fmt: skip
EXAMPLE = torch.rand(1, 1, 8, 8)


@pytest.fixture(scope="module")
def few():
    whole = data.digits()
    return Dataset("digits", Split(whole.train.images[:320], whole.train.labels[:320]), whole.test, whole.classes)


@pytest.fixture(scope="module")
def run(few, tmp_path_factory):
    """A run that is over: its folder, and what came out."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BudgetWarning)
        return folder, lzero.fit(recipes.load("digits", CHANGES), folder, dataset=few, accelerator="cpu")


def test_what_is_compacted_once_more_has_the_error_that_the_training_told(run, few):
    folder, outcome = run
    session = reopened(folder, EXAMPLE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BudgetWarning)
        small = lzero.compact(session.model, budget=session.objective)
    assert judged(session, small, few) == outcome.compacted.error
    trained = build(session.recipe, few, accelerator="cpu")
    assert torch.equal(session.test.labels, trained.test.labels)
    assert all(map(torch.equal, session.statistics, trained.statistics))


def test_taking_a_run_up_draws_no_noise_of_the_caller(run):
    before = torch.get_rng_state()
    reopened(run[0], EXAMPLE)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_network_is_not_judged_on_images_of_another_kind(run, few):
    session = reopened(run[0], EXAMPLE)
    small = lzero.compact(session.model)
    larger = Split(torch.rand(20, 1, 16, 16), torch.arange(20) % 10)
    with pytest.raises(LzeroError, match="was not trained on larger"):
        judged(session, small, Dataset("larger", larger, larger, few.classes))


def test_a_network_with_more_outputs_than_classes_is_judged(few, tmp_path):
    recipe = recipes.load("digits", [*CHANGES, "model.options={inputs = 64, widths = [24, 12], classes = 12}"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BudgetWarning)
        outcome = lzero.fit(recipe, tmp_path, dataset=few, accelerator="cpu")
        session = reopened(tmp_path, EXAMPLE)
        small = lzero.compact(session.model, budget=session.objective)
    assert judged(session, small, few) == outcome.compacted.error


def test_a_run_that_never_had_gates_is_told_from_one_that_folded_them_in(few, tmp_path):
    plain, folded = ["gates.units=none", "objective.kind=none"], ["objective.target=1.0", "shrink.freeze_after=0.5"]
    others = [change for change in CHANGES if "target" not in change]
    for changes, why in ((plain, "its network never had gates"), (folded, "freeze_after=none")):
        folder = tmp_path / why[-4:]
        lzero.fit(recipes.load("digits", [*others, *changes]), folder, dataset=few, accelerator="cpu")
        with pytest.raises(LzeroError, match=why):
            reopened(folder, EXAMPLE)
