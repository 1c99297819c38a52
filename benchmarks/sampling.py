"""Sampling one gate for every weight of a WRN-28-10, against drawing as many uniforms.

Goal: at most 1.5× the uniforms when compiled, and at most two tensors of that size kept for backward.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from lzero.latency import machine, median_seconds
from lzero.laws import HardConcrete

WRN_28_10_WEIGHTS = 36_000_000

Draw = Callable[[Tensor], Tensor]


def uniforms(log_alpha: Tensor) -> Tensor:
    """What no sampler can do without."""
    return torch.rand_like(log_alpha)


def gates(log_alpha: Tensor) -> Tensor:
    """One hard concrete sample per gate."""
    return HardConcrete(log_alpha, validate_args=False).rsample()


def kept_for_backward(draw: Draw, log_alpha: Tensor) -> int:
    """How many tensors of the gates' size wait for the backward pass, the sample itself not counted."""
    storages: set[int] = set()

    def pack(tensor: Tensor) -> Tensor:
        if tensor.numel() == log_alpha.numel():
            storages.add(tensor.untyped_storage().data_ptr())
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        sample = draw(log_alpha)
    return len(storages - {sample.untyped_storage().data_ptr(), log_alpha.untyped_storage().data_ptr()})


def peak_tensors(draw: Draw, log_alpha: Tensor) -> str:
    """The highest memory use during a draw, in tensors of the gates' size (known on a GPU only)."""
    if not log_alpha.is_cuda:
        return "–"
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    draw(log_alpha)
    return f"{(torch.cuda.max_memory_allocated() - before) / log_alpha.nbytes:.1f}"


def main() -> None:
    """Print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gates", type=int, default=WRN_28_10_WEIGHTS)
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    log_alpha = torch.normal(3.0, 1.0, (options.gates,), device=device).requires_grad_()
    draws: dict[str, tuple[Draw, Draw]] = {
        "eager": (uniforms, gates),
        "compiled": (torch.compile(uniforms, fullgraph=True), torch.compile(gates, fullgraph=True)),
    }
    print(f"{options.gates:,} gates, {machine()}")
    print(f"{'':10}{'time / uniforms':>16}{'kept for backward':>20}{'peak':>8}   (in tensors of that size)")
    for name, (draw_uniforms, draw_gates) in draws.items():
        cases = {
            "uniforms": lambda f=draw_uniforms: f(log_alpha),
            "gates": lambda f=draw_gates: f(log_alpha),
        }
        seconds = median_seconds(cases, options.repeats)
        ratio = seconds["gates"] / seconds["uniforms"]
        kept = kept_for_backward(draw_gates, log_alpha)
        print(f"{name:10}{ratio:15.2f}×{kept:>20}{peak_tensors(draw_gates, log_alpha):>8}")


if __name__ == "__main__":
    main()
