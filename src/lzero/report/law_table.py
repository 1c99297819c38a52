"""The law of one gate as a table."""

from __future__ import annotations

import torch
from rich.markup import escape
from rich.table import Table

from lzero.laws import HardConcrete

LOCATIONS = (-8.0, -4.0, -2.398, -1.599, 0.0, 1.386, 2.398, 2.944, 8.0)


def law_table() -> Table:
    """What log α means: probabilities, moments, and the two test-time gates, with the default β, γ, ζ."""
    law = HardConcrete(torch.tensor(LOCATIONS, dtype=torch.float64))
    columns = {
        "log α": law.log_alpha,
        "P(z≠0)": law.prob_active,
        "P(z=1)": law.prob_one,
        "E[z]": law.mean,
        "sd[z]": law.stddev,
        "ẑ eq13": law.estimate("eq13"),
        "ẑ median": law.estimate("median"),
    }
    table = Table(title=f"The hard concrete law (β = {law.beta:.3f}, γ = {law.gamma}, ζ = {law.zeta})")
    for name in columns:
        table.add_column(escape(name), justify="right")
    for row in torch.stack(list(columns.values()), dim=1).tolist():
        table.add_row(f"{row[0]:+.3f}", *(f"{number:.4f}" for number in row[1:]))
    return table
