"""From a captured graph to units: every rule applied, in order."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.fx import Node
from torch.utils._pytree import tree_map

from lzero.errors import LzeroError
from lzero.layers import IndexedLinear
from lzero.structure import rules
from lzero.structure.capture import Inputs, capture, module_path, parameter_nodes
from lzero.structure.op import Findings, Op, Value, sizes
from lzero.structure.registry import find_rule, is_view
from lzero.structure.units import Dim, free
from lzero.tensors import saved_tensors

if TYPE_CHECKING:
    from lzero.structure.op import Product, Reading
    from lzero.structure.sites import Slice
    from lzero.structure.units import Ids, Units

assert rules  # noqa: S101 (imported for its registrations)


@dataclass(frozen=True, eq=False)
class Analysis:
    """What the rules found: labels on every parameter and value, where units are read, what is multiplied."""

    program: ExportedProgram
    units: Units
    tensors: dict[str, Value]  # parameters and buffers, by name
    aliases: dict[str, str]  # every name of a parameter or buffer → the name it has in `tensors`
    values: dict[Node, Value | list[Value]]
    readings: list[Reading]
    products: list[Product]
    inputs: dict[str, Dim]  # what a layer chooses its columns from, by the name of its weight
    norms: dict[str, Dim]  # the channels of norms that have no weight, by their path
    several: list[Ids]  # units of which code needs more than one
    unread: frozenset[str]  # parameters that no operation reads, in evaluation and in training

    def labels_of(self, where: Slice) -> Ids:
        """The units at each position of a parameter's dimension, by label, the fixed ones too."""
        return self.units.resolve(self.tensors[where.tensor][where.dim].labels)

    def used_once(self) -> set[str]:
        """Parameters and buffers that exactly one operation reads."""
        named = _named_placeholders(self.program)
        own = (node for node in self.program.graph.nodes if node.name in named)
        uses = {self.aliases.get(named[node.name], named[node.name]): len(node.users) for node in own}
        return {name for name, count in uses.items() if count == 1}


def analyse(model: nn.Module, example_inputs: Inputs) -> Analysis:
    """Capture the model and apply the rules; also as it trains, where it reads more parameters then."""
    program, aliases = capture(model, example_inputs), _aliases(model)
    unread = _unread(program, aliases)
    if not unread:
        return analyse_program(program, model)
    try:
        training = capture(model, example_inputs, training=True)
    except LzeroError:  # what cannot be captured cannot be followed; a cut is proven in training too
        return analyse_program(program, model)
    more = [] if unread == _unread(training, aliases) else [training]
    return analyse_program(program, model, *more)


def _unread(program: ExportedProgram, aliases: dict[str, str]) -> set[str]:
    """The parameters that no operation reads, under any of their names."""
    named = {node: aliases.get(name, name) for node, name in parameter_nodes(program).items()}
    return set(named.values()) - {name for node, name in named.items() if node.users}


def analyse_program(program: ExportedProgram, model: nn.Module, *others: ExportedProgram) -> Analysis:
    """Apply the rules to a graph captured from the model, and to others of the same model, which do not count."""
    findings, aliases = Findings(), _aliases(model)
    _follow(program, model, aliases, findings)
    products = list(findings.products)
    for other in others:
        _follow(other, model, aliases, findings)
    unread = set.intersection(*(_unread(each, aliases) for each in (program, *others)))
    return Analysis(
        program, findings.units, findings.tensors, aliases, findings.values, findings.readings, products,
        findings.inputs, findings.norms, findings.several, frozenset(unread),
    )  # fmt: skip


