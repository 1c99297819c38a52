"""Training by a recipe: it learns, it fits its budget, and an interrupted run is the run that was never interrupted."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

import lzero
from lzero import recipes
from lzero.data import Dataset, Split, as_floats, digits
from lzero.errors import LzeroError
from lzero.objectives import NotFiniteError
from lzero.report.page import write_page
from lzero.training import building, checkpoint, fit
from lzero.training.averaging import Polyak
from lzero.training.building import build
from lzero.training.folder import RunFolder, RunFolderError
from lzero.zoo import make

FAST = ["training.epochs=4", "shrink.every=1", "shrink.threshold=0.2", "gates.lr=0.3"]
SHORT = [*FAST, "objective.target=0.5"]
CLOSING = ["objective.kind=penalty", "objective.strength=5.0", "gates.lr=0.8"]
KINDS = {
    "budget": [],
    "shrinking": CLOSING,
    "shrinking, averaged": [*CLOSING, "training.average=0.9"],
    "shrinking, sgd": [*CLOSING, "optimizer.kind=sgd", "optimizer.lr=0.05", "optimizer.schedule=cosine"],
    "inputs": ["model.name=mlp", "model.options={inputs = 64, widths = [16, 10]}", "gates.units=paper", *CLOSING],
    "inputs, rounded": [*CLOSING, "gates.units=paper", "training.average=0.9", "shrink.round_to=4"],
    "augmented": ['data.augment=["crop", "flip", "cutout"]', "data.cutout_size=2", "data.crop_pad=1"],
    "plain": ["gates.units=none", "objective.kind=none"],
    "without momentum": ["optimizer.kind=sgd", "optimizer.momentum=0", "optimizer.lr=0.05"],
    "frozen": [*CLOSING, "shrink.freeze_after=0.5"],
    "frozen, averaged": ["shrink.freeze_after=0.5", "training.average=0.9"],
    "channels last": [*CLOSING, "training.channels_last=true", "optimizer.kind=sgd", "optimizer.lr=0.05"],
    "accumulated": ["training.accumulate=4"],
    "lasso": ["objective.kind=lasso", "objective.target=0.3", "shrink.freeze_after=0.5"],
    "in parts": [*CLOSING, "shrink.steps=subnetwork", "gates.keep_rate=0.5"],
}


@pytest.fixture(scope="module")
def few():
    """A part of the digits, for speed."""
    whole = digits()
    return Dataset("digits", Split(whole.train.images[:320], whole.train.labels[:320]), whole.test, whole.classes)


def numbers(folder):
    rows = [json.loads(line) for line in RunFolder(folder).metrics.read_text().splitlines()]
    return [{key: value for key, value in row.items() if key not in ("images_per_second", "seconds")} for row in rows]


@pytest.mark.parametrize("changes", [[], ["training.accumulate=4"], ["gates.units=structure", "gates.samples=2"]])
def test_the_training_error_is_that_of_the_examples_learnt_from(few, changes):
    alike, rows = Dataset("digits", few.train, few.train, few.classes), []
    still = ["optimizer.lr=1e-12", "gates.lr=1e-12", "training.epochs=2", "training.batch_size=64"]
    without_statistics = ["model.name=mlp", "model.options={inputs = 64, widths = [16, 10]}"]
    recipe = recipes.load("digits", [*KINDS["plain"], *still, *without_statistics, *changes])
    session = build(recipe, alike)
    if session.sparsifier is not None:
        session.sparsifier.log_alpha.data.fill_(30.0)  # every sample is 1
    for each in session.batches.rows(0):
        session.step(each)
        session.after_step()
    assert session.end_epoch()[1] == pytest.approx(session.evaluate()[0], abs=1e-6)
    fit(recipe, dataset=alike, on_epoch=rows.append)
    assert 0 < rows[0]["training_error"] < 1


def weights(outcome):
    return {name: tensor.clone() for name, tensor in outcome.model.state_dict().items()}


class StopHereError(Exception):
    pass


@pytest.mark.filterwarnings("ignore::lzero.errors.BudgetWarning")  # so short a training cannot get far
@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupted_run_is_bitwise_the_one_that_was_not(kind, few, tmp_path):
    has_target = kind != "plain" and "objective.kind=penalty" not in KINDS[kind]
    recipe = recipes.load("digits", [*(SHORT if has_target else FAST), *KINDS[kind]])
    whole = fit(recipe, tmp_path / "whole", dataset=few, accelerator="cpu")

    def stop(step):
        if step.session.step_number == 13:  # of 20: in the middle of the third epoch
            raise StopHereError

    parts = {"folder": tmp_path / "parts", "dataset": few, "accelerator": "cpu", "checkpoint_seconds": 0}
    with pytest.raises(StopHereError):
        fit(recipe, on_step=stop, **parts)
    torch.manual_seed(99)  # what the next process has in its generators does not matter
    began = []
    parts = fit(recipe, resume=True, on_step=lambda step: began.append(step.session.step_number), **parts)
    assert began[0] == 14
    assert numbers(tmp_path / "parts") == numbers(tmp_path / "whole")
    one, other = weights(whole), weights(parts)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    if kind.startswith("shrinking"):
        assert sum(row["removed"] for row in numbers(tmp_path / "whole")[:2]) > 0  # a shrunken model was resumed


def stop_after(steps):
    left = iter(range(steps - 1, -1, -1))
    return lambda: next(left) == 0


@pytest.mark.filterwarnings("ignore::lzero.errors.BudgetWarning")
@pytest.mark.parametrize("is_given", [False, True])
@pytest.mark.parametrize("step", [8, 10, 13])  # with gates, as they are folded in, and after
def test_a_run_that_began_with_a_compacted_network_goes_on(step, is_given, few, tmp_path):
    small = fit(recipes.load("digits", [*SHORT, "training.epochs=1"]), dataset=few, accelerator="cpu")
    lzero.save(small.model, tmp_path / "small")
    assert small.compacted.macs < small.dense.macs
    start = [] if is_given else [f'model.init="{tmp_path / "small"}"']
    recipe = recipes.load("digits", [*FAST, *KINDS["frozen"], *start])

    def run(folder, **how):
        given = lzero.load(make("smallconv"), tmp_path / "small") if is_given else None
        return fit(recipe, tmp_path / folder, model=given, dataset=few, accelerator="cpu", **how)

    whole = run("whole")
    with pytest.raises(KeyboardInterrupt):
        run("parts", should_stop=stop_after(step))
    parts = run("parts", resume=True)
    assert numbers(tmp_path / "parts") == numbers(tmp_path / "whole")
    assert all(torch.equal(tensor, weights(whole)[name]) for name, tensor in weights(parts).items())


def test_averages_of_a_resumed_run_lie_in_memory_as_its_weights(few, tmp_path):
    """Fused optimizers refuse to work otherwise."""
    recipe = recipes.load("digits", ["training.epochs=1", "training.channels_last=true", "objective.target=1.0"])
    fit(recipe, tmp_path, dataset=few, accelerator="cpu")
    session, run = build(recipe, few, accelerator="cpu"), RunFolder(tmp_path)
    checkpoint.restore(session, run.checkpoint, run.config.read_text())
    (states,) = [optimizer.state for optimizer in session.optimizers if len(optimizer.state) > 1]
    images = [parameter for parameter in states if parameter.dim() == 4]
    assert any(not parameter.is_contiguous() for parameter in images)
    assert all(states[parameter]["exp_avg"].stride() == parameter.stride() for parameter in images)


@pytest.mark.filterwarnings("ignore::lzero.errors.BudgetWarning")
def test_what_comes_out_is_in_the_folder_and_fits(few, tmp_path):
    recipe = recipes.load("digits", SHORT)
    outcome = fit(recipe, tmp_path, dataset=few, accelerator="cpu")
    assert outcome.compacted.macs <= 0.5 * outcome.dense.macs
    again = lzero.load(make("smallconv"), tmp_path / "model.safetensors")
    assert all(torch.equal(tensor, weights(outcome)[name]) for name, tensor in again.state_dict().items())
    assert json.loads((tmp_path / "outcome.json").read_text())["compacted"]["macs"] == outcome.compacted.macs
    assert recipes.load(tmp_path / "config.toml") == recipe


def test_steps_in_parts_are_the_steps_of_the_whole(few):
    settings = ["gates.keep_rate=0.4", "training.epochs=2", "model.name=tests.training.test_fit:perceptron"]
    settings += ["model.options={width = 32}", "objective.kind=penalty", "shrink.every=1"]
    rows = {}
    for how in ("full", "subnetwork"):
        rows[how] = []
        fit(recipes.load("digits", [*settings, f"shrink.steps={how}"]), dataset=few, on_epoch=rows[how].append)
        assert all(row["in_parts"] == (how == "subnetwork") for row in rows[how])
    assert [row["loss"] for row in rows["full"]] == pytest.approx([row["loss"] for row in rows["subnetwork"]], rel=1e-4)
    assert [row["error"] for row in rows["full"]] == [row["error"] for row in rows["subnetwork"]]


def test_what_is_faster_is_chosen(few, monkeypatch):
    for ratio, chosen in ((0.5, True), (1.5, False)):
        monkeypatch.setattr("lzero.subnetwork.Subnetwork.relative_time", lambda *_, ratio=ratio: ratio)
        rows = []
        recipe = recipes.load("digits", ["shrink.steps=auto", "training.epochs=1", "objective.target=1.0"])
        fit(recipe, dataset=few, accelerator="cpu", on_epoch=rows.append)
        assert rows[0]["in_parts"] is chosen


def test_it_learns(few):
    outcome = fit(recipes.load("digits", ["training.epochs=6", "objective.target=1.0"]), dataset=few, accelerator="cpu")
    assert outcome.compacted.error < 0.15


def test_a_model_of_ones_own(few):
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    settings = ["training.epochs=1", "objective.target=1.0"]
    assert fit(recipes.load("digits", settings), model=model, dataset=few).dense.params == 64 * 32 + 32 + 320 + 10
    named = ["model.name=tests.training.test_fit:perceptron", "model.options={width = 16}", *settings]
    assert fit(recipes.load("digits", named), dataset=few).dense.params == 64 * 16 + 16 + 160 + 10


class Perceptron(nn.Sequential):
    """A network of one's own, known by its class."""

    def __init__(self):
        super().__init__(*perceptron(12))


