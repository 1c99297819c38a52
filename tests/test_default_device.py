"""Where tensors are made by default is the user's choice: what belongs to a model is where the model is."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import lzero
from lzero import Constraint, Penalty
from lzero.latency import latency
from lzero.objectives import GroupLasso, VariationalBound
from lzero.subnetwork import Subnetwork

ELSEWHERE = [
    "meta",
    pytest.param("cuda", marks=[pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")]),
]


def make_model():
    return nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.Tanh(), nn.Flatten(), nn.Linear(6 * 16, 8), nn.Tanh(), nn.Linear(8, 2)
    )


@pytest.mark.parametrize("elsewhere", ELSEWHERE)
def test_a_model_on_the_cpu_is_trained_cut_and_loaded_whatever_the_default(elsewhere, tmp_path):
    torch.manual_seed(0)
    model, dense, x = make_model(), make_model(), torch.randn(16, 1, 6, 6)
    labels = (x.mean((1, 2, 3)) > 0).long()
    with torch.device(elsewhere):
        sparsifier = lzero.sparsify(model, x, units="paper")
        sparsifier.check()
        objective = Constraint(sparsifier, "50%", cost="params", steps=100) + Penalty(sparsifier, 1e-3, l2=1e-4)
        optimizer, forward = torch.optim.Adam(sparsifier.param_groups(lr=1e-2, steps=100)), Subnetwork(sparsifier)
        for step in range(100):
            loss = F.cross_entropy((forward if step % 10 == 3 else model)(x), labels) + objective()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            objective.step()
        sparsifier.shrink(optimizer)
        small = lzero.compact(model, budget=objective)
        assert lzero.verify(model, small, x) < 1e-5
        assert lzero.measure(small, x).params.dense <= lzero.measure(dense, x).params.dense / 2
        lzero.save(small, tmp_path / "small.safetensors")
        assert lzero.verify(small, lzero.load(dense, tmp_path / "small.safetensors"), x) == 0
        latency({"small": small}, x, repeats=1)
    assert {tensor.device.type for tensor in small.state_dict().values()} == {"cpu"}


OTHERS = {
    "a lasso": lambda sparsifier: GroupLasso(sparsifier, 1.0, 0.5, steps=10),
    "a bound": lambda sparsifier: VariationalBound(sparsifier, 0.1, num_data=16),
}


@pytest.mark.parametrize("objective", OTHERS.values(), ids=OTHERS)
def test_other_objectives_do_not_mind_the_default(objective):
    model, x = make_model(), torch.randn(2, 1, 6, 6)
    sparsifier = lzero.sparsify(model, x)
    plain = objective(sparsifier)().item()
    with torch.device("meta"):
        again = objective(sparsifier)
        assert again().item() == plain
        again.step()


def test_a_model_without_memory_gets_gates_without_memory():
    with torch.device("meta"):
        sparsifier = lzero.sparsify(make_model(), torch.randn(2, 1, 6, 6))
        assert sparsifier.log_alpha.is_meta
        assert [group.size for group in sparsifier.groups] == [6, 8]
