"""Sizes that a model's Python code keeps for itself, found by the operations that use them."""

from __future__ import annotations

from itertools import combinations, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import nn

from lzero.attention import SlimAttention
from lzero.sizes import set_size, sizes_of
from lzero.structure.capture import module_path, module_paths
from lzero.structure.op import Value
from lzero.structure.rewrite import rewritten
from lzero.structure.units import Dim

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.fx import Node

    from lzero.structure.analysis import Analysis
    from lzero.structure.rewrite import Alive

FEW, TRIES = 3, 64  # names of places that are tried in all combinations, but not more often than this


class Change(NamedTuple):
    """Another whole number in a place of a module."""

    module: nn.Module
    place: str
    old: int
    new: int


def patch_sizes(small: nn.Module, analysis: Analysis, alive: Alive, works: Callable[[], bool]) -> bool:
    """Set as few of the whole numbers that modules keep as make the model work; False, and none set, where none do.

    A module whose forward views 96 numbers where now 72 are left, and which has an attribute of 96, may get 72 there.
    Those in places of one name are set together; `works` verifies the outputs. Where 8 is the number of heads and
    their depth, and 5 heads are left, 8 may become 5; this is tried next. Code that asserts the width of what it is
    given writes it down nowhere: last, those that have the old width of something that comes in are set as well.
    """
    sure, possible = (written_sizes(analysis, alive, is_sure=is_sure) for is_sure in (True, False))
    if _patch_few(small, sure, works) or (possible != sure and _patch_few(small, possible, works)):
        return True
    entering = _sizes(entering_dims(analysis), alive, is_sure=True)
    every = {path: entering.get(path, {}) | possible.get(path, {}) for path in entering | possible}
    # There may be many names: all of them are tried first.
    return every != possible and (
        _patch_all(_by_name(_candidates(small, every)), works) or _patch_few(small, every, works)
    )


def _patch_few(small: nn.Module, sizes: dict[str, dict[int, int]], works: Callable[[], bool]) -> bool:
    """Set places of one, two or three names, or of all: attributes, and then also what is inside of attributes."""
    every = _candidates(small, sizes)
    own = [change for change in every if "." not in change.place]
    return _patch_some(own, works) or (len(own) < len(every) and _patch_some(every, works))


def _patch_some(changes: list[Change], works: Callable[[], bool]) -> bool:
    by_name = _by_name(changes)
    few = range(1, min(FEW, len(by_name)) + 1)
    choices = islice((names for count in few for names in combinations(by_name, count)), TRIES)
    if any(_patch([change for name in names for change in by_name[name]], works) for names in choices):
        return True
    return len(by_name) > FEW and _patch_all(by_name, works)


def _patch_all(by_name: dict[str, list[Change]], works: Callable[[], bool]) -> bool:
    """Set all that may be set; then what works without being set is as it was: it only happened to be as large."""
    if not by_name or not _patch([change for changes in by_name.values() for change in changes], works):
        return False
    for changes in by_name.values():
        back = [Change(each.module, each.place, each.new, each.old) for each in changes]
        _patch(back, works)
    return True


def _by_name(changes: list[Change]) -> dict[str, list[Change]]:
    by_name: dict[str, list[Change]] = {}
    for change in changes:
        by_name.setdefault(change.place, []).append(change)
    return by_name


def _patch(changes: list[Change], works: Callable[[], bool]) -> bool:
    for change in changes:
        set_size(change.module, change.place, change.new)
    if works():
        return True
    for change in changes:
        set_size(change.module, change.place, change.old)
    return False


def _candidates(small: nn.Module, sizes: dict[str, dict[int, int]]) -> list[Change]:
    return [
        Change(module, place, old, sizes[path][old])
        for path, module in small.named_modules()
        if path in sizes and not _follows_its_weights(module)
        for place, old in sizes_of(module).items()
        if old in sizes[path]
    ]


def _follows_its_weights(module: nn.Module) -> bool:
    is_layer = type(module).__module__.startswith("torch.nn.") and not isinstance(module, nn.Unflatten)
    return is_layer or isinstance(module, SlimAttention)


def written_sizes(analysis: Analysis, alive: Alive, *, is_sure: bool) -> dict[str, dict[int, int]]:
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