def test_what_was_given_is_what_the_folder_says_and_goes_on_with(few, tmp_path):
    mine = Dataset("mine", few.train, few.test, few.classes)
    recipe = recipes.load("digits", ["training.epochs=2", "training.seed=1", "objective.kind=penalty"])
    recipe = replace(recipe, title="A title", model=replace(recipe.model, options={"classes": 10}))

    def run(dataset=mine, model=None, **how):
        return fit(recipe, tmp_path / "run", model=model or Perceptron(), dataset=dataset, accelerator="cpu", **how)

    with pytest.raises(KeyboardInterrupt):
        run(should_stop=stop_after(7))
    begun = recipes.load(tmp_path / "run" / "config.toml")
    assert (begun.title, begun.data.name) == ("", "mine")
    assert (begun.model.name, begun.model.options) == ("tests.training.test_fit.Perceptron", {})
    assert begun.model.is_given
    with pytest.raises(RunFolderError, match=r"data\.name: mine there, digits here"):
        run(few, resume=True)
    with pytest.raises(
        RunFolderError, match=r"model\.name: .*Perceptron there, torch\.nn\.modules\.container\.Sequential"
    ):
        run(model=perceptron(8), resume=True)
    assert run(resume=True).epochs == 2
    assert fit(begun, tmp_path / "run", model=Perceptron(), dataset=mine, resume=True).epochs == 2


