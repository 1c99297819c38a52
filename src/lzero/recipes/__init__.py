"""Trainings written down: TOML files, one for each experiment."""

from lzero.recipes.library import load, names
from lzero.recipes.recipe import Recipe
from lzero.recipes.settings import SettingError, as_toml

__all__ = ["Recipe", "SettingError", "as_toml", "load", "names"]
