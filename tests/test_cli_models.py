"""The commands about models: plan, measure, compact and export say and write what the library does."""

import json
import shutil
import warnings

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from typer.testing import CliRunner

import lzero
from lzero import data, recipes, storage
from lzero.cli import app
from lzero.cli.source import SHAPES, find
from lzero.cli.sweep import parsed
from lzero.data import Dataset, Split
from lzero.errors import BudgetWarning
from lzero.report.page import write_page
from lzero.training.building import build
from lzero.zoo import make
from tests.test_export import assert_same

X = torch.rand(1, 1, 8, 8)
MODULE = "from torch import nn\ndef net(): return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))\n"
NETWORK = ["model.name=mlp", "model.options={inputs=64, widths=[24, 12]}", "training.epochs=2", "gates.lr=0.3"]
RUNS = {
    "shrunk": ["objective.kind=penalty", "objective.strength=5.0", "gates.lr=0.8", "shrink.every=1"],
    "averaged": [
        "gates.units=paper", "training.average=0.9", "data.normalise=true", "data.held_out=0.2",
        "objective.target=0.6", "objective.cost=params",
    ],
    "rounded": ["objective.target=0.6", "shrink.round_to=4"],
    "frozen": ["objective.target=0.6", "shrink.freeze_after=0.5"],
    "plain": ["gates.units=none", "objective.kind=none"],
}  # fmt: skip
GATED = ["shrunk", "averaged", "rounded"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Run folders, trained just long enough to be there."""
    whole, folder = data.digits(), tmp_path_factory.mktemp("runs")
    few = Dataset("digits", Split(whole.train.images[:320], whole.train.labels[:320]), whole.test, whole.classes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BudgetWarning)
        for name, changes in RUNS.items():
            recipe = recipes.load("digits", [*NETWORK, *changes])
            lzero.fit(recipe, folder / name, dataset=few, accelerator="cpu")
    removed = [json.loads(line)["removed"] for line in (folder / "shrunk" / "metrics.jsonl").read_text().splitlines()]
    assert sum(removed) > 0
    return folder


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(here):  # noqa: ARG001 (commands run in it)
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def told(run):
    """What a command prints as JSON."""

    def parsed(*arguments):
        result = run(*arguments, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    return parsed


def counted(model, x=X):
    size = lzero.measure(model, x)
    return {"params": size.params.dense, "macs": size.macs.dense}


def network():
    return make("mlp", inputs=64, widths=(24, 12))


def test_shapes_are_those_of_the_datasets():
    assert set(SHAPES) == set(data.known())
    assert SHAPES["digits"] == data.digits().shape


@pytest.mark.parametrize("name", ["digits", "mnist-lenet5-penalty", "mnist-mlp-constraint"])
def test_a_recipe_has_a_plan_and_a_size(name, told):
    model, x = find(name).dense(), find(name).inputs(None)
    assert told("measure", name)["dense"] == counted(model, x)
    sparsifier = lzero.sparsify(model, x, units=recipes.load(name).gates.units)
    assert told("measure", name)["gates"] == len(sparsifier.log_alpha)
    plan = told("plan", name)
    assert [(each["name"], each["units"], each["read_by"]) for each in plan["removable"]] == [
        *sparsifier.plan().removable
    ]
    assert [(each["name"], each["units"], each["reason"]) for each in plan["fixed"]] == [*sparsifier.plan().fixed]


def test_the_plan_is_printed_for_people_too(run):
    lines = run("plan", "digits").output.splitlines()
    assert [line.split() for line in lines[1:3]] == [
        ["conv1.0", "32", "conv2.0.weight"],
        ["conv2.0", "64", "conv3.0.weight"],
    ]
    assert lines[-1].split() == ["head", "10", "model", "output"]


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        (["--units", "paper"], {"units": "paper"}),
        (["--units", "weights"], {"units": "weights"}),
        (["--include", "conv1*", "--include", "conv2*"], {"include": ("conv1*", "conv2*")}),
        (["--exclude", "conv1*"], {"exclude": "conv1*"}),
    ],
)
def test_a_plan_follows_its_options(options, arguments, told):
    plan = lzero.sparsify(make("smallconv"), X, **arguments).plan()
    assert [each["name"] for each in told("plan", "digits", *options)["removable"]] == [
        name for name, *_ in plan.removable
    ]


def test_a_bench_times_the_network_of_a_run_and_those_of_a_budget(runs, told):
    found = told("bench", runs / "rounded", "--budget", "40%", "--round-to", "4", "--round-to", "32", "--repeats", "1")
    networks = {each["name"]: each for each in found["networks"]}
    assert list(networks) == ["dense", "compacted", "40% of MACs", "multiples of 4"]
    assert found["no_multiples_of"] == [32]  # of widths 24 and 12
    saved = find(str(runs / "rounded"))
    for name, model in {"dense": network(), "compacted": saved.compacted()}.items():
        assert {key: networks[name][key] for key in ("params", "macs")} == counted(model)
    assert all(each["macs"] <= 0.4 * networks["dense"]["macs"] for each in [*networks.values()][2:])
    assert all([*each["forward"]] == ["1", "100"] for each in networks.values())
    assert all(
        seconds > 0 for each in networks.values() for seconds in (*each["forward"].values(), each["step"]["100"])
    )


def test_a_bench_of_any_model_is_a_table_of_ratios(run, here):
    (here / "my_networks.py").write_text(MODULE)
    result = run("bench", "my_networks:net", "--input", "1,4", "--batch", "1", "--repeats", "1", "--round-to", "4")
    lines = result.stdout.splitlines()
    assert "times over those of the dense network" in lines[0]
    assert [line.split()[0] for line in lines[2:]] == ["dense", "50%", "multiples"]
    assert lines[1].split() == ["parameters", "MACs", "forward,", "1"]  # no step: a norm cannot learn from one example
    assert lines[2].split()[-1] == "ms"
    assert all(line.rstrip().endswith("×") for line in lines[3:])


def test_a_report_is_written_anew(runs, run, here):
    shutil.copytree(runs / "rounded", here / "again")
    assert run("report", "again").stdout.strip() == "again/report.html"
    assert "Not finished" not in (here / "again" / "report.html").read_text()
    (here / "again" / "outcome.json").unlink()
    run("report", "again")
    assert "Not finished" in (here / "again" / "report.html").read_text()


def test_a_network_of_the_zoo_needs_its_input_said(run, told):
    assert told("measure", "lenet5", "--input", "2,1,28,28") == {
        "dense": counted(make("lenet5"), torch.rand(2, 1, 28, 28))
    }
    assert told("plan", "gpt", "--input", "1,16:int64")["removable"]
    refused = run("measure", "lenet5")
    assert refused.exit_code == 1
    assert "--input: expected sizes such as 1,3,32,32, got nothing" in refused.output


def test_any_wide_network_is_of_the_zoo(told):
    assert told("measure", "wrn-10-1", "--input", "1,3,32,32") == {
        "dense": counted(make("wrn-10-1"), torch.rand(1, 3, 32, 32))
    }


def test_a_module_in_place_of_what_makes_one_is_named(run, here):
    (here / "made.py").write_text("from torch import nn\nnet = nn.Linear(2, 2)\n")
    assert "net is one: def make(): return …, or its class" in run("plan", "made:net", "--input", "1,2").stderr


def test_a_bench_leaves_out_what_it_is_told_to(told):
    only = "--budget", "90%", "--repeats", "1", "--round-to", "1"
    whole, without = (told("bench", "digits", *only, *left) for left in ((), ("--exclude", "conv2*")))
    assert whole["networks"][0]["macs"] == without["networks"][0]["macs"]
    assert whole["networks"][1]["macs"] != without["networks"][1]["macs"]


def test_a_function_where_the_user_is_makes_a_model(told, here, run):
    (here / "my_networks.py").write_text(MODULE)
    source, sizes = "my_networks:net", ("--input", "3,4")
    assert told("measure", "my_networks.py:net", *sizes) == told("measure", source, *sizes)
    assert told("measure", source, *sizes) == {"dense": {"params": 58, "macs": 3 * 48}}
    assert [each["units"] for each in told("plan", source, *sizes)["removable"]] == [8]
    torch.manual_seed(1)
    assert run("export", source, *sizes, "--out", "a.onnx").exit_code == 0


def test_errors_in_the_users_code_say_where(here, run):
    (here / "mistaken_networks.py").write_text("from torch import nn\ndef net():\n    return nn.Linear(4, widht)\n")
    said = " ".join(run("plan", "mistaken_networks:net", "--input", "3,4").output.split())
    assert "makes no network: NameError: name 'widht' is not defined, in mistaken_networks.py:3: return nn.L" in said


def test_networks_may_be_read_by_whom_the_user_lets_read(runs):
    folder = runs / "shrunk"
    assert len({(folder / name).stat().st_mode for name in ("model.safetensors", "config.toml")}) == 1


COUNTING = """
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.three = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, x):
        h = self.one(x).tanh().view(len(x), 8)
        return self.three(self.two(h).tanh())
