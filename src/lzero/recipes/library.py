"""The recipes that come along, those of users, and changes to them."""

from __future__ import annotations

import tomllib
from dataclasses import MISSING, fields
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lzero.errors import did_you_mean
from lzero.recipes.recipe import Recipe
from lzero.recipes.settings import SettingError, read

if TYPE_CHECKING:
    from collections.abc import Iterable

DEFAULT = "digits"
TOLD = ("data", "model", "gates", "objective")  # sections that a title is about
UNUSED = {  # by kinds of objectives
    "none": ("target", "strength", "l2"),
    "penalty": ("target",),
    "constraint": ("strength", "l2"),
    "lasso": ("l2",),
}


def names() -> tuple[str, ...]:
    """The recipes that come along, the default first."""
    files = (entry.name for entry in resources.files("lzero.recipes").iterdir())
    found = sorted(name.removesuffix(".toml") for name in files if name.endswith(".toml"))
    return (DEFAULT, *(name for name in found if name != DEFAULT))


def load(recipe: str | Path = DEFAULT, changes: Iterable[str] = ()) -> Recipe:
    """A recipe by name or from a TOML file, with changes such as `objective.target=0.1`.

    >>> load("digits", ["training.epochs=3"]).training.epochs
    3
    """
    if isinstance(changes, str):
        raise SettingError(f'expected a list of changes, got a text: ["{changes}"]')
    settings, changes = _settings(recipe), list(changes)
    if any(_section(change) in TOLD for change in changes):
        settings.pop("title", None)  # of what it was before; reports make one of what it is
    for change in changes:
        _apply(settings, change)
    made = read(Recipe, settings)
    _check_used(made.objective.kind, changes)
    return made


def _section(change: str) -> str:
    return full_key(change.partition("=")[0]).partition(".")[0]


def _check_used(kind: str, changes: Iterable[str]) -> None:
    """Refuse to set what this kind of objective does not read."""
    unused = [f"objective.{setting}" for setting in UNUSED.get(kind, ())]
    for key in (full_key(change.partition("=")[0]) for change in changes):
        if key in unused:
            advice = "choose another objective.kind, or leave it out"
            raise SettingError(f"{key}: an objective of kind {kind} does not have one; {advice}")


def _settings(recipe: str | Path) -> dict[str, Any]:
    path = Path(recipe)
    if isinstance(recipe, str) and recipe in names():
        text = resources.files("lzero.recipes").joinpath(f"{recipe}.toml").read_text(encoding="utf-8")
    elif path.suffix == ".toml":
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SettingError(f"{path}: cannot be read ({error})") from error
    else:
        advice = did_you_mean(recipe, names(), otherwise=f"there are {', '.join(names())}")
        raise SettingError(f"{recipe}: neither a recipe nor a TOML file; {advice}")
    return _parsed(text, str(recipe))


def _parsed(text: str, source: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingError(f"{source}: {error}") from error


def _apply(settings: dict[str, Any], change: str) -> None:
    """Set one value by its dotted path."""
    key, equals, value = change.partition("=")
    if not equals or not key.strip():
        raise SettingError(f"{change}: expected section.setting=value")
    *sections, last = full_key(key).split(".")
    table = settings
    for section in sections:
        table = table.setdefault(section, {})
        if not isinstance(table, dict):
            raise SettingError(f"{key.strip()}: {section} is a value, not a table")
    table[last] = value_of(value)


def value_of(text: str) -> Any:
    """A TOML value; what is none is a text.

    >>> value_of(" 0.1"), value_of("sgd")
    (0.1, 'sgd')
    """
    try:
        return tomllib.loads(f"value = {text.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        return text.strip()


def full_key(key: str) -> str:
    """The dotted path of a setting; its last part will do where no other section has one of that name.

    >>> full_key("target")
    'objective.target'
    """
    parts = [part.strip() for part in key.split(".")]
    if len(parts) > 1 or parts[0] in {field.name for field in fields(Recipe)}:
        return ".".join(parts)
    sections = {field.name: field.default_factory for field in fields(Recipe) if field.default_factory is not MISSING}
    found = [name for name, made in sections.items() if parts[0] in {field.name for field in fields(made())}]
    if len(found) > 1:
        choices = " or ".join(f"{name}.{parts[0]}" for name in found)
        raise SettingError(f"{parts[0]}: there are several such settings; write {choices}")
    return ".".join([*found, parts[0]])
