"""Recurrent layers: their units stay, but their multiply–accumulates count."""

from __future__ import annotations

from collections.abc import Sequence

from lzero.structure.op import Op, Value
from lzero.structure.registry import register_rule

WHY = "units of a recurrent layer stay"


@register_rule("aten.lstm.input", "aten.gru.input", "aten.rnn_tanh.input", "aten.rnn_relu.input")
def recurrent_layers(
    op: Op, x: Value, state: Value | list[Value], parameters: list[Value], *settings: object
) -> Value | list[Value]:
    """Every matrix of every layer and direction is applied once in each step of each sequence."""
    del settings
    return _counted(op, x, state, parameters)


@register_rule("aten.lstm_cell", "aten.gru_cell", "aten.rnn_tanh_cell", "aten.rnn_relu_cell")
def recurrent_cell(
    op: Op, x: Value, state: Value | list[Value], *parameters: Value | None, **named: Value | None
) -> Value | list[Value]:
    """One step: both matrices are applied once."""
    given = [parameter for parameter in (*parameters, *named.values()) if parameter is not None]
    return _counted(op, x, state, given)


def _counted(op: Op, x: Value, state: Value | list[Value], parameters: Sequence[Value]) -> Value | list[Value]:
    for weight in parameters:
        if len(weight) == 2:  # biases have one dimension
            op.multiplies(*x[:-1], *weight)
    return op.stays([x, state, *parameters], WHY)
