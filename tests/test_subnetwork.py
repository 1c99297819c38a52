"""A step on what the sample reads is the full step: its loss, its gradients, its trajectory; and leaves no trace."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import CheckpointError, checkpoint

import lzero.subnetwork
from lzero import LzeroError, sparsify
from lzero.decision import Decision, decide_from
from lzero.errors import UnsupportedError
from lzero.subnetwork import Subnetwork
from tests.models import AS_GRAPH, MODELS, CountingAttention, build, set_gates
from tests.test_patch import NORMS, Normed

SETTINGS = {"MLP": {"inputs": True}, "LeNet-5": {"units": "paper"}}
RUNNABLE = sorted(set(MODELS) - AS_GRAPH)


def gated_model(name, density, **settings):
    """A model without dropout, whose noise would be another for other widths, and a batch that BatchNorm can use."""
    model, _ = build(name)
    x = torch.cat([MODELS[name][1]() for _ in range(4)])
    x = x.double() if x.is_floating_point() else x
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    sparsifier = sparsify(model.train(), x, **{**SETTINGS.get(name, {}), **settings})
    model.double()
    set_gates(sparsifier, density)
    return model, sparsifier, x


def loss_of(output):
    return ((output if isinstance(output, torch.Tensor) else output[0]) - 1).square().mean()


def gradients(model, forward, x, seed=1):
    """The loss of one step and every gradient."""
    torch.manual_seed(seed)
    model.zero_grad()
    loss = loss_of(forward(x))
    loss.backward()
    return {"loss": loss.detach(), **{n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}}


def difference(expected, got):
    """The largest, relative to a tensor's largest number; those that are 0 but for rounding count by the others."""
    assert list(expected) == list(got)
    floor = 1e-2 * max(tensor.abs().max() for tensor in expected.values())
    return max(((expected[n] - got[n]).abs().max() / (expected[n].abs().max() + floor)).item() for n in expected)


@pytest.mark.parametrize("name", NORMS)
def test_norms_without_weights_run_in_parts(name):
    model, x = Normed(NORMS[name][0]()).double(), torch.randn(4, 3, 8, 8).double()
    sparsifier = sparsify(model, x)
    set_gates(sparsifier, 0.5)
    part = gradients(model, Subnetwork(sparsifier, round_to=1), x)
    assert difference(gradients(model, model, x), part) < 1e-9


def test_a_model_that_is_a_layer_runs_in_parts():
    model, x = nn.Linear(6, 3).double(), torch.randn(4, 6).double()
    sparsifier = sparsify(model, x, inputs=True, keep_rate=0.5)
    assert [group.name for group in sparsifier.groups] == ["inputs of weight"]
    part = gradients(model, Subnetwork(sparsifier, round_to=1), x)
    assert (sparsifier.bank.values == 0).any()
    assert difference(gradients(model, model, x), part) < 1e-12


@pytest.mark.parametrize("name", RUNNABLE)
def test_a_step_is_the_full_step(name):
    for density in (0.3, 0.6, 0.9):
        model, sparsifier, x = gated_model(name, density)
        before = copy.deepcopy(model.state_dict())
        full = gradients(model, model, x)
        sample = sparsifier.bank.values.detach()
        model.load_state_dict(before)
        part = gradients(model, Subnetwork(sparsifier, round_to=1), x)
        assert torch.equal(sparsifier.bank.values, sample)
        assert (sample == 0).any()
        assert difference(full, part) < 1e-12


@pytest.mark.parametrize("name", ["LeNet-5", "VGG-BN", "ResNeXt", "GPT-2"])
def test_rounded_widths_and_wrappers_change_no_number(name):
    model, sparsifier, x = gated_model(name, 0.5)
    full, wrapped = gradients(model, model, x), nn.Sequential(model)
    for forward in (Subnetwork(sparsifier), Subnetwork(sparsifier, wrapped, round_to=4)):
        assert difference(full, gradients(model, forward, x)) < 1e-12


