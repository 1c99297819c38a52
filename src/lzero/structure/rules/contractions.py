"""Sums of products: dense layers, matrix products, convolutions."""

from __future__ import annotations

from string import ascii_letters

from lzero.structure.op import Op, Value
from lzero.structure.registry import register_rule
from lzero.structure.units import Dim, free


@register_rule("aten.linear.default")
def linear(op: Op, x: Value, weight: Value, bias: Value | None = None) -> Value:
    """$y = x W^\\top + b$: reads x's last dimension through W's second."""
    out = weight[0]
    op.contract(x[-1], weight[1])
    if bias is not None:
        out = op.unite(out, bias[0])
    op.multiplies(*x[:-1], out, weight[1])
    return Value([*x[:-1], out])


@register_rule("aten.outer.default")
def outer(op: Op, left: Value, right: Value) -> Value:
    """All products of two vectors."""
    op.multiplies(left[0], right[0])
    return Value([left[0], right[0]])


@register_rule("aten.matmul.default", "aten.bmm.default", "aten.mm.default", "aten.mv.default", "aten.dot.default")
@register_rule("aten.vdot.default")
def matmul(op: Op, left: Value, right: Value) -> Value:
    """Matrix product with broadcast leading dimensions; a vector is a row on the left, a column on the right."""
    inner = right[-2] if len(right) > 1 else right[0]
    op.contract(left[-1], inner)
    batch = op.broadcast([Value(left[:-2]), Value(right[:-2])]) if len(left) > 2 or len(right) > 2 else Value()
    rows, columns = Value(left[-2:-1]), Value(right[-1:] if len(right) > 1 else ())
    if not inner.sources:
        op.attends_to(right)
    out = Value([*batch, *rows, *columns])
    op.multiplies(*out, inner)
    return out


@register_rule("aten.inner.default")
def inner(op: Op, left: Value, right: Value) -> Value | list[Value]:
    """A sum over the last dimension of both."""
    if not left or not right:
        return op.stays([left, right], f"{op.name} with a number is not followed")
    return tensordot(op, left, right, [len(left) - 1], [len(right) - 1])


@register_rule("aten.tensordot.default")
def tensordot(op: Op, left: Value, right: Value, dims_left: list[int], dims_right: list[int]) -> Value | list[Value]:
    """A sum over pairs of dimensions; the others of the left one come first."""
    pairs = [(left[i], right[j]) for i, j in zip(dims_left, dims_right, strict=True)]
    if any(one.size != other.size for one, other in pairs):
        return op.stays([left, right], f"{op.name} stretches its only unit")
    for one, other in pairs:
        op.contract(one, other)
    over_left, over_right = {i % len(left) for i in dims_left}, {j % len(right) for j in dims_right}
    out = [dim for k, dim in enumerate(left) if k not in over_left]
    out += [dim for k, dim in enumerate(right) if k not in over_right]
    op.multiplies(*out, *(one for one, _ in pairs))
    return Value(out)


@register_rule("aten.addmm.default", "aten.baddbmm.default")
def addmm(op: Op, bias: Value, left: Value, right: Value, *, beta: float = 1, alpha: float = 1) -> Value:
    """$b + A B$."""
    del beta, alpha
    return op.broadcast([matmul(op, left, right), bias])


@register_rule("aten.bilinear.default")
def bilinear(op: Op, left: Value, right: Value, weight: Value, bias: Value | None = None) -> Value:
    """$y_o = x^\\top W_o x' + b_o$: W is applied to the first input, and what comes of it to the second."""
    op.contract(left[-1], weight[1])
    op.contract(right[-1], weight[2])
    out = weight[0] if bias is None else op.unite(weight[0], bias[0])
    batch = op.broadcast([Value(left[:-1]), Value(right[:-1])]) if len(left) > 1 else Value()
    op.multiplies(*batch, out, weight[1], weight[2])
    op.multiplies(*batch, out, weight[2])
    return Value([*batch, out])


