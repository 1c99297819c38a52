"""Sweeps: every combination once, what is there is not trained again, and nothing outlives the process that asked."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch

from lzero.errors import ArgumentError, BudgetWarning, LzeroError
from lzero.training import building, together
from lzero.training.sweep import plan, spaced, sweep

pytestmark = pytest.mark.usefixtures("one_thread")
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
    for again in (over, {"optimizer.lr": [0.1]}):  # which would leave a table without the first
        with pytest.raises(ArgumentError, match="--resume"):
            sweep("digits", again, tmp_path, **settings)
    assert sweep("digits", over, tmp_path, resume=True, **settings) == first == told
    more = sweep("digits", {"optimizer.lr": [0.1]}, tmp_path, resume=True, **settings)
    assert more[:2] == first
    assert [row["optimizer.lr"] for row in json.loads((tmp_path / "sweep.json").read_text())] == [0.01, 0.001, 0.1]


def test_numpys_numbers_are_values_too(tmp_path):
    rows = sweep("digits", {"training.epochs": np.arange(1, 3)}, tmp_path, changes=SHORT[1:], workers=1)
    assert [row["training.epochs"] for row in rows] == [1, 2]


def test_a_table_holds_trainings_of_one_recipe(tmp_path):
    settings = {"accelerator": "cpu", "workers": 1}
    sweep("digits", {"optimizer.lr": [0.01]}, tmp_path, changes=SHORT, **settings)
    with pytest.raises(
        LzeroError, match=r"lr=0.01,seed=0.config.toml: .*other settings \(training.epochs: 1 there, 2 here"
    ):
        sweep("digits", {"optimizer.lr": [0.1]}, tmp_path, changes=[*SHORT, "epochs=2"], resume=True, **settings)
    assert not (tmp_path / "lr=0.1,seed=0").exists()
    (tmp_path / "sweep.json").write_text("{")
    with pytest.raises(LzeroError, match="damaged, not the table of a sweep"):
        sweep("digits", {"optimizer.lr": [0.1]}, tmp_path, changes=SHORT, resume=True, **settings)


FAILING = """
from torch import nn

def make(fails):
    if fails:
        raise RuntimeError("out of memory, say")
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_whatever_makes_a_training_fail_the_others_are_trained_first(workers, tmp_path, monkeypatch):
    (tmp_path / "failing.py").write_text(FAILING)
    monkeypatch.syspath_prepend(tmp_path)
    changes = [*SHORT, "model.name=failing:make"]
    over = {"model.options.fails": [True, False]}
    with pytest.raises(LzeroError, match=r"fails=True,seed=0: .*out of memory, say"):
        sweep("digits", over, tmp_path / "out", changes=changes, accelerator="cpu", workers=workers)
    assert [row["model.options.fails"] for row in json.loads((tmp_path / "out/sweep.json").read_text())] == [False]


def test_tables_and_lists_are_values_too(tmp_path):
    options = [{"channels": [4, 8]}, {"channels": [2, 2], "size": 8}]
    trials = list(plan("digits", {"model.options": options}, tmp_path, 1, ["training.epochs=1"]))
    assert [trial.recipe.model.options for trial in trials] == options
    assert len({trial.folder for trial in trials}) == 2


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


def test_a_sweep_over_other_settings_needs_another_folder(tmp_path):
    """One table has one set of columns: rows that differ in what is not told would be taken for seeds."""
    settings = {"changes": SHORT, "accelerator": "cpu", "workers": 1}
    first = sweep("digits", {"optimizer.lr": [0.01], "training.batch_size": [100]}, tmp_path, **settings)
    with pytest.raises(ArgumentError, match=r"training.batch_size, .* got training.batch_size, training.seed; choose"):
        sweep("digits", {"training.batch_size": [100]}, tmp_path, resume=True, **settings)
    assert json.loads((tmp_path / "sweep.json").read_text()) == first


@pytest.mark.parametrize("accelerator", ["nonsense", "mps", "cuda"])
def test_a_machine_that_is_not_there_is_refused_before_anything_is_trained(accelerator, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ArgumentError, match="accelerator: expected a"):
        sweep("digits", {}, tmp_path / "sweep", changes=SHORT, accelerator=accelerator, workers=1)
    assert not (tmp_path / "sweep").exists()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_training_that_fails_does_so_after_the_others(workers, tmp_path):
    over = {"objective.target": [1.5, 1.0]}
    with pytest.raises(LzeroError, match=r"target=1.5,seed=0: target: expected a share .* whole number .* got 1.5"):
        sweep("digits", over, tmp_path, changes=["training.epochs=1"], accelerator="cpu", workers=workers)
    assert [row["objective.target"] for row in json.loads((tmp_path / "sweep.json").read_text())] == [1.0]


def test_side_by_side_too_a_training_that_fails_does_so_after_the_others(tmp_path, monkeypatch):
    on_cpu = {"accelerator": "cpu"}
    monkeypatch.setattr(together, "build", lambda *given, **how: building.build(*given, **{**how, **on_cpu}))
    monkeypatch.setattr(torch.cuda, "Stream", lambda: None)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    trials = list(plan("digits", {"objective.target": [1.5, 1.0]}, tmp_path, 1, ["training.epochs=1"]))
    with pytest.raises(LzeroError, match=r"^target=1.5,seed=0: target: expected a share"):
        list(together.side_by_side(trials, None, 16, lambda: False))
    assert [trial.is_finished for trial in trials] == [False, True]


