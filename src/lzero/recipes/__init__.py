"""Trainings written down: TOML files, one for each experiment."""

from lzero.recipes.library import full_key, load, names
from lzero.recipes.recipe import Recipe
from lzero.recipes.settings import SettingError, as_toml

__all__ = ["Recipe", "SettingError", "as_toml", "full_key", "load", "names"]
