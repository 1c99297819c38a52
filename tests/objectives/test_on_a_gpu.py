"""Objectives on a GPU: the numbers of the CPU, and no waiting."""

import copy

import pytest
import torch

import lzero
from lzero.errors import BudgetWarning
from lzero.objectives import Constraint, Penalty, VariationalBound
from lzero.objectives.duals import Ascent, PastExtrapolation, ProportionalIntegral, RestartedAscent, Restarts
from tests.objectives.conftest import gated

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")]

MAKE = {
    "penalty": lambda s: Penalty(s, 0.01, l2=0.1),
    "bound": lambda s: VariationalBound(s, 0.1, num_data=100),
    "layers": lambda s: Constraint(s, 0.5, "l0", per="layer"),
    "two": lambda s: Constraint(s, 0.4, "macs", steps=1000) + Constraint(s, 0.5, "params"),
    "ascent": lambda s: Constraint(s, 0.4, "macs", dual=Ascent(0.1)),
    "restarted": lambda s: Constraint(s, 0.4, "macs", dual=RestartedAscent(0.1), violation="difference"),
    "past": lambda s: Constraint(s, 0.4, "macs", dual=PastExtrapolation(0.1)),
    "controller": lambda s: Constraint(s, 0.4, "macs", dual=ProportionalIntegral()),
    "realised": lambda s: Constraint(s, 0.4, "macs", dual=Restarts(), dual_density="realised"),
}


def on(device):
    sparsifier = gated("LeNet-5")
    model = sparsifier.model.to(device)
    return lzero.sparsifier.sparsifier_of(model)


@pytest.mark.parametrize("name", MAKE)
def test_it_is_what_it_is_on_a_cpu(name):
    seen = {}
    for device in ("cpu", "cuda"):
        sparsifier = on(device)
        objective = MAKE[name](sparsifier)
        optimizer = torch.optim.SGD([sparsifier.log_alpha], lr=10.0)
        for _ in range(20):
            optimizer.zero_grad()
            objective().backward()
            optimizer.step()
            objective.step()
        seen[device] = sparsifier.log_alpha.detach().cpu(), objective.record.multiplier.cpu()
    torch.testing.assert_close(seen["cpu"], seen["cuda"], rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("name", MAKE)
def test_a_step_makes_nobody_wait(name):
    sparsifier = on("cuda")
    objective = MAKE[name](sparsifier)
    optimizer = torch.optim.Adam(sparsifier.param_groups(lr=1e-3), capturable=True)
    x = sparsifier.example_inputs[0].cuda()

    def step():
        optimizer.zero_grad()
        loss = sparsifier.model(x).square().mean()
        (loss + objective()).backward()
        optimizer.step()
        objective.step(loss)
        return objective.record

    for _ in range(2):  # tables move to the GPU in the first
        step()
    torch.cuda.set_sync_debug_mode("error")
    try:
        records = [step() for _ in range(20)]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert records[-1].as_dict()["step"] == 22


def test_budgets_hold_for_a_model_on_a_gpu():
    sparsifier = on("cuda")
    sparsifier.log_alpha.data.uniform_(-4, 4)
    objective = Constraint(sparsifier, 0.3, "params")
    with pytest.warns(BudgetWarning, match="nothing was trained towards it"):
        small = lzero.compact(sparsifier.model, budget=objective)
    assert sum(p.numel() for p in small.parameters()) <= objective.budgets[0].limit
    moved = copy.deepcopy(objective.state_dict())
    assert moved["dual.multiplier"].is_cuda
