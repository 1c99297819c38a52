"""Sweeps: every combination once, what is there is not trained again, and nothing outlives the process that asked."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lzero.errors import ArgumentError, BudgetWarning, LzeroError
from lzero.training.sweep import spaced, sweep

SHORT = ["training.epochs=1", "gates.units=none", "objective.kind=none"]
SLOW = ["training.epochs=3", "gates.lr=1e-6"]
LONG = """
from lzero.training.sweep import sweep
if __name__ == "__main__":
    changes = ["training.epochs=1000", "gates.units=none", "objective.kind=none"]
    sweep("digits", {}, "runs", seeds=2, changes=changes, workers=2, accelerator="cpu")
"""


def test_what_is_there_is_not_trained_again(tmp_path):
    told = []
    over = {"optimizer.lr": [0.01, 0.001]}
    settings = {"changes": SHORT, "accelerator": "cpu", "workers": 1, "on_trial": told.append}
    first = sweep("digits", over, tmp_path, **settings)
    with pytest.raises(ArgumentError, match="--resume"):
        sweep("digits", over, tmp_path, **settings)
    assert sweep("digits", over, tmp_path, resume=True, **settings) == first == told


@pytest.mark.parametrize("workers", [1, 2])
def test_a_sweep_that_was_stopped_goes_on_and_ends_as_one_that_was_not(workers, tmp_path):
    def begun():  # both of those in processes, and the only one without
        return sum((tmp_path / f"parts/seed={k}/metrics.jsonl").exists() for k in range(2)) == workers

    settings = {"seeds": 2, "changes": [*SHORT, "training.epochs=4"], "accelerator": "cpu", "workers": workers}
    whole = sweep("digits", {}, tmp_path / "whole", **settings)
    with pytest.raises(KeyboardInterrupt):
        sweep("digits", {}, tmp_path / "parts", should_stop=begun, **settings)
    assert not (tmp_path / "parts/seed=0/outcome.json").exists()
    assert (tmp_path / "parts/seed=0/checkpoint.safetensors").exists()
    planned = []
    parts = sweep("digits", {}, tmp_path / "parts", resume=True, on_plan=planned.extend, **settings)
    assert [trial.epochs for trial in planned] == [4, 4]
    measured = ("latency", "seconds")
    assert [{k: v for k, v in row.items() if k not in measured} for row in parts] == [
        {k: v for k, v in row.items() if k not in measured} for row in whole
    ]


def test_warnings_of_processes_are_told_with_the_name_of_the_training(tmp_path):
    with pytest.warns(BudgetWarning, match="^target=0.02,seed=[01]: the "):
        sweep("digits", {"target": [0.02]}, tmp_path, seeds=2, changes=SLOW, accelerator="cpu", workers=2)


def test_errors_of_processes_say_which_training(tmp_path):
    with pytest.raises(LzeroError, match=r"^seed=[01]: mnist"):
        sweep("mnist-mlp-penalty", {}, tmp_path, seeds=2, data_dir=tmp_path, accelerator="cpu", workers=2)


@pytest.mark.parametrize("wrong", [(0.0, 1.0, 3), (1.0, -1.0, 3), (0.1, 1.0, 1)])
def test_ranges_that_are_none_are_refused(wrong):
    with pytest.raises(ArgumentError, match="above 0"):
        spaced(*wrong)


def children(pid):
    tasks = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in tasks.read_text().split()]


def lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="no /proc to find processes in")
def test_processes_end_with_the_one_that_started_them(tmp_path):
    (tmp_path / "long.py").write_text(LONG)
    asked = subprocess.Popen([sys.executable, "long.py"], cwd=tmp_path)
    try:
        until = time.monotonic() + 120
        while len(list(tmp_path.glob("runs/*/metrics.jsonl"))) < 2 and time.monotonic() < until:
            time.sleep(0.2)
        started = children(asked.pid)
        assert len(started) >= 2
    finally:
        asked.send_signal(signal.SIGKILL)
        asked.wait()
    until = time.monotonic() + 20
    while any(map(lives, started)) and time.monotonic() < until:
        time.sleep(0.1)
    left = [pid for pid in started if lives(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left
