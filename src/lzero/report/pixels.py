"""What layers still read of their inputs; pictures where those are the pixels of images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from lzero.data.sources import SHAPES
from lzero.report.run import RunError

if TYPE_CHECKING:
    from torch import Tensor

    from lzero.report.run import Run

CHANNELS = {1: ("",), 3: ("red", "green", "blue")}


@dataclass(frozen=True)
class Picture:
    """One channel of an image, the pixels that are read as a path of unit squares."""

    channel: str
    width: int
    height: int
    path: str


@dataclass(frozen=True)
class Choice:
    """A layer that reads some of its inputs."""

    layer: str
    kept: int
    inputs: int
    pictures: tuple[Picture, ...]


def choices(run: Run) -> list[Choice]:
    """The layers that choose among their inputs."""
    found = []
    for layer, index in run.indices.items():
        inputs = _inputs(run, layer)
        kept = _checked(index, inputs)
        pictures = () if reads_by_convolution(run) else _pictures(kept, inputs, run.recipe.data.name)
        found.append(Choice(layer, len(kept), inputs, pictures))
    return found


def reads_by_convolution(run: Run) -> bool:
    """Whether the network has convolutions: they read every pixel, and what is behind them are no pixels."""
    return any(isinstance(shape, list) and len(shape) > 2 for shape in run.dense.values())


def _inputs(run: Run, layer: str) -> int:
    """The inputs that a layer had in the dense network."""
    match run.dense.get(f"{layer}.weight" if layer else "weight"):
        case [_, int(inputs)]:
            return inputs
    raise RunError(f"model.safetensors: damaged, the dense shape of {layer} is not in its plan")


def _checked(index: Tensor, inputs: int) -> list[int]:
    whole = index.dim() == 1 and index.dtype == torch.int64
    if not whole or not bool(((index >= 0) & (index < inputs)).all()):
        raise RunError("model.safetensors: damaged, a layer chooses inputs that it does not have")
    return sorted(set(index.tolist()))


def _pictures(kept: list[int], inputs: int, dataset: str) -> tuple[Picture, ...]:
    channels, height, width = SHAPES.get(dataset, (0, 0, 0))
    size = height * width
    if channels * size != inputs:
        return ()
    paths = [""] * channels
    for pixel in kept:
        paths[pixel // size] += f"M{pixel % width} {pixel % size // width}h1v1h-1z"
    return tuple(Picture(name, width, height, path) for name, path in zip(CHANNELS[channels], paths, strict=True))