def _follow(program: ExportedProgram, model: nn.Module, aliases: dict[str, str], findings: Findings) -> None:
    """Apply the rule of every operation, in order."""
    named, values = _named_placeholders(program), findings.values
    saved = {aliases.get(name, name) for name in saved_tensors(model)}
    parameters = {aliases.get(name, name) for name, _ in model.named_parameters()}
    inputs = set(program.graph_signature.user_inputs)
    choosing = {path: module for path, module in model.named_modules() if isinstance(module, IndexedLinear)}
    for node in program.graph.nodes:
        if node.op == "placeholder":
            name = named.get(node.name)
            first = None if name is None else aliases.get(name, name)
            kinds = {"is_input": node.name in inputs, "is_parameter": first in parameters, "is_saved": first in saved}
            values[node] = _placeholder(node, first, findings, **kinds)
            path, _, own = (name or "").rpartition(".")
            if own == "index" and path in choosing:
                findings.indices[node] = choosing[path].index.cpu().numpy()
        elif node.op == "call_function":
            values[node] = _apply(node, findings)
        elif node.op == "output":
            _pin_outputs(node, findings)


def _aliases(model: nn.Module) -> dict[str, str]:
    """Every name of every parameter and buffer → the first name of the same tensor."""
    first: dict[int, str] = {}
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return {name: first.setdefault(id(tensor), name) for name, tensor in named}


def _named_placeholders(program: ExportedProgram) -> dict[str, str]:
    """Placeholders that stand for parameters and buffers → their names."""
    signature = program.graph_signature
    return {**signature.inputs_to_parameters, **signature.inputs_to_buffers}


def _placeholder(
    node: Node, name: str | None, findings: Findings, *, is_input: bool, is_parameter: bool, is_saved: bool
) -> Value:
    """A parameter or buffer has units on every dimension, a model input fixed ones behind the batch."""
    units, tensors = findings.units, findings.tensors
    shape = sizes(node.meta["val"]) if isinstance(node.meta.get("val"), Tensor) else ()
    if name is not None and not is_saved:
        return Value(units.opaque(size, f"buffer {name} is not saved with the model") for size in shape)
    if name is not None:
        if name not in tensors:
            sources = [(name, k) if is_parameter else None for k in range(len(shape))]  # gates act on parameters
            tensors[name] = Value(units.fresh(size, source) for size, source in zip(shape, sources, strict=True))
        return tensors[name]
    if is_input and shape and node.meta["val"].is_floating_point():
        return Value([free(shape[0]), *(units.opaque(size, f"model input {node.name}") for size in shape[1:])])
    return Value(free(size) for size in shape)


def _apply(node: Node, findings: Findings) -> Any:
    values = findings.values
    arguments, named = tree_map(lambda a: values.get(a, a) if isinstance(a, Node) else a, (node.args, node.kwargs))
    if node.target is operator.getitem:
        return arguments[0][arguments[1]]
    op = Op(node, module_path(node), findings)
    rule = find_rule(node.target)
    if rule is None:
        op.multiplies_as_it_is()
        return op.stays([*arguments, *named.values()], f"{op.name} has no rule")
    result: Any = rule(op, *arguments, **named)
    if isinstance(result, list) and all(isinstance(dim, Dim) for dim in result):
        result = Value(result)
    _check_shapes(op, result)
    return result if is_view(rule) else _computed(result)


def _check_shapes(op: Op, result: Any) -> None:
    """A rule that gives other dimensions than its operation has made a mistake, which would spread."""
    value = op.node.meta.get("val")
    tensors = value if isinstance(value, list | tuple) else [value]
    for each, tensor in zip(result if isinstance(result, list) else [result], tensors, strict=False):
        if isinstance(each, Value) and isinstance(tensor, Tensor):
            told, given = [dim.size for dim in each], list(tensor.shape)
            if len(told) != len(given) or any(type(b) is int and a != b for a, b in zip(told, given, strict=True)):
                raise LzeroError(f"the rule of {op.name} gives dimensions of {told}, the operation of {given}")


def _computed(result: Any) -> Any:
    """What is no view of a parameter: no gate of a parameter's dimension can act where it is read."""
    if isinstance(result, Value):
        return Value(dim.without_sources() for dim in result)
    return [_computed(each) for each in result] if isinstance(result, list) else result


def _pin_outputs(node: Node, findings: Findings) -> None:
    values = findings.values

    def pin(argument: Any) -> Any:
        if isinstance(argument, Node) and isinstance(values.get(argument), Value):
            for dim in values[argument]:
                findings.units.pin(dim.labels, "model output")
        return argument

    tree_map(pin, node.args)
