"""Recipes: typed, checked, and written back as they were read."""

import tomllib
from dataclasses import replace

import numpy as np
import pytest

from lzero import recipes
from lzero.recipes.recipe import Aim, Training
from lzero.recipes.settings import SettingError, read


@pytest.mark.parametrize("name", recipes.names())
def test_every_recipe_is_read_and_written(name):
    recipe = recipes.load(name)
    assert recipe.title
    assert read(recipes.Recipe, tomllib.loads(recipes.as_toml(recipe))) == recipe


def test_settings_are_changed_by_their_path():
    changes = ["objective.target=5%", 'gates.keep_rate={"*" = 0.5}', "training.epochs = 3", "title=mine"]
    recipe = recipes.load("digits", changes)
    assert recipe.objective.target == "5%"
    assert recipe.gates.keep_rate == {"*": 0.5}
    assert recipe.training.epochs == 3
    assert recipe.title == "mine"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("objectiv.target=1", r"objectiv: there is no such setting; did you mean objective\?"),
        ("epoch=1", r"epoch: there is no such setting; did you mean training\.epochs\?"),
        ("objective.tarket=1", r"objective\.tarket: there is no such setting; did you mean target\?"),
        ("objective.target=[1]", r"objective\.target: expected a number or a text or a table, got \[1\]"),
        ("training.epochs=2.5", r"training\.epochs: expected a whole number, got 2\.5"),
        ("training.epochs=true", r"training\.epochs: expected a whole number, got True"),
        ("model.name=3", r"model\.name: expected a text, got 3"),
        ("gates.units=papr", r'gates\.units: expected "structure" or "paper" or "weights" or "none", got \'papr\''),
        ('data.augment=["crop", "spin"]', r'data\.augment\[1\]: expected "crop" or "flip" or "cutout"'),
        ("data.augment=crop", r"data\.augment: expected a list, got 'crop'"),
        ("data=5", "data: expected a table of settings, got 5"),
        ("title.deep=5", "title.deep: title is a value, not a table"),
        ("nothing", "nothing: expected section.setting=value"),
        ("=5", "=5: expected section.setting=value"),
        ("gates.inputs=1", r"gates\.inputs: expected true or false, got 1"),
        ("model.options=5", r"model\.options: expected a table, got 5"),
        ('gates.keep_rate={"*" = "half"}', r"gates\.keep_rate: expected a number or a table"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(change, message):
    with pytest.raises(SettingError, match=message):
        recipes.load("digits", [change])


def test_files_that_cannot_be_read_are_refused(tmp_path):
    (tmp_path / "bad.toml").write_text("a = = b")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    for name in ("bad.toml", "binary.toml", "absent.toml"):
        with pytest.raises(SettingError, match=name):
            recipes.load(tmp_path / name)
    with pytest.raises(SettingError, match=r"digit: neither a recipe nor a TOML file; did you mean digits\?"):
        recipes.load("digit")


@pytest.mark.parametrize(
    ("kind", "setting"),
    [
        ("penalty", "target=0.3"),
        ("constraint", "strength=2"),
        ("penalty", "objective.target=0.3"),
        ("none", "target=0.3"),
        ("none", "objective.strength=2"),
    ],
)
def test_settings_that_an_objective_does_not_have_are_refused(kind, setting):
    with pytest.raises(SettingError, match=f"an objective of kind {kind} does not have one"):
        recipes.load("digits", [f"objective.kind={kind}", setting])


@pytest.mark.parametrize(
    ("change", "keeps"),
    [("target=0.1", False), ("model.name=lenet5", False), ("data.name=mnist", False), ("epochs=3", True)],
)
def test_a_title_goes_when_it_is_not_true_any_more(change, keeps):
    assert bool(recipes.load("digits", [change]).title) == keeps


def test_an_objective_without_gates_is_refused():
    message = r"gates\.units: expected gates for an objective of kind constraint, got none; .* objective\.kind to none"
    with pytest.raises(SettingError, match=message):
        recipes.load("digits", ["gates.units=none"])
    assert not recipes.load("digits", ["gates.units=none", "objective.kind=none"]).is_gated


@pytest.mark.parametrize("epochs", [0, -1])
def test_limits_hold_for_recipes_that_are_written_in_python_too(epochs):
    with pytest.raises(SettingError, match=rf"training\.epochs: expected at least 1, got {epochs}"):
        recipes.Recipe(training=Training(epochs=epochs))
    with pytest.raises(SettingError, match=r"training\.epochs"):
        replace(recipes.load("digits"), training=Training(epochs=epochs))


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"training": Training(epochs=np.int64(0))}, r"training\.epochs: expected at least 1, got 0"),
        ({"training": Training(epochs=2.5)}, r"training\.epochs: expected a whole number, got 2\.5"),
        ({"objective": Aim(strength=np.float32(-1))}, r"objective\.strength: expected a number from 0, got -1"),
        ({"objective": Aim(strength={"*": -1.0})}, r"objective\.strength: expected a number from 0, got -1"),
    ],
)
def test_limits_hold_for_all_kinds_of_numbers(section, message):
    with pytest.raises(SettingError, match=message):
        recipes.Recipe(**section)


def test_changes_are_a_list():
    with pytest.raises(SettingError, match=r'expected a list of changes, got a text: \["target=0.1"\]'):
        recipes.load("digits", "target=0.1")
