"""Recurrent layers and cells: a state is read by its own layer in the next step, and by what comes after.

One module has one width: unit j of all its layers and directions lives and dies together.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lzero.structure.op import Op, Value
from lzero.structure.registry import register_rule
from lzero.structure.units import Dim, free


@register_rule("aten.lstm.input", "aten.gru.input", "aten.rnn_tanh.input", "aten.rnn_relu.input")
def recurrent_layers(
    op: Op,
    x: Value,
    start: Value | list[Value],
    parameters: list[Value],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> list[Value]:
    """Each layer reads the states of both directions of the one below, and its own of the step before."""
    del has_biases, dropout, train
    directions = 2 if bidirectional else 1
    several = np.array_split(np.arange(len(parameters)), num_layers * directions)
    units, states = _width([parameters[k] for k in several[0]])
    given = x[-1]
    for number, mine in enumerate(several):
        _step(op, x[:-1], given, units, states, [parameters[k] for k in mine])
        if (number + 1) % directions == 0:
            given = Dim(np.concatenate([states.labels] * directions))
    batch, time = (x[0], x[1]) if batch_first else (x[1], x[0])
    op.pin([time], f"{op.name} is over it")
    ends = _ends(op, start, batch, states, units)
    return [Value([*x[:-1], given]), *(Value([free(len(several)), *end]) for end in ends)]


@register_rule("aten.lstm_cell", "aten.gru_cell", "aten.rnn_tanh_cell", "aten.rnn_relu_cell")
def recurrent_cell(
    op: Op, x: Value, start: Value | list[Value], *parameters: Value | None, **named: Value | None
) -> Value | list[Value]:
    """One step."""
    given = [parameter for parameter in (*parameters, *named.values()) if parameter is not None]
    units, states = _width(given)
    _step(op, x[:-1], x[-1], units, states, given)
    ends = [Value(end) for end in _ends(op, start, x[0], states, units)]
    return ends if isinstance(start, list) else ends[0]


def _width(parameters: Sequence[Value]) -> tuple[Dim, Dim]:
    """The units of a layer, and its states, which are the same or a projection of them."""
    states, projection = parameters[1][1], _projection(parameters)
    return states if projection is None else projection[1], states


def _projection(parameters: Sequence[Value]) -> Value | None:
    """The third matrix of a layer, if it has one."""
    return next((parameter for parameter in parameters[2:] if len(parameter) == 2), None)


def _step(op: Op, places: Sequence[Dim], given: Dim, units: Dim, states: Dim, parameters: Sequence[Value]) -> None:
    """$W x + U h + b$, in rows one for each unit and inner gate; then the projection, if there is one."""
    (w, u, *_), projection = parameters, _projection(parameters)
    op.contract(given, w[1])
    op.contract(states.without_sources(), u[1])
    for rows in (parameter[0] for parameter in parameters if parameter is not projection):
        for inner in np.split(np.arange(rows.size), rows.size // units.size):
            op.unite(units, rows.positions(inner))
    if projection is not None:
        op.unite(states, projection[0])
        op.pin([units, projection[1]], "states are known for a projection by being fewer than units")
    for matrix in (parameter for parameter in parameters if len(parameter) == 2):
        op.multiplies(*places, *matrix)


def _ends(op: Op, start: Value | list[Value], batch: Dim, states: Dim, units: Dim) -> list[tuple[Dim, Dim]]:
    """What is left in the end: states, and of an LSTM the units' memory; both began with what they were given."""
    ends = [states, units] if isinstance(start, list) else [states]
    for end, given in zip(ends, start if isinstance(start, list) else [start], strict=True):
        op.unite(batch, given[-2])
        op.unite(end, given[-1])
    return [(batch, end) for end in ends]
