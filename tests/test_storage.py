"""A smaller model comes back from its file, and no wrong file does harm."""

import copy
import json
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from lzero import LzeroError, compact, measure, sparsify, verify
from lzero.storage import load, save
from tests.models import AS_GRAPH, MODELS, build, set_gates

NAMES = sorted(set(MODELS) - AS_GRAPH)


def small_and_fresh(name):
    model, x = build(name)
    sparsifier = sparsify(model, x, units="paper")
    set_gates(sparsifier, 0.5)
    sparsifier.shrink()
    return compact(model), build(name)[0], x


@pytest.mark.parametrize("name", NAMES)
def test_the_dense_constructor_and_the_file_make_the_small_model(name, tmp_path):
    small, fresh, x = small_and_fresh(name)
    save(small, tmp_path / "small.safetensors")
    again = load(fresh, tmp_path / "small.safetensors")
    assert again is fresh
    assert verify(small, again, x, tolerance=1e-12) <= 1e-12
    assert {n: p.shape for n, p in again.named_parameters()} == {n: p.shape for n, p in small.named_parameters()}
    save(again, tmp_path / "again.safetensors")
    assert verify(small, load(build(name)[0], tmp_path / "again.safetensors"), x, tolerance=1e-12) <= 1e-12


@pytest.mark.parametrize("is_tied", [False, True])
def test_a_model_without_memory_gets_it_from_the_file(is_tied, tmp_path):
    def make():
        layers = [nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 6)]
        layers[2].weight = layers[1].weight if is_tied else layers[2].weight
        return nn.Sequential(*(part for layer in layers for part in (layer, nn.Tanh())))

    model, x = make(), torch.randn(3, 6)
    set_gates(sparsify(model, x), 0.5)
    small = compact(model)
    save(small, tmp_path / "small.safetensors")
    with torch.device("meta"):
        bare = make()
    again = load(bare, tmp_path / "small.safetensors")
    assert torch.equal(again(x), small(x))
    assert (again[4].weight is again[2].weight) == is_tied


def test_the_plan_names_sites_and_kept_units(tmp_path):
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))
    sparsifier = sparsify(model, torch.randn(1, 4))
    sparsifier.log_alpha.data = torch.tensor([5.0, -60.0, 5.0, -60.0, 5.0])
    sparsifier.shrink()  # 0, 2, 4 are left
    sparsifier.log_alpha.data = torch.tensor([5.0, -3.0, 5.0])
    save(compact(model), tmp_path / "a")
    with safe_open(tmp_path / "a", "pt") as file:
        plan = json.loads(file.metadata()["lzero"])
    assert plan["sites"] == {"0": [0, 4]}
    assert (plan["version"], plan["class"]) == (1, "Sequential")


@pytest.mark.parametrize("name", ["MLP", "ResNet-18", "GPT-2"])
def test_what_was_cut_twice_is_still_cut_from_the_dense_model(name, tmp_path):
    model, x = build(name)
    fresh = copy.deepcopy(model)
    for density in (0.7, 0.5):
        sparsifier = sparsify(model, x)
        set_gates(sparsifier, density)
        model = compact(model)
    save(model, tmp_path / "twice.safetensors")
    assert verify(model, load(copy.deepcopy(fresh), tmp_path / "twice.safetensors"), x) < 1e-9
    sparsifier = sparsify(model, x)
    sparsifier.log_alpha.data[0] = -20.0
    assert sparsifier.shrink() == 1
    save(sparsifier.remove(), tmp_path / "shrunk.safetensors")
    assert verify(model, load(fresh, tmp_path / "shrunk.safetensors"), x) < 1e-9


def test_a_plain_model_can_be_saved_too(tmp_path):
    save(nn.Linear(2, 3), tmp_path / "a")
    assert load(nn.Linear(2, 3), tmp_path / "a").weight.shape == (3, 2)


def test_a_model_with_gates_is_refused(tmp_path):
    model, x = build("MLP")
    sparsify(model, x)
    with pytest.raises(LzeroError, match="compact it first"):
        save(model, tmp_path / "a")
    assert not list(tmp_path.iterdir())


def test_a_graph_is_refused(tmp_path):
    model, x = build("GPT, counting")
    set_gates(sparsify(model, x), 0.5)
    with pytest.raises(LzeroError, match=r"lzero\.export\(model"):
        save(compact(model, fallback="graph"), tmp_path / "a")