def mistaken():
    return 1 // 0


def perceptron(width):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere.at:all", "No module named"),
        (
            "tests.training.test_fit:nothing",
            "got tests.training.test_fit:nothing; tests.training.test_fit has .*perceptron",
        ),
        ("tests.training.test_fit:perceptron", "perceptron makes no network: TypeError: .* missing 1 required"),
        ("tests.training.test_fit:mistaken", r"ZeroDivisionError: .*, in test_fit.py:\d+: return 1 // 0"),
        ("builtins:dict", "a function that makes a module, got dict"),
        ("smalconv", "smallconv"),
    ],
)
def test_models_that_cannot_be_made_are_refused(name, message, few):
    with pytest.raises(lzero.LzeroError, match=message):
        fit(recipes.load("digits", [f"model.name={name}"]), dataset=few)


def test_images_in_any_precision_are_learnt_from(few):
    double = Dataset(
        "mine", *(Split(as_floats(s.images).double(), s.labels) for s in (few.train, few.test)), few.classes
    )
    recipe = recipes.load("digits", ["training.epochs=1", "objective.target=1.0"])
    results = [fit(recipe, dataset=dataset, accelerator="cpu") for dataset in (few, double)]
    assert results[0].compacted.error == results[1].compacted.error


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"devices": 0}, "devices: expected a whole number from 1, got 0"),
        ({"accelerator": "mps"}, "accelerator: expected auto, cpu or cuda, got mps"),
        ({"accelerator": "abacus"}, "accelerator: expected auto, cpu or cuda, got abacus"),
    ],
)
def test_machines_that_do_not_exist_are_refused(options, message, few):
    with pytest.raises(lzero.LzeroError, match=message):
        fit(recipes.load("digits"), dataset=few, **options)


