"""What loops do around a gated model: none of it changes a result unseen."""

import types

import lightning
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, TensorDataset

from lzero import Constraint, LzeroError, Penalty, compact, measure, sparsify, verify
from lzero.objectives.group_lasso import GroupLasso
from lzero.projection import project
from lzero.tensors import outside_inference_mode

pytestmark = pytest.mark.filterwarnings("ignore::lzero.errors.BudgetWarning")
X = torch.randn(5, 20, generator=torch.Generator().manual_seed(0))


def gated(**options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 32), nn.GELU(), nn.Linear(32, 24), nn.Tanh(), nn.Linear(24, 3))
    return model, sparsify(model, X[:1], **options)


def train(model, sparsifier, objective, steps=3, *, after=lambda: None):
    optimizer = torch.optim.Adam(sparsifier.param_groups(lr=1e-3))
    for _ in range(steps):
        loss = model(X).square().mean() + objective()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        after()
        objective.step()
    return optimizer


def test_a_budget_is_met_alike_when_gates_are_in_double_precision():
    """The search for gates to close must not write into the gates it looks at."""
    (one, first), (other, second) = gated(), gated()
    other.double()
    assert second.log_alpha.dtype == torch.float64
    widths = [
        [layer.out_features for layer in compact(model, budget=Constraint(sparsifier, "50%"))[::2]]
        for model, sparsifier in ((one, first), (other, second))
    ]
    assert widths[0] == widths[1]
    before = second.log_alpha.detach().clone()
    project(other, 1.0)
    assert torch.equal(second.log_alpha, before)


def test_averages_of_parameters_and_buffers_are_of_the_same_gates():
    model, sparsifier = gated()
    sparsifier.log_alpha.data[::2] = -9.0
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9999), use_buffers=True)
    for _ in range(100):
        average.update_parameters(model)
    torch.testing.assert_close(average.eval()(X), model.eval()(X))
    assert verify(average.module, compact(average.module), X) <= 1e-5


WRAPPERS = {"compiled": torch.compile, "checkpointed": checkpoint_wrapper}


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_parts_that_are_wrapped_after_they_got_gates_are_refused_in_words(wrap):
    """Their parameters have other names then, and would drop out of sums over weights."""
    model, sparsifier = gated()
    model[2] = wrap(model[2])
    for fails in (
        Penalty(sparsifier, 0.1, l2=1.0).forward,
        GroupLasso(sparsifier, 0.1, 0.5, steps=10).forward,
        lambda: compact(model),
    ):
        with pytest.raises(LzeroError, match=r"2\.weight is not what it was: .* wrapped or changed after"):
            fails()


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_parts_that_are_wrapped_before_they_get_gates_are_cut_like_others(wrap):
    model = nn.Sequential(nn.Linear(20, 32), nn.GELU(), wrap(nn.Linear(32, 24)), nn.Tanh(), nn.Linear(24, 3))
    sparsifier = sparsify(model, X[:1])
    sparsifier.log_alpha.data[::2] = -9.0
    small = compact(model)
    assert verify(model, small, X) <= 1e-5
    assert measure(small, X[:1]).params.dense < 0.4 * measure(model).params.dense


def test_a_look_at_the_term_for_a_log_changes_nothing():
    runs = []
    for looks in (False, True):
        model, sparsifier = gated()
        objective = Constraint(sparsifier, 0.3, steps=20)
        train(model, sparsifier, objective, 20, after=objective if looks else lambda: None)
        runs.append((sparsifier.log_alpha.detach(), objective.multiplier.clone(), objective.record.as_dict()))
    assert torch.equal(runs[0][0], runs[1][0])
    assert torch.equal(runs[0][1], runs[1][1])
    assert runs[0][2] == runs[1][2]


OBJECTIVES = {
    "a budget for each layer": lambda s: Constraint(s, 0.5, per="layer"),
    "decay that moves gates": lambda s: Penalty(s, 0.1, l2=1.0, l2_moves_gates=True),
    "group lasso": lambda s: GroupLasso(s, 0.1, 0.5, steps=10),
}


@pytest.mark.parametrize("make", OBJECTIVES.values(), ids=OBJECTIVES)
def test_training_goes_on_after_a_look_in_inference_mode(make):
    model, sparsifier = gated()
    objective = make(sparsifier)
    with torch.inference_mode():
        assert objective.record.expected.isfinite().all()
    train(model, sparsifier, objective)


