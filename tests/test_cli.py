"""The command line as a user meets it."""

import importlib
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

import lzero
from lzero.cli import app
from lzero.data.sources import MNIST
from lzero.reproduce import NAMES
from tests.data.files import put

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def run():
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_help_lists_the_commands(run):
    assert "reproduce" in run("--help").output
    shown = "".join(run("reproduce", "--help").output.split())  # lines end within names
    assert all(name in shown for name in NAMES)


def test_version(run):
    assert run("--version").output == f"lzero {lzero.__version__}\n"


def test_datasets_are_listed_with_what_is_here(run, tmp_path):
    lines = run("data", "list", "--data-dir", tmp_path).output.splitlines()
    assert lines[0] == "digits         digits: 1500 training and 297 test images of 1×8×8, 10 classes"
    assert "mnist          not here: lzero data fetch mnist" in lines
    found = json.loads(run("data", "list", "--json", "--data-dir", tmp_path).output)
    assert found["digits"]["here"]
    assert "--data-dir or LZERO_DATA" in found["cifar10"]["says"]


def test_what_is_wrong_with_a_dataset_that_is_here_is_told(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    put(tmp_path / "mnist", dict.fromkeys(MNIST.files, b""))
    digits, mnist, fashion, *_ = run("data", "list", "--data-dir", tmp_path).output.splitlines()
    assert digits == 'digits         this needs scikit-learn, which is not installed; run: pip install "lzero[train]"'
    assert mnist.endswith("train-images-idx3-ubyte: empty; fetch it again")
    assert fashion == "fashion-mnist  not here: lzero data fetch fashion-mnist"
    found = json.loads(run("data", "list", "--json", "--data-dir", tmp_path).output)
    assert not any(each["here"] for each in found.values())


def test_datasets_are_checked_and_fetched_by_name(run, tmp_path):
    assert run("data", "fetch", "digits", "--data-dir", tmp_path).output.endswith("10 classes\n")
    missing = run("data", "check", "mnist", "--data-dir", tmp_path)
    assert missing.exit_code == 1
    assert missing.output.startswith("lzero: mnist: train-images-idx3-ubyte")
    unknown = run("data", "check", "minst", "--data-dir", tmp_path)
    assert unknown.exit_code == 1
    assert "mnist" in unknown.output


def test_reproduce_draws_every_figure_and_prints_the_law(run, tmp_path):
    result = run("reproduce", "--out", tmp_path)
    assert result.exit_code == 0
    assert "0.8318" in result.output
    names = {f"figure-{k}{dark}{suffix}" for k in (1, 2) for dark in ("", "-dark") for suffix in (".png", ".svg")}
    assert {figure.name for figure in tmp_path.iterdir()} == names | {"index.html"}
    assert all(figure.read_bytes().startswith(PNG) for figure in tmp_path.glob("*.png"))
    assert "figure-1.png" in result.output


def test_reproduce_draws_only_what_is_named(run, tmp_path):
    assert run("reproduce", "figure-1", "--out", tmp_path).exit_code == 0
    assert {figure.name.split(".")[0] for figure in tmp_path.iterdir()} == {"figure-1", "figure-1-dark", "index"}


def test_nothing_is_overwritten_without_being_asked(run, tmp_path):
    (tmp_path / "figure-2.png").write_text("mine")
    refused = run("reproduce", "--out", tmp_path)
    assert refused.exit_code == 1
    assert "pass --overwrite" in refused.output
    assert [entry.name for entry in tmp_path.iterdir()] == ["figure-2.png"]
    assert (tmp_path / "figure-2.png").read_text() == "mine"
    assert run("reproduce", "--out", tmp_path, "--overwrite").exit_code == 0
    assert (tmp_path / "figure-2.png").read_bytes().startswith(PNG)


def test_an_unknown_name_is_refused_with_the_nearest(run, tmp_path):
    refused = run("reproduce", "figure2", "--out", tmp_path)
    assert refused.exit_code == 1
    assert "got figure2; did you mean figure-2?" in refused.output


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["figure-3"], "name table-1-mlp and table-1-lenet5 too, with the same options"),
        (["table-1-mlp", "figure-3"], "name table-1-lenet5 too, with the same options"),
        (["dynamics", "table-1-mlp", "figure-c1", "--only", "λ"], "name dynamics too, with the same options"),
    ],
)
def test_figures_of_experiments_that_were_not_run_say_so_before_anything_is_trained(arguments, advice, run, tmp_path):
    refused = run("reproduce", *arguments, "--out", tmp_path / "out", "--data-dir", tmp_path)  # which has no MNIST
    assert refused.exit_code == 1
    assert advice in refused.output
    assert not list(tmp_path.iterdir())


def test_damaged_records_are_named_before_anything_is_trained(run, tmp_path):
    (tmp_path / "dynamics.jsonl").write_text('{"row": "a"}\n')
    refused = run("reproduce", "table-1-mlp", "figure-c1", "--out", tmp_path, "--data-dir", tmp_path)
    assert refused.exit_code == 1
    assert "dynamics.jsonl, line 1: damaged, not a record" in refused.output
    (tmp_path / "dynamics.jsonl").write_text("")
    refused = run("reproduce", "figure-c1", "--out", tmp_path)
    assert "dynamics.jsonl: empty, without a single record; delete it" in refused.output
    refused = run("reproduce", "figure-1", "--out", tmp_path)
    assert refused.exit_code == 1
    assert "empty, without a single record" in refused.output


def test_no_form_of_a_figure_is_overwritten(run, tmp_path):
    (tmp_path / "figure-1-dark.svg").write_text("mine")
    refused = run("reproduce", "figure-1", "--out", tmp_path)
    assert "figure-1-dark.svg; pass --overwrite" in refused.output.replace("\n", " ")
    assert (tmp_path / "figure-1-dark.svg").read_text() == "mine"


def test_all_may_stand_beside_other_names(run, tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr("lzero.cli.reproduce.reproduce", lambda names, *_, **__: told.extend(names))
    assert run("reproduce", "all", "figure-1", "--out", tmp_path).exit_code == 0
    assert set(told) == set(NAMES)


def test_an_unwritable_folder_is_one_line(run, tmp_path):
    blocker = tmp_path / "file"
    blocker.touch()
    refused = run("reproduce", "figure-1", "--out", blocker)
    assert refused.exit_code == 1
    assert refused.output.startswith(f"lzero: cannot write {blocker}")


def test_without_matplotlib_the_extra_is_named(tmp_path):
    code = (
        "import sys; sys.modules['matplotlib.figure'] = None; "
        f"from lzero.cli import app; app(['reproduce', 'figure-1', '--out', {str(tmp_path)!r}])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert 'pip install "lzero[plots]"' in result.stderr
    assert "Traceback" not in result.stderr


def test_the_installed_command_is_this_one():
    scripts = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]["scripts"]
    module, name = scripts["lzero"].split(":")
    assert getattr(importlib.import_module(module), name) is app
