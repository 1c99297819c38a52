"""Two processes train what one process trains with the same batches."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from lzero import recipes
from lzero.errors import ArgumentError
from lzero.training.processes import check_batch

SHORT = ["training.epochs=2", "training.batch_size=100"]
GATED = ["objective.kind=penalty", "objective.strength=5.0", "gates.lr=0.4"]
MLP = ["model.name=tests.training.test_processes:perceptron"]  # without BatchNorm, whose statistics are a process's own
DENSE = ["gates.units=none", "objective.kind=none"]
KINDS = {
    "gated": [*MLP, *GATED, "gates.noise=shared", "shrink.every=1", "shrink.threshold=0.25"],
    "plain, averaged, accumulated": [*MLP, *DENSE, "training.average=0.9", "training.accumulate=2"],
    "frozen": [*MLP, *GATED, "gates.noise=shared", "shrink.freeze_after=0.5"],
}


SPOILED = """
import sys, warnings
from pathlib import Path
import torch
from lzero import recipes
from lzero.data import digits
from lzero.objectives import NotFiniteError
from lzero.training import checkpoint
from lzero.training.building import build
session = build(recipes.load("digits", sys.argv[2:]), digits(), accelerator="cpu")
with warnings.catch_warnings():
    warnings.filterwarnings("error", "torch.distributed")
    checkpoint.save(session, Path(sys.argv[1]) / "checkpoint", "")
session.position = 1
session.totals[0] = float("nan") if session.fabric.global_rank else 1.0
try:
    session.end_epoch()
except NotFiniteError:
    Path(sys.argv[1], f"refused by {session.fabric.global_rank}").touch()
torch.distributed.barrier()  # one that left first would pull the rug from under the other
torch.distributed.destroy_process_group()
"""


def perceptron():
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 40), torch.nn.ReLU(), torch.nn.Linear(40, 10))


def run(processes, *command):
    """A command of Python in so many processes."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    path = os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [*(launcher if processes > 1 else [sys.executable]), *command],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr


def train(folder, changes, processes, *more):
    settings = [part for change in [*SHORT, *changes] for part in ("--set", change)]
    run(processes, "-m", "lzero", "train", *settings, "--out", str(folder), "--accelerator", "cpu", *more)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return rows, load_file(folder / "model.safetensors")


@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_train_the_model_of_one(kind, tmp_path):
    rows, weights = train(tmp_path / "one", KINDS[kind], 1)
    rows2, weights2 = train(tmp_path / "two", KINDS[kind], 2)
    assert [row["removed"] for row in rows2] == [row["removed"] for row in rows]
    assert [row["error"] for row in rows2] == pytest.approx([row["error"] for row in rows], abs=0.004)
    for name in ("loss", "training_error"):  # of all images, not of those of the first process
        assert [row[name] for row in rows2] == pytest.approx([row[name] for row in rows], rel=1e-3, abs=1e-3)
    assert weights.keys() == weights2.keys()
    for name in weights:
        torch.testing.assert_close(weights2[name], weights[name], rtol=1e-3, atol=1e-4)
    if kind == "gated":
        assert sum(row["removed"] for row in rows) > 0


def test_each_process_draws_its_own_gates_and_resumes(tmp_path):
    _, own = train(tmp_path / "own", [*MLP, *GATED], 2)
    _, shared = train(tmp_path / "shared", [*MLP, *GATED, "gates.noise=shared"], 2)
    assert not torch.equal(own["1.weight"], shared["1.weight"])
    _, again = train(tmp_path / "own", [*MLP, *GATED], 2, "--resume")
    assert all(torch.equal(again[name], own[name]) for name in own)


@pytest.mark.parametrize("changes", [["training.batch_size=33"], ["training.accumulate=5"]])
def test_batches_that_cannot_be_dealt_out_evenly_are_refused(changes):
    with pytest.raises(ArgumentError, match=r"training\.batch_size: expected a multiple of"):
        check_batch(recipes.load("digits", changes), 2)


def test_all_processes_stop_where_the_loss_of_one_is_no_number(tmp_path):
    script = tmp_path / "spoiled.py"
    script.write_text(SPOILED)
    run(2, str(script), str(tmp_path), *DENSE, *MLP)
    assert sorted(path.name for path in tmp_path.glob("refused*")) == ["refused by 0", "refused by 1"]
