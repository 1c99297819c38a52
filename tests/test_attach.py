"""Gates survive what users do to models, and leave no trace."""

import copy
import io
import os
import pickle
import socket
import subprocess
import sys
import textwrap
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from lzero import LzeroError, compact, sparsify, verify
from lzero.bank import LOG_ALPHA
from lzero.belonging import sparsifier_of
from lzero.subnetwork import Subnetwork
from tests.models import MODELS, build, set_gates


def values(output):
    return output if isinstance(output, torch.Tensor) else output[0]


def hooks_of(model):
    return [list(hooks) for m in model.modules() for hooks in (m._forward_hooks, m._forward_pre_hooks)]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("units", ["structure", "paper", "weights"])
def test_remove_undoes_sparsify_bit_for_bit(name, units):
    model, x = build(name)
    classes = [type(module) for module in model.modules()]
    keys, state = list(model.state_dict()), copy.deepcopy(model.state_dict())
    expected = values(model.eval()(x))
    attributes, hooks = [set(vars(module)) for module in model.modules()], hooks_of(model)
    sparsify(model, x, units=units).remove()
    assert list(model.state_dict()) == keys
    assert all(torch.equal(state[key], value) for key, value in model.state_dict().items())
    assert [type(module) for module in model.modules()] == classes
    assert [set(vars(module)) for module in model.modules()] == attributes
    assert hooks_of(model) == hooks
    assert torch.equal(values(model(x)), expected)


@pytest.fixture
def lenet():
    model, x = build("LeNet-5", torch.float32)
    set_gates(sparsify(model, x), 0.6)
    return model, x


def test_the_users_own_keys_stay(lenet):
    model, _ = lenet
    plain, _ = build("LeNet-5", torch.float32)
    assert set(model.state_dict()) == {LOG_ALPHA, *plain.state_dict()}
    assert dict(model.named_parameters())["0.weight"] is model[0]._parameters["weight"]


