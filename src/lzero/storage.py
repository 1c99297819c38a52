"""Smaller models on disk: one safetensors file with the weights and the plan by which the dense model is cut.

Nothing is ever unpickled. Everything is checked before the model is changed.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.fx import GraphModule

from lzero.arguments import path_of
from lzero.attention import make_slim
from lzero.belonging import check_plain
from lzero.cutting import PLAN, plan_of
from lzero.errors import FileError, UnsupportedError
from lzero.files import read_tensors, write_atomically
from lzero.layers import IndexedLinear
from lzero.sizes import set_size, sizes_of
from lzero.tensors import check_module, full_name, held_by, saved_tensors, shapes_of

VERSION = 1
KEY = "lzero"


def save(model: nn.Module, path: str | Path) -> None:
    """Write a compacted model, or any plain one, to a safetensors file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(nn.Linear(2, 3), f"{folder}/small.safetensors")
    ...     load(nn.Linear(2, 3), f"{folder}/small.safetensors")
    Linear(in_features=2, out_features=3, bias=True)
    """
    check_plain(model)
    path = path_of(path, "save(model, path)")
    if isinstance(model, GraphModule):
        raise UnsupportedError('a graph is not cut from a dense model; write it with lzero.export(model, "a.pt2", x)')
    tensors = {name: tensor.to("cpu", copy=True).contiguous() for name, tensor in saved_tensors(model).items()}
    plan = plan_of(model) or _trivial_plan(model)
    plan |= {"version": VERSION, "class": type(model).__name__}
    plan["checksum"] = _checksum(tensors, plan)
    with write_atomically(path) as temporary:
        save_file(tensors, temporary, metadata={KEY: json.dumps(plan, sort_keys=True)})


def load(model: nn.Module, path: str | Path) -> nn.Module:
    """Cut a freshly made dense model to the one in the file, in place, and return it.

    >>> import tempfile, lzero
    >>> make = lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> model = make()
    >>> lzero.sparsify(model, torch.randn(3, 4)).log_alpha.data[:6] = -9.0
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(lzero.compact(model), f"{folder}/small.safetensors")
    ...     load(make(), f"{folder}/small.safetensors")
    Sequential(
      (0): Linear(in_features=4, out_features=2, bias=True)
      (1): ReLU()
      (2): Linear(in_features=2, out_features=2, bias=True)
    )
    """
    check_module("model", model)
    path = path_of(path, "load(model, path)")
    plan, tensors = _read(path)
    return cut_to(model, plan, tensors, path)


def cut_to(model: nn.Module, plan: dict[str, Any], tensors: dict[str, Tensor], path: Path) -> nn.Module:
    """Cut a freshly made dense model by a plan, in place, and fill it; the path is for errors."""
    _check_architecture(model, plan, tensors, path)
    for module_path, values in plan["attributes"].items():
        for place, size in values.items():
            set_size(model.get_submodule(module_path), place, size)
    for name, index in _indices(model, tensors).items():
        linear = model.get_submodule(name)
        assert isinstance(linear, nn.Linear)  # noqa: S101 (checked with the architecture)
        IndexedLinear.over(linear, index if linear.weight.is_meta else index.to(linear.weight.device))
    _fill(model, tensors)
    if plan["sites"]:
        make_slim(model)
    model.__dict__[PLAN] = json.dumps({k: v for k, v in plan.items() if k in ("attributes", "dense", "sites")})
    return model


def _trivial_plan(model: nn.Module) -> dict[str, Any]:
    return {"sites": {}, "attributes": {}, "dense": shapes_of(model)}


def _checksum(tensors: dict[str, Tensor], plan: dict[str, Any]) -> str:
    told = {key: value for key, value in plan.items() if key != "checksum"}
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name].cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    metadata, tensors = read_tensors(path)
    try:
        plan = json.loads(metadata[KEY])
        version, checksum = int(plan["version"]), str(plan["checksum"])
        parts = plan["attributes"], plan["dense"], plan["sites"]
    except (KeyError, TypeError, ValueError) as error:
        raise FileError(f"{path}: a safetensors file, but not one that lzero.save wrote") from error
    if version > VERSION:
        raise FileError(f"{path}: version {version}, newer than this lzero reads ({VERSION}); update lzero")
    if checksum != _checksum(tensors, plan) or not all(isinstance(part, dict) for part in parts):
        raise FileError(f"{path}: its checksum does not fit its contents; it was damaged or changed")
    return plan, tensors


def _check_architecture(model: nn.Module, plan: dict[str, Any], tensors: dict[str, Tensor], path: Path) -> None:
    """Refuse a model that is not the dense one the file was made from."""
    check_plain(model, "make a new one with its constructor")
    have = shapes_of(model)
    if have != plan["dense"]:
        name = next(n for n in [*plan["dense"], *have] if have.get(n) != plan["dense"].get(n))
        expected, got = plan["dense"].get(name, "nothing"), have.get(name, "nothing")
        raise FileError(
            f"{path}: made from another architecture: {name} has shape {expected} there, {got} in this model"
        )
    indices = _indices(model, tensors)
    unknown = set(tensors) - set(have) - {full_name(name, "index") for name in indices}
    if unknown or set(have) - set(tensors):
        raise FileError(
            f"{path}: made from another architecture: {', '.join(sorted(unknown ^ set(have) - set(tensors)))}"
        )
    modules = dict(model.named_modules())
    for module_path, values in plan["attributes"].items():
        if module_path not in modules:
            raise FileError(f"{path}: made from another architecture: there is no {module_path} in this model")
        known = sizes_of(modules[module_path])
        for place, size in values.items():
            if place not in known or type(size) is not int:
                where = full_name(module_path, place)
                raise FileError(f"{path}: made from another architecture: {where} is no whole number here")


def _indices(model: nn.Module, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The inputs that dense layers choose, by the layer's path."""
    modules = dict(model.named_modules())
    found = {name.rpartition(".")[0]: t for name, t in tensors.items() if name.rpartition(".")[2] == "index"}
    return {path: index for path, index in found.items() if type(modules.get(path)) is nn.Linear}


def _fill(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Put the file's tensors in; a tensor that is shared in the model stays shared."""
    made: dict[int, Any] = {}
    for path, module in model.named_modules():
        for place, name, old in held_by(module):
            full = full_name(path, name)
            if id(old) not in made and full in tensors:
                new = tensors[full] if old.is_meta else tensors[full].to(old.device)
                made[id(old)] = nn.Parameter(new, old.requires_grad) if isinstance(old, nn.Parameter) else new
            if id(old) in made:
                place[name] = made[id(old)]
