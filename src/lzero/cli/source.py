"""What a command is about: a recipe, a run folder, a network of the zoo, or a function that makes a model."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from lzero import recipes, zoo
from lzero.data.sources import SHAPES
from lzero.errors import ArgumentError, LzeroError, did_you_mean
from lzero.recipes import Recipe
from lzero.recipes.recipe import Model
from lzero.training.folder import RunFolder
from lzero.training.parts import gated, make_model, start_from

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lzero.sparsifier import Sparsifier

KINDS = {"float32": torch.float32, "float64": torch.float64, "int64": torch.int64}


@dataclass(frozen=True)
class Source:
    """Where a network comes from. Those without a recipe of their own have the default one, and no dataset."""

    name: str
    recipe: Recipe
    run: RunFolder | None = None
    has_data: bool = True

    @property
    def is_function(self) -> bool:
        """Whether the user's own code makes the network, with weights it may have read from anywhere."""
        return not self.has_data and ":" in self.name

    def dense(self) -> nn.Module:
        """The network before anything was removed."""
        model = self._made()
        if self.recipe.model.init is not None:
            start_from(model, Path(self.recipe.model.init))
        return model

    def _made(self) -> nn.Module:
        """The network as its code makes it, to which plans refer: weights to start from may have cut it already."""
        with working_folder_importable():
            return make_model(self.recipe)

    def compacted(self, weights: Path | None = None) -> nn.Module | None:
        """The network that was saved: in the file, or in the run folder; without either there is none."""
        if weights is None:
            if self.run is None:
                return None
            weights = self.run.model
            if not weights.exists():
                raise LzeroError(f"{weights}: not there yet; the training goes on with lzero train --resume")
        model = self._made()
        start_from(model, weights)
        return model

    def gated(
        self,
        given: Sequence[str] | None,
        *,
        units: str | None = None,
        include: Sequence[str] | None = None,
        exclude: Sequence[str] | None = None,
    ) -> Sparsifier:
        """The dense network with gates: where it is said, and otherwise as the recipe has it."""
        gates = self.recipe.gates
        said = {
            "units": units or (gates.units if self.recipe.is_gated else "structure"),
            "include": tuple(include) if include else gates.include,
            "exclude": tuple(exclude) if exclude else gates.exclude,
        }
        return gated(replace(gates, **said), self.dense(), self.inputs(given))  # type: ignore[arg-type]

    def inputs(self, given: Sequence[str] | None) -> tuple[Tensor, ...]:
        """Random inputs of the sizes given, or of one example of the dataset."""
        if given:
            return tuple(_input(text) for text in given)
        name = self.recipe.data.name
        if not self.has_data or name not in SHAPES:
            advice = (
                f"the sizes of {name} are not known" if self.has_data else "only recipes and run folders know theirs"
            )
            raise ArgumentError.about("--input", expected="sizes such as 1,3,32,32", got="nothing", advice=advice)
        return (_random((1, *SHAPES[name]), torch.float32),)


def find(name: str) -> Source:
    """The source of a name; recipes that come along go before folders of the same name."""
    if name in recipes.names() or name.endswith(".toml"):
        return Source(name, recipes.load(name))
    if Path(name).is_dir():
        run = RunFolder(Path(name))
        if not run.config.exists():
            raise ArgumentError.about("SOURCE", expected="a run folder, with config.toml", got=name)
        return Source(name, _made_here(recipes.load(run.config), run), run)
    if zoo.knows(name) or ":" in name:
        return Source(name, Recipe(model=Model(dotted(name))), has_data=False)
    known, otherwise = (*recipes.names(), *zoo.names()), f"recipes are {', '.join(recipes.names())}"
    advice = did_you_mean(name, known, otherwise=otherwise)
    if name.endswith(".safetensors"):
        advice = "a file has weights and no network: give its run folder, or a network and --weights FILE"
    expected = "a recipe, a TOML file, a run folder, a network of the zoo or package.module:function"
    raise ArgumentError.about("SOURCE", expected=expected, got=name, advice=advice)


def _made_here(recipe: Recipe, run: RunFolder) -> Recipe:
    """The recipe of a run, if its network can be made again."""
    if recipe.model.is_given:
        raise LzeroError(
            f"{run.config}: the network ({recipe.model.name}) was given to fit from Python; name its function, "
            f"module:function, with --weights {run.model}, or train it by that name"
        )
    return recipe


def recipe_of(text: str, changes: Sequence[str]) -> tuple[str, list[str]]:
    """A recipe and changes to it; a function that makes a network of one's own is a change to the default recipe."""
    if zoo.knows(text):
        expected = "a recipe, a TOML file or package.module:function"
        advice = f"a network of the zoo is a setting: --set model.name={text}"
        raise ArgumentError.about("RECIPE", expected=expected, got=text, advice=advice)
    if ":" not in text or text.endswith(".toml"):
        return text, list(changes)
    return recipes.DEFAULT, [f"model.name={dotted(text)}", "model.options={}", *changes]


def dotted(text: str) -> str:
    """A function in a file below the working folder as Python finds it.

    >>> dotted("nets/mine.py:make"), dotted("nets.mine:make")
    ('nets.mine:make', 'nets.mine:make')
    """
    file, _, function = text.partition(":")
    path = Path(file)
    is_below = path.suffix == ".py" and not path.is_absolute() and ".." not in path.parts
    return f"{'.'.join(path.with_suffix('').parts)}:{function}" if is_below else text


def short_name(text: str) -> str:
    """What a folder is called after a recipe, a file or a function.

    >>> short_name("package.models:make_net"), short_name("settings/mine.toml")
    ('make_net', 'mine')
    """
    return Path(text if text.endswith(".toml") else text.rpartition(":")[2]).stem


@contextmanager
def working_folder_importable() -> Iterator[None]:
    """Let Python find modules where the user is, as `python -m` does."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)


def _input(text: str) -> Tensor:
    sizes, _, kind = text.partition(":")
    numbers = [int(size) if size.strip().isdecimal() else 0 for size in sizes.split(",")]
    if min(numbers) < 1 or (kind or "float32") not in KINDS:
        expected = f"sizes such as 1,3,32,32, perhaps with a type: {', '.join(KINDS)}"
        raise ArgumentError.about("--input", expected=expected, got=text)
    return _random(numbers, KINDS[kind or "float32"])


def _random(shape: Sequence[int], kind: torch.dtype) -> Tensor:
    """Random, because zeros would hide what weights do; the same each time."""
    generator = torch.Generator().manual_seed(0)
    numbers = torch.rand(*shape, generator=generator)
    return numbers.to(kind) if kind.is_floating_point else numbers.round().to(kind)
