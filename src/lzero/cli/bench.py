"""`lzero bench`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from lzero.budgets import UNITS, make_budgets
from lzero.cli.app import app, errors_for_people, say
from lzero.cli.options import (
    Accelerator,
    AsJson,
    Budget,
    Cost,
    Exclude,
    Include,
    Input,
    SourceName,
    Weights,
    cost_of,
    target_of,
)
from lzero.cli.source import Source, find
from lzero.errors import LzeroError
from lzero.latency import latency, machine, step_latency
from lzero.measure import measure
from lzero.preview import preview
from lzero.training.processes import device_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lzero import costs
    from lzero.budgets import Target
    from lzero.sparsifier import Sparsifier

BATCHES = (1, 100)
MULTIPLES = (8, 16, 32, 64)
DENSE = "dense"
HALF = "50%"
PRECISIONS = {"32-true": None, "bf16-mixed": torch.bfloat16}  # of a recipe, for autocast


@dataclass
class Case:
    """A network, what it costs, and how long it takes: seconds, by the number of examples."""

    name: str
    params: int
    macs: int
    forward: dict[int, float] = field(default_factory=dict)
    step: dict[int, float] = field(default_factory=dict)


@app.command("bench")
def bench_command(
    source: SourceName,
    budget: Budget = None,
    cost: Cost = None,
    round_to: Annotated[
        list[int] | None,
        typer.Option(
            help=f"Multiples of widths to try beside any width; {', '.join(map(str, MULTIPLES))} if not given.",
            min=1,
            metavar="N",
            show_default=False,
        ),
    ] = None,
    batch: Annotated[
        list[int] | None,
        typer.Option(
            help=f"Examples at a time; {' and '.join(map(str, BATCHES))} if not given.",
            min=1,
            metavar="N",
            show_default=False,
        ),
    ] = None,
    inputs: Input = None,
    include: Include = None,
    exclude: Exclude = None,
    weights: Weights = None,
    accelerator: Accelerator = "auto",
    repeats: Annotated[int, typer.Option(help="How often each is timed; medians are told.", min=1)] = 9,
    as_json: AsJson = False,
) -> None:
    """Time a network on this machine, and what a budget would give back.

    The compacted network of a run, and untrained networks within the budget, half of the MACs if none is given. Their
    widths are left to chance: any, and multiples of some number (shrink.round_to in a recipe), which suit one machine
    more than another. A step is a forward and a backward in the precision of the recipe; forwards alone are in single
    precision.
    """
    with errors_for_people():
        device, found = device_of(accelerator), find(source)
        with Console(stderr=True).status("making networks …") as status:
            gated = found.gated(inputs, include=include, exclude=exclude)
            networks: dict[str, nn.Module] = {DENSE: found.dense()}
            small = found.compacted(weights)
            networks |= {} if small is None else {"compacted": small}
            tried, missing = _within(gated, target_of(budget or HALF), cost_of(cost), round_to or MULTIPLES)
            status.update("taking times …")
            cases = _timed(found, networks | tried, gated.example_inputs, batch or BATCHES, device, repeats)
    if as_json:
        told = {"machine": machine(device), "networks": [asdict(case) for case in cases], "no_multiples_of": missing}
        typer.echo(json.dumps(told, indent=2))
        return
    console = Console()
    say(console, f"{machine(device)}; times over those of the dense network")
    console.print(_table(cases))
    if missing:
        say(console, f"No network in multiples of {', '.join(map(str, missing))} is within the budget.", style="yellow")


def _within(
    gated: Sparsifier, target: Target, cost: costs.Cost, multiples: Sequence[int]
) -> tuple[dict[str, nn.Module], list[int]]:
    """Networks within the budget by their names, and the multiples in which there are none."""
    (budget,) = make_budgets(gated, target, cost)
    networks, missing = {f"{100 * budget.share:.3g}% of {UNITS[cost]}": preview(gated, target, cost)}, []
    for multiple in sorted({*multiples} - {1}):
        try:
            networks[f"multiples of {multiple}"] = preview(gated, target, cost, round_to=multiple)
        except LzeroError:  # too few of them, or the first network would not be there either
            missing.append(multiple)
    return networks, missing


def _timed(
    found: Source,
    networks: dict[str, nn.Module],
    example: Sequence[Tensor],
    batches: Sequence[int],
    device: torch.device,
    repeats: int,
) -> list[Case]:
    training, largest = found.recipe.training, max(batches)
    layout = torch.channels_last if training.channels_last else torch.preserve_format
    for network in networks.values():
        network.to(device).to(memory_format=layout)  # type: ignore[call-overload]

    def of(count: int) -> tuple[Tensor, ...]:
        """So many examples."""
        several = (x[:1].expand(count, *x.shape[1:]).contiguous().to(device) for x in example)
        return tuple(x.to(memory_format=layout) if x.dim() == 4 else x for x in several)

    sizes = {name: measure(network, of(1)) for name, network in networks.items()}
    cases = {name: Case(name, size.params.dense, size.macs.dense) for name, size in sizes.items()}
    for count in sorted(set(batches)):
        for name, seconds in latency(networks, of(count), repeats).items():
            cases[name].forward[count] = seconds
    if largest > 1:  # a batch norm cannot learn from one example
        precision = PRECISIONS[training.precision]
        for name, seconds in step_latency(networks, of(largest), repeats, precision).items():
            cases[name].step[largest] = seconds
    return [*cases.values()]


def _table(cases: Sequence[Case]) -> Table:
    """Times of the dense network, and those of the others over them."""
    dense, *others = cases
    table = Table(box=None)
    table.add_column("", no_wrap=True)
    for column in (
        "parameters",
        "MACs",
        *(f"forward, {n}" for n in dense.forward),
        *(f"step, {n}" for n in dense.step),
    ):
        table.add_column(column, justify="right", no_wrap=True)
    times = [f"{1000 * seconds:.2f} ms" for seconds in _seconds(dense)]
    table.add_row(dense.name, f"{dense.params:,}", f"{dense.macs:,}", *times)
    for case in others:
        ratios = [f"{own / whole:.2f}×" for own, whole in zip(_seconds(case), _seconds(dense), strict=True)]
        table.add_row(case.name, f"{case.params / dense.params:.1%}", f"{case.macs / dense.macs:.1%}", *ratios)
    return table


def _seconds(case: Case) -> Iterator[float]:
    yield from case.forward.values()
    yield from case.step.values()
