"""Settings, run folders and checkpoints that are wrong: one line that says what, never a traceback."""

import json
import resource
import signal

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from lzero import recipes
from lzero.cli import app
from lzero.errors import LzeroError
from lzero.files import write_atomically
from lzero.training import fit, loop

SETTINGS = [
    "training.epochs=0.5", "training.epochs=-1", "training.epochs=many", "training.batch_size=0",
    "training.batch_size=100000", "training.accumulate=0", "training.accumulate=3", "training.average=1.0",
    "training.average=-0.1", "training.precision=16", "training.seed=now", "training.sed=1", "trainning.seed=1",
    "objective.target=0", "objective.target=-0.2", "objective.target=150%", "objective.target=[]",
    "objective.kind=penal", "objective.strength=-1", "objective.cost=flops", "objective.per=row", "objective.dual=adam",
    'objective.target={"nowhere" = 0.1}', "gates.units=blocks", "gates.keep_rate=1.5", "gates.include=nothing",
    "gates.samples=0", "gates.beta=0", "gates.gamma=0.1", "gates.zeta=0.9", "gates.estimator=mean", "gates.noise=loud",
    "optimizer.kind=adamw", "optimizer.schedule=linear", "optimizer.milestones=3", "optimizer=adam",
    "data.name=minst", "data.augment=crop", "data.augment=[\"turn\"]", "data.held_out=1.0", "data.held_out=1e-9",
    "model.name=lenet", "model.options={width=3}", "model.options=3", "model.init=nowhere.safetensors",
    "shrink.every=-1", "shrink.threshold=2", "shrink.round_to=0", "shrink.freeze_after=0", "shrink.freeze_after=2",
    "epochs", "=3", "lr=0.1",
]  # fmt: skip
FILES = {
    "empty sections": "[training]\nepochs = \n",
    "no TOML": "hello there",
    "twice": "[training]\nepochs = 1\nepochs = 2\n",
    "unknown section": "[trainings]\nepochs = 1\n",
    "a list": "training = [1, 2]\n",
    "bytes": b"\xff\xfe\x00",
}


def run(*arguments):
    return CliRunner().invoke(app, ["train", *arguments, "--accelerator", "cpu"])


def refused(result):
    assert result.exit_code == 1, result.output
    assert isinstance(result.exception, SystemExit), result.exception
    (line,) = result.stderr.strip().splitlines()[-1:]
    assert "lzero: " in result.stderr
    assert "Traceback" not in result.stderr
    return line


@pytest.mark.parametrize("setting", SETTINGS)
def test_wrong_settings_are_refused_before_anything_is_written(setting, tmp_path):
    refused(run("digits", "--set", "training.epochs=2", "--set", setting, "--out", str(tmp_path / "run")))
    assert not (tmp_path / "run" / "checkpoint.safetensors").exists()


def test_a_run_that_is_not_there_begins_and_says_so(tmp_path):
    told = [run("digits", "--set", "training.epochs=1", "--resume", "--out", str(tmp_path)).output for _ in range(2)]
    assert ["no run to go on with; a new one begins" in output for output in told] == [True, False]


def test_a_comparison_that_was_interrupted_is_a_run_that_was_begun(tmp_path):
    """All there is of it may be the network without gates, in a folder that nobody named."""
    command = ["digits", "--set", "training.epochs=1", "--compare", "--out", str(tmp_path)]
    recipe = loop.dense_recipe(recipes.load("digits", ["training.epochs=1"]))
    fit(recipe, tmp_path / "dense", accelerator="cpu")
    assert refused(run(*command)).startswith(f"lzero: {tmp_path}: there is a run already; go on with --resume")
    again = run(*command, "--resume")
    assert again.exit_code == 0, again.output
    assert "a new one begins" not in again.output


@pytest.mark.parametrize("kind", FILES)
def test_wrong_recipe_files_are_refused(kind, tmp_path):
    content = FILES[kind]
    (tmp_path / "mine.toml").write_bytes(content if isinstance(content, bytes) else content.encode())
    refused(run(str(tmp_path / "mine.toml"), "--out", str(tmp_path / "run")))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    result = run("digits", "--set", "training.epochs=1", "--set", "objective.target=1.0", "--out", str(folder))
    assert result.exit_code == 0, result.output
    return folder


def with_facts(path, change):
    """A checkpoint with its facts changed."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        facts = json.loads(file.metadata()["lzero"])
    change(facts)
    save_file(load_file(path), path, metadata={"lzero": json.dumps(facts)})


def with_tensors(path, change):
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        facts = file.metadata()
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata=facts)


DAMAGE = {
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:-50]),
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("not a checkpoint"),
    "a pickle": lambda path: torch.save({"epoch": 1}, path),
    "no facts": lambda path: save_file(load_file(path), path),
    "other version": lambda path: with_facts(path, lambda facts: facts.update(version=99)),
    "no epoch": lambda path: with_facts(path, lambda facts: facts.pop("epoch")),
    "epoch of words": lambda path: with_facts(path, lambda facts: facts.update(epoch="three")),
    "sites of another model": lambda path: with_facts(path, lambda facts: facts.update(sites={"conv9": [0]})),
    "units that are not there": lambda path: with_facts(
        path, lambda facts: facts["sites"].update({name: [10_000] for name in facts["sites"]})
    ),
    "sites of words": lambda path: with_facts(path, lambda facts: facts.update(sites="all")),
    "a plan of words": lambda path: with_facts(path, lambda facts: facts.update(plan={"dense": 1})),
    "no recipe": lambda path: with_facts(path, lambda facts: facts.pop("recipe")),
    "no weights": lambda path: with_tensors(
        path, lambda t: [t.pop(name) for name in list(t) if name.startswith("model.")]
    ),
    "weights of another shape": lambda path: with_tensors(
        path, lambda t: t.update({"model.head.weight": torch.zeros(2, 2)})
    ),
    "no random numbers": lambda path: with_tensors(path, lambda t: t.pop("random.torch")),
    "broken random numbers": lambda path: with_tensors(path, lambda t: t.update({"random.torch": torch.zeros(1, 3)})),
    "no optimizer": lambda path: with_tensors(
        path, lambda t: [t.pop(name) for name in list(t) if name.startswith("optimizer")]
    ),
    "optimizer of another shape": lambda path: with_tensors(
        path, lambda t: t.update({"optimizer0.0.exp_avg": torch.zeros(3)})
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_checkpoints_are_refused(damage, finished, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("config.toml", "metrics.jsonl", "checkpoint.safetensors"):
        (folder / name).write_bytes((finished / name).read_bytes())
    DAMAGE[damage](folder / "checkpoint.safetensors")
    before = (folder / "checkpoint.safetensors").read_bytes()
    settings = ["--set", "training.epochs=1", "--set", "objective.target=1.0"]
    line = refused(run("digits", *settings, "--out", str(folder), "--resume"))
    assert "checkpoint" in line
    assert (folder / "checkpoint.safetensors").read_bytes() == before


def test_a_full_disk_leaves_the_last_checkpoint(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    save_file({"a": torch.zeros(3)}, path)
    before, handler = path.read_bytes(), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(LzeroError, match=r"cannot write .*checkpoint"), write_atomically(path) as temporary:
            save_file({"a": torch.zeros(100_000)}, temporary)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path):
    (tmp_path / "file").write_text("in the way")
    refused(run("digits", "--out", str(tmp_path / "file" / "run")))
