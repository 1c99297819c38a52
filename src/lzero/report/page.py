"""A run as one HTML page that needs nothing else: no network, no script, no fonts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import lzero
from lzero.errors import MissingExtraError
from lzero.files import write_text
from lzero.report import axes, words
from lzero.report.curves import GROUPS, curves, group_names, removals
from lzero.report.layers import layers
from lzero.report.pixels import choices, reads_by_convolution
from lzero.report.run import Run, inside, number, read_run
from lzero.report.summary import budget, is_dense, result, table, title
from lzero.training.folder import RunFolder

if TYPE_CHECKING:
    from collections.abc import Callable

    from jinja2 import Environment

UNPRINTABLE = re.compile("[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_page(folder: Path) -> Path:
    """Write `report.html` into a run folder, finished or not; whatever its files hold, the page is safe to open.

    >>> import tempfile
    >>> from lzero.recipes import Recipe, as_toml
    >>> with tempfile.TemporaryDirectory() as name:
    ...     _ = Path(name, "config.toml").write_text(as_toml(Recipe(title="A trial")))
    ...     _ = Path(name, "metrics.jsonl").write_text("")
    ...     "Not finished" in write_page(Path(name)).read_text()
    True
    """
    page = RunFolder(Path(folder)).report
    text = _rendered(read_run(Path(folder)))
    write_text(page, text)
    return page


def written(page: Callable[[], Path]) -> str:
    """Where a page was written, or why it was not: what writes it may not be installed."""
    try:
        return str(page())
    except MissingExtraError as error:
        return f"not written: {error}"


def environment() -> Environment:
    """The templates, and how they are filled."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        raise MissingExtraError.of("jinja2", extra="plots") from error
    return Environment(
        loader=PackageLoader("lzero", "report/templates"),
        autoescape=True,  # everything from a run folder passes through it
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _rendered(run: Run) -> str:
    html = (
        environment()
        .get_template("page.html.jinja")
        .render(
            run=run,
            title=title(run),
            result=result(run),
            budget=budget(run),
            is_dense=is_dense(run),
            table=table(run),
            curves=curves(run),
            groups=len(group_names(run)),
            drawn=GROUPS,
            removed=sum(removals(run).values()),
            layers=layers(run),
            choices=choices(run),
            every_pixel=not run.indices or reads_by_convolution(run),
            seconds=number(inside(run.outcome, "seconds")),
            machine=inside(run.outcome, "machine"),
            version=lzero.__version__,
            axes=axes,
            words=words,
        )
    )
    return UNPRINTABLE.sub("\ufffd", html)
