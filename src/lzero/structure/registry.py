"""One small rule per operation: how it passes units on, joins them, or pins them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from lzero.errors import ArgumentError, LzeroError
from lzero.structure.op import Op, Value
from lzero.structure.units import free

Rule = Callable[..., Any]  # (op, *args, **kwargs) of the operation, tensors as `Value`, to `Value` or a list of them
RuleT = TypeVar("RuleT", bound=Rule)

_RULES: dict[str, Rule] = {}
_VIEWS: set[Rule] = set()


def register_rule(*operations: str, is_view: bool = False) -> Callable[[RuleT], RuleT]:
    """Teach lzero an operation, by the name export gives it, such as `"aten.linear.default"`.

    A rule takes the operation (`Op`) and its arguments, tensors replaced by their dimensions, and returns the
    dimensions of what the operation returns. A name without an overload stands for all of them. With `is_view`, what it
    makes of a weight still reads what the weight reads: the same numbers elsewhere, or multiples of them.

    >>> @register_rule("mylib.scale_channels")
    ... def scale_channels(op, x, scale):
    ...     return [x[0], op.unite(x[1], scale[0]), *x[2:]]
    >>> register_rule("mylib.scale_channels")(scale_channels)
    Traceback (most recent call last):
    lzero.errors.LzeroError: mylib.scale_channels has a rule already, scale_channels; one operation, one rule
    """
    for operation in operations:
        if operation in _RULES:
            known = _RULES[operation].__name__
            raise LzeroError(f"{operation} has a rule already, {known}; one operation, one rule")
        if operation.count(".") not in (1, 2):
            expected = "namespace.operation or namespace.operation.overload"
            raise ArgumentError.about("operation", expected=expected, got=repr(operation))

    def register(rule: RuleT) -> RuleT:
        _RULES.update(dict.fromkeys(operations, rule))
        _VIEWS.update([rule] if is_view else [])
        return rule

    return register


def find_rule(target: object) -> Rule | None:
    """The rule of an operation: its own, its family's, or that of all elementwise ones; None where nobody knows it."""
    name = str(target)
    family = name.rpartition(".")[0]
    for key in (name, family, family.removesuffix("_")):
        if key in _RULES:
            return _RULES[key]
    if isinstance(target, torch._ops.OpOverload) and torch.Tag.pointwise in target.tags:
        return _pointwise
    return None


def is_view(rule: Rule) -> bool:
    """Whether results of this rule are views, or multiples, of its arguments."""
    return rule in _VIEWS


def _pointwise(op: Op, *args: Any, **kwargs: Any) -> Value:
    values = [argument for argument in (*args, *kwargs.values()) if isinstance(argument, Value)]
    return op.broadcast(values) if values else Value(free(size) for size in op.shapes[0])
