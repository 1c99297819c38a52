"""Problems whose answer is known: hard thresholding, best subsets by exhaustive search, a saddle point."""

from itertools import combinations

import pytest
import torch
from torch import nn

import lzero
from lzero.objectives import Constraint, Penalty
from lzero.objectives.duals import Ascent, RestartedAscent
from lzero.projection import project

SIGMA, N, KEEP = 0.5, 400, 0.5


def regression(design, coefficients, seed=0):
    """A linear model with a gate on every weight, its mean negative log-likelihood, and the inputs."""
    torch.manual_seed(seed)
    y = design @ coefficients + SIGMA * torch.randn(len(design))
    model = nn.Linear(design.shape[1], 1, bias=False)
    sparsifier = lzero.sparsify(model, design[:2], units="weights", keep_rate=KEEP)
    return model, sparsifier, lambda: (model(design).squeeze(1) - y).square().mean() / (2 * SIGMA**2), y


def orthogonal(features):
    """A design with XᵀX = N·I: the L0 solution is hard thresholding of the least-squares coefficients."""
    torch.manual_seed(1)
    return torch.linalg.qr(torch.randn(N, features))[0] * N**0.5


def train(sparsifier, loss, objective, steps):
    optimizer = torch.optim.Adam(sparsifier.param_groups(lr=0.02, steps=steps))
    for _ in range(steps):
        optimizer.zero_grad()
        (loss() + objective()).backward()
        optimizer.step()
        objective.step()


def kept(sparsifier):
    return set(sparsifier.law.estimate("eq13").nonzero().flatten().tolist())


@pytest.mark.parametrize("strength", [0.003, 0.02, 0.1, 0.5, "aic", "bic"])
def test_the_penalty_is_hard_thresholding_in_an_orthogonal_design(strength):
    number = {"aic": 1 / N, "bic": torch.tensor(float(N)).log().item() / (2 * N)}.get(strength, strength)
    threshold = SIGMA * (2 * number) ** 0.5
    factors = torch.tensor([0.1, 0.3, 0.6, 1.6, 2.0, 3.0, 5.0, -0.2, -0.5, -1.7, -4.0])
    design = orthogonal(len(factors))
    coefficients = threshold * factors
    # The least-squares coefficients are set, so that noise in the data moves none across the threshold.
    model, sparsifier, loss, y = regression(design, torch.zeros(len(factors)))
    y -= design @ (design.T @ y / N)
    y += design @ coefficients
    with torch.no_grad():
        model.weight.copy_(coefficients)
    train(sparsifier, loss, Penalty(sparsifier, strength, num_data=N), 3000)
    assert kept(sparsifier) == set((factors.abs() > 1).nonzero().flatten().tolist())


@pytest.mark.parametrize("wanted", [1, 3, 6, 8])
def test_a_constraint_keeps_the_largest_coefficients_of_an_orthogonal_design(wanted):
    coefficients = 0.2 * 1.4 ** torch.arange(10) * (-1) ** torch.arange(10)
    _, sparsifier, loss, _ = regression(orthogonal(10), coefficients)
    objective = Constraint(sparsifier, wanted, "gates", steps=2500)
    train(sparsifier, loss, objective, 2500)
    project(sparsifier.model, wanted, "gates")
    assert kept(sparsifier) == set(coefficients.abs().topk(wanted).indices.tolist())


@pytest.mark.parametrize("seed", range(4))
def test_a_constraint_finds_the_best_of_all_supports(seed):
    torch.manual_seed(seed)
    mixing = torch.eye(12) + 0.25 * torch.randn(12, 12)
    design = torch.randn(N, 12) @ mixing  # correlated features
    coefficients = torch.randn(12).sign() * torch.tensor([3.0, 2.5, 2.0, 1.5] + [0.1] * 8)
    _, sparsifier, loss, y = regression(design, coefficients, seed)

    def residual(support):
        columns = design[:, list(support)]
        return (y - columns @ torch.linalg.lstsq(columns, y[:, None]).solution.squeeze(1)).square().mean()

    best = min(combinations(range(12), 4), key=residual)
    train(sparsifier, loss, Constraint(sparsifier, 4 / 12, "l0", steps=2000), 2000)
    project(sparsifier.model, 4 / 12, "l0")
    assert kept(sparsifier) == set(best)


def densities(dual):
    """The expected density at each step of a problem that needs 4 of 16 coefficients, with a target of a half."""
    coefficients = torch.tensor([3.0, -3.0, 2.0, -2.0] + [0.5] * 12)
    _, sparsifier, loss, _ = regression(orthogonal(16), coefficients)
    objective = Constraint(sparsifier, 0.5, "l0", dual=dual, violation="difference")
    optimizer = torch.optim.Adam(sparsifier.param_groups(lr=0.02, gate_lr=0.02))
    seen = []
    for _ in range(2500):
        optimizer.zero_grad()
        (loss() + objective()).backward()
        optimizer.step()
        objective.step()
        seen.append(objective.record.expected.item())
    return torch.tensor(seen)


def test_plain_ascent_overshoots_and_restarts_do_not():
    plain, restarted = densities(Ascent(0.5)), densities(RestartedAscent(0.5))
    assert plain.min() < 0.35
    assert restarted.min() > 0.45
    assert restarted[-500:].mean() == pytest.approx(0.5, abs=0.02)
