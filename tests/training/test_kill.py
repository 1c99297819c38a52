"""Trainings that are killed at any moment lose nothing: a hundred times."""

import os
import random
import signal
import time

import pytest
import torch

from lzero import recipes
from lzero.data import Dataset, Split, digits
from lzero.training import fit

LONG = ["training.epochs=12", "shrink.every=2", "shrink.threshold=0.3", "gates.lr=0.1"]
KINDS = {
    "shrinking, averaged": ["objective.kind=penalty", "objective.strength=5.0", "training.average=0.9"],
    "budget": ["objective.target=0.5"],
    "frozen, sgd": ["objective.target=0.5", "shrink.freeze_after=0.5", "optimizer.kind=sgd", "optimizer.lr=0.05"],
}


def run(recipe, dataset, folder, *, resume):
    """In a child of this process, which may be killed; whether it came to its end."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            torch.set_num_threads(1)
            fit(recipe, folder, dataset=dataset, accelerator="cpu", resume=resume, checkpoint_seconds=0)
            code = 0
        finally:
            os._exit(code)
    return child


def few():
    whole = digits()
    return Dataset("digits", Split(whole.train.images[:256], whole.train.labels[:256]), whole.test, whole.classes)


def epochs_in(folder):
    metrics = folder / "metrics.jsonl"
    return len(metrics.read_text().splitlines()) if metrics.exists() else 0


def kill_at_random(recipe, dataset, folder, kills, draw):
    """Train with interruptions at any moment, the latest three epochs on; how many there were."""
    done = 0
    while True:
        child, moment = run(recipe, dataset, folder, resume=True), time.monotonic() + draw.uniform(0.0, 3.0)
        epochs = epochs_in(folder) + draw.randint(1, 3)
        while True:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                assert status == 0
                return done
            if done < kills and (time.monotonic() > moment or epochs_in(folder) >= epochs):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                done += 1
                break
            time.sleep(0.001)


def compare(folder, kind, seed, kills):
    recipe = recipes.load("digits", [*LONG, *KINDS[kind], f"training.seed={seed}"])
    dataset, draw = few(), random.Random(seed)  # noqa: S311 (moments, no secrets)
    _, status = os.waitpid(run(recipe, dataset, folder / "whole", resume=False), 0)
    assert status == 0
    done = kill_at_random(recipe, dataset, folder / "parts", kills, draw)
    one, other = ((folder / name / "model.safetensors").read_bytes() for name in ("whole", "parts"))
    assert one == other
    lines = (folder / "parts" / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == recipe.training.epochs
    return done


pytestmark = pytest.mark.filterwarnings("ignore::lzero.errors.BudgetWarning", "ignore:.*fork.*:DeprecationWarning")


def test_a_few_random_kills_lose_nothing(tmp_path):
    assert compare(tmp_path, "shrinking, averaged", 0, kills=3) == 3


@pytest.mark.slow
def test_a_hundred_random_kills_lose_nothing(tmp_path):
    done, seed = 0, 0
    while done < 100:
        kind = list(KINDS)[seed % len(KINDS)]
        done += compare(tmp_path / str(seed), kind, seed, kills=100 - done)
        seed += 1