def rewritten(path, change):
    """The same file with its plan changed."""
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        plan = json.loads(file.metadata()["lzero"])
    change(plan, tensors)
    save_file(tensors, path, metadata={"lzero": json.dumps(plan, sort_keys=True)})


DAMAGES = {
    "missing": (lambda path: path.unlink(), "there is no such file"),
    "truncated": (lambda path: path.write_bytes(path.read_bytes()[:-7]), "not a whole safetensors file"),
    "empty": (lambda path: path.write_bytes(b""), "not a whole safetensors file"),
    "a flipped bit": (lambda path: path.write_bytes(path.read_bytes()[:-1] + b"\x55"), "checksum"),
    "another plan": (lambda path: rewritten(path, lambda plan, _: plan["attributes"].clear()), "checksum"),
    "another weight": (lambda path: rewritten(path, lambda _, t: t["0.bias"].add_(1)), "checksum"),
    "newer": (lambda path: rewritten(path, lambda plan, _: plan.update(version=99)), "version 99, newer"),
    "not ours": (lambda path: save_file({"a": torch.ones(1)}, path), r"not one that lzero\.save wrote"),
    "no plan": (lambda path: save_file({"a": torch.ones(1)}, path, metadata={"lzero": "[]"}), "not one that"),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGES.values(), ids=DAMAGES)
def test_a_bad_file_is_refused_and_the_model_left_alone(damage, message, tmp_path):
    small, fresh, _ = small_and_fresh("LeNet-5")
    path = tmp_path / "small.safetensors"
    save(small, path)
    damage(path)
    before = {key: value.clone() for key, value in fresh.state_dict().items()}
    printed = repr(fresh)
    with pytest.raises(LzeroError, match=message):
        load(fresh, path)
    assert repr(fresh) == printed
    assert all(torch.equal(before[key], value) for key, value in fresh.state_dict().items())


@pytest.mark.parametrize("other", ["MLP", "VGG-BN"])
def test_another_architecture_is_refused(other, tmp_path):
    small, _, _ = small_and_fresh("LeNet-5")
    save(small, tmp_path / "a")
    model, _ = build(other)
    with pytest.raises(LzeroError, match=r"another architecture: .* has shape"):
        load(model, tmp_path / "a")


def test_an_exported_copy_runs_without_lzero(tmp_path):
    small, _, x = small_and_fresh("LeNet-5")
    torch.export.save(torch.export.export(small.eval(), (x,)), tmp_path / "small.pt2")
    torch.save({"x": x, "y": small(x)}, tmp_path / "io.pt")
    code = (
        "import sys; sys.modules['lzero'] = None; import torch; "
        f"model = torch.export.load({str(tmp_path / 'small.pt2')!r}).module(); "
        f"io = torch.load({str(tmp_path / 'io.pt')!r}); torch.testing.assert_close(model(io['x']), io['y'])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_modules_that_are_not_there_are_named(tmp_path):
    class Normed(nn.Module):
        def __init__(self, norm):
            super().__init__()
            self.first, self.norm, self.second = nn.Conv2d(1, 8, 3), norm, nn.Conv2d(8, 2, 3)

        def forward(self, x):
            x = self.first(x)
            return self.second(x if self.norm is None else self.norm(x))

    model = Normed(nn.GroupNorm(4, 8, affine=False))
    sparsify(model, torch.randn(2, 1, 8, 8)).log_alpha.data[:2] = -9.0
    save(compact(model), tmp_path / "a")
    with pytest.raises(LzeroError, match="another architecture: there is no norm in this model"):
        load(Normed(None), tmp_path / "a")


class Odd(nn.Module):
    """Parameters that share their memory, and a state beside them that is no tensor."""

    def __init__(self):
        super().__init__()
        self.one, self.other, self.last = nn.Linear(4, 8), nn.Linear(4, 8), nn.Linear(8, 2)
        self.other.weight.data = self.one.weight.data

    def forward(self, x):
        return self.last((self.one(x) + self.other(x)).tanh())

    def get_extra_state(self):
        return {"version": 1}

    def set_extra_state(self, state):
        assert state == {"version": 1}


def test_only_parameters_and_buffers_are_saved(tmp_path):
    model, x = Odd(), torch.randn(3, 4)
    sparsify(model, x).log_alpha.data[:4] = -9.0
    small = compact(model)
    save(small, tmp_path / "a")
    assert verify(small, load(Odd(), tmp_path / "a"), x) == 0


def test_models_whose_state_dict_has_other_names_are_saved_whole(tmp_path):
    def make():
        return nn.Sequential(checkpoint_wrapper(nn.Linear(4, 8)), nn.Tanh(), nn.Linear(8, 2))

    model, x = make(), torch.randn(3, 4)
    assert "0.weight" in model.state_dict()  # and not 0._checkpoint_wrapped_module.weight, as its parameter is called
    save(model, tmp_path / "a.safetensors")
    assert torch.equal(load(make(), tmp_path / "a.safetensors")(x), model(x))
    set_gates(sparsify(model, x), 0.5)
    small = compact(model)
    save(small, tmp_path / "b.safetensors")
    assert torch.equal(load(make(), tmp_path / "b.safetensors")(x), small(x))


def test_a_wrapper_around_a_gated_model_is_refused_in_words(tmp_path):
    model, x = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), torch.randn(3, 4)
    sparsify(model, x)
    wrapper = nn.Sequential(model)
    with pytest.raises(LzeroError, match="a model without gates, got one with; compact it first"):
        save(wrapper, tmp_path / "a.safetensors")
    save(nn.Sequential(nn.Sequential(nn.Linear(4, 8))), tmp_path / "b.safetensors")
    with pytest.raises(LzeroError, match="make a new one with its constructor"):
        load(wrapper, tmp_path / "b.safetensors")
    with pytest.raises(LzeroError, match=r"pass the model that was given to lzero\.sparsify"):
        measure(wrapper, x)
    assert [path.name for path in tmp_path.iterdir()] == ["b.safetensors"]