def test_leaving_inference_mode_does_not_switch_gradients_on():
    with torch.no_grad(), outside_inference_mode():
        assert not torch.is_grad_enabled()
    with torch.inference_mode(), outside_inference_mode():
        assert not torch.is_inference_mode_enabled()


def test_what_is_cut_in_inference_mode_can_be_trained():
    model, sparsifier = gated()
    objective = Constraint(sparsifier, 0.5)
    sparsifier.log_alpha.data[:5] = -9.0
    with torch.inference_mode():
        small = compact(model, budget=objective)
        assert sparsifier.shrink() == 5
    small(X).square().mean().backward()
    train(model, sparsifier, objective)
    with torch.inference_mode():
        again = sparsify(small, X[:1])
    train(small, again, Constraint(again, 0.5))


def test_a_forward_that_is_a_function_on_the_model_is_refused():
    """A copy of the model would call the model itself."""
    model, sparsifier = gated()
    model.forward = lambda x: nn.Sequential.forward(model, x)
    for fails in (lambda: compact(model), sparsifier.check):
        with pytest.raises(LzeroError, match=r"forward is a function set on the model, .* model\.compile\(\)"):
            fails()
    del model.forward
    model.forward = types.MethodType(nn.Sequential.forward, model)
    assert verify(model, compact(model), X) <= 1e-5
    other = nn.Linear(4, 2)
    other.forward = lambda x: F.linear(x, other.weight)
    with pytest.raises(LzeroError, match="a function set on the model"):
        sparsify(other, torch.randn(1, 4), inputs=True)


def test_the_state_of_an_attached_optimizer_is_cut_along():
    model, sparsifier = gated()
    optimizer = torch.optim.Adam(sparsifier.param_groups(lr=1e-3))
    sparsifier.attach(optimizer, Constraint(sparsifier, 0.5))
    for step in range(4):
        model(X).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 1:
            sparsifier.log_alpha.data[:5] = -9.0
            assert sparsifier.shrink() == 5
    assert {state["exp_avg"].shape == p.shape for p, state in optimizer.state.items()} == {True}


def test_an_optimizer_with_states_in_containers_is_refused_before_anything_changes():
    model, sparsifier = gated()
    optimizer = torch.optim.SGD(sparsifier.param_groups(lr=0.1))
    optimizer.state[model[0].weight]["history"] = [torch.zeros(32, 20)]
    sparsifier.log_alpha.data[:5] = -9.0
    with pytest.raises(LzeroError, match=r"history of shape \(32, 20\) in a container for 0.weight"):
        sparsifier.shrink(optimizer)
    assert model[0].out_features == 32


@pytest.mark.parametrize("is_autocast", [False, True])
def test_gradients_by_torch_func_are_those_of_a_backward(is_autocast):
    model, sparsifier = gated()
    parameters = dict(model.named_parameters())

    def loss(given):
        torch.manual_seed(1)
        with torch.autocast("cpu", torch.bfloat16, enabled=is_autocast):
            return torch.func.functional_call(model, given, (X,)).float().square().mean()

    found = torch.func.grad(loss)(parameters)
    loss(parameters).backward()
    tolerance = {"rtol": 0.1, "atol": 1e-3} if is_autocast else {}
    torch.testing.assert_close(found["lzero_log_alpha"], sparsifier.log_alpha.grad, **tolerance)
    torch.testing.assert_close(found["2.weight"], model[2].weight.grad, **tolerance)


def test_a_model_without_memory_has_a_plan_and_works_once_it_has_some():
    torch.manual_seed(0)
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(20, 8), nn.Tanh(), nn.Linear(8, 3))
    sparsifier = sparsify(model, X[:1].to("meta"))
    assert "8  read by 2.weight" in str(sparsifier.plan())
    for fails in (lambda: measure(model), lambda: compact(model), lambda: Constraint(sparsifier, 0.5)):
        with pytest.raises(LzeroError, match="on the meta device, where gates have no values"):
            fails()
    whole = nn.Sequential(nn.Linear(20, 8), nn.Tanh(), nn.Linear(8, 3))
    filled = {**whole.state_dict(), "lzero_log_alpha": torch.full((8,), 3.0)}
    model.to_empty(device="cpu").load_state_dict(filled)
    torch.testing.assert_close(model.eval()(X), whole(X))


