"""Run folders for tests, written as a training writes them."""

import json

import torch
from safetensors.torch import save_file

from lzero.recipes import as_toml, load
from lzero.storage import KEY


def row(epoch, **changes):
    group = {"expected": 0.9 / epoch, "realised": 1.0 / epoch, "violation": 0.1, "multiplier": 0.5 * epoch}
    size = {cost: {"dense": 1000, "expected": 900.0, "realised": 1000 // epoch} for cost in ("params", "macs")}
    whole = {
        "epoch": epoch, "step": 23 * epoch, "seconds": 1.5 * epoch, "loss": 1.25 / epoch, "error": 0.25 / epoch,
        "training_error": 0.2 / epoch, "test_loss": 1.5 / epoch, "images_per_second": 9000.0,
        "removed": 7 if epoch == 2 else 0, "size": size,
        "objective": {"step": 23, "task_loss": 0.1, "term": 0.2, "groups": {"macs": group}},
    }  # fmt: skip
    return whole | changes


def outcome(**changes):
    dense = {"params": 58_474, "macs": 1_790_464, "error": None, "latency": 0.004}
    compacted = {"params": 14_726, "macs": 234_551, "error": 0.0067, "latency": 0.0016}
    layers = [{"name": "hidden.0", "before": 100, "after": 22}, {"name": "hidden.1", "before": 50, "after": 31}]
    whole = {
        "dense": dense, "compacted": compacted, "epochs": 3, "seconds": 12.3, "latency_batch": 128,
        "machine": "2 CPU cores, torch 2.13.0", "layers": layers,
    }  # fmt: skip
    return whole | changes


def write_run(folder, *, changes=(), rows=None, result=None, dense=None, index=None, finished=True):
    """A run of the digits recipe with changes; the network is an MLP unless `dense` says otherwise."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(as_toml(load("digits", changes)), encoding="utf-8")
    rows = [row(epoch) for epoch in (1, 2, 3)] if rows is None else rows
    (folder / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    if finished:
        (folder / "outcome.json").write_text(json.dumps(outcome() if result is None else result))
        plan = {"dense": {"hidden.0.weight": [100, 64]} if dense is None else dense, "sites": {}, "attributes": {}}
        tensors = {"hidden.0.weight": torch.zeros(2, 2)} | ({} if index is None else {"hidden.0.index": index})
        save_file(tensors, folder / "model.safetensors", metadata={KEY: json.dumps(plan)})
    return folder
