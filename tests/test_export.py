"""Export: the file computes what the model computes, for batches of any size, or it is not there."""

import logging
import sys
from dataclasses import replace
from functools import cache

import onnxruntime
import pytest
import torch
from torch import nn
from torch.fx import GraphModule
from torch.utils._pytree import tree_leaves

import lzero
from lzero import LzeroError, compact, export, formats, sparsify
from lzero.errors import ArgumentError, ExportError, MissingExtraError
from lzero.formats import FORMATS
from lzero.layers import IndexedLinear
from tests.models import AS_GRAPH, build, set_gates

NAMES = ["MLP", "LeNet-5", "ResNeXt", "U-Net", "GPT, fused", "GPT, counting", "BERT"]
SUFFIXES = sorted(FORMATS)


@cache
def small_and_inputs(name):
    torch.manual_seed(0)
    model, x = build(name, torch.float32)
    set_gates(sparsify(model, x, units="paper"), 0.5)
    return compact(model, fallback="graph" if name in AS_GRAPH else "error"), x


def outputs(model, *inputs):
    with torch.no_grad():
        return [leaf for leaf in tree_leaves(model(*inputs)) if isinstance(leaf, torch.Tensor)]


def outputs_of_file(path, *inputs):
    if path.suffix == ".pt2":
        return outputs(torch.export.load(path).module(), *inputs)
    session = onnxruntime.InferenceSession(path)
    names = [each.name for each in session.get_inputs()]
    return [torch.from_numpy(y) for y in session.run(None, dict(zip(names, [x.numpy() for x in inputs], strict=True)))]


def assert_same(path, model, *inputs):
    expected, got = outputs(model.eval(), *inputs), outputs_of_file(path, *inputs)
    assert len(expected) == len(got)
    for one, other in zip(expected, got, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-5)


class Scores(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)


class Switching(Scores):
    """Computes something else for small batches."""

    def forward(self, x):
        return self.layer(x) * (1 if len(x) > 2 else 2)


class Pair(Scores):
    """Two inputs, of which one has no batch, and outputs in a dict."""

    def forward(self, x, mix):
        return {"scores": self.layer(x) @ mix, "best": self.layer(x).argmax(1), "nothing": None}


class Rotated(Scores):
    """Uses an operation that ONNX does not have."""

    def forward(self, x):
        return torch.linalg.svdvals(self.layer(x).unsqueeze(1))


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("name", NAMES)
def test_the_file_computes_what_the_compacted_model_does(name, suffix, tmp_path):
    small, x = small_and_inputs(name)
    path = tmp_path / f"small{suffix}"
    export(small, path, x)
    for size in (1, 2, 7):
        other = (
            torch.randint(0, 20, (size, *x.shape[1:])) if x.dtype == torch.int64 else torch.randn(size, *x.shape[1:])
        )
        assert_same(path, small, other)


def test_the_models_above_have_what_export_finds_hard():
    assert any(isinstance(layer, IndexedLinear) for layer in small_and_inputs("MLP")[0].modules())
    assert isinstance(small_and_inputs("GPT, counting")[0], GraphModule)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_several_inputs_and_outputs(suffix, tmp_path):
    model, mix = Pair(), torch.randn(3, 5)
    export(model, tmp_path / f"a{suffix}", (torch.randn(2, 4), mix))
    assert_same(tmp_path / f"a{suffix}", model, torch.randn(6, 4), mix)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_one_example_stands_for_any_batch(suffix, tmp_path):
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Dropout(), nn.Flatten(), nn.Linear(36, 2))
    export(model, tmp_path / f"a{suffix}", torch.randn(1, 1, 5, 5, requires_grad=True))
    assert_same(tmp_path / f"a{suffix}", model, torch.randn(5, 1, 5, 5))


class Stateful(nn.Module):
    """A recurrent layer with time first, that is given its state, in a dictionary or as it is."""

    def __init__(self):
        super().__init__()
        self.recurrent = nn.LSTM(4, 3)

    def forward(self, x, state):
        start = (state["h"], state["c"]) if isinstance(state, dict) else state
        return self.recurrent(x, start)[0]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("as_state", [tuple, lambda h_and_c: dict(zip("hc", h_and_c, strict=True))])
def test_a_batch_that_is_not_first_and_inputs_in_containers(suffix, as_state, tmp_path):
    model, path = Stateful(), tmp_path / f"a{suffix}"
    given = {size: (torch.randn(5, size, 4), as_state(torch.randn(2, 1, size, 3).unbind())) for size in (2, 6)}
    export(model, path, given[2], batch_dim=1)
    run_file = FORMATS[suffix].read(path)
    torch.testing.assert_close(run_file(given[6])[0], model(*given[6]).detach())