class TwiceHeld(nn.Module):
    """One parameter under two names of one module, and another in the place of a buffer."""

    def __init__(self):
        super().__init__()
        self.weight = self.tied = nn.Parameter(torch.randn(8, 4))
        self.register_buffer("scale", nn.Parameter(torch.rand(8), requires_grad=False))
        self.out = nn.Linear(8, 2)

    def forward(self, x):
        return self.out(torch.tanh(F.linear(x, self.weight) + F.linear(x.flip(-1), self.tied)) * self.scale)


def test_what_a_module_holds_twice_or_where_it_does_not_belong_is_cut_and_loaded(tmp_path):
    torch.manual_seed(0)
    model, x = TwiceHeld(), torch.randn(3, 4)
    sparsifier = sparsify(model, x)
    sparsifier.log_alpha.data.fill_(9.0)[:3] = -9.0
    small = compact(model)
    assert small.weight is small.tied
    assert small.weight.shape == (5, 4)
    assert small.scale.shape == (5,)
    save(small, tmp_path / "small.safetensors")
    loaded = load(TwiceHeld(), tmp_path / "small.safetensors")
    assert loaded.weight is loaded.tied
    assert list(loaded._parameters) == ["weight", "tied"]
    assert verify(small, loaded, x) == 0
    assert sparsifier.shrink() == 3
    assert verify(small, model, x) < 1e-6


def in_parts():
    backbone = nn.Sequential(nn.Linear(10, 32), nn.SiLU(), nn.Linear(32, 8))
    return nn.Sequential(backbone, nn.Tanh(), nn.Linear(8, 2)).double()


@pytest.mark.parametrize("also_whole", [False, True])
def test_a_model_of_which_a_part_was_compacted_is_saved_from_the_dense_one(also_whole, tmp_path):
    torch.manual_seed(0)
    model, x = in_parts(), torch.randn(4, 10).double()
    sparsifier = sparsify(model[0], x, units="paper")
    sparsifier.log_alpha.data.fill_(9.0)[::2] = -9.0
    model[0] = compact(model[0])
    if also_whole:
        sparsify(model, x).log_alpha.data[:3] = -9.0
        model = compact(model)
    save(model, tmp_path / "small.safetensors")
    assert verify(model, load(in_parts(), tmp_path / "small.safetensors"), x) == 0
    with safe_open(tmp_path / "small.safetensors", framework="pt") as file:
        plan = json.loads(file.metadata()["lzero"])
    assert plan["dense"]["0.0.weight"] == [32, 10]
    assert len(plan["sites"]["0.0"]) == len(model[0][0].weight)
