"""A training on disk: one safetensors file that nothing is unpickled from, whole or not there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from lzero.errors import LzeroError
from lzero.files import write_atomically
from lzero.sparsifier import Sparsifier, sparsifier_of

if TYPE_CHECKING:
    from pathlib import Path

    from lzero.training.session import Session

VERSION = 1
KEPT, REMOVED = 3.0, -30.0  # log α with which a fresh model is cut as the saved one was


class CheckpointError(LzeroError):
    """A checkpoint cannot be used: damaged, of another recipe, or of a newer version."""


def save(session: Session, path: Path, recipe: str) -> None:
    """Write all that the rest of the training depends on."""
    tensors: dict[str, Tensor] = {
        "random.torch": torch.get_rng_state(),
        "random.data": session.generator.get_state(),
        **_named("model", session.model.state_dict()),
    }
    if session.fabric.device.type == "cuda":
        tensors["random.cuda"] = torch.cuda.get_rng_state(session.fabric.device)
    if session.average is not None:
        tensors |= _named("average", session.average.state_dict())
    if session.objective is not None:
        tensors |= _named("objective", session.objective.state_dict())
    numbers: dict[str, Any] = {}
    for k, optimizer in enumerate(session.optimizers):
        for index, state in optimizer.state_dict()["state"].items():
            for key, value in state.items():
                (tensors if isinstance(value, Tensor) else numbers)[f"optimizer{k}.{index}.{key}"] = value
    sites = {} if session.sparsifier is None else session.sparsifier.history.sites
    facts = {"version": VERSION, "epoch": session.epoch, "recipe": recipe, "sites": sites, "numbers": numbers}
    flat = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
    with write_atomically(path) as temporary:
        save_file(flat, temporary, metadata={"lzero": json.dumps(facts)})


def _named(prefix: str, state: dict[str, Any]) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in state.items()}


def restore(session: Session, path: Path, recipe: str) -> None:
    """Bring a session that was just built to where the saved one was."""
    tensors, facts = _read(path)
    if facts["recipe"] != recipe:
        raise CheckpointError(f"{path}: it belongs to another recipe; resume with the settings it was started with")
    if session.sparsifier is not None:
        _cut_like(session, facts["sites"])
    try:
        session.model.load_state_dict(_part(tensors, "model"))
        if session.average is not None:
            session.average.load_state_dict(_part(tensors, "average"))
        if session.objective is not None:
            session.objective.load_state_dict(_part(tensors, "objective"))
        for k, optimizer in enumerate(session.optimizers):
            state = _optimizer_state(_part(tensors | facts["numbers"], f"optimizer{k}"))
            optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
        session.generator.set_state(tensors["random.data"])
        torch.set_rng_state(tensors["random.torch"])
        if session.fabric.device.type == "cuda":
            torch.cuda.set_rng_state(tensors["random.cuda"], session.fabric.device)
    except (RuntimeError, KeyError, ValueError) as error:
        raise CheckpointError(f"{path}: it does not fit this recipe's model ({error})") from error
    session.epoch = facts["epoch"]


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    try:
        with safe_open(path, framework="pt") as file:
            facts = json.loads((file.metadata() or {}).get("lzero", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    except (OSError, SafetensorError, json.JSONDecodeError) as error:
        raise CheckpointError(f"{path}: it cannot be read ({error})") from error
    if not isinstance(facts, dict) or facts.get("version") != VERSION:
        raise CheckpointError(f"{path}: expected a checkpoint of version {VERSION}, got something else")
    return tensors, facts


def _part(tensors: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(f"{prefix}."): t for name, t in tensors.items() if name.startswith(f"{prefix}.")}


def _optimizer_state(flat: dict[str, Any]) -> dict[int, dict[str, Any]]:
    state: dict[int, dict[str, Any]] = {}
    for name, value in flat.items():
        index, _, key = name.partition(".")
        state.setdefault(int(index), {})[key] = value
    return state


def _cut_like(session: Session, sites: dict[str, list[int]]) -> None:
    """Shrink the fresh model, and its average, to the units that were left."""
    assert session.sparsifier is not None  # noqa: S101 (asked by the caller)
    averages = [] if session.average is None else [session.average]
    for sparsifier in (session.sparsifier, *(sparsifier_of(average.module) for average in averages)):
        _close_all_but(sparsifier, sites)
    session.sparsifier.shrink(threshold=0.1, averages=averages)


def _close_all_but(sparsifier: Sparsifier, sites: dict[str, list[int]]) -> None:
    if set(sites) != set(sparsifier.history.sites):
        raise CheckpointError("the checkpoint was made with other gates")
    for group in sparsifier.groups:
        if group.site is not None:
            kept = torch.full((group.stop - group.start,), REMOVED)
            kept[torch.tensor(sites[group.name], dtype=torch.int64)] = KEPT
            sparsifier.log_alpha.data[group.span] = kept.to(sparsifier.log_alpha)
