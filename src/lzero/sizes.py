"""Whole numbers that a module keeps beside its tensors: in attributes, and in tuples, lists and configurations.

A place is the name of an attribute, or that and one inside what it holds: `heads`, `shape.0`, `config.heads`.
"""

from __future__ import annotations

import copy
import dataclasses
from argparse import Namespace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn


Sizes = dict[str, dict[str, int]]  # by the paths of modules, and by place


def sizes_of(module: nn.Module) -> dict[str, int]:
    """Each whole number by its place, those that are attributes themselves first.

    >>> layer = torch.nn.Unflatten(1, (8, 4, 4))
    >>> sizes_of(layer)
    {'dim': 1, 'unflattened_size.0': 8, 'unflattened_size.1': 4, 'unflattened_size.2': 4}
    """
    own = {name: value for name, value in vars(module).items() if type(value) is int}
    inside = (
        (f"{name}.{inner}", number)
        for name, value in vars(module).items()
        for inner, number in _items(value)
        if type(number) is int
    )
    return own | dict(inside)


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    """What a sequence or a configuration holds, by name."""
    if type(value) in (tuple, list, torch.Size):
        yield from ((str(position), item) for position, item in enumerate(value))
    elif type(value) is dict:
        yield from ((name, item) for name, item in value.items() if type(name) is str)
    elif isinstance(value, SimpleNamespace | Namespace):
        yield from vars(value).items()
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))


def resized(module: nn.Module, place: str, size: int) -> tuple[str, Any]:
    """The attribute that a place is in, and what it is to hold instead: a copy, for others may hold it too."""
    name, _, inner = place.partition(".")
    if not inner:  # which it may not have had before
        return name, size
    held = vars(module)[name]
    if isinstance(held, tuple | list):
        return name, type(held)(size if str(position) == inner else item for position, item in enumerate(held))
    if isinstance(held, dict):
        return name, {**held, inner: size}
    other = copy.copy(held)
    object.__setattr__(other, inner, size)  # of a frozen dataclass too
    return name, other


def set_size(module: nn.Module, place: str, size: int) -> None:
    """Put a whole number in its place.

    >>> layer = torch.nn.Unflatten(1, (8, 4, 4))
    >>> set_size(layer, "unflattened_size.0", 6)
    >>> layer.unflattened_size
    (6, 4, 4)
    """
    name, value = resized(module, place, size)
    vars(module)[name] = value


def changed_sizes(dense: nn.Module, small: nn.Module) -> Sizes:
    """Those that differ, by module path: widths, groups, and what the model's own code keeps."""
    modules = dict(dense.named_modules())
    changed: Sizes = {}
    for path, module in small.named_modules():
        before = sizes_of(modules[path])
        different = {place: size for place, size in sizes_of(module).items() if before.get(place) != size}
        if different:
            changed[path] = different
    return changed


def set_sizes(model: nn.Module, sizes: Sizes) -> None:
    """Give a model the whole numbers that differ in another one of the same make."""
    for path, changed in sizes.items():
        for place, size in changed.items():
            set_size(model.get_submodule(path), place, size)
