"""Plain simultaneous ascent is that of cooper, step by step."""

import cooper
import torch
from torch import nn

import lzero
from lzero.objectives import Constraint
from lzero.objectives.duals import Ascent

STEPS, TARGET, LR, DUAL_LR = 600, 0.375, 0.5, 0.02


def problem():
    """A small regression with gates on its inputs, in double precision; all random numbers are the same each time."""
    torch.manual_seed(0)
    x = torch.randn(64, 8, dtype=torch.float64)
    y = x @ torch.linspace(-1, 1, 8, dtype=torch.float64)
    model = nn.Linear(8, 1).double()
    sparsifier = lzero.sparsify(model, x[:2], inputs=True, keep_rate=0.5)
    model.double()
    optimizer = torch.optim.SGD(sparsifier.param_groups(lr=LR, gate_lr=20.0))
    torch.manual_seed(1)
    return sparsifier, optimizer, lambda: (model(x).squeeze(1) - y).square().mean() / 50


def ours():
    sparsifier, optimizer, loss = problem()
    objective = Constraint(sparsifier, TARGET, "l0", dual=Ascent(DUAL_LR), violation="difference").double()
    for _ in range(STEPS):
        optimizer.zero_grad()
        (loss() + objective()).backward()
        optimizer.step()
        objective.step()
        yield objective.multiplier.item(), sparsifier.log_alpha.detach().clone()


class Budget(cooper.ConstrainedMinimizationProblem):
    def __init__(self, sparsifier, loss):
        super().__init__()
        self.sparsifier, self.loss = sparsifier, loss
        multiplier = cooper.multipliers.DenseMultiplier(num_constraints=1, dtype=torch.float64)
        self.constraint = cooper.Constraint(
            constraint_type=cooper.ConstraintType.INEQUALITY,
            formulation_type=cooper.formulations.Lagrangian,
            multiplier=multiplier,
        )

    def compute_cmp_state(self):
        violation = self.sparsifier.law.prob_active.mean().reshape(1) - TARGET
        state = cooper.ConstraintState(violation=violation)
        return cooper.CMPState(loss=self.loss(), observed_constraints={self.constraint: state})


def coopers():
    sparsifier, optimizer, loss = problem()
    budget = Budget(sparsifier, loss)
    dual = torch.optim.SGD(budget.dual_parameters(), lr=DUAL_LR, maximize=True)
    both = cooper.optim.SimultaneousOptimizer(cmp=budget, primal_optimizers=optimizer, dual_optimizers=dual)
    for _ in range(STEPS):
        both.roll()
        yield budget.constraint.multiplier.weight.item(), sparsifier.log_alpha.detach().clone()


def test_the_trajectory_is_coopers():
    multipliers = []
    for (mine, gates), (theirs, their_gates) in zip(list(ours()), list(coopers()), strict=True):
        assert abs(mine - theirs) < 1e-6
        assert (gates - their_gates).abs().max() < 1e-6
        multipliers.append(mine)
    assert max(multipliers) > 0.1  # the constraint was at work
    assert 0 <= multipliers[-1] < 0.9 * max(multipliers)  # and its multiplier came down again