def test_warnings_of_processes_are_told_with_the_name_of_the_training(tmp_path):
    with pytest.warns(BudgetWarning, match="^target=0.02,seed=[01]: the "):
        sweep("digits", {"target": [0.02]}, tmp_path, seeds=2, changes=SLOW, accelerator="cpu", workers=2)


def test_finished_trainings_of_other_settings_are_not_taken_for_these(tmp_path):
    settings = {"accelerator": "cpu", "workers": 1}
    sweep("digits", {}, tmp_path, changes=SHORT, **settings)
    with pytest.raises(LzeroError, match="other settings"):
        sweep("digits", {}, tmp_path, changes=[*SHORT, "training.epochs=2"], resume=True, **settings)


@pytest.mark.parametrize(
    ("over", "changes", "message"),
    [
        ({"training.seed": [3, 4]}, [], "say how many seeds"),
        ({}, ["training.seed=3"], "say how many seeds"),
        ({"objective.target": [0.2, 0.2]}, [], "values that differ"),
    ],
)
def test_plans_with_two_trainings_in_one_place_are_refused(over, changes, message, tmp_path):
    with pytest.raises(ArgumentError, match=message):
        sweep("digits", over, tmp_path, changes=changes)


def test_threads_depend_on_the_whole_sweep_and_not_on_what_is_left(tmp_path):
    settings = {"seeds": 2, "changes": SHORT, "accelerator": "cpu", "workers": 2}
    whole = sweep("digits", {}, tmp_path, **settings)
    shutil.rmtree(tmp_path / "seed=1")
    before = torch.get_num_threads()
    again = sweep("digits", {}, tmp_path, resume=True, **settings)
    assert again[1]["error"] == whole[1]["error"]
    assert torch.get_num_threads() == before


def test_errors_of_processes_say_which_training(tmp_path):
    with pytest.raises(LzeroError, match=r"^seed=[01]: mnist"):
        sweep("mnist-mlp-penalty", {}, tmp_path, seeds=2, data_dir=tmp_path, accelerator="cpu", workers=2)


@pytest.mark.parametrize("wrong", [(0.0, 1.0), (1.0, -1.0), (0.1, math.inf), (math.nan, 1.0)])
def test_ranges_that_are_none_are_refused(wrong):
    with pytest.raises(ArgumentError, match="above 0"):
        spaced(*wrong, 3)
    with pytest.raises(ArgumentError, match=r"at least 2 values, got 0.1..1.0:1"):
        spaced(0.1, 1.0, 1)


@pytest.mark.parametrize(("first", "last", "count"), [(1, 4, 3), (1, 5, 8), (12345, 678901, 4), (40, 5, 4)])
def test_between_whole_numbers_are_whole_ones_that_differ(first, last, count):
    numbers = spaced(first, last, count)
    assert all(isinstance(number, int) for number in numbers)
    assert (numbers[0], numbers[-1]) == (first, last)
    assert len(set(numbers)) == len(numbers) <= count


def children(pid):
    tasks = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in tasks.read_text().split()]


def lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def begun(folder, count=2, seconds=120):
    """Wait until so many trainings have an epoch."""
    until = time.monotonic() + seconds
    while len(list(folder.glob("runs/*/metrics.jsonl"))) < count and time.monotonic() < until:
        time.sleep(0.2)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="no /proc to find processes in")
@pytest.mark.parametrize("kind", ["all are asked to end", "one is killed"])
def test_processes_that_are_ended_leave_checkpoints(kind, tmp_path):
    command = [str(Path(sys.executable).parent / "lzero"), "sweep", "digits", "--over", "target=0.2,0.4"]
    options = ["--set", "training.epochs=1000", "--out", "runs", "--workers", "2"]
    asked = subprocess.Popen(
        [*command, *options], cwd=tmp_path, stderr=subprocess.PIPE, start_new_session=True, text=True
    )
    begun(tmp_path)
    if kind == "one is killed":
        worker = next(child for child in children(asked.pid) if "spawn_main" in command_of(child))
        os.kill(worker, signal.SIGKILL)
    else:
        os.killpg(asked.pid, signal.SIGTERM)
    _, said = asked.communicate(timeout=120)
    assert "Traceback" not in said
    assert ("fewer at a time" if kind == "one is killed" else "interrupted") in said
    left = list(tmp_path.glob("runs/*/checkpoint.safetensors"))
    assert len(left) >= (1 if kind == "one is killed" else 2)


def command_of(pid):
    return Path(f"/proc/{pid}/cmdline").read_text()


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="no /proc to find processes in")
def test_processes_end_with_the_one_that_started_them(tmp_path):
    (tmp_path / "long.py").write_text(LONG)
    asked = subprocess.Popen([sys.executable, "long.py"], cwd=tmp_path)
    try:
        begun(tmp_path)
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


@pytest.mark.parametrize("workers", [0, -1])
def test_trainings_at_a_time_are_at_least_one(workers, tmp_path):
    with pytest.raises(LzeroError, match=f"workers: expected a whole number from 1, got {workers}"):
        sweep("digits", {"optimizer.lr": [0.01]}, tmp_path, changes=SHORT, workers=workers)
