"""Which numbers a recipe may hold: what types cannot say."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real
from typing import TYPE_CHECKING

from lzero.recipes.settings import SettingError

if TYPE_CHECKING:
    from lzero.recipes.recipe import Recipe

LIMITS: dict[str, tuple[float, float, str]] = {
    "data.crop_pad": (0, 1024, "a number of pixels"),
    "data.cutout_size": (0, 1024, "a number of pixels"),
    "data.held_out": (0, 0.999, "a share from 0 to below 1"),
    "gates.lr": (0, 1e6, "a learning rate from 0 to 1e6"),
    "gates.samples": (1, 1e6, "at least 1"),
    "objective.strength": (0, 1e12, "a number from 0"),
    "objective.l2": (0, 1e12, "a number from 0"),
    "objective.dual_lr": (1e-30, 1e12, "a number above 0"),
    "objective.warm_up": (0, 1, "a share of the steps with gates, from 0 to 1"),
    "optimizer.lr": (0, 1e6, "a learning rate from 0 to 1e6"),
    "optimizer.momentum": (0, 0.999999, "a number from 0 to below 1"),
    "optimizer.weight_decay": (0, 1e6, "a number from 0"),
    "optimizer.factor": (0, 1, "a factor from 0 to 1"),
    "training.epochs": (1, 1e6, "at least 1"),
    "training.batch_size": (1, 1e9, "at least 1"),
    "training.accumulate": (1, 1e6, "at least 1"),
    "training.seed": (0, 2**40, "a whole number from 0"),
    "training.label_smoothing": (0, 0.999, "a number from 0 to below 1"),
    "training.average": (0, 0.99999999, "a decay from 0 to below 1; 0 is none"),
    "shrink.every": (0, 1e6, "a number of epochs; 0 is never"),
    "shrink.threshold": (0, 0.5, "a probability from 0 to 0.5"),
    "shrink.round_to": (1, 1e6, "at least 1"),
    "shrink.freeze_after": (1e-9, 1, "a share of all epochs, above 0"),
}


def check(recipe: Recipe) -> None:
    """Refuse what means nothing, before anything is built.

    >>> from lzero.recipes.recipe import Recipe, Training
    >>> Recipe(training=Training(epochs=0))
    Traceback (most recent call last):
    lzero.recipes.settings.SettingError: training.epochs: expected at least 1, got 0
    """
    for key, (low, high, words) in LIMITS.items():
        section, _, name = key.partition(".")
        part = getattr(recipe, section)
        value, default = getattr(part, name), getattr(type(part)(), name)
        for each in value.values() if isinstance(value, Mapping) else (value,):
            if isinstance(each, Real) and not low <= float(each) <= high:
                raise SettingError(f"{key}: expected {words}, got {each}")
            if isinstance(each, Real) and isinstance(default, int) and not isinstance(each, Integral):
                raise SettingError(f"{key}: expected a whole number, got {each}")
    kind = recipe.objective.kind
    if not recipe.is_gated and kind != "none":
        advice = "nothing would move without gates: set objective.kind to none too"
        raise SettingError(f"gates.units: expected gates for an objective of kind {kind}, got none; {advice}")
