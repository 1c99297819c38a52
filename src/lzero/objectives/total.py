"""Several objectives at once."""

from __future__ import annotations

import torch
from torch import Tensor

from lzero.budgets import Budget
from lzero.errors import ArgumentError
from lzero.objectives.objective import Objective, Record


class Total(Objective):
    """The sum of objectives of one model: all terms, all steps, all budgets. Usually written with `+`."""

    parts: tuple[Objective, ...]

    def __init__(self, *parts: Objective) -> None:
        flat = [leaf for part in parts for leaf in (part.parts if isinstance(part, Total) else (part,))]
        if any(not isinstance(part, Objective) for part in flat) or not flat:
            raise ArgumentError.about("parts", expected="objectives", got=", ".join(type(p).__name__ for p in flat))
        super().__init__(flat[0].sparsifier)
        if len({id(part) for part in flat}) < len(flat):
            raise ArgumentError.about("parts", expected="each objective once", got="one of them twice")
        if any(part.sparsifier is not self.sparsifier for part in flat):
            raise ArgumentError.about("parts", expected="objectives of one model", got="objectives of several")
        self.parts = tuple(flat)
        self.waits_for_gates = all(part.waits_for_gates for part in flat)
        self._modules |= {str(k): part for k, part in enumerate(flat)}  # for state_dict and .to()
        self.budgets: tuple[Budget, ...] = tuple(budget for part in flat for budget in part.budgets)

    def forward(self) -> Tensor:
        """The sum of all terms."""
        return torch.stack([part() for part in self.parts]).sum()

    def note(self, task_loss: Tensor | float | None) -> None:
        """Remember the loss in all parts."""
        for part in self.parts:
            part.note(task_loss)

    def look(self) -> None:
        """Stop where a number of any part is none."""
        for part in self.parts:
            part.look()

    def update(self) -> None:
        """What the parts do in their steps."""
        for part in self.parts:
            part.update()

    def count(self) -> None:
        """Go on in all parts."""
        for part in self.parts:
            part.count()
        super().count()

    @property
    def record(self) -> Record:
        """The groups of all parts, one after another."""
        records = [part.record for part in self.parts]

        def joined(field: str) -> Tensor:
            return torch.cat([getattr(record, field) for record in records])

        names = tuple(f"{k}: {name}" for k, record in enumerate(records) for name in record.names)
        numbers = {field: joined(field) for field in ("expected", "realised", "violation", "multiplier")}
        term = torch.stack([record.term for record in records]).sum()
        return Record(self.steps, names, term, **numbers, task_loss=records[0].task_loss)
