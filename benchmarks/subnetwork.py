"""What subnetwork steps save: a training step on what the sample reads, against the full gated step and a plain one.

Every unit has a gate, all gates are open with the same probability, and each step draws them anew.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from lzero import sparsify
from lzero.latency import machine, median_seconds
from lzero.sparsifier import Sparsifier
from lzero.subnetwork import ROUND_TO, Subnetwork
from lzero.zoo import LeNet5, WideResNet

DENSITIES = (0.95, 0.75, 0.5, 0.25, 0.1)
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "LeNet-5, batch 100": (LeNet5, (100, 1, 28, 28)),
    "WRN-16-4, batch 64": (partial(WideResNet, 16, 4), (64, 3, 32, 32)),
}


def train_step(forward: Callable[[Tensor], Tensor], model: nn.Module, x: Tensor) -> Callable[[], None]:
    """One step of SGD on this batch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        forward(x).square().mean().backward()
        optimizer.step()

    return step


def set_density(sparsifier: Sparsifier, density: float) -> None:
    """Make every gate open with this probability."""
    balanced = sparsifier.bank.law(torch.zeros(())).prob_active
    sparsifier.log_alpha.data.fill_(torch.tensor(density).logit() - balanced.logit())


def measure(name: str, repeats: int, round_to: int) -> None:
    """Print the ratios of one network."""
    make, shape = NETWORKS[name]
    plain, x = make().train(), torch.randn(shape)
    gated = copy.deepcopy(plain)
    sparsifier = sparsify(gated, x[:2])
    part = Subnetwork(sparsifier, round_to=round_to)
    for density in DENSITIES:
        set_density(sparsifier, density)
        steps = {
            "plain": train_step(plain, plain, x),
            "full": train_step(gated, gated, x),
            "part": train_step(part, gated, x),
        }
        seconds = median_seconds(steps, repeats)
        ratios = (seconds[one] / seconds[other] for one, other in (("part", "full"), ("part", "plain")))
        print(f"{name:22}{density:7}" + "".join(f"{ratio:19.2f}×" for ratio in ratios), flush=True)


def main() -> None:
    """Print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--round-to", type=int, default=ROUND_TO)
    options = parser.parse_args()
    print(f"time of a training step, widths in multiples of {options.round_to}, {machine()}")
    print(f"{'':22}{'density':>7}{'subnetwork / full':>20}{'subnetwork / plain':>20}")
    for name in options.networks:
        measure(name, options.repeats, options.round_to)


if __name__ == "__main__":
    main()