class Passing(nn.Module):
    """A wrapper that hands on whatever it is given."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, *arguments):
        return self.model(*arguments)


def test_a_forward_may_take_any_number_of_inputs(tmp_path):
    model, path = Passing(nn.Bilinear(4, 3, 2)), tmp_path / "a.pt2"
    export(model, path, (torch.randn(2, 4), torch.randn(2, 3)))
    more = torch.randn(5, 4), torch.randn(5, 3)
    torch.testing.assert_close(FORMATS[".pt2"].read(path)(more)[0], model(*more).detach())


def test_sizes_that_code_insists_on_are_those_of_the_example(tmp_path):
    model, path = Switching(), tmp_path / "a.pt2"
    export(model, path, X, batch_dim=None)
    assert_same(path, model, X)


class Drawing(nn.Module):
    """Draws noise in evaluation too."""

    def forward(self, x):
        return x + torch.randn_like(x)


def test_noise_is_the_same_when_the_file_is_checked(tmp_path):
    export(Drawing(), tmp_path / "a.pt2", X)
    assert (tmp_path / "a.pt2").exists()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_model_is_left_alone_and_nothing_is_said(suffix, tmp_path, capfd, caplog):
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(), nn.Linear(3, 2)).train()
    model[1].eval()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    export(model, tmp_path / f"a{suffix}", torch.randn(2, 4))
    assert [part.training for part in model.modules()] == [True, True, False, True, True]
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert tuple(capfd.readouterr()) == ("", "")
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert [entry.name for entry in tmp_path.iterdir()] == [f"a{suffix}"]


def test_the_examples_do_not_travel_along(tmp_path):
    export(nn.Linear(4, 3), tmp_path / "a.pt2", torch.full((2, 4), 7.0))
    (examples, _) = torch.export.load(tmp_path / "a.pt2").example_inputs
    assert not examples[0].any()


def test_onnx_has_names_that_do_not_depend_on_the_network(tmp_path):
    export(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)), tmp_path / "a.onnx", torch.randn(2, 4))
    session = onnxruntime.InferenceSession(tmp_path / "a.onnx")
    assert [(each.name, each.shape) for each in session.get_inputs()] == [("input", ["batch", 4])]
    assert [(each.name, each.shape) for each in session.get_outputs()] == [("output", ["batch", 2])]


def gated():
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    sparsify(model, torch.randn(1, 4))
    return model


X = torch.randn(3, 4)
REFUSED = {
    "gates": (gated, "a.onnx", X, "compact it first"),
    "gates inside": (lambda: nn.Sequential(gated()), "a.pt2", X, "compact it first"),
    "no module": (lambda: torch.tanh, "a.pt2", X, "model: expected a torch.nn.Module, got builtin_function"),
    "suffix": (Scores, "a.onnxx", X, r"ends in .onnx or .pt2, got .*a\.onnxx"),
    "no suffix": (Scores, "a", X, "ends in .onnx or .pt2"),
    "list": (lambda: nn.Linear(4, 3), "a.pt2", [X], "a tensor or a tuple"),
    "no inputs": (lambda: nn.Linear(4, 3), "a.pt2", (), "at least one"),
    "empty batch": (lambda: nn.Linear(4, 3), "a.onnx", X[:0], "at least one"),
    "wrong size": (lambda: nn.Linear(5, 3), "a.onnx", X, "inputs the model takes, got RuntimeError"),
    "batch-dependent, onnx": (Switching, "a.onnx", X, "other outputs than the model"),
    "batch-dependent, pt2": (Switching, "a.pt2", X, r"would not run with inputs of \(1, 4\), as the model does"),
    "no such operation": (Rotated, "a.onnx", X, r"cannot translate the model: .*svd.*a \.pt2 file takes"),
    "no such type": (lambda: nn.Conv1d(4, 3, 1).double(), "a.onnx", X.double()[..., None], r"model\.float\(\)"),
}


@pytest.mark.parametrize(("make", "name", "inputs", "message"), REFUSED.values(), ids=REFUSED)
def test_a_refusal_leaves_what_was_there(make, name, inputs, message, tmp_path):
    (tmp_path / name).write_text("mine")
    with pytest.raises(LzeroError, match=message):
        export(make(), tmp_path / name, inputs)
    assert [entry.read_text() for entry in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_that_is_not_the_model_is_found_out(suffix, tmp_path, monkeypatch):
    right = FORMATS[suffix]

    def write_wrong(program, path):
        with torch.no_grad():
            next(iter(program.state_dict.values()))[0, 0] += 0.01
        right.write(program, path)

    monkeypatch.setitem(FORMATS, suffix, replace(right, write=write_wrong))
    with pytest.raises(ExportError, match="other outputs"):
        export(nn.Linear(4, 3), tmp_path / f"a{suffix}", X)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_without_the_extra_it_is_named(package, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf'needs {package}, .* pip install "lzero\[export\]"'):
        export(nn.Linear(4, 3), tmp_path / "a.onnx", X)


def test_without_onnxruntime_it_is_said_that_nothing_was_checked(tmp_path, monkeypatch, caplog):
    model = nn.Linear(4, 3)
    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING, logger="lzero"):
        patched.setitem(sys.modules, "onnxruntime", None)
        export(model, tmp_path / "a.onnx", X)
    assert "a.onnx: not checked, because onnxruntime is not installed" in caplog.text
    assert_same(tmp_path / "a.onnx", model, X)


def test_an_onnx_file_has_a_largest_size(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "LARGEST_ONNX", 59)
    with pytest.raises(ExportError, match=r"write a \.pt2 file instead"):
        export(nn.Linear(4, 3), tmp_path / "a.onnx", X)


def test_a_model_on_another_device_is_written_too(device, tmp_path):
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh()).to(device)
    for suffix in SUFFIXES:
        lzero.export(model, tmp_path / f"a{suffix}", X.to(device))
    assert_same(tmp_path / "a.onnx", model.cpu(), X)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    ("batch_dim", "message"),
    [
        (3, "batch_dim: expected a dimension of which the model takes other sizes, got 3; None is for inputs"),
        (5, r"example_inputs: expected a tensor with a batch of at least one, in its dimension 5, got \(2, 1, 8, 8\)"),
    ],
)
def test_a_batch_that_is_none_is_refused(suffix, batch_dim, message, tmp_path):
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    with pytest.raises(ArgumentError, match=message):
        export(model, tmp_path / f"a{suffix}", torch.randn(2, 1, 8, 8), batch_dim=batch_dim)
    assert not list(tmp_path.iterdir())
