"""From a captured graph to units: every rule applied, in order."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.fx import Node
from torch.utils._pytree import tree_map

from lzero.structure import rules
from lzero.structure.capture import Inputs, capture, module_path
from lzero.structure.op import Findings, Op, Value, sizes
from lzero.structure.registry import find_rule
from lzero.structure.units import free

if TYPE_CHECKING:
    from lzero.structure.op import Product, Reading
    from lzero.structure.units import Units

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


def analyse(model: nn.Module, example_inputs: Inputs) -> Analysis:
    """Capture the model and apply the rules."""
    return analyse_program(capture(model, example_inputs), model)


def analyse_program(program: ExportedProgram, model: nn.Module) -> Analysis:
    """Apply the rules to a graph captured from the model."""
    findings = Findings()
    aliases = _aliases(model)
    tensors: dict[str, Value] = {}
    values: dict[Node, Any] = {}
    for node in program.graph.nodes:
        if node.op == "placeholder":
            values[node] = _placeholder(node, program, findings, tensors, aliases)
        elif node.op == "call_function":
            values[node] = _apply(node, values, findings)
        elif node.op == "output":
            _pin_outputs(node, values, findings)
    return Analysis(program, findings.units, tensors, aliases, values, findings.readings, findings.products)


def _aliases(model: nn.Module) -> dict[str, str]:
    """Every name of every parameter and buffer → the first name of the same tensor."""
    first: dict[int, str] = {}
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return {name: first.setdefault(id(tensor), name) for name, tensor in named}


def _placeholder(
    node: Node, program: ExportedProgram, findings: Findings, tensors: dict[str, Value], aliases: dict[str, str]
) -> Value:
    signature, units = program.graph_signature, findings.units
    shape = sizes(node.meta["val"]) if isinstance(node.meta.get("val"), Tensor) else ()
    name = signature.inputs_to_parameters.get(node.name) or signature.inputs_to_buffers.get(node.name)
    if name is not None:
        name = aliases.get(name, name)
        if name not in tensors:
            tensors[name] = Value(units.fresh(size, (name, k)) for k, size in enumerate(shape))
        return tensors[name]
    if node.name in signature.user_inputs and shape and node.meta["val"].is_floating_point():
        return Value([free(shape[0]), *(units.opaque(size, f"model input {node.name}") for size in shape[1:])])
    return Value(free(size) for size in shape)


def _apply(node: Node, values: dict[Node, Any], findings: Findings) -> Any:
    arguments, named = tree_map(lambda a: values.get(a, a) if isinstance(a, Node) else a, (node.args, node.kwargs))
    if node.target is operator.getitem:
        return arguments[0][arguments[1]]
    op = Op(node, module_path(node), findings)
    rule = find_rule(node.target)
    return _unknown(op, arguments, named) if rule is None else rule(op, *arguments, **named)


def _unknown(op: Op, arguments: Any, named: Any) -> Value | list[Value]:
    """An operation without a rule pins whatever it touches, and hands on units that say so."""
    why = f"{op.name} has no rule"

    def pin(argument: Any) -> None:
        if isinstance(argument, Value):
            op.pin(argument, why)
        elif isinstance(argument, list | tuple):
            for each in argument:
                pin(each)

    pin([*arguments, *named.values()])
    outputs = [Value(op.units.opaque(size, op.because(why)) for size in shape) for shape in op.shapes]
    return outputs[0] if isinstance(op.node.meta.get("val"), Tensor) else outputs


def _pin_outputs(node: Node, values: dict[Node, Any], findings: Findings) -> None:
    def pin(argument: Any) -> Any:
        if isinstance(argument, Node) and isinstance(values.get(argument), Value):
            for dim in values[argument]:
                findings.units.pin(dim.labels, "model output")
        return argument

    tree_map(pin, node.args)
