"""Settings as frozen dataclasses: read from nested mappings with types checked, written back as TOML."""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from numbers import Integral, Real
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from lzero.errors import LzeroError, did_you_mean

T = TypeVar("T")


class SettingError(LzeroError, ValueError):
    """A setting cannot be used."""


def read(cls: type[T], given: Mapping[str, Any], path: str = "") -> T:
    """The dataclass from a mapping; unknown keys are refused with the nearest known one, values with what they must be.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Size:
    ...     width: int = 3
    >>> read(Size, {"width": 5})
    Size(width=5)
    >>> read(Size, {"widht": 5})
    Traceback (most recent call last):
    lzero.recipes.settings.SettingError: widht: there is no such setting; did you mean width?
    """
    hints, known = get_type_hints(cls), {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
    for key in given:
        if key not in known:
            raise SettingError(f"{path}{key}: there is no such setting; {_nearest(key, hints)}")
    missing = [n for n, f in known.items() if n not in given and f.default is MISSING and f.default_factory is MISSING]
    if missing:
        raise SettingError(f"{path}{missing[0]}: this setting is missing")
    return cls(**{key: convert(value, hints[key], f"{path}{key}") for key, value in given.items()})


def _nearest(key: str, hints: Mapping[str, Any]) -> str:
    """The setting of that name or nearly so, here or a table deeper; else all that are here."""
    inner = {
        each.name: f"{name}.{each.name}" for name, hint in hints.items() if is_dataclass(hint) for each in fields(hint)
    }
    known = {**inner, **{name: name for name in hints}}
    return did_you_mean(key, known, spelt=known, otherwise=f"there are {', '.join(hints)}")


def convert(value: Any, hint: Any, path: str) -> Any:
    """A value as the type a setting has."""
    if is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise SettingError(f"{path}: expected a table of settings, got {value!r}")
        return read(hint, value, f"{path}.")  # type: ignore[arg-type]
    if get_origin(hint) in (Union, types.UnionType):
        return _one_of(value, get_args(hint), path)
    if get_origin(hint) is tuple:
        if isinstance(value, str) or not isinstance(value, list | tuple):
            raise SettingError(f"{path}: expected a list, got {value!r}")
        return tuple(convert(each, get_args(hint)[0], f"{path}[{k}]") for k, each in enumerate(value))
    if get_origin(hint) in (dict, Mapping):
        return _mapping(value, get_args(hint)[1], path)
    return _plain(value, hint, path)


def _one_of(value: Any, hints: tuple[Any, ...], path: str) -> Any:
    for hint in hints:
        try:
            return convert(value, hint, path)
        except SettingError:
            continue
    raise SettingError(f"{path}: expected {' or '.join(_named(hint) for hint in hints)}, got {value!r}")


def _mapping(value: Any, hint: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise SettingError(f"{path}: expected a table, got {value!r}")
    return {str(key): convert(each, hint, f"{path}.{key}") for key, each in value.items()}


def _plain(value: Any, hint: Any, path: str) -> Any:
    if hint is Any:
        return value
    if get_origin(hint) is Literal:
        fits = value in get_args(hint) and not isinstance(value, bool)
    elif hint is float:
        fits = isinstance(value, int | float) and not isinstance(value, bool)
        value = float(value) if fits else value
    elif hint is None or hint is type(None):
        if value is None or value == "none":  # which TOML has no word for
            return None
        fits = False
    else:
        fits = isinstance(value, hint) and not (hint is int and isinstance(value, bool))
    if not fits:
        raise SettingError(f"{path}: expected {_named(hint)}, got {value!r}")
    return value


def _named(hint: Any) -> str:
    words = {float: "a number", int: "a whole number", str: "a text", bool: "true or false", type(None): "none"}
    if get_origin(hint) is Literal:
        return " or ".join(json.dumps(each) for each in get_args(hint))
    if get_origin(hint) in (dict, Mapping):
        return "a table"
    return words.get(hint, "a list" if get_origin(hint) is tuple else str(hint))


def as_toml(settings: Any) -> str:
    """All settings as TOML, which `read` turns back into the same; settings that are None are left out."""
    plain, tables = [], []
    for field in fields(settings):
        value = getattr(settings, field.name)
        if is_dataclass(value):
            tables.append(f"[{field.name}]\n{as_toml(value)}")
        elif value is not None:
            plain.append(f"{field.name} = {toml_value(value)}\n")
    return "".join(plain) + "".join(f"\n{table}" for table in tables)


def toml_value(value: Any) -> str:
    """A value as TOML has it; numpy's numbers as Python's.

    >>> toml_value({"widths": (20, 50)})
    '{"widths" = [20, 50]}'
    """
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml_value(each)}" for key, each in value.items()) + "}"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(toml_value(each) for each in value) + "]"
    if isinstance(value, str | bool):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Integral):
        return repr(int(value))
    if isinstance(value, Real):
        return repr(float(value))
    raise SettingError(f"expected what TOML can hold: numbers, texts, lists and tables, got {value!r}")
