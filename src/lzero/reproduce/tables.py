"""Tables of experiments: ours beside the papers', row by row."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from lzero.report.paper_networks import architecture_share
from lzero.report.seeds import spread
from lzero.reproduce.rows import Published, Row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lzero.reproduce.records import Record
    from lzero.reproduce.rows import Experiment

COLUMNS = (
    *("setting", "paper's widths", "paper's parameters", "paper's error %"),
    *("widths", "parameters", "MACs", "error %, last epoch", "best", "latency"),
)
Line = tuple[str, ...]


def markdown(experiment: Experiment, records: Sequence[Record]) -> str:
    """The table of an experiment, and where its numbers come from."""
    table = as_markdown(*without_empty(COLUMNS, lines(experiment, records)))
    return "\n".join((f"# {experiment.title}", "", table, "", foot(records), ""))


def as_markdown(columns: Line, lines: Sequence[Line]) -> str:
    """Columns and lines as Markdown.

    >>> print(as_markdown(("a", "b"), [("1", "2")]))
    | a | b |
    | --- | --- |
    | 1 | 2 |
    """
    return "\n".join(f"| {' | '.join(line)} |" for line in (columns, ("---",) * len(columns), *lines))


def without_empty(columns: Line, lines: Sequence[Line]) -> tuple[Line, list[Line]]:
    """The columns in which something stands.

    >>> without_empty(("a", "b"), [("", "1"), ("", "2")])
    (('b',), [('1',), ('2',)])
    """
    used = [k for k in range(len(columns)) if any(line[k] for line in lines)]
    kept = [tuple(line[k] for k in used) for line in (columns, *lines)]
    return kept[0], kept[1:]


def lines(experiment: Experiment, records: Sequence[Record]) -> list[Line]:
    """A line for each row, and for each that only records have."""
    records = against_the_largest(records)
    known = {row.label: row for row in experiment.rows}
    others = {record.row: Row(record.row, "") for record in records if record.row not in known}
    usual = Counter(_kind(record.machine) for record in records).most_common(1)[0][0]
    return [
        _line(experiment, row, [record for record in records if record.row == label], usual)
        for label, row in (known | others).items()
    ]


def foot(records: Sequence[Record]) -> str:
    """Where the numbers of a table come from."""
    machines = ", ".join(sorted({record.machine for record in records}))
    epochs = sorted({record.epochs for record in records})
    length = f"{epochs[0]}" if len(epochs) == 1 else f"{epochs[0]} to {epochs[-1]}"
    seconds = statistics.median([record.seconds for record in records])
    known = sorted({commit for record in records for commit in record.commit.split(", ")} - {""})
    unknown = ["others"] * any(not record.commit for record in records)
    source = f"; lzero at {', '.join([*known, *unknown])}" if known else ""
    return f"{length} epochs; median wall clock of a training {seconds:.0f} s; {machines}{source}."


def against_the_largest(records: Sequence[Record]) -> list[Record]:
    """Records with the largest dense network of all as the one they are shares of: some networks begin smaller.

    Its latency is the median over its records, of the same machine where there are any.
    """
    params, macs = max(r.dense_params for r in records), max(r.dense_macs for r in records)

    def latency(record: Record) -> float:
        largest = [r for r in records if r.dense_macs == macs and r.machine == record.machine]
        return record.dense_latency if record.dense_macs == macs or not largest else _median_latency(largest)

    return [replace(r, dense_params=params, dense_macs=macs, dense_latency=latency(r)) for r in records]


def _median_latency(records: Sequence[Record]) -> float:
    return statistics.median(record.dense_latency for record in records)


def _kind(machine: str) -> str:
    """A machine without the version of torch that it ran."""
    return machine.partition(",")[0]


def _line(experiment: Experiment, row: Row, records: Sequence[Record], usual: str) -> Line:
    published = row.published or Published("")
    if not records:
        return (
            row.label,
            published.architecture,
            "",
            published_error(published),
            "not run",
            *[""] * (len(COLUMNS) - 5),
        )
    params = published_params(experiment, published, records[0].dense_params)
    return (
        row.label,
        published.architecture,
        "" if params is None else f"{params:,.0f}",
        published_error(published),
        architecture(experiment, records),
        _share([record.params for record in records], records[0].dense_params),
        _share([record.macs for record in records], records[0].dense_macs),
        _percent([record.error for record in records]),
        f"{100 * min(record.best_error for record in records):.2f}",
        _latency(records, usual),
    )


def _latency(records: Sequence[Record], usual: str) -> str:
    """The share of the dense network's time; with the machine where that is another one than most rows have."""
    share = statistics.median(record.latency / record.dense_latency for record in records)
    others = sorted({_kind(record.machine) for record in records} - {usual})
    where = f" ({', '.join(others)})" if others else ""
    return f"{share:.2f}×{where}"


def architecture(experiment: Experiment, records: Sequence[Record]) -> str:
    """The widths of the compacted networks, medians over seeds; none without gates.

    They are in the papers' order, or all of them in the network's where papers give none.
    """
    named = records[0].dense_widths if experiment.network is None else experiment.network.keep
    layers = [layer for layer in named if all(layer in record.dense_widths for record in records)]
    if not layers or not any(record.widths for record in records):
        return "–"
    return "-".join(f"{statistics.median_low(_width(r, layer) for r in records)}" for layer in layers)


def published_error(published: Published) -> str:
    """The error at the end, after the best over the training where both were published.

    >>> published_error(Published("a", error=1.04, best=0.53))
    '0.53 best / 1.04'
    """
    each = ((published.best, "best"), (published.error, ""))
    return " / ".join(f"{number} {word}".strip() for number, word in each if number is not None)


def published_params(experiment: Experiment, published: Published, dense: int) -> float | None:
    """The parameters of the architecture that was published, counted as ours are; none where no widths were."""
    if experiment.network is None or not published.architecture:
        return None
    return architecture_share(experiment.network, published.architecture, "params") * dense


def _width(record: Record, layer: str) -> int:
    """A layer's width; inputs that are all read have no entry of their own."""
    return record.widths.get(layer, record.dense_widths[layer])


def _percent(errors: Sequence[float]) -> str:
    return f"{100 * statistics.mean(errors):.2f}{spread([100 * error for error in errors])}"


def _share(numbers: Sequence[int], dense: int) -> str:
    mean = statistics.mean(numbers)
    return f"{mean:,.0f} ({mean / dense:.1%})"
