"""Figures 1 and 2 of Louizos, Welling, Kingma (2018), computed from the laws."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from lzero.laws import BinaryConcrete, HardConcrete, Rectified
from lzero.report.drawing import GREY, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RIM = 0.04  # of the circle at the end of a line
BETA = 0.5  # the temperature of the paper's Figure 2
BLUE, ORANGE, GREEN = "#3b6fb6", "#d9822b", "#3a8f5c"


def figure_1() -> Figure:
    """The penalty |θ|^p for several p: only p = 0 does not shrink what it keeps."""
    figure, (axes,) = panels(1, 1)
    theta = torch.linspace(-2, 2, 801, dtype=torch.float64)
    for p, colour in ((2.0, GREY), (1.0, BLUE), (0.5, GREEN)):
        axes.plot(theta, theta.abs() ** p, color=colour, label=f"p = {p:g}")
    for side in (theta[theta < -RIM], theta[theta > RIM]):
        axes.plot(side, torch.ones_like(side), color=ORANGE, label="p = 0" if side[0] > 0 else None)
    axes.plot(0, 1, "o", markerfacecolor="none", color=ORANGE)
    axes.plot(0, 0, "o", color=ORANGE)
    axes.set(xlabel="θ", ylabel="penalty |θ|ᵖ", ylim=(-0.1, 3), title="Lₚ penalties")
    axes.legend(frameon=False)
    return figure


def figure_2() -> Figure:
    """The binary concrete and the hard concrete: (a) their laws at log α = 0, (b) their means over log α."""
    figure, (left, right) = panels(1, 2)
    _draw_laws(left)
    _draw_means(right)
    return figure


def _draw_laws(axes: Axes) -> None:
    centre = torch.tensor(0.0, dtype=torch.float64)
    inside = torch.linspace(0.002, 0.998, 999, dtype=torch.float64)
    hard = HardConcrete(centre, BETA)
    axes.plot(
        inside,
        BinaryConcrete(centre, BETA).log_prob(inside).exp(),
        color=BLUE,
        label="binary concrete, density",
    )
    axes.plot(inside, hard.log_prob(inside).exp(), color=ORANGE, label="hard concrete, density on (0, 1)")
    masses = [1 - hard.prob_active.item(), hard.prob_one.item()]
    axes.vlines([0, 1], 0, masses, color=ORANGE, linewidth=3)
    axes.plot([0, 1], masses, "o", color=ORANGE, label="hard concrete, mass at 0 and 1")
    for x, mass, alignment in ((0.03, masses[0], "left"), (0.97, masses[1], "right")):
        axes.annotate(f"{mass:.2f}", (x, mass), ha=alignment, va="bottom", color=ORANGE)
    axes.set(xlabel="z", ylabel="density, or mass", ylim=(0, 3), title=f"(a) log α = 0, β = {BETA}")
    axes.legend(frameon=False, loc="upper center")


def _draw_means(axes: Axes) -> None:
    log_alpha = torch.linspace(-8, 8, 321, dtype=torch.float64)
    hard = HardConcrete(log_alpha, BETA)
    axes.plot(log_alpha, Rectified(BinaryConcrete(log_alpha, BETA)).mean, color=BLUE, label="E[s], concrete")
    axes.plot(log_alpha, hard.mean, color=ORANGE, label="E[z], hard concrete")
    axes.plot(log_alpha, hard.estimate("median"), color=GREY, linestyle="--", label="without noise: the median")
    axes.set(xlabel="log α", ylabel="value of the gate", title=f"(b) over the location, β = {BETA}")
    axes.legend(frameon=False, loc="lower right", fontsize="small")