class Halving(nn.Module):
    """One layer whose units change places by halves, which no cut of it survives, and one that can be cut."""

    def __init__(self):
        super().__init__()
        self.swapped, self.free, self.head = nn.Linear(64, 16), nn.Linear(16, 12), nn.Linear(12, 10)

    def forward(self, x):
        h = self.swapped(x.flatten(1)).relu()
        half = h.shape[1] // 2
        return self.head(self.free(torch.cat([h[:, half:], h[:, :half]], 1)).relu())


UNFIT = {
    "with too few scores": (perceptron(8)[:2], "returns a tensor of scores, (batch, 10), got (1, 8)"),
    "that returns images": (nn.Identity(), "returns a tensor of scores, (batch, 10), got (1, 1, 8, 8)"),
    "for other images": (nn.Linear(3, 10), "takes images of (1, 1, 8, 8), got RuntimeError: mat1 and mat2"),
    "that cannot be cut": (Halving(), "units of swapped fails: the Python code of Halving relies on"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_networks_that_would_fail_in_the_end_are_refused_at_the_beginning(name, few, tmp_path):
    model, message = UNFIT[name]
    with pytest.raises(lzero.LzeroError, match=re.escape(message)):
        fit(recipes.load("digits", ["training.epochs=1"]), tmp_path / "run", model=model, dataset=few)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_what_cannot_be_cut_is_left_out_as_the_refusal_says(few):
    recipe = recipes.load(
        "digits", ["training.epochs=1", 'gates.exclude=["*/inner", "swapped"]', "objective.kind=penalty"]
    )
    outcome = fit(recipe, model=Halving(), dataset=few)
    assert [layer.name for layer in outcome.layers] == ["free"]


def test_gates_that_are_no_numbers_leave_the_last_good_checkpoint(few, tmp_path):
    recipe, model = recipes.load("digits", ["training.epochs=2", "objective.target=1.0"]), perceptron(8)

    def spoil(_):
        model.get_parameter("lzero_log_alpha").data[0] = float("nan")

    with pytest.raises(NotFiniteError, match="the gates of 1 are not finite"):
        fit(recipe, tmp_path, model=model, dataset=few, checkpoint_seconds=0, on_epoch=spoil)
    assert len(numbers(tmp_path)) == 1
    assert fit(recipe, tmp_path, model=perceptron(8), dataset=few, resume=True).epochs == 2


@pytest.mark.filterwarnings("ignore::lzero.errors.BudgetWarning")
@pytest.mark.parametrize("kind", ["plain", "frozen"])
@pytest.mark.parametrize("stops", [False, True])
def test_weights_that_are_no_numbers_leave_the_last_good_checkpoint(kind, stops, few, tmp_path):
    recipe, asked = recipes.load("digits", [*FAST, *KINDS[kind]]), []

    def spoil(step):
        if step.session.step_number == 13:  # after the gates were folded in, in the middle of an epoch
            next(step.session.model.parameters()).data.view(-1)[0] = float("nan")
            asked.append(stops)

    how = {"dataset": few, "accelerator": "cpu", "checkpoint_seconds": 0}
    message = "weights are not" if stops else "the loss is not"
    with pytest.raises(
        (NotFiniteError, KeyboardInterrupt), match=rf"{message} finite in epoch 3; begin anew with .* \(optimizer\.lr\)"
    ):
        fit(recipe, tmp_path, on_step=spoil, should_stop=lambda: any(asked), **how)
    assert fit(recipe, tmp_path, resume=True, **how).epochs == 4


def test_the_loss_of_a_step_at_the_end_of_an_epoch_is_that_of_the_epoch(few):
    ended = []
    recipe = recipes.load("digits", ["training.epochs=2", "objective.target=1.0"])
    fit(recipe, dataset=few, on_step=lambda step: ended.append((step.loss, step.row)))
    assert all(loss > 0 for loss, _ in ended)
    assert [loss for loss, row in ended if row] == [row["loss"] for _, row in ended if row]


def test_a_training_that_went_on_with_other_code_names_both(few, tmp_path, monkeypatch):
    recipe, began = recipes.load("digits", ["training.epochs=3", "gates.units=none", "objective.kind=none"]), []

    def stop(step):
        if step.session.position == 1:
            raise StopHereError

    for code in ("aaaaaaa", "bbbbbbb", "bbbbbbb"):
        monkeypatch.setattr(building, "commit", lambda code=code: code)
        with pytest.raises(StopHereError):
            fit(recipe, tmp_path, dataset=few, checkpoint_seconds=0, resume=bool(began), on_step=stop)
        began.append(code)
    assert fit(recipe, tmp_path, dataset=few, resume=True).commit == "aaaaaaa, bbbbbbb"


def test_averages_are_corrected_for_their_start():
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    average, plain, power = Polyak(model, 0.9), torch.zeros(2, 3), 1.0
    for _ in range(7):
        with torch.no_grad():
            model.weight.normal_()
        average.update_parameters(model)
        plain, power = 0.9 * plain + 0.1 * model.weight.detach(), power * 0.9
        torch.testing.assert_close(average.module.weight, plain / (1 - power))


def test_a_folder_holds_one_run_and_one_process(few, tmp_path):
    recipe = recipes.load("digits", ["training.epochs=1", "objective.target=1.0"])
    fit(recipe, tmp_path, dataset=few)
    with pytest.raises(RunFolderError, match="there is a run already; go on with --resume"):
        fit(recipe, tmp_path, dataset=few)
    epochs = []
    with pytest.raises(RunFolderError, match="there is a run already"):
        fit(recipe, tmp_path, dataset=few, compare=True, on_epoch=epochs.append)
    assert not epochs  # and not only after the dense network has been trained
    fit(recipe, tmp_path, dataset=few, overwrite=True)
    assert len(numbers(tmp_path)) == 1
    other = recipes.load("digits", ["training.epochs=2", "objective.target=1.0"])
    with pytest.raises(RunFolderError, match=r"other settings \(training.epochs: 1 there, 2 here\)"):
        fit(other, tmp_path, dataset=few, resume=True)
    with pytest.raises(RunFolderError, match="choose one"):
        fit(recipe, tmp_path, dataset=few, resume=True, overwrite=True)
    assert len(numbers(tmp_path)) == 1
    with RunFolder(tmp_path).opened(recipe, resume=True), pytest.raises(RunFolderError, match="another process"):
        fit(recipe, tmp_path, dataset=few, resume=True)


def test_a_checkpoint_that_lost_a_part_of_its_optimizer_is_refused(few, tmp_path):
    recipe = recipes.load("digits", ["training.epochs=1", "objective.target=1.0"])
    fit(recipe, tmp_path, dataset=few, accelerator="cpu")
    run = RunFolder(tmp_path)
    with safe_open(run.checkpoint, framework="pt") as file:
        metadata = file.metadata()
        left = [name for name in file.keys() if not name.startswith("optimizer0.1.")]  # noqa: SIM118 (no mapping)
        tensors = {name: file.get_tensor(name) for name in left}
    save_file(tensors, run.checkpoint, metadata=metadata)
    with pytest.raises(checkpoint.CheckpointError, match="with a state; the file has that of"):
        checkpoint.restore(build(recipe, few, accelerator="cpu"), run.checkpoint, run.config.read_text())


@pytest.mark.parametrize("damage", ["truncated", "empty", "text", "other model", "other version"])
def test_damaged_checkpoints_are_refused(damage, few, tmp_path):
    recipe = recipes.load("digits", ["training.epochs=1", "objective.target=1.0"])
    session = build(recipe, few, accelerator="cpu")
    path = tmp_path / "checkpoint.safetensors"
    checkpoint.save(session, path, "same")
    content = path.read_bytes()
    changed = {
        "truncated": content[:-100],
        "empty": b"",
        "text": b"hello, this is not a checkpoint",
        "other version": content.replace(f'version\\": {checkpoint.VERSION}'.encode(), b'version\\": 7'),
    }
    path.write_bytes(changed.get(damage, content))
    if damage == "other model":
        session = build(recipe, few, model=perceptron(8), accelerator="cpu")
    why = "got version 7, of another lzero; delete it to begin anew" if damage == "other version" else "."
    with pytest.raises(checkpoint.CheckpointError, match=why):
        checkpoint.restore(session, path, "same")
    with pytest.raises(checkpoint.CheckpointError):
        checkpoint.restore(build(recipe, few, accelerator="cpu"), path, "another recipe")


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_killed_process_is_resumed_bitwise(sent, tmp_path):
    def command(folder, *more):
        changes = [part for change in [*SHORT, "training.batch_size=128"] for part in ("--set", change)]
        return [
            sys.executable,
            "-m",
            "lzero",
            "train",
            *changes,
            "--out",
            str(folder),
            "--accelerator",
            "cpu",
            "--checkpoint-seconds",
            "0",
            *more,
        ]

    quiet = {"env": {**os.environ, "PYTHONWARNINGS": "ignore"}, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    subprocess.run(command(tmp_path / "whole"), check=True, **quiet)
    process = subprocess.Popen(command(tmp_path / "parts"), **quiet)
    while not (tmp_path / "parts" / "checkpoint.safetensors").exists():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    process.send_signal(sent)
    _, said = process.communicate()
    if sent != signal.SIGKILL and process.returncode != 0:
        assert process.returncode == 130
        assert b"go on with the same command and --resume" in said
    subprocess.run(command(tmp_path / "parts", "--resume"), check=True, **quiet)
    assert numbers(tmp_path / "parts") == numbers(tmp_path / "whole")
    one, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "parts"))
    assert one == other


def test_a_penalty_may_rise_from_zero(few):
    changes = ["objective.kind=penalty", "objective.warm_up=0.5", "training.epochs=2"]
    session = build(recipes.load("digits", changes), few, accelerator="cpu")
    terms = []
    for rows in session.batches.rows(0):
        session.before_step()
        session.step(rows)
        session.after_step()
        terms.append(session.objective.record.term.item())
    assert terms[0] == 0
    assert terms == sorted(terms)


def test_a_folder_in_use_is_refused_before_a_network_is_built(tmp_path, monkeypatch):
    (tmp_path / "config.toml").write_text("")
    monkeypatch.setattr("lzero.training.loop.build", None)
    with pytest.raises(RunFolderError, match="there is a run already"):
        fit("digits", tmp_path)


def test_a_resumed_run_knows_the_dense_error_that_it_had(few, tmp_path):
    recipe = recipes.load("digits", ["training.epochs=1", "objective.target=1.0"])
    first = fit(recipe, tmp_path, dataset=few, compare=True)
    assert fit(recipe, tmp_path, dataset=few, resume=True).dense.error == first.dense.error is not None
    (tmp_path / "dense/config.toml").write_text("# of another recipe")
    assert fit(recipe, tmp_path, dataset=few, resume=True).dense.error is None


class Permuted(nn.Module):
    """Pixels in another order, by a buffer whose name is that of the inputs which a layer of ours reads."""

    def __init__(self):
        super().__init__()
        self.register_buffer("index", torch.arange(64).flip(0))

    def forward(self, x):
        return x.flatten(1)[:, self.index]


def test_a_buffer_called_index_is_the_networks_own(few, tmp_path):
    model = nn.Sequential(Permuted(), nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 10))
    recipe = recipes.load("digits", ["training.epochs=1", "objective.target=1.0", "gates.units=paper"])
    fit(recipe, tmp_path, model=model, dataset=few)
    assert "1.weight" not in write_page(tmp_path).read_text()


