"""A training on disk: one safetensors file that nothing is unpickled from, whole or not there."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from lzero import storage
from lzero.belonging import sparsifier_of
from lzero.cutting import PLAN, plan_of
from lzero.errors import FileError, LzeroError
from lzero.files import read_tensors, write_atomically
from lzero.sparsifier import Sparsifier
from lzero.tensors import shapes_of

if TYPE_CHECKING:
    from pathlib import Path

    from torch.optim import Optimizer

    from lzero.training.session import Session

VERSION = 5
KEPT, REMOVED = 3.0, -30.0  # log α with which a fresh model is cut as the saved one was


class CheckpointError(LzeroError):
    """A checkpoint cannot be used: damaged, of another recipe, or of a newer version."""


def save(session: Session, path: Path, recipe: str) -> None:
    """Write all that the rest of the training depends on. Every process calls it, one writes."""
    tensors: dict[str, Tensor] = {
        "totals": session.totals,
        **_named("model", session.model.state_dict()),
        **_named("random", {name: _gathered(session, state) for name, state in _random_states(session).items()}),
    }
    if session.average is not None:
        tensors |= _named("average", session.average.state_dict())
    if session.objective is not None:
        tensors |= _named("objective", session.objective.state_dict())
    numbers: dict[str, Any] = {}
    states = [optimizer.state_dict()["state"] for optimizer in session.optimizers]
    for k, each in enumerate(states):
        for index, state in each.items():
            for key, value in state.items():
                (tensors if isinstance(value, Tensor) else numbers)[f"optimizer{k}.{index}.{key}"] = value
    facts = {
        "version": VERSION,
        "recipe": recipe,
        "epoch": session.epoch,
        "position": session.position,
        "seconds": session.seconds,
        "commit": session.commit,
        "in_parts": session.in_parts,
        "sites": {} if session.sparsifier is None else session.sparsifier.history.sites,
        "columns": {} if session.sparsifier is None else session.sparsifier.history.columns,
        "plan": plan_of(session.model) if session.is_frozen else {},
        "numbers": numbers,
        "states": [sum(map(bool, each.values())) for each in states],  # of how many parameters; SGD may need none
    }
    if session.fabric.is_global_zero:
        flat = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
        with write_atomically(path) as temporary:
            save_file(flat, temporary, metadata={"lzero": json.dumps(facts)})


def _named(prefix: str, state: dict[str, Any]) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in state.items()}


def _random_states(session: Session) -> dict[str, Tensor]:
    """Where this process's random numbers stand."""
    states = {
        "torch": torch.get_rng_state(),
        "augmentation": session.augmentation.get_state(),
        "gates": session.gate_noise.get_state(),
    }
    if session.fabric.device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(session.fabric.device)
    return states


def _gathered(session: Session, state: Tensor) -> Tensor:
    """The states of all processes, a row for each."""
    state, count = state.to(session.fabric.device), session.fabric.world_size
    if count == 1:
        return state[None]
    everyone = [torch.empty_like(state) for _ in range(count)]
    torch.distributed.all_gather(everyone, state)  # Fabric's has gradients, by a function that torch gives up
    return torch.stack(everyone)


def restore(session: Session, path: Path, recipe: str, *, to_go_on: bool = True) -> None:
    """Bring a session that was just built to where the saved one was.

    To look at it only, random numbers are left alone: it may have been written on another machine, or by several.
    """
    tensors, facts = _read(path)
    if facts.get("recipe") != recipe:
        raise CheckpointError(f"{path}: it belongs to another recipe; resume with the settings it was started with")
    try:
        _take_shape(session, facts, tensors, path)
        session.model.load_state_dict(_part(tensors, "model"))
        if session.average is not None:
            session.average.load_state_dict(_part(tensors, "average"))
        if session.objective is not None:
            session.objective.load_state_dict(_part(tensors, "objective"))
        for k, optimizer in enumerate(session.optimizers):
            state = _optimizer_state(_part(tensors | facts["numbers"], f"optimizer{k}"))
            _check_optimizer(optimizer, state, int(facts["states"][k]))
            optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
            _lay_out_alike(optimizer)
        if to_go_on:
            _set_random_states(session, _part(tensors, "random"))
        session.totals.copy_(tensors["totals"])
        session.epoch, session.position = int(facts["epoch"]), int(facts["position"])
        session.seconds = float(facts["seconds"])
        begun = str(facts.get("commit", "")).split(", ")
        session.commit = ", ".join(dict.fromkeys(commit for commit in (*begun, session.commit) if commit))
        session.resume_steps(bool(facts["in_parts"]))
    except (RuntimeError, KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
        why = " ".join(str(error).split())
        raise CheckpointError(f"{path}: it does not fit this recipe's model ({why})") from error


def _lay_out_alike(optimizer: Optimizer) -> None:
    """Give averages the memory format of their parameter, which fused optimizers ask for and files do not keep."""
    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                state[key] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)


