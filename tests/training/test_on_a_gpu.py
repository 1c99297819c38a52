"""Steps that are replayed as a CUDA graph are the steps themselves."""

import pytest
import torch

from lzero import recipes
from lzero.data import Dataset, Split, digits
from lzero.training import fit
from lzero.training.building import build
from lzero.training.capture import CapturedStep
from lzero.training.shared_gpu import shared_gpu
from lzero.training.sweep import sweep

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
    pytest.mark.filterwarnings("ignore::lzero.errors.BudgetWarning"),
]

SHORT = ["training.epochs=4", "gates.lr=0.05"]
KINDS = {
    "budget": ["objective.target=0.5"],
    "penalty, averaged": ["objective.kind=penalty", "objective.strength=5.0", "training.average=0.9"],
    "sgd": ["optimizer.kind=sgd", "optimizer.lr=0.05", "optimizer.schedule=cosine"],
    "augmented": ['data.augment=["crop", "flip", "cutout"]', "data.cutout_size=2", "data.crop_pad=1"],
    "two parts, two samples": ["training.accumulate=2", "gates.samples=2"],
    "half": ["training.precision=bf16-mixed", "training.channels_last=true"],
    "half, sgd": ["training.precision=bf16-mixed", "training.channels_last=true", "optimizer.kind=sgd"],
    "plain": ["gates.units=none", "objective.kind=none"],
}


@pytest.fixture(scope="module")
def few():
    whole = digits()
    return Dataset("digits", Split(whole.train.images[:640], whole.train.labels[:640]), whole.test, whole.classes)


def losses(recipe, few, make_step):
    """The loss of each of 16 steps, with half of the first layer's units removed after eight."""
    with torch.cuda.stream(torch.cuda.Stream()):
        session = build(recipe, few, accelerator="cuda")
        step, seen, rows = make_step(session), [], [*session.batches.rows(0), *session.batches.rows(1)]
        for k, each in enumerate(rows[:16]):
            if k == 8 and session.sparsifier is not None:
                session.sparsifier.log_alpha.data[:16] = -9.0
                session.epoch, removed = 1, session.get_smaller()
                assert removed == 16
            session.before_step()
            step(each)
            session.after_step()
            seen.append(session.totals[0].item())
    return seen


@pytest.mark.parametrize("kind", KINDS)
def test_replayed_steps_are_the_steps_themselves(kind, few):
    recipe = recipes.load("digits", [*SHORT, "shrink.every=1", *KINDS[kind]])
    replayed, run = losses(recipe, few, CapturedStep), losses(recipe, few, lambda session: session.step)
    assert replayed == pytest.approx(run, rel=0.02)
    assert replayed != sorted(replayed, reverse=True)  # a sum that grows


def test_after_freezing_a_plain_network_is_replayed(few):
    rows = []
    recipe = recipes.load("digits", [*SHORT, "training.epochs=6", "shrink.freeze_after=0.5", "objective.target=1.0"])
    fit(recipe, dataset=few, accelerator="cuda", on_epoch=rows.append)
    assert "objective" in rows[2]
    assert "objective" not in rows[3]
    assert rows[-1]["loss"] < rows[2]["loss"]


@pytest.mark.parametrize("kind", ["penalty, averaged", "half, sgd"])
def test_a_resumed_run_goes_on_where_it_was(kind, few, tmp_path):
    recipe = recipes.load("digits", [*SHORT, *KINDS[kind]])
    whole, parts = [], []
    fit(recipe, dataset=few, accelerator="cuda", on_epoch=whole.append)
    asked = iter([False] * 25 + [True])
    with pytest.raises(KeyboardInterrupt):
        fit(recipe, tmp_path, dataset=few, accelerator="cuda", on_epoch=parts.append, should_stop=lambda: next(asked))
    fit(recipe, tmp_path, dataset=few, accelerator="cuda", on_epoch=parts.append, resume=True)
    assert [row["loss"] for row in parts] == pytest.approx([row["loss"] for row in whole], rel=0.05)


@pytest.mark.parametrize("how", ["processes", "streams"])
def test_networks_trained_side_by_side_are_those_trained_alone(how, tmp_path, monkeypatch):
    if how == "streams":
        monkeypatch.setattr("lzero.training.shared_gpu.CONTROL", "no-such-command")
    with shared_gpu(2) as environment:
        if (environment is None) == (how == "processes"):
            pytest.skip("no Multi-Process Service")
    changes = [*SHORT, "training.batch_size=128", "shrink.every=2"]
    rows = sweep("digits", {"objective.target": [0.3, 0.6]}, tmp_path, seeds=2, changes=changes)
    for row in rows:
        settings = [*changes, f"objective.target={row['objective.target']}", f"training.seed={row['training.seed']}"]
        alone = fit(recipes.load("digits", settings), accelerator="cuda")
        assert row["macs"] == pytest.approx(alone.compacted.macs, rel=0.1)
        assert row["error"] == pytest.approx(alone.compacted.error, abs=0.05)