def normed(norm):
    return nn.Sequential(nn.Flatten(), norm or nn.Identity(), nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 10))


def test_what_toml_cannot_hold_is_refused_before_anything_is_trained(few, tmp_path):
    recipe = recipes.load("digits", ["training.epochs=1", "objective.target=1.0"])
    odd = replace(recipe, model=replace(recipe.model, name="tests.training.test_fit:normed", options={"norm": None}))
    with pytest.raises(LzeroError, match="expected what TOML can hold: numbers, texts, lists and tables, got None"):
        fit(odd, tmp_path / "odd", dataset=few)
    target = replace(recipe.objective, target=np.float64(1.0))
    fit(replace(recipe, objective=target), tmp_path / "numpy", dataset=few)
    assert recipes.load(tmp_path / "numpy/config.toml").objective.target == 1.0


@pytest.mark.filterwarnings("ignore::lzero.errors.BudgetWarning")
def test_what_a_freeze_removes_is_counted_of_the_sites_that_had_gates(tmp_path, few):
    closing = ["training.epochs=2", "objective.target=0.3", "gates.lr=0.3", "shrink.every=0"]
    last = fit(recipes.load("digits", closing), tmp_path / "first", dataset=few, accelerator="cpu").layers[-1]
    again = [f'model.init="{tmp_path / "first/model.safetensors"}"', f'gates.include="{last.name}"']
    changes = [*closing, *again, "objective.target=0.9", "shrink.freeze_after=0.5"]
    outcome = fit(recipes.load("digits", changes), tmp_path / "second", dataset=few, accelerator="cpu")
    lines = (tmp_path / "second/metrics.jsonl").read_text().splitlines()
    removed = sum(json.loads(line)["removed"] for line in lines)
    assert removed == last.after - outcome.layers[-1].after > 0
