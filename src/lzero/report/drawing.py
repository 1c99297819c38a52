"""What figures share: colours, panels, lines with bands, legends beside the data, files for light and dark pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from lzero.errors import ArgumentError, MissingExtraError
from lzero.files import write_atomically
from lzero.report.words import short

try:
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.text import Text
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter
except ImportError as error:
    raise MissingExtraError.of("matplotlib", extra="plots") from error

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

    from lzero.report.seeds import Course

# Seen on white and on black, and told apart by all kinds of sight: the first four are Okabe and Ito's.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8f35f0", "#53692f", "#a67c00")
DASHES = ("-", "--")  # by turns, so that of two lines on one another both are seen
GREY = "#808080"
LIGHT, DARK = ("#1f2328", "#ffffff"), ("#e6edf3", "#0d1117")  # ink and paper
Place = Literal["outside lower center", "outside right upper"]
# The ratio of largest to smallest below which a logarithmic axis has these ticks in each decade.
TICKS = {10.0: (1, 1.5, 2, 3, 5, 7), 100.0: (1, 2, 3, 5), float("inf"): (1, 2, 5)}
FORMATS = (".svg", ".png")


def panels(rows: int, columns: int, width: float = 5.2, height: float = 3.8) -> tuple[Figure, list[Axes]]:
    """An empty figure with panels, row by row."""
    figure = Figure(figsize=(width * columns, height * rows), dpi=150, layout="constrained")
    axes = [figure.add_subplot(rows, columns, k + 1, facecolor="none") for k in range(rows * columns)]
    for each in axes:
        each.spines[["top", "right"]].set_visible(False)
        each.grid(alpha=0.25, color=GREY)
    return figure, axes


def draw(axes: Axes, course: Course, label: str, k: int, marker: str = "") -> None:
    """A line in the k-th look, its interval as a band, and dots for numbers between gaps."""
    colour, dash = COLOURS[k % len(COLOURS)], DASHES[(k + k // len(COLOURS)) % len(DASHES)]
    dots = {"marker": marker} if marker else {"marker": ".", "markevery": course.alone} if course.alone else {}
    axes.plot(course.places, course.mean, dash, color=colour, label=label, **dots)
    if course.has_band and len(course.places) == 1:
        axes.errorbar(course.places, course.mean, course.half, color=colour, capsize=3)
    elif course.has_band:
        low = [mean - half for mean, half in zip(course.mean, course.half, strict=True)]
        high = [mean + half for mean, half in zip(course.mean, course.half, strict=True)]
        axes.fill_between(course.places, low, high, color=colour, alpha=0.2, linewidth=0)


def level(axes: Axes, value: float, label: str, dash: str = ":") -> None:
    """A line across the panel, for what stays as it is."""
    axes.axhline(value, color=GREY, linestyle=dash, label=label, zorder=1.9)  # under the lines


def legend_below(axes: Axes, title: str) -> None:
    """A legend under its panel."""
    legend = axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.16), title=title)
    legend.get_title().set_fontsize("small")


def shared_legend(figure: Figure, title: str, *, place: Place = "outside lower center", columns: int = 1) -> None:
    """One legend for all panels, outside of them; the fullest panel sets the order."""
    handles: dict[str, Artist] = {}
    for axes in sorted(figure.axes, key=lambda axes: len(axes.lines), reverse=True):
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    legend = figure.legend(handles.values(), list(handles), frameon=False, loc=place, ncols=columns, title=title)
    legend.get_title().set_fontsize("small")


def log_ticks(axis: Axis) -> None:
    """On a logarithmic axis 1, 2, 5, 10 …, and more of them on a short one, written as people write them."""
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=next(ticks for ratio, ticks in TICKS.items() if high < ratio * low)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def log_where_positive(axes: Axes) -> None:
    """A logarithmic y axis, unless a line has a zero; bands, which may have, do not stretch it."""
    lowest = min(float(np.nanmin(np.asarray(line.get_ydata(), dtype=float))) for line in axes.lines)
    if lowest > 0:
        axes.set_yscale("log")
        axes.set_ylim(bottom=lowest / 1.2)
        log_ticks(axes.yaxis)


def epochs(axes: Axes) -> None:
    """Epochs along the x axis, which are whole."""
    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def counts(axis: Axis) -> None:
    """Ticks such as 20k and 5G."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))


def save(figure: Figure, path: Path, *, dark: bool = False) -> None:
    """Write a figure in ink for light or dark pages; an SVG shows the page through, a PNG brings its paper."""
    if path.suffix not in FORMATS:
        raise ArgumentError.about("path", expected=f"a name that ends with one of {', '.join(FORMATS)}", got=path)
    ink, paper = DARK if dark else LIGHT
    _set_ink(figure, ink)
    is_svg = path.suffix == ".svg"
    # Without salt and date the same figure would be another file each time.
    with write_atomically(path) as temporary, rc_context({"svg.hashsalt": "lzero"}):
        figure.savefig(
            temporary,
            format=path.suffix[1:],
            facecolor="none" if is_svg else paper,
            metadata={"Date": None} if is_svg else None,
        )


def save_all(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write `name.svg`, `name.png`, and both again as `name-dark` for dark pages."""
    paths = paths_of(folder, name)
    for path, dark in paths.items():
        save(figure, path, dark=dark)
    return list(paths)


def paths_of(folder: Path, name: str) -> dict[Path, bool]:
    """Where `save_all` writes a figure, and whether for dark pages; light comes last, so that it ends as it began."""
    return {folder / f"{name}{'-dark' * dark}{suffix}": dark for dark in (True, False) for suffix in FORMATS}


def _set_ink(figure: Figure, ink: str) -> None:
    for text in figure.findobj(Text):
        text.set(color=ink)
    for axes in figure.axes:
        axes.tick_params(which="both", color=ink, labelcolor=ink)
        axes.spines[:].set_color(ink)
