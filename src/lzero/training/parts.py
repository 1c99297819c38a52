"""The parts of a training, each built from its section of the recipe."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from lzero import storage, zoo
from lzero.data import Dataset, Split
from lzero.errors import ArgumentError, FileError, LzeroError, described
from lzero.files import read_tensors
from lzero.objectives import Constraint, Objective, Penalty
from lzero.objectives.duals import Ascent, Dual, RestartedAscent
from lzero.objectives.group_lasso import GroupLasso
from lzero.objectives.schedules import Schedule, constant, linear
from lzero.sparsify import sparsify

if TYPE_CHECKING:
    from collections.abc import Callable

    from lzero.recipes import Recipe
    from lzero.recipes.recipe import Gates
    from lzero.sparsifier import Sparsifier
    from lzero.structure.capture import Inputs


def make_model(recipe: Recipe) -> nn.Module:
    """The network of a recipe: one of the zoo, or what `package.module:function` makes."""
    name, options = recipe.model.name, recipe.model.options
    module, colon, function = name.partition(":")
    if not colon:
        return zoo.make(name, **options)
    make = _imported(module, function)
    if isinstance(make, nn.Module):
        advice = f"{function} is one: def make(): return …, or its class"
        raise ArgumentError.about("model.name", expected="a function that makes a module", got=name, advice=advice)
    try:
        made = make(**options)
    except Exception as error:  # whatever the user's code raises
        raise LzeroError(f"{name} makes no network: {described(error)}") from error
    if not isinstance(made, nn.Module):
        raise ArgumentError.about("model.name", expected="a function that makes a module", got=type(made).__name__)
    return made


def _imported(module: str, function: str) -> Callable[..., Any]:
    """What makes a network of one's own."""
    expected, name = "package.module:function, importable from the working folder", f"{module}:{function}"
    try:
        found = importlib.import_module(module)
    except Exception as error:  # whatever the user's code raises
        got, advice = f"{name} ({described(error)})", "a file nets.py here is nets:function"
        raise ArgumentError.about("model.name", expected=expected, got=got, advice=advice) from error
    if not callable(make := getattr(found, function, None)):
        known = ", ".join(key for key, value in vars(found).items() if callable(value) and not key.startswith("_"))
        raise ArgumentError.about("model.name", expected=expected, got=name, advice=f"{module} has {known or 'none'}")
    return make  # type: ignore[no-any-return]


def start_from(model: nn.Module, path: Path) -> None:
    """Give a model the weights of a file: one that `lzero.save` wrote, which may also cut it, or a plain state dict."""
    try:
        metadata, state = read_tensors(path)
    except FileError as error:
        torchs = path.exists() and path.suffix in (".pt", ".pth", ".bin")
        advice = f"; safetensors.torch.save_file(torch.load({path.name!r}, weights_only=True), …) makes one" * torchs
        raise FileError(f"{error}{advice}") from error
    if storage.KEY in metadata:
        storage.load(model, path)
        return
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise LzeroError(f"{path}: these weights do not fit {type(model).__name__} ({error})") from error


def parts_of(recipe: Recipe, dataset: Dataset) -> tuple[Split, Split]:
    """What is trained on and what errors are counted on: the test part, or a held-out share of the training part."""
    share = recipe.data.held_out
    if not share:
        return dataset.train, dataset.test
    # One split for all seeds: what is chosen on held-out examples must not have been trained on by another seed.
    order = torch.randperm(len(dataset.train), generator=torch.Generator().manual_seed(0))
    count = round(share * len(order))
    if not 0 < count < len(order):
        raise ArgumentError.about("data.held_out", expected="a share that leaves examples on both sides", got=share)
    images, labels = dataset.train.images, dataset.train.labels
    held, left = order[:count], order[count:]
    return Split(images[left], labels[left]), Split(images[held], labels[held])


def make_gates(recipe: Recipe, model: nn.Module, example: Tensor) -> Sparsifier | None:
    """The gates, or none."""
    return gated(recipe.gates, model, example) if recipe.is_gated else None


def gated(gates: Gates, model: nn.Module, inputs: Inputs) -> Sparsifier:
    """A model with gates as a recipe has them."""
    return sparsify(
        model,
        inputs,
        units=gates.units,  # type: ignore[arg-type] # "none" has been asked for
        include=gates.include,
        exclude=gates.exclude,
        inputs=gates.inputs,
        keep_rate=gates.keep_rate,
        beta=gates.beta,
        gamma=gates.gamma,
        zeta=gates.zeta,
        estimator=gates.estimator,
    )


def make_objective(recipe: Recipe, sparsifier: Sparsifier | None, num_data: int, steps: int) -> Objective | None:
    """What drives the gates, or nothing."""
    aim = recipe.objective
    if sparsifier is None or aim.kind == "none":
        return None
    if aim.kind == "lasso":
        return _lasso(recipe, sparsifier, num_data, steps)
    schedule: Schedule | None = linear(max(1, round(aim.warm_up * steps))) if aim.warm_up else None
    if aim.kind == "penalty":
        strength = aim.strength
        if isinstance(strength, dict):
            strength = {glob: number / num_data for glob, number in strength.items()}
        elif not isinstance(strength, str):
            strength = strength / num_data
        return Penalty(
            sparsifier, strength, num_data=num_data, l2=aim.l2, l2_moves_gates=aim.l2_moves_gates,
            schedule=schedule or constant,
        )  # fmt: skip
    duals: dict[str, Dual | None] = {
        "default": None, "ascent": Ascent(aim.dual_lr), "restarts": RestartedAscent(aim.dual_lr)
    }  # fmt: skip
    if schedule is None and aim.dual != "default":
        schedule = constant  # the papers' rules have no warm-up
    return Constraint(
        sparsifier, aim.target, aim.cost, per=aim.per, steps=steps, schedule=schedule, dual=duals[aim.dual],
        violation=aim.violation,
    )  # fmt: skip


def _lasso(recipe: Recipe, sparsifier: Sparsifier, num_data: int, steps: int) -> GroupLasso:
    """Group lasso, which closes units by their last weights."""
    aim, average = recipe.objective, recipe.training.average
    if not isinstance(aim.strength, float):
        raise ArgumentError.about("objective.strength", expected="a number for group lasso", got=aim.strength)
    if isinstance(aim.target, dict) or aim.per != "model":
        got = f"{aim.target} for each {aim.per}"
        raise ArgumentError.about("objective.target", expected="one target for the model with group lasso", got=got)
    if average:
        raise ArgumentError.about("training.average", expected="0 for group lasso: last weights decide", got=average)
    widths = recipe.shrink.round_to
    return GroupLasso(sparsifier, aim.strength / num_data, aim.target, aim.cost, steps=steps, round_to=widths)
