"""The smaller model as a graph, for models whose Python code insists on the old sizes."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node
from torch.utils._pytree import TreeSpec, tree_flatten, tree_map, tree_unflatten

from lzero.errors import LzeroError
from lzero.structure.analysis import analyse_program
from lzero.structure.capture import capture
from lzero.structure.frozen import Numbering, same_sites
from lzero.structure.rewrite import Scaled, rewritten
from lzero.tensors import tensor_leaves

if TYPE_CHECKING:
    from lzero.decision import Decision
    from lzero.structure.analysis import Analysis
    from lzero.structure.frozen import Structure
    from lzero.structure.rewrite import Alive
    from lzero.structure.units import Dim


MODE = "lzero_mode"  # the module of a graph that says whether it is in training
SIZES = "lzero_sizes"  # that which looks at the sizes of what comes in


class Mode(nn.Module):
    """Says whether it is in training; as a module it stays a part of the graph when that is pickled."""

    def forward(self) -> bool:
        """The flag."""
        return self.training


class EvaluationOnly(Mode):
    """The mode of a graph that cannot train."""

    def train(self, mode: bool = True) -> EvaluationOnly:
        """Stay in evaluation, or say why it has to be so."""
        if mode:
            raise LzeroError(
                "this graph computes as in evaluation: in training the model runs other operations, as drop paths do; "
                "train the gated model and compact it again"
            )
        return super().train(mode)


class Sizes(nn.Module):
    """Refuses inputs of sizes for which a graph has other numbers written down; None where any size will do."""

    def __init__(self, sizes: list[tuple[int | None, ...]]) -> None:
        super().__init__()
        self.sizes = sizes

    def forward(self, *inputs: Tensor) -> None:
        """Look, and compute nothing."""
        for x, sizes in zip(inputs, self.sizes, strict=True):
            if x.dim() != len(sizes) or any(want not in (None, got) for want, got in zip(sizes, x.shape, strict=True)):
                wanted = ", ".join("any" if size is None else str(size) for size in sizes)
                raise LzeroError(
                    f"this graph is for inputs of sizes ({wanted}), got {tuple(x.shape)}: it has the others from the "
                    "example inputs, and the batch too where code takes it as a number, as by len(x)"
                )


class ModesDifferError(LzeroError):
    """Training and evaluation run different operations."""


def units_in(analysis: Analysis, structure: Structure) -> Numbering:
    """The units of dimensions of a new analysis of the same model, by their numbers in the structure."""
    return Numbering(analysis, same_sites(analysis, structure))


def alive_in(analysis: Analysis, structure: Structure, decision: Decision) -> Alive:
    """Which positions stay, for dimensions of a new analysis of the same model."""
    units_of = units_in(analysis, structure)

    def alive(dim: Dim) -> Any:
        return decision.positions(units_of(dim))

    return alive


def graph_model(
    dense: nn.Module, small: nn.Module, inputs: tuple[Any, ...], structure: Structure, decision: Decision
) -> GraphModule:
    """The graph of `dense` with the sizes of `small`, over the parameters of `small`, in both modes or in evaluation.

    `small` has been cut already; its own forward is not used. The graph is in evaluation.
    """
    inputs = _two_examples(inputs)
    program = capture(dense, inputs, training=True, batch_dim=0)
    evaluation = capture(dense, inputs, training=False, batch_dim=0)
    analysis = analyse_program(program, dense)
    mode = Mode()
    try:
        _switch_modes(program, evaluation)
    except ModesDifferError:
        training = capture(dense, inputs, training=True, batch_dim=0)  # the one above has been changed
        program, analysis, mode = evaluation, analyse_program(evaluation, dense, training), EvaluationOnly()
        _asks_for_mode(program.graph)  # a graph has the modules it calls, and no others
    alive = alive_in(analysis, structure, decision)
    for node in list(analysis.values):
        if node.op == "call_function":
            _replace(node, rewritten(node, analysis.values, alive))
    return _over(small, program, mode)


def _two_examples(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """A batch of one, which would be written into the graph as a constant, twice; the first input says what it is."""
    if next((len(x) for x in tensor_leaves(inputs) if x.dim()), 0) != 1:
        return inputs

    def twice(x: Any) -> Any:
        return torch.cat([x, x]) if isinstance(x, Tensor) and x.dim() and len(x) == 1 else x

    doubled: tuple[Any, ...] = tree_map(twice, inputs)
    return doubled


def _replace(node: Node, call: Any) -> None:
    target, args, kwargs = call
    graph = node.graph

    def written(argument: Any) -> Any:
        if not isinstance(argument, Scaled):
            return argument
        with graph.inserting_before(node):
            product = graph.call_function(operator.mul, (argument.node, argument.numerator))
            return graph.call_function(operator.floordiv, (product, argument.denominator))

    node.target = target
    node.args, node.kwargs = tree_map(written, args, is_leaf=lambda a: isinstance(a, Scaled)), kwargs


def _switch_modes(program: ExportedProgram, evaluation: ExportedProgram) -> None:
    """Let what differs between training and evaluation depend on the module's own `training` flag."""
    graph = program.graph
    training = _asks_for_mode(graph)
    ours = [n for n in _computing(graph) if not _counts_batches(n, training)]
    theirs = _computing(evaluation.graph)
    if [n.target for n in ours] != [n.target for n in theirs]:
        raise ModesDifferError("the model computes differently in training and in evaluation")
    for one, other in zip(ours, theirs, strict=True):
        width = max(len(one.args), len(other.args))
        mine, spec = tree_flatten((_padded(one, width), one.kwargs))
        yours, _ = tree_flatten((_padded(other, width), other.kwargs))
        switched = [_switched(a, b, one, training) for a, b in zip(mine, yours, strict=True)]
        one.args, one.kwargs = tree_unflatten(switched, spec)


