"""Trainings written down: TOML files, one for each experiment."""

from lzero.recipes.library import DEFAULT, full_key, load, names, value_of
from lzero.recipes.recipe import Recipe
from lzero.recipes.settings import SettingError, as_toml

__all__ = ["DEFAULT", "Recipe", "SettingError", "as_toml", "full_key", "load", "names", "value_of"]