class Twice(nn.Module):
    """A model that reads a gated weight twice in one forward."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(3, 32), nn.Linear(32, 2)

    def forward(self, x):
        hidden = torch.sigmoid(self.one(x))
        return self.two(hidden), self.two(hidden)


def under_autocast(model):
    return torch.autocast("cpu", dtype=torch.bfloat16)(model)


WRAPPERS = {
    "nothing": lambda model: model,
    "a copy": copy.deepcopy,
    "a pickle": lambda model: pickle.loads(pickle.dumps(model)),  # noqa: S301
    "compile": lambda model: torch.compile(model, fullgraph=True),
    "autocast": under_autocast,
    "DataParallel's module": lambda model: nn.ModuleDict({"inner": model})["inner"],
    "checkpointing": lambda model: lambda x: checkpoint(model, x, use_reentrant=False),
}


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_one_sample_for_all_readers_of_a_forward(wrap):
    model, x = Twice(), torch.randn(2, 3)
    sparsify(model, x, keep_rate=0.5)
    wrapped = wrap(model)
    first, again = wrapped(x)
    assert torch.equal(first, again)
    assert not torch.equal(first, wrapped(x)[0])
    sum(part.float().sum() for part in wrapped(x)).backward()


def test_outside_a_forward_a_parameter_reads_as_it_is(lenet):
    model, x = lenet
    assert model[3].weight is model[3]._parameters["weight"]
    nn.init.ones_(model[3].weight)
    model(x).sum().backward()
    assert model[3].weight is model[3]._parameters["weight"]
    assert model[3].weight.grad is not None


def test_a_part_alone_is_refused(lenet):
    model, x = lenet
    model(x)
    with pytest.raises(LzeroError, match="this Conv2d has gates that its model draws: call that model as a whole"):
        model[3](torch.randn(1, 6, 12, 12))


@pytest.mark.parametrize("training", [True, False])
def test_parts_are_called_with_gates_that_were_drawn_once(lenet, training):
    model, x = lenet
    sparsifier = model.__dict__["_lzero_sparsifier"]
    sparsifier.log_alpha.data.zero_()
    model.train(training)
    with sparsifier.drawn():
        whole, parts = model(x), x
        for layer in model:
            parts = layer(parts)
    torch.testing.assert_close(parts, whole)
    parts.square().sum().backward()
    assert sparsifier.log_alpha.grad.any()
    assert torch.equal(model(x), whole) is not training  # drawn anew
    with pytest.raises(LzeroError, match=r"sparsifier\.drawn"):
        model[3](torch.randn(1, 6, 12, 12))


def test_what_is_drawn_stays_for_a_checkpoint(lenet):
    model, x = lenet
    sparsifier, gradients = model.__dict__["_lzero_sparsifier"], []
    layers = partial(nn.Sequential.forward, model)  # one after another, not the model as a whole
    for run in (layers, partial(checkpoint, layers, use_reentrant=False)):
        model.zero_grad()
        model(x)  # another sample before
        torch.manual_seed(1)
        with sparsifier.drawn():
            y = run(x)
        y.square().sum().backward()
        gradients.append(sparsifier.log_alpha.grad.clone())
    torch.testing.assert_close(*gradients)


def test_what_draws_or_cuts_is_refused_where_gates_were_drawn(lenet):
    model, x = lenet
    sparsifier = model.__dict__["_lzero_sparsifier"]
    part = Subnetwork(sparsifier)
    for act in (lambda: part(x), lambda: compact(model), lambda: sparsifier.drawn().__enter__()):
        with sparsifier.drawn(), pytest.raises(LzeroError, match="drawn"):
            act()


def test_copies_and_pickles(lenet):
    model, x = lenet
    model(x).sum().backward()
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    twins = [copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.load(buffer, weights_only=False)]  # noqa: S301
    for twin in twins:
        assert sparsifier_of(twin).model is twin
        assert torch.equal(twin.eval()(x), model.eval()(x))
        sparsifier_of(twin).log_alpha.data.fill_(-9.0)
        assert not torch.equal(twin(x), model(x))
        sparsifier_of(twin).remove()


def test_state_dict_round_trip(lenet):
    model, x = lenet
    other, _ = build("LeNet-5", torch.float32)
    sparsify(other, x)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other.eval()(x), model.eval()(x))


def test_functional_calls_take_parameters_from_outside(lenet):
    model, x = lenet
    model.eval()
    tensors = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    assert torch.equal(torch.func.functional_call(model, tensors, (x,)), model(x))
    gradients = torch.func.grad(lambda given: torch.func.functional_call(model, given, (x,)).square().sum())(tensors)
    model(x).square().sum().backward()
    torch.testing.assert_close(gradients[LOG_ALPHA], sparsifier_of(model).log_alpha.grad)


def test_compile_as_one_graph(lenet):
    model, x = lenet
    compiled = torch.compile(model, fullgraph=True)
    torch.testing.assert_close(compiled.eval()(x), model.eval()(x))
    model.train()
    compiled(x).sum().backward()
    assert sparsifier_of(model).log_alpha.grad.abs().sum() > 0
    assert not torch.equal(compiled(x), compiled(x))


def test_export_in_evaluation(lenet):
    model, x = lenet
    exported = torch.export.export(model.eval(), (x,), strict=False).module()
    torch.testing.assert_close(exported(x), model(x))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(lenet, dtype):
    model, x = lenet
    with torch.autocast("cpu", dtype=dtype):
        loss = model(x).float().sum()
    loss.backward()
    gradient = sparsifier_of(model).log_alpha.grad
    assert gradient.dtype == torch.float32
    assert gradient.isfinite().all()


def test_half_precision_models_run_and_keep_log_alpha(lenet):
    model, x = lenet
    before = sparsifier_of(model).log_alpha.detach().clone()
    model.bfloat16()
    assert torch.equal(sparsifier_of(model).log_alpha, before)
    assert model(x.bfloat16()).dtype == torch.bfloat16


def test_gradient_accumulation_adds_up():
    model, x = build("MLP")
    sparsifier = sparsify(model, x)
    sparsifier.log_alpha.data.fill_(60.0)  # no randomness
    model(x).square().sum().backward()
    whole = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    for part in x.split(1):
        model(part).square().sum().backward()
    for parameter, expected in zip(model.parameters(), whole, strict=True):
        torch.testing.assert_close(parameter.grad, expected)


class Checkpointed(nn.Module):
    def __init__(self, saving):
        super().__init__()
        self.saving = saving
        self.first, self.body = nn.Linear(4, 6), nn.Sequential(nn.Linear(6, 16), nn.Sigmoid(), nn.Linear(16, 6))
        self.last = nn.Linear(6, 1)

    def forward(self, x):
        x = torch.sigmoid(self.first(x))
        for _ in range(2):
            x = x + (checkpoint(self.body, x, use_reentrant=False) if self.saving and self.training else self.body(x))
        return self.last(x)


def checkpointed_pair():
    models = [Checkpointed(saving) for saving in (False, True)]
    models[1].load_state_dict(models[0].state_dict())
    x = torch.randn(5, 4)
    for model in models:
        torch.manual_seed(2)
        sparsify(model, x, keep_rate=0.6)
    return models, x


def test_activation_checkpointing_gives_the_same_gradients():
    models, x = checkpointed_pair()
    for model in models:
        torch.manual_seed(7)
        model(x).square().sum().backward()
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_a_reentrant_checkpoint_is_refused_with_the_other_kind():
    model, x = Checkpointed(saving=False), torch.randn(5, 4)
    sparsify(model, x)
    run = model.body.forward
    model.body.forward = lambda x: checkpoint(run, x, use_reentrant=True)
    with pytest.raises(LzeroError, match="use_reentrant=False"):
        model(x).sum().backward()


def test_two_forwards_before_one_backward_are_right_without_checkpointing():
    models, x = checkpointed_pair()
    plain = models[0]
    (plain(x) + plain(2 * x)).sum().backward()
    assert sparsifier_of(plain).log_alpha.grad.isfinite().all()


def test_two_forwards_before_one_backward_are_refused_with_checkpointing():
    models, x = checkpointed_pair()
    saving = models[1]
    with pytest.raises(LzeroError, match="two forwards before one backward"):
        (saving(x) + saving(2 * x)).sum().backward()


def test_a_loss_that_is_kept_does_not_count_as_waiting():
    models, x = checkpointed_pair()
    kept = []
    for _ in range(3):
        kept.append(models[1](x).sum())
        kept[-1].backward()
    assert len(kept) == 3


def test_tied_weights_stay_tied():
    model, x = build("GPT-2")
    assert model.lm_head.weight is model.transformer.wte.weight
    sparsifier = sparsify(model, x)
    set_gates(sparsifier, 0.5)
    small = compact(model)
    assert small.lm_head.weight is small.transformer.wte.weight
    assert verify(model, small, x) < 1e-9


def test_tied_consumers_are_gated_alike_and_stay_tied():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.one, self.two = nn.Linear(3, 8), nn.Linear(8, 4), nn.Linear(8, 4)
            self.two.weight = self.one.weight

        def forward(self, x):
            hidden = F.softplus(self.up(x))
            return self.one(hidden) * self.two(hidden)

    model, x = Tied().double(), torch.randn(2, 3).double()
    sparsifier = sparsify(model, x)
    set_gates(sparsifier, 0.5)
    small = compact(model)
    assert small.one.weight is small.two.weight
    assert verify(model, small, x) < 1e-9


SHARDED = """
import torch, torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from lzero import sparsify
dist.init_process_group("gloo")
def train(shard):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.Sigmoid(), nn.Linear(16, 8), nn.Sigmoid(), nn.Linear(8, 2))
    sparsifier = sparsify(model, torch.randn(2, 4), keep_rate=0.6)
    if shard:
        mesh = init_device_mesh("cpu", (2,))
        for layer in (0, 2, 4):
            fully_shard(model[layer], mesh=mesh)
        fully_shard(model, mesh=mesh)
        assert isinstance(sparsifier.log_alpha, DTensor)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(4):
        torch.manual_seed(step)
        loss = model(torch.randn(8, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses)
torch.testing.assert_close(train(True), train(False))
print("fine")
dist.destroy_process_group()
"""


DISTRIBUTED = """
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from lzero import LzeroError, sparsify
dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 16), nn.Sigmoid(), nn.Linear(16, 2))
sparsifier = sparsify(model, torch.randn(2, 4), keep_rate=0.6)
wrapped = DistributedDataParallel(model)
optimizer = torch.optim.SGD(sparsifier.param_groups(lr=0.1))
torch.manual_seed(dist.get_rank())
samples = []
for _ in range(3):
    optimizer.zero_grad()
    loss = wrapped(torch.randn(8, 4)).square().mean() + 0.01 * sparsifier.law.prob_active.sum()
    loss.backward()
    samples.append(sparsifier.bank.values.detach().clone())
    optimizer.step()
