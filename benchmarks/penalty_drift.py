"""How far penalties alone move the gates of WRN-28-10 in the 2018 paper's setting, where the task says nothing of them.

SGD with momentum, its schedule and 390 steps an epoch, on one gate of each block: with the L0 penalty, and with the
expected weight decay of Eq. 17 beside it, the weights as they are at the beginning. A gate is closed at test time once
its log α is below −2.4.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor

from lzero.objectives import Penalty
from lzero.recipes import Recipe, load
from lzero.sparsifier import Sparsifier
from lzero.training.optimizers import schedule_at
from lzero.training.parts import make_gates, make_model

NUM_DATA, STEPS = 50_000, 390


def pressure(sparsifier: Sparsifier, penalty: Penalty) -> Tensor:
    """What a probability of 1 more would add to the penalty, the mean of each block."""
    (by_gate,) = torch.autograd.grad(penalty(), sparsifier.log_alpha)
    (slope,) = torch.autograd.grad(sparsifier.law.prob_active.sum(), sparsifier.log_alpha)
    return torch.stack([(by_gate / slope)[group.span].mean() for group in sparsifier.groups])


def drifted(sparsifier: Sparsifier, recipe: Recipe, pressures: Tensor) -> Tensor:
    """Log α of one gate of each block after the whole training."""
    start = sparsifier.log_alpha.detach()[[group.start for group in sparsifier.groups]]
    log_alpha = start.clone().requires_grad_(True)
    settings = recipe.optimizer
    optimizer = torch.optim.SGD([log_alpha], lr=settings.lr, momentum=settings.momentum, nesterov=True)
    for epoch in range(recipe.training.epochs):
        optimizer.param_groups[0]["lr"] = settings.lr * schedule_at(recipe, epoch)
        for _ in range(STEPS):
            optimizer.zero_grad()
            (pressures * sparsifier.bank.law(log_alpha).prob_active).sum().backward()
            optimizer.step()
    return log_alpha.detach()


def main() -> None:
    """Print a table: for each strength and penalty, where gates are in the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=200)
    epochs = parser.parse_args().epochs
    torch.set_num_threads(1)
    print("| λ × N | penalty | log α before | after | P(z ≠ 0) after | closed at test time |\n|" + " --- |" * 6)
    for strength in (0.001, 0.002):
        recipe = load("cifar10-wrn-28-10-penalty", [f"objective.strength={strength}", f"training.epochs={epochs}"])
        torch.manual_seed(0)
        sparsifier = make_gates(recipe, make_model(recipe), torch.zeros(1, 3, 32, 32))
        if sparsifier is None:
            raise RuntimeError("the recipe has no gates")
        for name, decay in (("L0", False), ("L0 and Eq. 17", True)):
            penalty = Penalty(sparsifier, strength / NUM_DATA, l2=recipe.objective.l2, l2_moves_gates=decay)
            law = sparsifier.bank.law(drifted(sparsifier, recipe, pressure(sparsifier, penalty)))
            before = f"{sparsifier.log_alpha.mean():.2f}"
            after = f"{law.log_alpha.min():.2f} to {law.log_alpha.max():.2f}"
            active = f"{law.prob_active.min():.3f} to {law.prob_active.max():.3f}"
            closed = int((law.estimate("eq13") == 0).sum())
            print(f"| {strength} | {name} | {before} | {after} | {active} | {closed} of {len(sparsifier.groups)} |")


if __name__ == "__main__":
    main()
