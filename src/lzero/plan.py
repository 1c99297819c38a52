"""What can be removed from a model, what cannot, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lzero.gating import GateGroup
    from lzero.structure.frozen import Structure


@dataclass(frozen=True)
class Plan:
    """Two tables by module path: (name, units, read by) of what has gates, (name, units, reason) of what is fixed."""

    removable: tuple[tuple[str, int, str], ...]
    fixed: tuple[tuple[str, int, str], ...]

    @classmethod
    def of(cls, structure: Structure, groups: Sequence[GateGroup]) -> Plan:
        """The plan of a structure and its gates."""

        def read_by(group: GateGroup) -> str:
            if group.site is None:
                return ", ".join(where.tensor for where in group.columns) or "itself"
            return ", ".join(dict.fromkeys(where.tensor for where in group.site.consumers))

        removable = tuple((group.name, group.size, read_by(group)) for group in groups)
        gated = {where for group in groups for where in group.columns}  # fixed as units, but not for each reader
        fixed = [each for each in structure.pinned if not each.consumers or not gated.issuperset(each.consumers)]
        return cls(removable, tuple((each.name, each.size, each.reason) for each in fixed))

    def __str__(self) -> str:
        names = [name for name, _, _ in (*self.removable, *self.fixed)]
        width = max((len(name) for name in names), default=0)
        lines = ["can be removed:"]
        lines += [f"  {name:{width}}  {count:6}  read by {by}" for name, count, by in self.removable] or ["  nothing"]
        if self.fixed:
            lines.append("stays:")
            lines += [f"  {name:{width}}  {count:6}  {reason}" for name, count, reason in self.fixed]
        return "\n".join(lines)