def _asks_for_mode(graph: Graph) -> Node:
    """A first operation that asks whether the module is in training."""
    with graph.inserting_before(next(node for node in graph.nodes if node.op == "call_function")):
        return graph.create_node("call_module", MODE)


def _computing(graph: Graph) -> list[Node]:
    """The operations that compute: copies into another memory layout come and go between the modes."""
    layout = ("aten.contiguous", "aten.clone", "aten._assert", "aten.alias")
    return [n for n in graph.nodes if n.op == "call_function" and not str(n.target).startswith(layout)]


def _padded(node: Node, width: int) -> tuple[Any, ...]:
    """The positional arguments with defaults written out, up to `width` of them."""
    if len(node.args) == width or not isinstance(node.target, torch._ops.OpOverload):
        return node.args
    defaults = [argument.default_value for argument in node.target._schema.arguments[len(node.args) : width]]
    return (*node.args, *defaults)


def _counts_batches(node: Node, training: Node) -> bool:
    """BatchNorm's count of batches goes on in training alone; one that runs twice counts on."""
    if node.target is torch.ops.aten.add_.Tensor and all(_is_add(user) for user in node.users) and node.args[1] == 1:
        node.args = (node.args[0], training)
        return True
    return False


def _is_add(node: Node) -> bool:
    return node.target is torch.ops.aten.add_.Tensor and node.args[1:] == (1,)


def _switched(mine: Any, yours: Any, node: Node, training: Node) -> Any:
    if isinstance(mine, Node) or mine == yours:
        return mine
    if mine is True and yours is False:
        return training
    if isinstance(mine, float) and yours == 0:
        with node.graph.inserting_before(node):
            return node.graph.call_function(operator.mul, (training, mine))
    raise ModesDifferError(f"{node.target} computes differently in training ({mine}) and in evaluation ({yours})")


def _over(small: nn.Module, program: ExportedProgram, mode: Mode) -> GraphModule:
    """The graph as a module over the parameters and buffers of `small`, under their own names."""
    signature, graph = program.graph_signature, Graph()
    names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    constants = signature.inputs_to_lifted_tensor_constants
    copied: dict[Node, Any] = {}
    for node in program.graph.nodes:
        if node.op == "placeholder" and (node.name in names or node.name in constants):
            name = names.get(node.name) or constants[node.name]
            if node.name in constants:
                small.register_buffer(name, program.constants[name], persistent=False)
            copied[node] = graph.get_attr(name)
        elif node.op == "output":
            graph.output(_as_returned([copied.get(n, n) for n in node.args[0]], program.call_spec.out_spec))
        else:
            copied[node] = graph.node_copy(node, lambda n: copied[n])
    small.add_module(SIZES, _looks_at_sizes(graph))
    small.add_module(MODE, mode)
    return GraphModule(small, graph, type(small).__name__).eval()


def _looks_at_sizes(graph: Graph) -> Sizes:
    """A first operation that looks at the sizes of all inputs that are tensors."""
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    sizes = {node: of for node in inputs if (of := _sizes_of(node)) is not None}
    with graph.inserting_before(next(node for node in graph.nodes if node.op not in ("placeholder", "get_attr"))):
        graph.create_node("call_module", SIZES, tuple(sizes))
    return Sizes(list(sizes.values()))


def _sizes_of(node: Node) -> tuple[int | None, ...] | None:
    """The sizes an input must have, with None for those left open; None for what is no tensor."""
    value = node.meta.get("val")
    if not isinstance(value, Tensor):
        return None
    return tuple(size if isinstance(size, int) else _settled(size) for size in value.shape)


def _settled(size: torch.SymInt) -> int | None:
    """The number that the model's code has made of a size left open, if any."""
    expression = size.node.shape_env.replace(size.node.expr)
    return int(expression) if expression.is_Integer else None


def can_train(graph: GraphModule) -> bool:
    """Whether a graph serves training too."""
    return not isinstance(graph.get_submodule(MODE), EvaluationOnly)


def _as_returned(values: list[Any], spec: TreeSpec | None) -> Any:
    """The outputs in the containers the model returns them in; in a tuple where those are of its own kind."""
    returned = None if spec is None else tree_unflatten(values, spec)
    if returned is not None and _is_plain(returned):
        return returned
    return values[0] if len(values) == 1 else tuple(values)


def _is_plain(output: Any) -> bool:
    """Whether Python's own containers hold the outputs: a graph knows no others."""
    if type(output) in (tuple, list, dict):
        return all(_is_plain(each) for each in (output.values() if isinstance(output, dict) else output))
    return output is None or isinstance(output, Node | int | float | str)
