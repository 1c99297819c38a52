r"""How long a block of WRN-28-10 takes to train when it is narrower inside: its time and MACs over the whole one's.

    python benchmarks/block_widths.py --batch 256 --every 16

Budgets count MACs; this says at which widths a machine gives them back as time, and so which `round_to` suits it. On a
GPU blocks are trained in bfloat16 with channels last and as CUDA graphs, as the recipe does; on a CPU in float32.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from lzero.latency import machine, median_seconds
from lzero.zoo.residual import WideBlock

STAGES = {160: 32, 320: 16, 640: 8}  # the size of the images by the width of the blocks
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DTYPE = torch.bfloat16 if DEVICE.type == "cuda" else torch.float32


def step(block: nn.Module, x: Tensor, gradient: Tensor) -> None:
    """Forward and backward, also to the inputs, as blocks within a network are trained."""
    with torch.autocast(DEVICE.type, DTYPE, enabled=DEVICE.type == "cuda"):
        y = block(x)
    torch.autograd.grad(y, [x, *block.parameters()], gradient)


def recorded(step: Callable[[], None]) -> Callable[[], None]:
    """A step as one CUDA graph, on a GPU: narrow blocks would wait for launches, which a training does not."""
    if DEVICE.type != "cuda":
        return step
    step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def maps(batch: int, width: int, size: int) -> Tensor:
    """What comes to a block from its neighbours: in their precision and memory format, or conversions are timed too."""
    return torch.randn(batch, width, size, size, device=DEVICE, dtype=DTYPE).to(memory_format=torch.channels_last)


def blocks(width: int, every: int) -> dict[str, nn.Module]:
    """The whole block first, then from the widest to the narrowest."""
    insides = range(width, 0, -every)
    made: dict[str, nn.Module] = {f"{inside}": WideBlock(width, inside, width, 1, 0.0) for inside in insides}
    for block in made.values():
        block.to(DEVICE).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return made


def main() -> None:
    """Print a table for each stage."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--every", type=int, help="one width in so many; a quarter of the whole if not given")
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    print(f"{machine()}, batch {options.batch}; over the whole block")
    for width, size in STAGES.items():
        x, gradient = maps(options.batch, width, size).requires_grad_(), maps(options.batch, width, size)
        narrower = blocks(width, options.every or width // 4)
        cases = {name: recorded(partial(step, block, x, gradient)) for name, block in narrower.items()}
        seconds = median_seconds(cases, options.repeats)
        whole = seconds[f"{width}"]
        print(f"\n| {width} maps of {size} × {size} | MACs | time ({1000 * whole:.2f} ms) |\n| --- | --- | --- |")
        for inside, taken in seconds.items():
            print(f"| {inside} inside | {int(inside) / width:.2f}× | {taken / whole:.2f}× |")


if __name__ == "__main__":
    main()
