"""The machine a training runs on: one process or several, by Lightning Fabric."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch

from lzero.arguments import whole
from lzero.errors import ArgumentError, MissingExtraError

if TYPE_CHECKING:
    from lightning.fabric import Fabric

    from lzero.recipes import Recipe


ACCELERATORS = ("auto", "cpu", "cuda")
STRATEGIES = ("auto", "ddp")


def device_of(accelerator: str) -> torch.device:
    """The kind of device that is asked for, which must be here; `auto` is a GPU where there is one.

    >>> device_of("cpu")
    device(type='cpu')
    """
    if accelerator not in ACCELERATORS:
        raise ArgumentError.about("accelerator", expected="auto, cpu or cuda", got=accelerator)
    if accelerator == "cuda" and not torch.cuda.is_available():
        advice = "choose cpu, or auto for what is there"
        raise ArgumentError.about("accelerator", expected="a GPU for cuda", got="a machine without one", advice=advice)
    return torch.device("cuda" if accelerator != "cpu" and torch.cuda.is_available() else "cpu")


def processes(recipe: Recipe, accelerator: str, devices: int, strategy: str) -> Fabric:
    """Fabric, launched. Under torchrun the number of processes is torchrun's."""
    try:
        from lightning.fabric import Fabric
    except ImportError as error:
        raise MissingExtraError.of("lightning", extra="train") from error
    device = device_of(accelerator)
    if strategy not in STRATEGIES:
        expected, advice = " or ".join(STRATEGIES), "for FSDP2 write the loop yourself: sparsify works under it"
        raise ArgumentError.about("strategy", expected=expected, got=strategy, advice=advice)
    devices = whole("devices", devices)
    here = int(os.environ.get("LOCAL_WORLD_SIZE", devices))
    nodes = int(os.environ.get("WORLD_SIZE", here)) // here
    try:
        fabric = Fabric(
            accelerator=device.type,
            devices=here,
            num_nodes=nodes,
            strategy=strategy,
            precision=recipe.training.precision,
        )
    except (ValueError, RuntimeError, ImportError) as error:  # of machines and strategies that do not exist
        raise ArgumentError(f"devices, strategy: {error}") from error
    check_batch(recipe, fabric.world_size)
    fabric.launch()
    return fabric


def check_batch(recipe: Recipe, count: int) -> None:
    """Refuse a batch that cannot be dealt out evenly: its mean loss would not be the mean of its parts."""
    training = recipe.training
    if training.batch_size % (count * training.accumulate):
        parts = f"{count} processes × {training.accumulate} parts"
        expected = f"a multiple of {count * training.accumulate} ({parts})"
        raise ArgumentError.about("training.batch_size", expected=expected, got=training.batch_size)


def is_first() -> bool:
    """Whether this is the process, of perhaps several, that speaks to people: told by torchrun or by Fabric."""
    return int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0"))) == 0