gathered = [torch.empty_like(sparsifier.log_alpha) for _ in range(2)]
dist.all_gather(gathered, sparsifier.log_alpha.detach())
assert torch.equal(*gathered), "the ranks have different gates"
mine = [torch.empty_like(samples[0]) for _ in range(2)]
dist.all_gather(mine, samples[0])
assert not torch.equal(*mine), "the ranks drew the same sample"
sparsifier.log_alpha.data[:4] = -9.0
assert sparsifier.shrink(optimizer) == 4
try:
    wrapped(torch.randn(8, 4))
    raise AssertionError("gradients of one rank would not reach the other")
except LzeroError as error:
    assert "wrap it anew" in str(error)
optimizer.zero_grad()
wrapped = DistributedDataParallel(model)
wrapped(torch.randn(8, 4)).square().mean().backward()
gathered = [torch.empty_like(model[0].weight) for _ in range(2)]
dist.all_gather(gathered, model[0].weight.grad)
assert torch.equal(*gathered), "the ranks have different gradients"
print("fine")
dist.destroy_process_group()
"""


@pytest.mark.parametrize("program", [DISTRIBUTED, SHARDED], ids=["DDP", "FSDP2"])
def test_two_processes(program):
    """DDP: gates stay equal, each process draws its own sample. FSDP2: with equal noise, the run of one process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    root = Path(__file__).parent.parent
    settings = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": "2",
        "OMP_NUM_THREADS": "1",
    }
    settings["PYTHONPATH"] = f"{root / 'src'}"
    command = [sys.executable, "-c", textwrap.dedent(program)]
    ranks = [
        subprocess.Popen(command, env={**settings, "RANK": str(r)}, stdout=-1, stderr=-1, text=True) for r in range(2)
    ]
    results = [rank.communicate(timeout=120) for rank in ranks]
    assert all("fine" in out for out, _ in results), results


