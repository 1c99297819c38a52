"""Budgets from 1 % to 80 %, in three costs, for four networks: what training reaches, and what is left in the end.

    python benchmarks/budgets.py [--steps 1000] [--workers 2] [--out results/budgets.md]

Every row trains a network from scratch on scikit-learn's digits with the defaults for gates and multipliers, and
compacts it to its budget. Nothing is tuned for any row.
"""

import argparse
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

import lzero
from lzero.costs import Cost
from lzero.errors import ArgumentError, BudgetWarning
from lzero.projection import project
from lzero.zoo import MLP, LeNet5

COSTS: tuple[Cost, ...] = ("l0", "params", "macs")
TARGETS = (0.01, 0.02, 0.05, 0.10, 0.20, 0.33, 0.50, 0.80)


def conv(inputs: int, outputs: int, stride: int = 1) -> nn.Module:
    """A convolution and its norm."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs))


class Block(nn.Module):
    """A residual block."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.first, self.second = conv(inputs, outputs, stride), conv(outputs, outputs)
        self.shortcut = nn.Identity() if inputs == outputs and stride == 1 else conv(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Two convolutions beside a shortcut."""
        return F.relu(self.second(F.relu(self.first(x))) + self.shortcut(x))


def resnet() -> nn.Module:
    """A small ResNet."""
    return nn.Sequential(
        conv(1, 24, 2), nn.ReLU(), Block(24, 24), Block(24, 48, 2), Block(48, 48),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 10),
    )  # fmt: skip


class Layer(nn.Module):
    """A transformer layer with heads of 8."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out, self.up, self.down = nn.Linear(width, width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        """Attention and a feed-forward network, both beside the stream."""
        y = self.norm1(x)
        heads = [part(y).unflatten(2, (-1, 8)).transpose(1, 2) for part in (self.query, self.key, self.value)]
        x = x + self.out(F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2))
        fed: Tensor = self.down(F.gelu(self.up(self.norm2(x))))
        return x + fed


class Transformer(nn.Module):
    """A small transformer over the rows of an image."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.embed, self.place = nn.Linear(28, width), nn.Parameter(torch.randn(28, width) * 0.02)
        self.layers = nn.Sequential(Layer(width), Layer(width))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Classes of images."""
        rows = self.layers(self.embed(x.flatten(1, 2)) + self.place)
        classes: Tensor = self.head(self.norm(rows).mean(1))
        return classes


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "MLP": MLP,
    "LeNet-5": LeNet5,
    "ResNet": resnet,
    "transformer": Transformer,
}


def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Scikit-learn's digits, enlarged to 28 × 28: 1500 to train on, 297 to test with."""
    images, labels = load_digits(return_X_y=True)
    x = F.interpolate(torch.tensor(images / 16, dtype=torch.float32).view(-1, 1, 8, 8), 28)
    y = torch.tensor(labels)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    return x[order[:1500]], y[order[:1500]], x[order[1500:]], y[order[1500:]]


@dataclass(frozen=True)
class Run:
    """A training to a budget: the gated model, its objective, and the part of all steps after which the target held."""

    model: nn.Module
    objective: lzero.Constraint
    reached: float | None


def trained(name: str, cost: Cost, target: float, steps: int, scale: float = 1.0) -> Run:
    """A network trained to a budget with the defaults; the loss may be in other units."""
    x, y, _, _ = digits()
    torch.manual_seed(0)
    model = NETWORKS[name]()
    sparsifier = lzero.sparsify(model, x[:1])
    objective = lzero.Constraint(sparsifier, target, cost, steps=steps)
    optimizer = torch.optim.Adam(sparsifier.param_groups(lr=1e-3, steps=steps))
    reached = None
    for step in range(steps):
        batch = torch.randint(len(x), (64,))
        loss = scale * F.cross_entropy(model(x[batch]), y[batch])
        optimizer.zero_grad()
        (loss + objective()).backward()
        optimizer.step()
        objective.step(loss)
        if reached is None and objective.record.expected.item() <= 1.02 * target:
            reached = step / steps
    return Run(model, objective, reached)


def row(name: str, cost: Cost, target: float, steps: int, scale: float = 1.0) -> str:
    """One line of a table."""
    start = (
        f"| {name} | {cost} | {target:.0%} |" if scale == 1 else f"| {name} | {cost} | {target:.0%}, loss × {scale:g} |"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BudgetWarning)
        try:
            run = trained(name, cost, target, steps, scale)
        except ArgumentError as impossible:
            reason = str(impossible).partition("expected ")[2].partition(", which")[0]
            return f"{start} – | refused: {reason} | | | |"
        small = lzero.compact(run.model, budget=run.objective).eval()
    before = getattr(lzero.measure(run.model), cost)
    project(run.model, target, cost)
    after = getattr(lzero.measure(run.model), cost)
    share, limit = after.realised / after.dense, run.objective.budgets[0].limit
    _, _, x, y = digits()
    with torch.no_grad():
        error = (small(x).argmax(1) != y).float().mean().item()
    reached = "not" if run.reached is None else f"{run.reached:.0%}"
    held = f"{share / target:.3f}, {'held' if after.realised <= limit else '**not held**'}"
    return f"{start} {reached} | {before.expected / before.dense:.2%} | {share:.3%} | {held} | {error:.1%} |"


NOTE = """Each row is one training from scratch on scikit-learn's digits, enlarged to 28 × 28, with the defaults for
gates and multipliers: nothing is tuned for any row. *Reached* says after which part of all steps the expected cost was
first within 2 % of the target. A target below what cannot be removed is refused, with the least that can be had."""

HEAD = (
    "| network | cost | target | reached after | expected at the end | left when compacted | of target | test error |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- |"
)


def jobs(steps: int) -> list[tuple[str, Cost, float, int, float]]:
    """Every row of the first table, then every row of the second, as arguments of `row`."""
    first = [(name, cost, target, steps, 1.0) for name in NETWORKS for cost in COSTS for target in TARGETS]
    second = [(name, COSTS[2], 0.2, 2 * steps, scale) for name in NETWORKS for scale in (0.01, 1.0, 100.0)]
    return first + second


def main() -> None:
    """Print both tables, and write them where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    count = len(NETWORKS) * len(COSTS) * len(TARGETS)
    lines = [f"## Every network, cost and target, {options.steps} steps\n\n{HEAD}"]
    with get_context("spawn").Pool(options.workers, torch.set_num_threads, (1,)) as pool:
        for k, line in enumerate(pool.starmap(row, jobs(options.steps), chunksize=1)):
            if k == count:
                lines.append(f"\n## Losses in other units, {2 * options.steps} steps\n\n{HEAD}")
            lines.append(line)
    print("\n".join(lines))
    if options.out:
        command = f"`python benchmarks/budgets.py --steps {options.steps}`, torch {torch.__version__}, CPU cores."
        options.out.write_text(f"# Budgets\n\n{NOTE}\n\n{command}\n\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