def _set_random_states(session: Session, states: dict[str, Tensor]) -> None:
    everyone = states["torch"]
    if len(everyone) != session.fabric.world_size:
        count = session.fabric.world_size
        raise ValueError(f"it was written by {len(everyone)} processes, these are {count}")
    mine = {name: state[session.fabric.global_rank].clone() for name, state in states.items()}
    torch.set_rng_state(mine["torch"])
    session.augmentation.set_state(mine["augmentation"])
    session.gate_noise.set_state(mine["gates"])
    if session.fabric.device.type == "cuda":
        torch.cuda.set_rng_state(mine["cuda"], session.fabric.device)


def _take_shape(session: Session, facts: dict[str, Any], tensors: dict[str, Tensor], path: Path) -> None:
    """Cut the fresh model as the saved one was: frozen to a plain network, or shrunk with its gates."""
    if facts["plan"]:
        # The plan is of the first dense network; the one at hand may have been cut before.
        here = shapes_of(session.dense)
        small = storage.cut_to(
            copy.deepcopy(session.dense), {**facts["plan"], "dense": here}, _part(tensors, "model"), path
        )
        small.__dict__[PLAN] = json.dumps(facts["plan"])
        session.become(session.fabric.to_device(small))
    elif session.sparsifier is not None:
        _cut_like(session, facts["sites"], facts["columns"])


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    try:
        metadata, tensors = read_tensors(path)
        facts = json.loads(metadata.get("lzero", "{}"))
    except (FileError, json.JSONDecodeError) as error:
        raise CheckpointError(f"{path}: it cannot be read ({str(error).removeprefix(f'{path}: ')})") from error
    version = facts.get("version") if isinstance(facts, dict) else None
    if version != VERSION:
        got = "something else" if version is None else f"version {version}, of another lzero"
        advice = "delete it to begin anew"
        raise CheckpointError(f"{path}: expected a checkpoint of version {VERSION}, got {got}; {advice}")
    return tensors, facts


def _part(tensors: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(f"{prefix}."): t for name, t in tensors.items() if name.startswith(f"{prefix}.")}


def _optimizer_state(flat: dict[str, Any]) -> dict[int, dict[str, Any]]:
    state: dict[int, dict[str, Any]] = {}
    for name, value in flat.items():
        index, _, key = name.partition(".")
        state.setdefault(int(index), {})[key] = value
    return state


def _check_optimizer(optimizer: Optimizer, state: dict[int, dict[str, Any]], count: int) -> None:
    """Refuse a state that is not one of these parameters, or not all of it; torch itself would not notice."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if len(state) != count or not set(state) <= set(range(len(parameters))):
        held = f"the optimizer holds {len(parameters)} parameters, {count} of them with a state"
        raise ValueError(f"{held}; the file has that of {len(state)}")
    for index, parameter in enumerate(parameters):
        for key, value in state.get(index, {}).items():  # parameters without gradients have no state
            if isinstance(value, Tensor) and value.dim() and value.shape != parameter.shape:
                shapes = f"{list(value.shape)} for a parameter of {list(parameter.shape)}"
                raise ValueError(f"{key} of the optimizer has the shape {shapes}")


def _cut_like(session: Session, sites: dict[str, list[int]], columns: dict[str, list[int]]) -> None:
    """Shrink the fresh model, and its average, to the units and columns that were left."""
    assert session.sparsifier is not None  # noqa: S101 (asked by the caller)
    averages = [] if session.average is None else [session.average]
    for sparsifier in (session.sparsifier, *(sparsifier_of(average.module) for average in averages)):
        _close_all_but(sparsifier, sites, columns)
    if session.sparsifier.shrink(threshold=0.1, averages=averages):
        session.set_up()


def _close_all_but(sparsifier: Sparsifier, sites: dict[str, list[int]], columns: dict[str, list[int]]) -> None:
    if set(sites) != set(sparsifier.history.sites):
        raise CheckpointError("the checkpoint was made with other gates")
    for group in sparsifier.groups:
        left = columns.get(group.columns[0].tensor) if group.columns else sites.get(group.name)
        if left is not None and group.elements is None:
            # Units are counted as in the dense network, from which a file may have brought this one some way already.
            units = sparsifier.history.sites[group.name] if group.site else range(len(group.gate_of_column))
            kept = np.isin(units, left) if group.site else group.any_column(np.isin(units, left))
            values = torch.where(torch.from_numpy(kept), KEPT, REMOVED)
            sparsifier.log_alpha.data[group.span] = values.to(sparsifier.log_alpha)