class Interrupted(nn.Module):
    """A model that is interrupted in the middle of its first forward."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.calls = nn.Linear(4, 16), nn.Linear(16, 2), 0

    def forward(self, x):
        hidden = self.first(x).tanh()
        self.calls += 1
        if self.calls == 4:
            raise KeyboardInterrupt
        return self.second(hidden)


def test_after_an_interrupt_gates_are_drawn_anew():
    model = Interrupted()
    sparsifier = sparsify(model, torch.randn(3, 4), keep_rate=0.5)
    model.calls, samples = 3, []
    with pytest.raises(KeyboardInterrupt):
        model(torch.randn(3, 4))
    assert model.second.weight is model.second._parameters["weight"]  # as it is outside of forwards
    with pytest.raises(LzeroError, match="has gates that its model draws"):
        model.second(torch.randn(3, 16))
    for _ in range(3):
        model(torch.randn(3, 4)).sum().backward()
        samples.append(sparsifier.bank.values.detach().clone())
    assert len({tuple(sample.tolist()) for sample in samples}) == 3


def test_outside_a_forward_a_layers_own_forward_has_no_gates(lenet):
    model, x = lenet
    layer, inputs = model[-1], torch.randn(1, model[-1].in_features)
    expected = F.linear(inputs, layer._parameters["weight"], layer.bias)
    torch.testing.assert_close(layer.forward(inputs), expected)
    model(x)
    torch.testing.assert_close(layer.forward(inputs), expected)


def test_log_alpha_is_never_in_half_precision(lenet):
    model, _ = lenet
    model.double().half()
    assert sparsifier_of(model).log_alpha.dtype == torch.float32


class Tied(nn.Module):
    """Tokens looked up in the table that scores them."""

    def __init__(self):
        super().__init__()
        self.table, self.inner, self.outer = nn.Embedding(11, 8), nn.Linear(8, 16), nn.Linear(16, 8)
        self.scores = nn.Linear(8, 11, bias=False)
        self.scores.weight = self.table.weight
        self.kinds = []

    def forward(self, tokens):
        x = self.table(tokens)
        self.kinds.append(x.dtype)
        return self.scores(x + self.outer(self.inner(x).tanh()))


@pytest.mark.parametrize("units", ["structure", "weights"])
def test_under_autocast_only_what_multiplies_is_cast(units):
    model, tokens = Tied().eval(), torch.randint(11, (3, 5))
    sparsifier = sparsify(model, tokens, units=units)
    for each in (model, compact(model), sparsifier.remove()):
        with torch.autocast("cpu", torch.bfloat16):
            each(tokens)
        assert each.kinds[-1] == torch.float32


def test_weights_that_multiply_are_cast_with_their_gates(lenet):
    with torch.autocast("cpu", torch.bfloat16), sparsifier_of(lenet[0]).drawn():
        assert {lenet[0][3].weight.dtype, lenet[0][-1].weight.dtype} == {torch.bfloat16}


def test_a_tied_weight_is_read_under_any_of_its_names():
    assert "not used" not in str(sparsify(Tied(), torch.randint(11, (3, 5))).plan())


def test_weights_decay_as_the_optimizer_says(lenet):
    sparsifier = sparsifier_of(lenet[0])
    decays = [group["weight_decay"] for group in torch.optim.AdamW(sparsifier.param_groups(1e-3)).param_groups]
    assert decays == [0.01, 0.0]
    given = torch.optim.AdamW(sparsifier.param_groups(1e-3, weight_decay=0.3), weight_decay=0.1)
    assert [group["weight_decay"] for group in given.param_groups] == [0.3, 0.0]


def test_a_model_whose_code_counts_on_its_sizes_is_refused_by_check():
    class Counting(nn.Sequential):
        def forward(self, x):
            x = self[0](x)
            assert x.shape[-1] == 8
            return self[1](x)

    sparsify(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2)), torch.randn(3, 4)).check()
    sparsifier = sparsify(Counting(nn.Linear(4, 8), nn.Linear(8, 2)), torch.randn(3, 4))
    with pytest.raises(LzeroError, match="removing some of the units of 0 fails"):
        sparsifier.check()


def test_example_inputs_that_are_no_numbers_are_refused():
    with pytest.raises(LzeroError, match="example_inputs: expected numbers, got some that are none"):
        sparsify(nn.Linear(4, 2), torch.full((1, 4), torch.nan), inputs=True)


def test_what_is_missing_for_gates_on_inputs_is_said():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    with pytest.raises(LzeroError, match=r"got 'inputs of [*]'; inputs of dense layers have gates with inputs=True"):
        sparsify(model, torch.randn(3, 4), include="inputs of *")
    with pytest.raises(LzeroError, match=r"got ndarray; torch\.as_tensor\(array\) makes it a tensor"):
        sparsify(model, torch.randn(3, 4).numpy())


def test_what_evaluation_moves_serves_a_training_too():
    """The index of gates follows log α to its device in the first forward, which may be one in inference mode."""

    class Elsewhere(torch.Tensor):
        device = torch.device("meta")

        def to(self, *_, **__):
            return self.as_subclass(torch.Tensor).clone()

    model, x = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), torch.randn(3, 4)
    bank = sparsify(model, x).bank
    bank.index = bank.index.as_subclass(Elsewhere)
    with torch.inference_mode():
        model.eval()(x)
    assert type(bank.index) is torch.Tensor
    model.train()(x).sum().backward()
    assert model.get_parameter(LOG_ALPHA).grad is not None


def test_a_gradient_of_log_alpha_keeps_its_precision_when_the_model_is_cast():
    model, x = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), torch.randn(3, 4)
    sparsifier = sparsify(model, x)
    model(x).mean().backward()
    model.bfloat16()
    assert sparsifier.log_alpha.dtype == sparsifier.log_alpha.grad.dtype == torch.float32
    torch.optim.Adam(model.parameters()).step()


def test_an_evaluation_before_the_backward_is_refused_with_checkpointing():
    models, x = checkpointed_pair()
    saving = models[1]
    loss = saving(x).sum()
    saving.eval()(x)
    saving.train()
    with pytest.raises(LzeroError, match="two forwards before one backward"):
        loss.backward()


def test_parts_are_refused_with_checkpointing():
    model, x = Checkpointed(saving=True), torch.randn(5, 4)
    sparsifier = sparsify(model, x, keep_rate=0.5)
    sparsifier.log_alpha.data[::2] = -9.0
    loss = Subnetwork(sparsifier)(x).sum()
    with pytest.raises(LzeroError, match=r"call the model itself in place of lzero\.subnetwork\.Subnetwork"):
        loss.backward()


def test_older_hooks_that_compute_a_weight_are_refused_in_words():
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    sparsify(model, torch.randn(3, 4))
    with pytest.raises(LzeroError, match="the weight of a Linear is not what it was"):
        torch.nn.utils.spectral_norm(model[2])


def test_layers_that_do_not_know_their_sizes_are_named():
    model = nn.Sequential(nn.LazyLinear(8), nn.ReLU(), nn.LazyLinear(2))
    with pytest.raises(
        LzeroError, match="expected layers that know their sizes, got 0, 2 without; call the model once"
    ):
        sparsify(model, torch.randn(3, 4))


def test_classes_that_register_their_subclasses_hear_of_none():
    known = {}

    class Registered(nn.Module):
        def __init_subclass__(cls, kind, **rest):
            super().__init_subclass__(**rest)
            known[kind] = cls

    class Net(Registered, kind="net"):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 2)

        def forward(self, x):
            return self.last(self.first(x).tanh())

    model, x = Net(), torch.randn(3, 4)
    sparsifier = sparsify(model, x)
    assert known == {"net": Net}
    assert isinstance(model, Net)
    assert verify(model, compact(model), x) < 1e-6
    assert type(sparsifier.remove()) is Net


def test_a_class_that_cannot_have_subclasses_leaves_the_model_as_it_was():
    class Final(nn.Linear):
        __slots__ = ("mark",)  # which rules out a quiet subclass

        def __init_subclass__(cls):
            raise TypeError("no subclasses, please")

    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), Final(8, 2))
    before = set(model.state_dict())
    with pytest.raises(TypeError, match="no subclasses"):
        sparsify(model, torch.randn(3, 4))
    assert set(model.state_dict()) == before
    assert [type(layer) for layer in model] == [nn.Linear, nn.Tanh, Final]
    assert model(torch.randn(3, 4)).shape == (3, 2)