@pytest.mark.parametrize("name", ["MLP", "LeNet-5", "VGG-BN", "WRN", "MobileNet", "GPT-2", "Llama"])
def test_the_trajectory_is_that_of_full_steps(name):
    def trained(part):
        torch.manual_seed(0)
        model, sparsifier, x = gated_model(name, 0.6)
        forward = Subnetwork(sparsifier, round_to=1) if part else model
        optimizer = torch.optim.Adam(sparsifier.param_groups(lr=1e-3))
        for _ in range(5):
            optimizer.zero_grad()
            loss_of(forward(x)).backward()
            optimizer.step()
        return {"random numbers": torch.rand(3), **{n: p.detach() for n, p in model.named_parameters()}}

    assert difference(trained(part=False), trained(part=True)) < 1e-8  # Adam divides by gradients of almost 0


@pytest.mark.parametrize("name", ["VGG-BN", "ResNet-18", "3-D"])
def test_running_statistics_are_those_of_the_full_step_or_stay(name):
    model, sparsifier, x = gated_model(name, 0.5)
    before = copy.deepcopy(dict(model.named_buffers()))
    gradients(model, model, x)
    full = copy.deepcopy(dict(model.named_buffers()))
    model.load_state_dict(before, strict=False)
    gradients(model, Subnetwork(sparsifier, round_to=1), x)
    mixed = 0
    for key, part in model.named_buffers():
        stays, moves = torch.isclose(part, before[key], rtol=1e-12), torch.isclose(part, full[key], rtol=1e-12)
        assert (stays | moves).all()
        assert moves.any()
        mixed += not moves.all()
    assert mixed


def everything(model):
    """All that a module holds, tensors as the objects they are with their values."""
    found = []
    for module in model.modules():
        own = {k: v for k, v in vars(module).items() if k not in ("_parameters", "_buffers", "_modules")}
        tensors = [*module._parameters.items(), *module._buffers.items()]
        hooks = [list(own.pop(key)) for key in list(own) if key.endswith("_hooks")]
        found.append((own, hooks, [(k, id(t), None if t is None else t.tolist()) for k, t in tensors]))
    return found


@pytest.mark.parametrize("name", ["LeNet-5", "U-Net", "ResNeXt", "1-D", "GPT-2"])
def test_the_model_is_put_back(name):
    model, sparsifier, x = gated_model(name, 0.5)
    for module in model.modules():  # statistics may change
        module.momentum = 0.0 if isinstance(module, nn.BatchNorm2d) else None
    forward = Subnetwork(sparsifier, round_to=1)
    forward(x)
    before = everything(model)
    forward(x)
    after = everything(model)
    for (own, hooks, tensors), (own_after, hooks_after, tensors_after) in zip(before, after, strict=True):
        assert own == own_after
        assert hooks == hooks_after
        assert [t for t in tensors if t[0] != "num_batches_tracked"] == [
            t for t in tensors_after if t[0] != "num_batches_tracked"
        ]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_forward_that_fails_leaves_the_model_as_it_was(error):
    class Failing(nn.Module):
        fails = False

        def forward(self, x):
            if self.fails:
                raise error
            return x

    last = Failing()
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Sigmoid(), nn.Linear(8, 2), last)
    x = torch.randn(5, 4)
    sparsifier = sparsify(model, x, keep_rate=0.3)
    forward = Subnetwork(sparsifier, round_to=1)
    held = [id(tensor) for tensor in (*model.parameters(), *model.buffers())]
    last.fails = True
    with pytest.raises(error):
        forward(x)
    last.fails = False
    assert [id(tensor) for tensor in (*model.parameters(), *model.buffers())] == held
    assert (model[0].out_features, model[1].num_features, model[3].in_features) == (8, 8, 8)
    assert difference(gradients(model, model, x), gradients(model, forward, x)) < 1e-6
    assert not torch.equal(forward(x), forward(x))  # each forward draws its own gates again


def test_several_forwards_before_a_backward():
    model, sparsifier, x = gated_model("VGG-BN", 0.6)
    forward = Subnetwork(sparsifier, round_to=1)
    full = gradients(model, lambda x: model(x) + model(2 * x) * model(x), x)
    part = gradients(model, lambda x: model(x) + forward(2 * x) * forward(x), x)
    assert difference(full, part) < 1e-12


