"""Tables and figures of the papers, by name."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from lzero.errors import ArgumentError, did_you_mean
from lzero.reproduce.experiments import EXPERIMENTS
from lzero.reproduce.figures import SOURCES, draw
from lzero.reproduce.records import read_all

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from rich.console import Console

    from lzero.reproduce.records import Record
    from lzero.reproduce.rows import Experiment
    from lzero.training.together import Trial

TABLES = ("law",)
FIGURES = tuple(SOURCES)
WITHOUT_TRAINING = (*TABLES, *(name for name, sources in SOURCES.items() if not sources))
NAMES = (*TABLES, *FIGURES, *EXPERIMENTS)


def reproduce(
    names: Sequence[str],
    out: Path,
    *,
    console: Console,
    overwrite: bool = False,
    only: Sequence[str] = (),
    quick: bool = False,
    seeds: int | None = None,
    data_dir: Path | None = None,
    accelerator: str = "auto",
    workers: int | None = None,
    on_plan: Callable[[Sequence[Trial]], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> None:
    """Print the named tables, draw the named figures and run the named experiments, into `out`.

    Every name and path is checked first. `only` names rows of experiments by parts of their labels. Experiments go on
    where they were interrupted. Small versions have a folder of their own.
    """
    out = out / "quick" if quick else out
    say = partial(console.print, highlight=False, soft_wrap=True, markup=False)
    for name in names:
        _check_name(name)
        if name in FIGURES:
            _check_free(out, name, overwrite=overwrite)
    chosen = _chosen(names, only)
    for name in names:
        _check_sources(name, {each.name for each in chosen}, out)
    if "law" in names:
        from lzero.report.law_table import law_table

        console.print(law_table())
    for experiment in chosen:
        from lzero.reproduce.running import run

        run(
            experiment, out, only=only, quick=quick, seeds=seeds, data_dir=data_dir, accelerator=accelerator,
            workers=workers, on_plan=on_plan, should_stop=should_stop,
            on_record=lambda record: say(_said(record)),
        )  # fmt: skip
        say((out / f"{experiment.name}.md").read_text(encoding="utf-8"))
    for name in (name for name in FIGURES if name in names):  # last: they show what the experiments gave
        draw(name, out)
        say(f"{name}: {out / name}.png, and in SVG, light and dark")
    if out.is_dir():
        from lzero.report.page import written
        from lzero.reproduce.page import write_page

        say(f"All of it: {written(partial(write_page, out, quick=quick))}")


def _chosen(names: Sequence[str], only: Sequence[str]) -> list[Experiment]:
    """The named experiments that have rows of these labels; refused where none has."""
    experiments = [experiment for name, experiment in EXPERIMENTS.items() if name in names]
    if not experiments:
        return []
    from lzero.reproduce.running import is_chosen  # heavy: Fabric

    chosen = [each for each in experiments if any(is_chosen(row.label, only) for row in each.rows)]
    if not chosen:
        labels = ", ".join(dict.fromkeys(repr(row.label) for experiment in experiments for row in experiment.rows))
        raise ArgumentError.about("only", expected=f"a part of one of {labels}", got=", ".join(map(repr, only)))
    return chosen


def _said(record: Record) -> str:
    share = f"{record.params / record.dense_params:.1%} of parameters, {record.macs / record.dense_macs:.1%} of MACs"
    return f"{record.row}, seed {record.seed}: error {record.error:.2%}, {share}, {record.seconds:.0f} s"


def _check_name(name: str) -> None:
    if name not in NAMES:
        expected, advice = f"one of {', '.join(NAMES)}", did_you_mean(name, NAMES)
        raise ArgumentError.about("name", expected=expected, got=name, advice=advice)


def _check_sources(name: str, chosen: set[str], out: Path) -> None:
    """Refuse a figure of what is neither there nor about to be; what is there is read, to see if it is whole."""
    sources = SOURCES.get(name, ())
    absent = [source for source in sources if not (out / f"{source}.jsonl").exists()]
    missing = [source for source in absent if source not in chosen]
    if missing:
        raise ArgumentError.about(
            "name",
            expected=f"{name} with what it is drawn from, {' and '.join(sources)}",
            got=f"{out} without records of {' and '.join(missing)}",
            advice=f"name {' and '.join(missing)} too, with the same options",
        )
    for source in sources:
        if source not in absent:
            read_all(out, source)


def _check_free(out: Path, name: str, *, overwrite: bool) -> None:
    """Refuse to write a figure over another one, in any of its forms."""
    from lzero.report.drawing import paths_of  # needs matplotlib

    there = [path for path in paths_of(out, name) if path.exists()]
    if there and not overwrite:
        advice = "pass --overwrite to replace it"
        raise ArgumentError.about("out", expected="a folder without this figure", got=there[0], advice=advice)