@register_rule("aten.einsum.default")
def einsum(op: Op, equation: str, operands: list[Value], path: object = None) -> Value | list[Value]:
    """Letters are dimensions: shared ones are united, missing ones are summed over."""
    del path
    if len(operands) > 2:
        op.multiplies_as_it_is()
        return op.stays(operands, f"einsum {equation!r} is not followed")
    inputs, output = _spelled_out(equation, operands)
    dims: dict[str, list[Dim]] = {}
    for letters, operand in zip(inputs, operands, strict=True):
        for letter, dim in zip(letters, operand, strict=True):
            dims.setdefault(letter, []).append(dim)
    diagonal = {letter for letters in inputs for letter in letters if letters.count(letter) > 1}
    for letter, same in dims.items():
        if letter in diagonal:
            op.pin(same, "einsum takes a diagonal of it")
        else:
            _einsum_letter(op, same, summed=letter not in output)
    summed = {letter for letter in dims if letter not in output}
    whole = {letter: max(reversed(same), key=lambda dim: dim.size) for letter, same in dims.items()}
    # What one operand alone is summed over goes first, and so does what stretches the other's only unit.
    shared = summed.intersection(*inputs) if len(operands) == 2 else set()
    inner = {letter for letter in shared if len({dim.size for dim in dims[letter]}) == 1}
    if inner:
        op.multiplies(*(whole[letter] for letter in dims if letter not in summed or letter in inner))
    return Value(whole[letter] for letter in output)


def _spelled_out(equation: str, operands: list[Value]) -> tuple[list[str], str]:
    """The letters of each operand and of the result, with those that "..." and a missing result stand for."""
    left, arrow, output = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    # How many dimensions the dots of each operand stand for; they are aligned at the right.
    dots = [len(operand) - len(term.replace("...", "")) for term, operand in zip(terms, operands, strict=True)]
    unused = "".join(letter for letter in ascii_letters if letter not in equation)[: max(dots)]
    inputs = [term.replace("...", unused[len(unused) - count :]) for term, count in zip(terms, dots, strict=True)]
    if not arrow:
        output = "..." + "".join(sorted(letter for letter in left if letter.isalpha() and left.count(letter) == 1))
    return inputs, output.replace("...", unused)


def _einsum_letter(op: Op, same: list[Dim], *, summed: bool) -> None:
    if not summed:
        op.broadcast([Value([dim]) for dim in same])
    elif len({dim.size for dim in same}) > 1:
        op.pin(same, "einsum stretches its only unit")
    elif len(same) == 2:
        op.contract(*same)
    else:
        op.pin(same, "einsum sums over it")


@register_rule("aten.conv1d", "aten.conv2d", "aten.conv3d")
def convolution(
    op: Op,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: object = 1,
    padding: object = 0,
    dilation: object = 1,
    groups: int = 1,
) -> Value:
    """Weight [out, in/groups, kernel…]; with groups, a unit is a whole group."""
    del stride, padding, dilation
    spatial = len(weight) - 2
    op.pin([*x[-spatial:], *weight[2:]], f"{op.name} is over it")
    channels, out = x[-spatial - 1], weight[0]
    if bias is not None:
        out = op.unite(out, bias[0])
    if groups == 1:
        op.contract(channels, weight[1])
    else:
        _unite_groups(op, channels, out, groups)
    return _convolved(op, x, out, weight[1:], spatial)


def _unite_groups(op: Op, channels: Dim, out: Dim, groups: int) -> None:
    """Each group's inputs and outputs are one unit; a depthwise convolution has one input in each."""
    op.unite_blocks(channels, groups)
    op.unite_blocks(out, groups)
    op.unite(
        channels.positions(slice(None, None, channels.size // groups)),
        out.positions(slice(None, None, out.size // groups)),
    )


def _convolved(op: Op, x: Value, out: Dim, multiplied: tuple[Dim, ...], spatial: int) -> Value:
    places = [free(size) for size in op.shapes[0][-spatial:]]
    batch = x[: -spatial - 1]
    op.multiplies(*batch, out, *multiplied, *places)
    return Value([*batch, out, *places])


@register_rule("aten.conv_transpose1d", "aten.conv_transpose2d", "aten.conv_transpose3d")
def transposed_convolution(
    op: Op,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: object = 1,
    padding: object = 0,
    output_padding: object = 0,
    groups: int = 1,
    dilation: object = 1,
) -> Value:
    """Weight [in, out/groups, kernel…]: every input place is multiplied with the whole kernel."""
    del stride, padding, output_padding, dilation
    spatial = len(weight) - 2
    channels, places, batch = x[-spatial - 1], x[-spatial:], x[: -spatial - 1]
    op.pin([*places, *weight[2:]], f"{op.name} is over it")
    if groups == 1:
        op.contract(channels, weight[0])
        out = weight[1] if bias is None else op.unite(weight[1], bias[0])
    else:
        op.unite(channels, weight[0])
        out = bias[0] if bias is not None else op.units.fresh(weight[1].size * groups)
        _unite_groups(op, channels, out, groups)
    op.multiplies(*batch, weight[0], *weight[1:], *places)
    return Value([*batch, out, *(free(size) for size in op.shapes[0][-spatial:])])