def test_a_model_that_calls_itself_is_cut_once():
    class Again(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)

        def forward(self, x, again=True):
            x = self.down(torch.sigmoid(self.up(x)))
            return self(x, again=False) if again else x

    model, x = Again(), torch.randn(3, 4)
    forward = Subnetwork(sparsify(model, x, keep_rate=0.3), round_to=1)
    assert difference(gradients(model, model, x), gradients(model, forward, x)) < 1e-6


def test_evaluation_is_the_ordinary_forward():
    model, sparsifier, x = gated_model("VGG-BN", 0.6)
    forward = Subnetwork(sparsifier, round_to=1)
    model.eval()
    assert torch.equal(forward(x), model(x))


@pytest.mark.parametrize("name", ["LeNet-5", "VGG-BN", "GPT-2"])
def test_it_goes_on_after_shrinking(name):
    model, sparsifier, x = gated_model(name, 0.8)
    forward = Subnetwork(sparsifier, round_to=1)
    forward(x)
    assert sparsifier.shrink() > 0
    assert difference(gradients(model, model, x), gradients(model, forward, x)) < 1e-12


def test_only_what_is_read_is_computed():
    model, sparsifier, x = gated_model("VGG-BN", 0.3)
    widths = []
    model[0][0].register_forward_hook(lambda *args: widths.append(args[-1].shape[1]))
    forward = Subnetwork(sparsifier, round_to=1)
    widths.clear()
    for _ in range(20):
        forward(x)
        is_open = sparsifier.bank.values[sparsifier.structure.span(sparsifier.structure.sites[0])] > 0
        assert widths[-1] == max(1, is_open.sum())
    assert len(set(widths)) > 1


@pytest.mark.parametrize("name", ["MLP", "VGG-BN", "ResNet-18", "MobileNet", "U-Net", "1-D", "GPT, fused", "Llama"])
def test_a_wrong_decision_is_seen(name, monkeypatch):
    """An active unit left out: for each site of each model the gradients show it, or the sizes do not fit."""
    model, sparsifier, x = gated_model(name, 0.7)
    full, structure = gradients(model, model, x), sparsifier.structure
    right = decide_from(sparsifier, sparsifier.bank.values.detach())
    forward, tried = Subnetwork(sparsifier, round_to=1), 0
    for site in structure.sites:
        active = [k for k in range(*structure.span(site).indices(structure.num_units)) if right.units[k]]
        if len(active) > 1:
            units = right.units.copy()
            units[active[0]] = False
            wrong = Decision(units, right.columns, right.gates)
            monkeypatch.setattr(lzero.subnetwork, "decide_from", lambda *_, wrong=wrong: wrong)
            assert difference(full, gradients(model, forward, x)) > 1e-6
            tried += 1
    assert tried


def test_measuring_leaves_no_trace():
    def trained(measured):
        torch.manual_seed(0)
        model, x = build("VGG-BN", torch.float32)
        sparsifier = sparsify(model, x)
        sparsifier.bank.generator = torch.Generator().manual_seed(3)
        forward = Subnetwork(sparsifier, round_to=1)
        optimizer = torch.optim.Adam(sparsifier.param_groups(lr=1e-3))
        for _ in range(3):
            loss_of(forward(x)).backward()
            if measured:
                sample = sparsifier.bank.values
                assert 0 < forward.relative_time(x, repeats=1) < 100
                assert sparsifier.bank.values is sample
            optimizer.step()  # gradients add up
        return [*model.state_dict().values(), torch.rand(3)]

    assert all(torch.equal(one, other) for one, other in zip(trained(False), trained(True), strict=True))


def test_measuring_needs_training_mode():
    model, sparsifier, x = gated_model("MLP", 0.5)
    forward = Subnetwork(sparsifier, round_to=1)
    model.eval()
    with pytest.raises(LzeroError, match="expected training mode"):
        forward.relative_time(x)


