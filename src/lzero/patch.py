"""Sizes that a model's Python code keeps in attributes, found by the operations that use them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn
from torch.fx import Node
from torch.utils._pytree import tree_leaves

from lzero.structure.capture import module_path
from lzero.structure.rewrite import rewritten

if TYPE_CHECKING:
    from lzero.structure.analysis import Analysis
    from lzero.structure.rewrite import Alive


def patch_attributes(small: nn.Module, analysis: Analysis, alive: Alive) -> None:
    """Set whole-number attributes to their new value where an operation of that very module shows old and new.

    A module whose forward views 96 numbers where now 72 are left, and which has an attribute of 96, gets 72 there. It
    is a guess with evidence: the caller verifies the outputs.
    """
    for path, sizes in changed_sizes(analysis, alive).items():
        module = small.get_submodule(path)
        if type(module).__module__.startswith("torch.nn."):
            continue
        for name, value in list(vars(module).items()):
            if type(value) is int and value in sizes:
                setattr(module, name, sizes[value])


def changed_sizes(analysis: Analysis, alive: Alive) -> dict[str, dict[int, int]]:
    """For each module path: old size → new size, where its operations agree on it."""
    seen: dict[str, dict[int, set[int]]] = {}
    for node in analysis.values:
        if node.op == "call_function":
            for old, new in _pairs(node, analysis, alive):
                seen.setdefault(module_path(node), {}).setdefault(old, set()).add(new)
    return {
        path: {old: next(iter(new)) for old, new in sizes.items() if len(new) == 1 and new != {old}}
        for path, sizes in seen.items()
    }


def _pairs(node: Node, analysis: Analysis, alive: Alive) -> list[tuple[int, int]]:
    _, args, kwargs = rewritten(node, analysis.values, alive)
    before, after = _numbers((node.args, node.kwargs)), _numbers((args, kwargs))
    if str(node.target) == "aten.split.Tensor":
        parts = set(args[1])
        return [(int(node.args[1]), parts.pop())] if len(parts) == 1 else []  # type: ignore[arg-type]
    return list(zip(before, after, strict=True)) if len(before) == len(after) else []


def _numbers(arguments: Any) -> list[int]:
    return [leaf for leaf in tree_leaves(arguments) if type(leaf) is int]
