"""What a training gave: the dense network beside the compacted one."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch

from lzero import storage
from lzero.cutting import plan_of
from lzero.latency import latency, machine
from lzero.measure import measure
from lzero.structure.sites import INPUTS_OF
from lzero.tensors import count_nonzero

if TYPE_CHECKING:
    from torch import nn

    from lzero.sparsifier import Sparsifier
    from lzero.training.folder import RunFolder
    from lzero.training.session import Session

LATENCY_BATCH = 100
MOSTLY = 0.99  # of the parameters: where fewer are not zero, that is worth a line


@dataclass(frozen=True)
class Size:
    """One network: parameters, multiply–accumulates for one example, and what was measured, where it was.

    Gates on single weights leave many parameters that are zero: `nonzero` counts the others.
    """

    params: int
    macs: int
    error: float | None = None
    latency: float | None = None  # seconds for a batch
    nonzero: int | None = None


@dataclass(frozen=True)
class Layer:
    """The units of one site, or the inputs of one dense layer, before and after."""

    name: str
    before: int
    after: int

    @property
    def share(self) -> float:
        """What is left, between 0 and 1."""
        return self.after / self.before


@dataclass(frozen=True, eq=False)
class Outcome:
    """The compacted network and how it compares."""

    model: nn.Module
    dense: Size
    compacted: Size
    layers: tuple[Layer, ...]
    epochs: int
    seconds: float
    evaluated_on: str
    machine: str
    commit: str  # of lzero's checkout, where it runs from one

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        facts = {name: value for name, value in vars(self).items() if name not in ("model", "dense", "compacted")}
        layers = [asdict(layer) for layer in self.layers]
        sizes = {"dense": asdict(self.dense), "compacted": asdict(self.compacted)}
        return {**sizes, **facts, "layers": layers, "latency_batch": LATENCY_BATCH}


def finish(session: Session, run: RunFolder | None, dense_error: float | None = None) -> Outcome:
    """Compact the averaged weights, where there are any, to the budget, where there is one; measure and write."""
    small = session.compacted()
    device, shape = session.fabric.device, session.batches.images.shape[1:]
    layout = torch.channels_last if session.recipe.training.channels_last else torch.preserve_format
    dense = session.dense.to(device).to(memory_format=layout)  # type: ignore[call-overload]
    batch = torch.zeros(LATENCY_BATCH, *shape, device=device)
    seconds = latency({"dense": dense, "compacted": small}, batch.to(memory_format=layout))

    def size(name: str, model: nn.Module, error: float | None) -> Size:
        count = measure(model, batch[:1])
        nonzero = count.params.dense if model is dense else count_nonzero(model)  # dense it is as it began
        return Size(count.params.dense, count.macs.dense, error, seconds[name], nonzero)

    outcome = Outcome(
        small,
        size("dense", dense, dense_error),
        size("compacted", small, session.evaluate(small)[0]),
        layers_of(small, session.widths),
        session.epoch,
        session.seconds,
        session.recipe.data.evaluated_on,
        machine(device),
        session.commit,
    )
    if run is not None and run.writes:
        storage.save(small, run.model)
        run.write(run.outcome, json.dumps(outcome.as_dict(), indent=2) + "\n")
    return outcome


def widths_of(sparsifier: Sparsifier) -> dict[str, int]:
    """The units of each site, and the inputs of each dense layer that have gates of their own."""
    sites = {site.name: site.size for site in sparsifier.structure.sites}
    return sites | {group.name: len(group.gate_of_column) for group in sparsifier.groups if group.columns}


def layers_of(small: nn.Module, widths: dict[str, int]) -> tuple[Layer, ...]:
    """What is left in a compacted model of the sites it was cut at, and of inputs that had gates of their own."""
    sites = plan_of(small).get("sites", {})
    left = {name: len(sites[name]) if name in sites else _inputs(small, name) for name in widths}
    return tuple(Layer(name, widths[name], after) for name, after in left.items() if after is not None)


def _inputs(small: nn.Module, name: str) -> int | None:
    """The inputs that a dense layer reads, where the name is of such."""
    layer = name.removeprefix(INPUTS_OF)
    return None if layer == name else small.get_parameter(f"{layer}.weight").shape[1]
