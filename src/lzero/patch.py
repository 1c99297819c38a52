"""Sizes that a model's Python code keeps in attributes, found by the operations that use them."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

from torch import nn

from lzero.structure.capture import module_path
from lzero.structure.rewrite import rewritten
from lzero.structure.units import Dim

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.fx import Node

    from lzero.structure.analysis import Analysis
    from lzero.structure.rewrite import Alive

Change = tuple[nn.Module, str, int, int]  # module, attribute, old value, new value


def patch_attributes(small: nn.Module, analysis: Analysis, alive: Alive, works: Callable[[], bool]) -> bool:
    """Set as few whole-number attributes as make the model work; False, and nothing set, where none do.

    A module whose forward views 96 numbers where now 72 are left, and which has an attribute of 96, may get 72 there.
    Attributes of one name are set together; `works` verifies the outputs. Where 8 is the number of heads and their
    depth, and 5 heads are left, 8 may become 5; this is tried last. Norms without weights get their sizes in any case.
    """
    sure, possible = (changed_sizes(analysis, alive, is_sure=is_sure) for is_sure in (True, False))
    return _patch(small, sure, works) or (possible != sure and _patch(small, possible, works))


def _patch(small: nn.Module, sizes: dict[str, dict[int, int]], works: Callable[[], bool]) -> bool:
    norms, by_name = _norms(small, sizes), dict[str, list[Change]]()
    for change in _candidates(small, sizes):
        by_name.setdefault(change[1], []).append(change)
    for count in range(0 if norms else 1, len(by_name) + 1):
        for names in combinations(by_name, count):
            changes = [*norms, *(change for name in names for change in by_name[name])]
            for module, name, _, new in changes:
                setattr(module, name, new)
            if works():
                return True
            for module, name, old, _ in changes:
                setattr(module, name, old)
    return False


def _norms(small: nn.Module, sizes: dict[str, dict[int, int]]) -> list[Change]:
    """The sizes of group norms that no weight tells."""
    found: list[Change] = []
    for path, module in small.named_modules():
        if isinstance(module, nn.GroupNorm) and module.weight is None and module.num_channels in sizes.get(path, {}):
            old, new = module.num_channels, sizes[path][module.num_channels]
            found.append((module, "num_channels", old, new))
            found.append((module, "num_groups", module.num_groups, module.num_groups * new // old))
    return found


def _candidates(small: nn.Module, sizes: dict[str, dict[int, int]]) -> list[Change]:
    found = []
    for path, module in small.named_modules():
        changed = {} if type(module).__module__.startswith("torch.nn.") else sizes.get(path, {})
        for name, value in vars(module).items():
            if type(value) is int and value in changed:
                found.append((module, name, value, changed[value]))
    return found


def changed_sizes(analysis: Analysis, alive: Alive, *, is_sure: bool) -> dict[str, dict[int, int]]:
    """For each module path: old size → new size of the dimensions its operations write down, where they agree.

    If it need not be sure, dimensions that keep their size may have the old one too.
    """
    seen: dict[str, dict[int, set[int]]] = {}
    for path, dims in written_dims(analysis, alive).items():
        for dim in dims:
            seen.setdefault(path, {}).setdefault(dim.size, set()).add(int(alive(dim).sum()))
    return {
        path: {old: min(new - {old}) for old, new in sizes.items() if _agree(old, new, is_sure=is_sure)}
        for path, sizes in seen.items()
    }


def _agree(old: int, new: set[int], *, is_sure: bool) -> bool:
    return len(new - {old}) == 1 and not (is_sure and old in new)


def written_dims(analysis: Analysis, alive: Alive) -> dict[str, list[Dim]]:
    """For each module path: the dimensions with units whose sizes its operations write down."""
    found: dict[str, list[Dim]] = {}
    for node in analysis.values:
        if node.op == "call_function":
            found.setdefault(module_path(node), []).extend(_written(node, analysis, alive))
    return found


def _written(node: Node, analysis: Analysis, alive: Alive) -> list[Dim]:
    target, args, _ = rewritten(node, analysis.values, alive)
    if target == node.target and args == node.args:
        return []
    value: Any = analysis.values[node]
    dims = [dim for part in (value if isinstance(value, list) else [value]) for dim in part if isinstance(dim, Dim)]
    return [dim for dim in dims if dim.labels.shape[1]]  # a batch of eight says nothing about eight heads