def test_a_cut_inside_autocast_leaves_no_old_weights_behind():
    model, sparsifier = gated()
    sparsifier.log_alpha.data[:5] = -9.0
    with torch.autocast("cpu", torch.bfloat16):
        model(X).float().square().mean().backward()
        assert sparsifier.shrink() == 5
        assert model(X).shape == (5, 3)


class Dividing(nn.Module):
    """Attention whose code divides the width of a stream by the number of heads: as many must go from both."""

    def __init__(self):
        super().__init__()
        self.embed, self.qkv, self.out = nn.Linear(8, 64), nn.Linear(64, 192), nn.Linear(64, 64)
        self.heads, self.head = 4, nn.Linear(64, 10)

    def forward(self, x):
        x = self.embed(x)
        batch, time, width = x.shape
        shape = batch, time, self.heads, width // self.heads
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.qkv(x).split(width, dim=2))
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, time, width)
        return self.head((x + self.out(y)).mean(1))


class Shifting(nn.Module):
    """Shifts of the first eighths of all maps, in slices of a size that its code computed once."""

    def __init__(self):
        super().__init__()
        self.eighth = 3
        self.first, self.second = nn.Conv2d(1, 24, 3, padding=1), nn.Conv2d(24, 24, 3, padding=1)
        self.head = nn.Linear(24, 10)

    def forward(self, x):
        x, k = self.first(x).relu(), self.eighth
        x = torch.cat([x[:, :k].roll(1, -1), x[:, k : 2 * k].roll(-1, -1), x[:, 2 * k :]], 1)
        return self.head(self.second(x).relu().mean((2, 3)))


@pytest.mark.parametrize(("model", "x"), [(Dividing(), torch.randn(2, 6, 8)), (Shifting(), torch.randn(4, 1, 8, 8))])
def test_code_that_fits_a_cut_by_luck_is_found_by_a_check(model, x):
    sparsifier = sparsify(model, x)
    with pytest.raises(LzeroError, match=r"removing some of the units of .* fails"):
        sparsifier.check()


class Lit(lightning.LightningModule):
    """The module of docs/objectives.md."""

    def __init__(self, steps):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(20, 32), nn.GELU(), nn.Linear(32, 3))
        self.sparsifier = sparsify(self.net, X[:1])
        self.objective = Constraint(self.sparsifier, "30%", steps=steps)

    def training_step(self, batch, _):
        return F.cross_entropy(self.net(batch[0]), batch[1]) + self.objective()

    def on_train_batch_end(self, *_):
        self.objective.step()

    def configure_optimizers(self):
        return torch.optim.Adam(self.sparsifier.param_groups(lr=1e-3, steps=120))


@pytest.mark.filterwarnings("ignore")  # of what Lightning would do otherwise
def test_lightning_trains_to_a_budget_and_goes_on_from_its_checkpoints(tmp_path):
    torch.manual_seed(1)
    table = torch.randn(200, 20)
    data = DataLoader(TensorDataset(table, table[:, :3].argmax(1)), batch_size=50)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}

    def trained(epochs, module, resume=None, **options):
        trainer = lightning.Trainer(max_epochs=epochs, default_root_dir=tmp_path, **quiet, **options)
        trainer.fit(module, data, ckpt_path=resume)
        return trainer

    first, part = Lit(120), Lit(120)
    trained(15, first, enable_checkpointing=False).save_checkpoint(tmp_path / "part.ckpt")
    assert first.objective.multiplier > 0
    trained(
        15, part, tmp_path / "part.ckpt", enable_checkpointing=False
    )  # takes up what is there, and has no more to do
    assert part.objective.steps == 60
    assert torch.equal(part.objective.multiplier, first.objective.multiplier)
    assert torch.equal(part.sparsifier.log_alpha, first.sparsifier.log_alpha)
    trained(30, part, tmp_path / "part.ckpt", enable_checkpointing=False)
    assert part.objective.steps == 120
    small = compact(part.net, budget=part.objective)
    assert measure(small, X[:1]).macs.dense <= 0.3 * measure(Lit(1).net).macs.dense