class Halves(nn.Module):
    """Code that finds units by their place, which works where as many are left of one half as of the other."""

    def __init__(self):
        super().__init__()
        self.up, self.one, self.two = nn.Linear(4, 12), nn.Linear(6, 2), nn.Linear(6, 2)

    def forward(self, x):
        h = torch.sigmoid(self.up(x))
        half = h.shape[1] // 2
        return self.one(h[:, :half]) + self.two(h[:, half:])


def compiled(model):
    model.compile()
    return model


class SharedNorm(nn.Module):
    """One norm without weights for two layers, beside code with a width of its own."""

    def __init__(self):
        super().__init__()
        self.width, self.norm = 16, nn.GroupNorm(4, 16, affine=False)
        self.one, self.two, self.three, self.read = (
            nn.Linear(4, 16), nn.Linear(16, 16), nn.Linear(16, 32), nn.Linear(32, 2),
        )  # fmt: skip

    def forward(self, x):
        h = self.norm(self.two(self.norm(self.one(x)).sigmoid())).sigmoid().view(-1, self.width)
        places = self.three(h).unsqueeze(-1) * torch.arange(1.0, 4.0, dtype=x.dtype)
        return self.read(F.instance_norm(places).sigmoid().mean(-1))


def test_norms_without_weights_count_their_own_channels():
    model, x = SharedNorm().double(), torch.randn(6, 4).double()
    part = Subnetwork(sparsify(model, x, keep_rate=0.5))
    for seed in range(10):
        torch.manual_seed(seed)
        expected = model(x)
        torch.manual_seed(seed)
        torch.testing.assert_close(part(x), expected)


REFUSED = {
    "weights": (lambda: nn.Linear(4, 3), {"units": "weights"}, "gates on single weights"),
    "sizes in code": (lambda: CountingAttention(16, 4), {}, "relies on the old sizes"),
    "halves": (Halves, {}, "relies on the old sizes"),
    "synchronised": (lambda: nn.Sequential(nn.Linear(4, 3), nn.SyncBatchNorm(3), nn.Linear(3, 1)), {}, "SyncBatchNorm"),
    "compiled": (lambda: compiled(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1))), {}, "torch.compile would"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_the_reason(case):
    make, settings, message = REFUSED[case]
    model, x = make(), torch.randn(2, 6, 16) if case == "sizes in code" else torch.randn(2, 4)
    sparsifier = sparsify(model, x, **settings)
    before = everything(model)
    with pytest.raises(UnsupportedError, match=message):
        Subnetwork(sparsifier)
    assert everything(model) == before


def test_refused_arguments():
    model, sparsifier, _ = gated_model("MLP", 0.5)
    with pytest.raises(LzeroError, match="round_to: expected a whole number"):
        Subnetwork(sparsifier, round_to=0)
    with pytest.raises(UnsupportedError, match=r"torch\.compile would"):
        Subnetwork(sparsifier, torch.compile(model))
    sparsifier.remove()
    with pytest.raises(LzeroError, match="expected a model with gates"):
        Subnetwork(sparsifier)


def test_recomputed_activations_are_refused_by_torch():
    class Saving(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.last = nn.Sequential(nn.Linear(4, 16), nn.Sigmoid()), nn.Linear(16, 2)

        def forward(self, x):
            return self.last(checkpoint(self.body, x, use_reentrant=False) if self.training else self.body(x))

    model, x = Saving(), torch.randn(3, 4)
    forward = Subnetwork(sparsify(model, x, keep_rate=0.3), round_to=1)
    with pytest.raises(CheckpointError):
        forward(x).sum().backward()


def test_a_buffer_that_repeats_a_number_runs_in_parts():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 2)
            self.register_buffer("scale", torch.tensor(2.0).expand(8))

        def forward(self, x):
            return self.last(self.first(x).tanh() * self.scale)

    model, x = Scaled(), torch.randn(3, 4)
    sparsifier = sparsify(model, x, keep_rate=0.5)
    part = Subnetwork(sparsifier)
    torch.manual_seed(0)
    whole = model(x)
    torch.manual_seed(0)
    torch.testing.assert_close(part(x), whole)
    assert model.scale.tolist() == [2.0] * 8
    sparsifier.log_alpha.data[:3] = -9.0
    assert lzero.compact(model).scale.shape == (5,)