"""


def test_a_plan_says_where_code_stands_in_the_way(told, here, run):
    (here / "counting_networks.py").write_text(COUNTING)
    command = "plan", "counting_networks:Net", "--input", "3,4"
    obstacle = told(*command)["obstacle"]
    assert obstacle["names"] == ["one"]
    assert obstacle["why"].endswith("in counting_networks.py:10: h = self.one(x).tanh().view(len(x), 8))")
    printed = " ".join(run(*command).output.split())
    assert "leave them out by --exclude '*/inner' --exclude one; in Python, lzero.compact(model" in printed
    assert told(*command, "--exclude", "one")["obstacle"] is None


@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_measured_before_and_after(name, runs, told, run):
    small = storage.load(network(), runs / name / "model.safetensors")
    sizes = told("measure", runs / name)
    assert sizes["dense"] == counted(network())
    nonzero = sum(int((parameter != 0).sum()) for parameter in small.parameters())
    assert sizes["compacted"] == {**counted(small), "nonzero": nonzero}
    outcome = json.loads((runs / name / "outcome.json").read_text())
    assert sizes.get("layers", []) == outcome["layers"]
    assert f"{sizes['compacted']['macs']:,}" in run("measure", runs / name).output


@pytest.mark.parametrize("name", GATED)
def test_compacting_once_more_gives_what_the_training_gave(name, runs, told):
    sizes = told("compact", runs / name, "--out", "small.safetensors")
    assert sizes["difference"] < 1e-5
    again, first = (
        storage.load(network(), path).state_dict() for path in ("small.safetensors", runs / name / "model.safetensors")
    )
    assert again.keys() == first.keys()
    assert all(torch.equal(again[key], first[key]) for key in again)


@pytest.mark.parametrize(("budget", "cost"), [("0.3", "macs"), ("40%", "params"), ("900", "params")])
def test_another_budget_holds(budget, cost, runs, told):
    sizes = told("compact", runs / "averaged", "--out", "a.safetensors", "--budget", budget, "--cost", cost)
    dense = sizes["dense"][cost]
    limit = {"0.3": 0.3 * dense, "40%": 0.4 * dense, "900": 900}[budget]
    assert 0.8 * limit < sizes["compacted"][cost] <= limit
    small = storage.load(network(), "a.safetensors")
    assert sizes["compacted"].items() >= counted(small).items()
    assert told("measure", runs / "averaged", "--weights", "a.safetensors")["compacted"] == sizes["compacted"]


def test_the_error_of_what_is_left_is_told_where_the_data_is_here(runs, told, run):
    """As it was counted when the training ended: averaged, normalised, and on the same held-out examples."""
    sizes = told("compact", runs / "averaged", "--out", "a.safetensors")
    recipe = recipes.load(runs / "averaged" / "config.toml")
    session = build(recipe, data.digits(), accelerator="cpu")
    assert sizes["error"] == session.evaluate(storage.load(network(), "a.safetensors"))[0]
    printed = run("compact", runs / "averaged", "--out", "b.safetensors").output
    assert f"its error on the held-out part of digits: {sizes['error']:.2%}" in " ".join(printed.split())


def test_the_error_of_a_network_with_norms_is_that_of_its_training(told, here):
    recipe = recipes.load("digits", ["training.epochs=1", "objective.target=1.0"])
    outcome = lzero.fit(recipe, here / "run", accelerator="cpu")
    assert told("compact", "run", "--out", "a.safetensors")["error"] == outcome.compacted.error


def test_an_error_on_data_that_is_not_here_is_not_told(runs, told, run, monkeypatch):
    def missing(*_):
        raise data.DataError("digits: not here")

    monkeypatch.setattr(data, "load", missing)
    assert told("compact", runs / "shrunk", "--out", "a.safetensors")["error"] is None
    printed = run("compact", runs / "shrunk", "--out", "b.safetensors").output
    assert "its error is not known: digits: not here" in " ".join(printed.split())


@pytest.mark.parametrize(
    ("name", "says"),
    [("digits", "was not trained on digits"), ("mine", "not known: name: expected one of digits, mnist")],
)
def test_an_error_on_other_data_than_it_was_trained_on_is_not_told(name, says, told, run, here):
    """A recipe knows data that was given in place of its own by the name alone."""
    split = Split(torch.rand(80, 1, 8, 8), torch.arange(80) % 2)
    recipe = recipes.load("digits", ["training.epochs=1", "objective.target=1.0", "model.options={classes=2}"])
    lzero.fit(recipe, here / "run", dataset=Dataset(name, split, split, ("a", "b")), accelerator="cpu")
    sizes = "--input", "1,1,8,8"
    assert told("compact", "run", "--out", "a.safetensors", *sizes)["error"] is None
    assert says in run("compact", "run", "--out", "b.safetensors", *sizes).output
    without = run("compact", "run", "--out", "c.safetensors").output
    assert ("the sizes of mine are not known" in without) is (name == "mine")


COMMANDS = ["measure RUN", "plan RUN", "bench RUN", "export RUN --out a.pt2", "compact RUN --out a.safetensors"]


def test_a_network_that_was_given_from_python_is_named_by_its_function(run, told, here):
    (here / "given.py").write_text("from lzero.zoo import make\ndef net(): return make('smallconv')\n")
    recipe = recipes.load("digits", ["training.epochs=1", "objective.target=1.0"])
    outcome = lzero.fit(recipe, here / "run", model=make("smallconv"), accelerator="cpu")
    for command in COMMANDS:
        refused = run(*command.replace("RUN", "run").split())
        assert refused.exit_code == 1
        assert "was given to fit from Python; name its function, module:function, with --weights run/" in refused.output
    said = told("measure", "given.py:net", "--weights", "run/model.safetensors", "--input", "1,1,8,8")
    assert said["compacted"]["macs"] == outcome.compacted.macs
    assert "SmallConv on digits" in write_page(here / "run").read_text()


def test_lines_say_which_of_two_trainings_they_are_of(run, here):
    short = "--set", "training.epochs=1", "--set", "objective.target=1.0", "--accelerator", "cpu"
    lines = run("train", "--compare", "--out", here / "run", *short).output.splitlines()
    assert [line.split("  ")[0] for line in lines[:2]] == ["dense 1/1", "epoch 1/1"]


@pytest.mark.parametrize(
    ("over", "values"),
    [
        ("epochs=1..4:3", [1, 2, 4]),
        ("batch_size=32..256:4", [32, 64, 128, 256]),
        ("epochs=1..4", [1, 2, 3, 4]),  # whole numbers between that differ
        ("target=1..0.25:3", [1.0, 0.5, 0.25]),
        ("model.options.widths=[1,2],[3,4]", [[1, 2], [3, 4]]),
        ("gates.include=['conv1*', 'conv2*'],[]", [["conv1*", "conv2*"], []]),
        ("model.init='../one.safetensors','two'", ["../one.safetensors", "two"]),
        ("model.init=../one.safetensors,../two", ["../one.safetensors", "../two"]),
        ("model.init=../one.safetensors", ["../one.safetensors"]),
        ("target=10%,0.2", ["10%", 0.2]),
    ],
)
def test_values_of_a_setting_are_those_of_its_type(over, values):
    _, found = parsed(over)
    assert found == values
    assert [type(each) for each in found] == [type(each) for each in values]


def test_a_run_that_began_with_a_compacted_network_is_measured_and_exported(runs, run, told, here):
    changes = [each for change in (*NETWORK, "epochs=1", "target=0.5") for each in ("--set", change)]
    start = "--init", runs / "rounded" / "model.safetensors", "--accelerator", "cpu"
    assert run("train", "digits", *start, *changes, "--out", "again").exit_code == 0
    rows = told("measure", "again")
    assert rows["compacted"]["macs"] <= rows["dense"]["macs"]
    assert run("export", "again", "--out", "small.pt2").exit_code == 0
    assert (here / "small.pt2").exists()


def test_weights_may_be_a_state_dict_of_the_dense_network(run, told, here):
    (here / "nets.py").write_text(MODULE)
    command = "nets.py:net", "--input", "1,4"
    untrained = run("export", *command, "--out", "untrained.pt2")
    assert "no --weights were given" in untrained.output
    torch.manual_seed(0)
    save_file(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).state_dict(), here / "dense.safetensors")
    assert told("measure", *command, "--weights", "dense.safetensors")["compacted"]["params"] == 4 * 8 + 8 + 8 * 2 + 2
    exported = run("export", *command, "--weights", "dense.safetensors", "--out", "dense.pt2")
    assert exported.exit_code == 0
    assert "no --weights" not in exported.output
    torch.save({}, here / "dense.pt")
    refused = " ".join(run("export", *command, "--weights", "dense.pt", "--out", "other.pt2").output.split())
    assert "safetensors.torch.save_file(torch.load('dense.pt', weights_only=True), …) makes one" in refused


def test_a_sweep_takes_whole_numbers_and_lists(run):
    fixed = "--set", "model.name=mlp", "--set", "model.options.inputs=64", "--set", "gates.units=none"
    over = "--over", "epochs=1..2:2", "--over", "model.options.widths=[4],[4,2]"
    less = "--set", "objective.kind=none", "--out", "made", "--workers", "1", "--accelerator", "cpu", "--json"
    rows = json.loads(run("sweep", "digits", *over, *fixed, *less).stdout)
    assert [(row["training.epochs"], row["model.options.widths"], row["params"]) for row in rows] == [
        (epochs, widths, sum(each.numel() for each in make("mlp", inputs=64, widths=widths).parameters()))
        for epochs in (1, 2) for widths in ([4], [4, 2])
    ]  # fmt: skip


def test_widths_are_rounded(runs, told):
    sizes = told("compact", runs / "rounded", "--out", "a.safetensors", "--budget", "0.5", "--round-to", "3")
    assert [layer["after"] % 3 for layer in sizes["layers"]] == [0, 0]


def test_a_budget_met_by_force_is_warned_of(runs, run):
    result = run("compact", runs / "averaged", "--out", "a.safetensors", "--budget", "0.05")
    assert result.exit_code == 0
    assert result.stderr.startswith("lzero: the budget was met by closing")
    assert "objective" not in result.stderr  # the command's budget, for which nobody trained anything
    assert "a.safetensors: its outputs are those of the gated network" in result.stdout


@pytest.mark.parametrize("suffix", [".onnx", ".pt2"])
def test_what_is_exported_is_the_network_of_the_run(suffix, runs, run, here):
    result = run("export", runs / "averaged", "--out", f"a{suffix}")
    assert result.output.startswith(f"a{suffix}: ")
    assert_same(here / f"a{suffix}", find(str(runs / "averaged")).compacted(), torch.rand(3, 1, 8, 8))


def test_exported_weights_may_come_from_a_file(runs, run, here):
    lzero.save(network(), "other.safetensors")
    assert run("export", runs / "plain", "--weights", "other.safetensors", "--out", "new/a.pt2").exit_code == 0
    assert_same(here / "new" / "a.pt2", storage.load(network(), "other.safetensors"), torch.rand(2, 1, 8, 8))


REFUSED = {
    "unknown": ("plan digitz", "did you mean digits?"),
    "a network": ("train wrn-10-1", "a network of the zoo is a setting: --set model.name=wrn-10-1"),
    "a network to sweep": ("sweep lenet5 --over seed=1", "a setting: --set model.name=lenet5"),
    "a wide network": ("measure wrn-11-1 --input 1,3,32,32", "depth"),
    "folder": ("measure .", "SOURCE: expected a run folder, with config.toml, got ."),
    "no module": ("plan no.such:thing --input 1,2", "No module named 'no'"),
    "a module": ("plan torch.nn.functional:relu --input 1,2", "relu makes no network"),
    "weights alone": ("measure RUNS/shrunk/model.safetensors", "give its run folder, or a network and --weights FILE"),
    "range": ("sweep digits --over target=0.2..", "target=0.2..: expected two numbers above 0, as in 0.05..0.8"),
    "empty": ("sweep digits --over target=0.1,,0.2", "target=0.1,,0.2: expected KEY=VALUE,VALUE or KEY=FIRST..LAST"),
    "one value": ("sweep digits --over target=0.1..0.4:1", "range: expected at least 2 values, got 0.1..0.4:1"),
    "from zero": ("sweep digits --over target=0..0.4", "range: expected two numbers above 0, got 0..0.4"),
    "no count": ("sweep digits --over target=0.1..0.4:many", "expected two numbers above 0, as in 0.05..0.8 or"),
    "both": ("train digits --out RUNS/shrunk --resume --overwrite", "choose one"),
    "sizes": ("plan lenet5 --input 1x28x28", "--input: expected sizes such as 1,3,32,32"),
    "type": ("plan lenet5 --input 1,28:text", "float32, float64, int64"),
    "units": ("plan digits --units heads", "units: expected"),
    "glob": ("plan digits --include nothing*", "include: expected globs that match one of"),
    "weights": ("measure digits --weights missing", "missing: there is no such file"),
    "untrained": ("export digits --out a.onnx", "expected a trained network, got digits"),
    "export suffix": ("export RUNS/averaged --out a.txt", "ends in .onnx or .pt2, got a.txt"),
    "compact suffix": ("compact RUNS/averaged --out a.onnx", "ends in .safetensors, got a.onnx"),
    "no run": ("compact digits --out a.safetensors", "expected a folder that lzero train made, got digits"),
    "no gates": ("compact RUNS/plain --out a.safetensors", "its network never had gates"),
    "frozen": ("compact RUNS/frozen --out a.safetensors", "freeze_after"),
    "too small": ("compact RUNS/averaged --out a.safetensors --budget 0.0001", "which cannot be removed"),
    "no budget": ("compact RUNS/averaged --out a.safetensors --budget little", "got 'little'"),
    "all of it": ("bench digits --budget 200%", "the dense network needs no budget"),
    "accelerator": ("bench digits --accelerator tpu", "expected auto, cpu or cuda, got tpu"),
    "no report": ("report .", "config.toml: there is no such file; is this the folder of a run?"),
    "cost": ("compact RUNS/averaged --out a.safetensors --budget 0.5 --cost watts", 'cost: expected "l0" or'),
}


@pytest.mark.parametrize(("command", "message"), REFUSED.values(), ids=REFUSED)
def test_a_refusal_is_one_line_and_writes_nothing(command, message, runs, run, here):
    result = run(*command.replace("RUNS", str(runs)).split())
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("lzero: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert not list(here.iterdir())


@pytest.mark.parametrize("command", ["compact RUN --out there.safetensors", "export RUN --out there.pt2"])
def test_nothing_is_overwritten_without_being_asked(command, runs, run, here):
    *arguments, name = command.replace("RUN", str(runs / "shrunk")).split()
    (here / name).write_text("mine")
    refused = run(*arguments, name)
    assert refused.exit_code == 1
    assert "pass --overwrite" in refused.stderr
    assert (here / name).read_text() == "mine"
    assert run(*arguments, name, "--overwrite").exit_code == 0
    assert (here / name).stat().st_size > 100


def test_a_training_that_has_not_ended_says_how_to_go_on(runs, run, here):
    shutil.copytree(runs / "averaged", "half")
    (here / "half" / "model.safetensors").unlink()
    refused = run("measure", "half")
    assert refused.exit_code == 1
    assert "lzero train --resume" in refused.output
    assert run("compact", "half", "--out", "a.safetensors").exit_code == 0  # the checkpoint is enough


def test_help_says_what_may_be_given(run):
    for command in ("plan", "measure", "bench", "compact", "export"):
        assert command in run("--help").output
        assert "--input" in run(command, "--help").output


@pytest.mark.parametrize("command", ["train", "sweep"])
def test_paths_are_printed_as_they_are(command, run):
    """Brackets are part of a name: rich would read markup in them, and leave them out."""
    short = "--set", "training.epochs=1", "--set", "gates.units=none", "--set", "objective.kind=none"
    over = ("--over", "optimizer.lr=0.01", "--workers", "1") if command == "sweep" else ("--resume",)
    result = run(command, "digits", "--out", "runs/[red]x", *over, *short, "--accelerator", "cpu")
    assert result.exit_code == 0, result.output
    told = {
        "train": ["runs/[red]x: no run", "network: runs/[red]x/model.safetensors", "report:  runs/[red]x/report.html"],
        "sweep": ["All rows: runs/[red]x/sweep.json"],
    }[command]
    assert all(line in result.output for line in told)


def test_a_sweep_tells_of_what_it_trained_where_some_settings_cannot_be(run, here):
    short = "--set", "training.epochs=1", "--set", "objective.cost=macs", "--accelerator", "cpu", "--workers", "1"
    result = run("sweep", "digits", "--over", "target=0.9,0.0001", *short, "--out", str(here / "sweep"))
    assert result.exit_code == 1
    assert "target: expected at least" in result.output
    assert "With pictures:" in result.output
    page = (here / "sweep/sweep.html").read_text()
    assert "1 training." in page
    assert "An interval takes 3 seeds." in page
    assert run("report", str(here / "sweep")).exit_code == 0


def test_gates_on_weights_are_told_by_how_many_are_not_zero(run, here):
    settings = "gates.units=weights", "objective.cost=l0", "gates.lr=0.3"
    closing = [part for each in settings for part in ("--set", each)] + ["--accelerator", "cpu"]
    result = run("train", "digits", "--set", "training.epochs=2", *closing, "--out", str(here / "run"))
    outcome = json.loads((here / "run/outcome.json").read_text())
    small = outcome["compacted"]
    assert small["nonzero"] < 0.3 * outcome["dense"]["params"] < small["params"]
    assert f"{small['nonzero']:,}" in result.output
    assert f"{small['nonzero']:,}" in run("measure", str(here / "run")).output
    assert "parameters that are not zero" in (here / "run/report.html").read_text()
