"""Sizes that a model's Python code keeps in attributes, found by the operations that use them."""

from __future__ import annotations

from itertools import combinations, islice
from typing import TYPE_CHECKING, Any

from torch import nn

from lzero.attention import SlimAttention
from lzero.structure.capture import module_path, module_paths
from lzero.structure.op import Value
from lzero.structure.rewrite import rewritten
from lzero.structure.units import Dim

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.fx import Node

    from lzero.structure.analysis import Analysis
    from lzero.structure.rewrite import Alive

FEW, TRIES = 3, 64  # names of attributes that are tried in all combinations, but not more often than this
Change = tuple[nn.Module, str, int, int]  # module, attribute, old value, new value


def patch_attributes(small: nn.Module, analysis: Analysis, alive: Alive, works: Callable[[], bool]) -> bool:
    """Set as few whole-number attributes as make the model work; False, and nothing set, where none do.

    A module whose forward views 96 numbers where now 72 are left, and which has an attribute of 96, may get 72 there.
    Attributes of one name are set together; `works` verifies the outputs. Where 8 is the number of heads and their
    depth, and 5 heads are left, 8 may become 5; this is tried next. Code that asserts the width of what it is given
    writes it down nowhere: last, attributes that have the old width of something that comes in are set as well.
    """
    sure, possible = (changed_sizes(analysis, alive, is_sure=is_sure) for is_sure in (True, False))
    if _patch_few(small, sure, works) or (possible != sure and _patch_few(small, possible, works)):
        return True
    entering = _sizes(entering_dims(analysis), alive, is_sure=True)
    every = {path: entering.get(path, {}) | possible.get(path, {}) for path in entering | possible}
    # There may be many names: all of them are tried first.
    return every != possible and (_patch(_candidates(small, every), works) or _patch_few(small, every, works))


def _patch_few(small: nn.Module, sizes: dict[str, dict[int, int]], works: Callable[[], bool]) -> bool:
    """Set attributes of one, two or three names, or of all."""
    by_name: dict[str, list[Change]] = {}
    for change in _candidates(small, sizes):
        by_name.setdefault(change[1], []).append(change)
    few = range(1, min(FEW, len(by_name)) + 1)
    choices = list(islice((names for count in few for names in combinations(by_name, count)), TRIES))
    if len(by_name) > FEW:
        choices.append(tuple(by_name))
    return any(_patch([change for name in names for change in by_name[name]], works) for names in choices)


def _patch(changes: list[Change], works: Callable[[], bool]) -> bool:
    for module, name, _, new in changes:
        setattr(module, name, new)
    if works():
        return True
    for module, name, old, _ in changes:
        setattr(module, name, old)
    return False


def _candidates(small: nn.Module, sizes: dict[str, dict[int, int]]) -> list[Change]:
    found = []
    for path, module in small.named_modules():
        is_layer = type(module).__module__.startswith("torch.nn.") or isinstance(module, SlimAttention)
        changed = {} if is_layer else sizes.get(path, {})
        for name, value in vars(module).items():
            if type(value) is int and value in changed:
                found.append((module, name, value, changed[value]))
    return found


def changed_sizes(analysis: Analysis, alive: Alive, *, is_sure: bool) -> dict[str, dict[int, int]]:
    """For each module path: old size → new size of the dimensions its operations write down, where they agree.

    If it need not be sure, dimensions that keep their size may have the old one too.
    """
    return _sizes(written_dims(analysis, alive), alive, is_sure=is_sure)


def _sizes(dims: dict[str, list[Dim]], alive: Alive, *, is_sure: bool) -> dict[str, dict[int, int]]:
    seen: dict[str, dict[int, set[int]]] = {}
    for path, several in dims.items():
        for dim in several:
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


def entering_dims(analysis: Analysis) -> dict[str, list[Dim]]:
    """For each module path: the dimensions with units of what is computed outside the module and used inside."""
    found: dict[str, list[Dim]] = {}
    for node in analysis.values:
        for given in node.all_input_nodes:
            value = analysis.values.get(given)
            if given.op == "call_function" and isinstance(value, Value):
                for path in set(module_paths(node)).difference(module_paths(given)):
                    found.setdefault(path, []).extend(dim for dim in value if dim.labels.shape[1])
    return found


def _written(node: Node, analysis: Analysis, alive: Alive) -> list[Dim]:
    target, args, _ = rewritten(node, analysis.values, alive)
    if target == node.target and args == node.args:
        return []
    value: Any = analysis.values[node]
    dims = [dim for part in (value if isinstance(value, list) else [value]) for dim in part if isinstance(dim, Dim)]
    return [dim for dim in dims if dim.labels.shape[1]]  # a batch of eight says nothing about eight heads
