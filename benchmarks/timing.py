"""Interleaved timing: on a noisy machine only ratios measured side by side mean anything."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def median_seconds(cases: Mapping[str, Callable[[], object]], repeats: int = 9) -> dict[str, float]:
    """The median time of each case over interleaved repeats, after one warm-up round."""
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(repeats + 1):
        for name, case in cases.items():
            times[name].append(_seconds(case))
    return {name: statistics.median(series[1:]) for name, series in times.items()}


def _seconds(case: Callable[[], object]) -> float:
    _wait()
    start = time.perf_counter()
    case()
    _wait()
    return time.perf_counter() - start


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def machine() -> str:
    """The kind of machine, for the head of a result."""
    if torch.cuda.is_available():
        return f"1× {torch.cuda.get_device_name().removeprefix('NVIDIA ')}, torch {torch.__version__.split('+')[0]}"
    return f"{torch.get_num_threads()} CPU cores, torch {torch.__version__.split('+')[0]}"
