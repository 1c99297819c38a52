"""The machine a training runs on: one process or several, by Lightning Fabric."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lzero.errors import ArgumentError, MissingExtraError

if TYPE_CHECKING:
    from lightning.fabric import Fabric

    from lzero.recipes import Recipe


STRATEGIES = ("auto", "ddp")


def processes(recipe: Recipe, accelerator: str, devices: int, strategy: str) -> Fabric:
    """Fabric, launched. Under torchrun the number of processes is torchrun's."""
    try:
        from lightning.fabric import Fabric
    except ImportError as error:
        raise MissingExtraError.of("lightning", extra="train") from error
    if strategy not in STRATEGIES:
        expected, advice = " or ".join(STRATEGIES), "for FSDP2 write the loop yourself: sparsify works under it"
        raise ArgumentError.about("strategy", expected=expected, got=strategy, advice=advice)
    if devices < 1:
        raise ArgumentError.about("devices", expected="a whole number above 0", got=devices)
    here = int(os.environ.get("LOCAL_WORLD_SIZE", devices))
    nodes = int(os.environ.get("WORLD_SIZE", here)) // here
    try:
        fabric = Fabric(
            accelerator=accelerator,
            devices=here,
            num_nodes=nodes,
            strategy=strategy,
            precision=recipe.training.precision,
        )
    except (ValueError, RuntimeError, ImportError) as error:  # of machines and strategies that do not exist
        raise ArgumentError(f"accelerator, devices, strategy: {error}") from error
    check_batch(recipe, fabric.world_size)
    fabric.launch()
    return fabric


def check_batch(recipe: Recipe, count: int) -> None:
    """Refuse a batch that cannot be dealt out evenly: its mean loss would not be the mean of its parts."""
    training = recipe.training
    if training.accumulate < 1 or training.batch_size % (count * training.accumulate):
        parts = f"{count} processes × {training.accumulate} parts"
        expected = f"a multiple of {count * training.accumulate} ({parts})"
        raise ArgumentError.about("training.batch_size", expected=expected, got=training.batch_size)


def is_first() -> bool:
    """Whether this is the process, of perhaps several, that speaks to people: told by torchrun or by Fabric."""
    return int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0"))) == 0
