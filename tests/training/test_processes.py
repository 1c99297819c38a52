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

SHORT = [
    "training.epochs=2",
    "training.batch_size=100",
    "objective.kind=penalty",
    "objective.strength=5.0",
    "gates.lr=0.4",
]
MLP = ["model.name=tests.training.test_processes:perceptron"]  # without BatchNorm, whose statistics are a process's own
DENSE = ["gates.units=none", "objective.kind=none"]
KINDS = {
    "gated": [*MLP, "gates.noise=shared", "shrink.every=1", "shrink.threshold=0.25"],
    "plain, averaged, accumulated": [*MLP, *DENSE, "training.average=0.9", "training.accumulate=2"],
    "frozen": [*MLP, "gates.noise=shared", "shrink.freeze_after=0.5"],
}


def perceptron():
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 40), torch.nn.ReLU(), torch.nn.Linear(40, 10))


def train(folder, changes, processes, *more):
    settings = [part for change in [*SHORT, *changes] for part in ("--set", change)]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command = [*(launcher if processes > 1 else [sys.executable]), "-m", "lzero", "train", *settings]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "PYTHONPATH": str(Path.cwd())}
    done = subprocess.run(
        [*command, "--out", str(folder), "--accelerator", "cpu", *more],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return rows, load_file(folder / "model.safetensors")


@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_train_the_model_of_one(kind, tmp_path):
    rows, weights = train(tmp_path / "one", KINDS[kind], 1)
    rows2, weights2 = train(tmp_path / "two", KINDS[kind], 2)
    assert [row["removed"] for row in rows2] == [row["removed"] for row in rows]
    assert [row["error"] for row in rows2] == pytest.approx([row["error"] for row in rows], abs=0.004)
    assert weights.keys() == weights2.keys()
    for name in weights:
        torch.testing.assert_close(weights2[name], weights[name], rtol=1e-3, atol=1e-4)
    if kind == "gated":
        assert sum(row["removed"] for row in rows) > 0


def test_each_process_draws_its_own_gates_and_resumes(tmp_path):
    _, own = train(tmp_path / "own", MLP, 2)
    _, shared = train(tmp_path / "shared", [*MLP, "gates.noise=shared"], 2)
    assert not torch.equal(own["1.weight"], shared["1.weight"])
    _, again = train(tmp_path / "own", MLP, 2, "--resume")
    assert all(torch.equal(again[name], own[name]) for name in own)


@pytest.mark.parametrize("changes", [["training.batch_size=33"], ["training.accumulate=5"]])
def test_batches_that_cannot_be_dealt_out_evenly_are_refused(changes):
    with pytest.raises(ArgumentError, match=r"training\.batch_size: expected a multiple of"):
        check_batch(recipes.load("digits", changes), 2)
