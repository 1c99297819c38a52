"""What gates cost: a gated training step against the same step without gates, and against the goal.

On a CPU: LeNet-5 (batch 100, goal 1.05), a 12-layer GPT (goal 1.06), a 1024-4096-4096 MLP (goal 1.08).
On a GPU: WRN-28-10 in bfloat16, batch 256, the whole step in a captured CUDA graph (goal 1.03).
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from lzero import sparsify
from lzero.latency import machine, median_seconds
from lzero.zoo import GPT, MLP, LeNet5, WideResNet


@dataclass(frozen=True)
class Case:
    """A model, its batch, which units get gates, and the goal."""

    make: Callable[[], nn.Module]
    inputs: Callable[[], Tensor]
    goal: float
    include: str = "*"


CPU: dict[str, Case] = {
    "LeNet-5, batch 100": Case(LeNet5, lambda: torch.randn(100, 1, 28, 28), 1.05),
    "GPT, 12 × 384, 8 × 128 tokens": Case(
        partial(GPT, 1000, 128, 384, 12, 6), lambda: torch.randint(0, 1000, (8, 128)), 1.06
    ),
    "MLP 1024-4096-4096, batch 128": Case(partial(MLP, 1024, (4096, 4096)), lambda: torch.randn(128, 1024), 1.08),
}
GPU: dict[str, Case] = {
    "WRN-28-10, the papers' gates": Case(WideResNet, lambda: torch.randn(256, 3, 32, 32), 1.03, include="*.conv1"),
    "WRN-28-10, every unit": Case(WideResNet, lambda: torch.randn(256, 3, 32, 32), 1.03),
}


def train_step(model: nn.Module, x: Tensor) -> Callable[[], None]:
    """One step of SGD on this batch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    device = x.device.type

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = model(x).float().square().mean()
        loss.backward()
        optimizer.step()

    return step


def captured(step: Callable[[], None]) -> Callable[[], None]:
    """The same step as one CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    def replay(keep: object = step) -> None:
        del keep  # the graph reads and writes the tensors that the step holds
        graph.replay()

    return replay


def ratio(case: Case, repeats: int, device: str) -> float:
    """Seconds of a gated step over seconds of a plain one."""
    plain, x = case.make().to(device), case.inputs().to(device)
    if x.dim() == 4 and device == "cuda":
        plain.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        x = x.to(memory_format=torch.channels_last)
    gated = copy.deepcopy(plain)
    sparsify(gated, x, include=case.include)
    steps = {"plain": train_step(plain, x), "gated": train_step(gated, x)}
    if device == "cuda":
        steps = {name: captured(step) for name, step in steps.items()}
    seconds = median_seconds(steps, repeats)
    return seconds["gated"] / seconds["plain"]


def main() -> None:
    """Print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=31)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    print(f"gated step / plain step, {machine()}")
    for name, case in (GPU if device == "cuda" else CPU).items():
        print(f"{name:34}{ratio(case, options.repeats, device):6.3f}×   goal {case.goal:.2f}×")


if __name__ == "__main__":
    main()
