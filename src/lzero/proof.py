"""The proof that a cut is right: by the model's own numbers, and by numbers that cannot hide a mistake.

Outputs that are equal prove little where what was cut does not show in them: with example inputs of zeros, before a
head that starts at zero, beside other outputs that are a thousand times larger, or rounded to eight bits. So each cut
is made a second time, in a copy in double precision in which no parameter and no input is zero throughout, and every
unit that stays is open; it must be exact there too, and in training where that draws no noise.
"""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from lzero.bank import LOG_ALPHA
from lzero.decision import Decision
from lzero.errors import described
from lzero.sizes import changed_sizes, set_sizes
from lzero.surgery import cut_model
from lzero.tensors import duplicate
from lzero.verify import TOLERANCE, outputs_of, verify
from lzero.wiring import check_parts

if TYPE_CHECKING:
    from lzero.sparsifier import Sparsifier

FURTHER, CHEAP = 10, 5e8  # pairs of inputs, at most, and half of the MACs of all of them together
SCALE = 0.1  # of what takes the place of zeros: as large as weights are, so that nothing overflows


class Rehearsal(NamedTuple):
    """The same cut elsewhere: a network with its gates folded in, what the cut leaves of it, and inputs for both."""

    dense: nn.Module
    small: nn.Module
    inputs: tuple[Any, ...]


class Proof:
    """What the cut of a gated model by a decision has to stand."""

    def __init__(self, sparsifier: Sparsifier, decision: Decision) -> None:
        self._sparsifier, self._decision = sparsifier, decision

    def failure(self, small: nn.Module) -> str | None:
        """What goes wrong when the cut model runs; None where its outputs are right."""
        try:
            verify(self._sparsifier.model, small, self._sparsifier.example_inputs)
            if self._rehearsal is not None:
                set_sizes(self._rehearsal.small, changed_sizes(self._rehearsal.small, small))
                verify(*self._rehearsal)
                for inputs in self._further_inputs:
                    verify(self._rehearsal.dense, self._rehearsal.small, inputs)
        except Exception as error:  # whatever the model's code raises when its sizes are not those it was written for
            return described(error)
        return self._failure_in_training(small)

    def check_graph(self, graph: nn.Module) -> None:
        """The same for a graph of the cut model, which may have single precision written in; raises."""
        verify(self._sparsifier.model, graph, self._sparsifier.example_inputs)
        if self._rehearsal is None:
            return
        other = duplicate(graph, graph).to(next(self._rehearsal.small.parameters()))
        other.load_state_dict(self._rehearsal.small.state_dict(), strict=False)
        if _outputs_in_mode(other, self._rehearsal.inputs, training=False) is not None:
            verify(self._rehearsal.dense, other, self._rehearsal.inputs, tolerance=TOLERANCE[torch.float32])

    def _failure_in_training(self, small: nn.Module) -> str | None:
        if self._training is None:
            return None
        try:
            got = outputs_of(small, self._sparsifier.example_inputs, training=True)
        except Exception as error:  # whatever the model's code raises when its sizes are not those it was written for
            return f"in training: {described(error)}"
        if _shapes(got) != _shapes(self._training):
            return "in training it returns units that it does not return in evaluation"
        if self._rehearsal is None or self._draws_noise:
            return None
        again = _outputs_in_mode(self._rehearsal.small, self._rehearsal.inputs, training=True)
        return None if again is not None and _are_close(again, self._training) else "in training its outputs differ"

    @cached_property
    def _further_inputs(self) -> list[tuple[Any, ...]]:
        """Others than the rehearsal's, in pairs on both sides of their mean: a unit that is silent hides a mistake.

        As many as cost next to nothing. Larger networks look at many places of each of their inputs.
        """
        assert self._rehearsal is not None  # noqa: S101 (asked by the caller)
        costs, generator = self._sparsifier.costs, torch.Generator().manual_seed(1)
        pairs = min(FURTHER, int(CHEAP / max(1.0, float(costs("macs", costs.all_alive())))))
        drawn = []
        for seed in torch.randint(2**40, (pairs,), generator=generator, device="cpu").tolist():
            for side in (1.0, -1.0):
                noise = torch.Generator().manual_seed(seed)
                drawn.append(tree_map(partial(_other_input, generator=noise, side=side), self._rehearsal.inputs))
        return [inputs for inputs in drawn if _has_numbers(self._rehearsal.dense, inputs)]

    @cached_property
    def _training(self) -> list[Tensor] | None:
        """What the model returns in training."""
        if self._rehearsal is not None:
            return _outputs_in_mode(self._rehearsal.dense, self._rehearsal.inputs, training=True)
        return _outputs_in_mode(plain_copy(self._sparsifier), self._sparsifier.example_inputs, training=True)

    @cached_property
    def _draws_noise(self) -> bool:
        """Whether training is never twice the same, as with dropout: then only shapes can be compared."""
        if self._rehearsal is None or self._training is None:
            return True
        other = _outputs_in_mode(self._rehearsal.dense, self._rehearsal.inputs, training=True, seed=1)
        return other is None or not _are_close(other, self._training)

    @cached_property
    def _rehearsal(self) -> Rehearsal | None:
        """In double precision, or in the model's own where its code insists on that; None where neither runs."""
        for is_double in (True, False):
            try:
                rehearsal = _wide_awake(self._sparsifier, self._decision, is_double=is_double)
            except (TypeError, RuntimeError) as error:  # devices and types without double precision
                if isinstance(error, torch.OutOfMemoryError) or not is_double:
                    raise
                continue
            if _has_numbers(rehearsal.dense, rehearsal.inputs):
                return rehearsal
        return None


def _wide_awake(sparsifier: Sparsifier, decision: Decision, *, is_double: bool) -> Rehearsal:
    """The cut of a copy in which no parameter is zero throughout, no input constant, and no unit closed that stays."""
    other, generator = duplicate(sparsifier, sparsifier.model), torch.Generator().manual_seed(0)
    if is_double:
        other.model.double()
    for name, parameter in other.model.named_parameters():
        if name != LOG_ALPHA and not parameter.any():
            parameter.data = _noise(parameter, generator, SCALE)
    inputs = tree_map(lambda x: _awake_input(x, generator, is_double=is_double), sparsifier.example_inputs)
    gates = _awake_gates(sparsifier, decision)
    fold(other, gates)
    dense = other.remove()
    small = duplicate(dense, dense)
    cut_model(small, sparsifier.structure, decision)
    return Rehearsal(dense, small, inputs)


def _awake_gates(sparsifier: Sparsifier, decision: Decision) -> Tensor:
    """The gates, but open where a unit stays although it is closed: the last head would be cut in any way unseen.

    What was removed is closed, also where it went because nobody but such a unit would read it.
    """
    gates = decision.gates.clone()
    for group in sparsifier.groups:
        if group.site is not None:
            stays = torch.from_numpy(decision.units[sparsifier.structure.span(group.site)])
            opened = torch.where(gates[group.span] == 0, 1.0, gates[group.span])
            gates[group.span] = torch.where(stays, opened, 0.0)
    return gates


def _awake_input(x: Any, generator: torch.Generator, *, is_double: bool) -> Any:
    if not isinstance(x, Tensor) or not x.is_floating_point():
        return x
    constant = x.numel() > 1 and bool((x == x.flatten()[0]).all())
    x = _noise(x, generator) if constant else x
    return x.double() if is_double else x


def _other_input(x: Any, generator: torch.Generator, side: float) -> Any:
    """Numbers of the same size; whole ones, which may be names of something, in another order; masks as they are."""
    if not isinstance(x, Tensor) or x.dtype == torch.bool or not x.isfinite().all():
        return x
    if x.is_floating_point():
        wide = 2 * x.std(correction=0)
        return x.mean() + side * wide * _noise(x, generator)
    order = torch.randperm(x.numel(), generator=generator, device="cpu")
    return x.flatten()[order.to(x.device)].view(x.shape)


def _has_numbers(model: nn.Module, inputs: tuple[Any, ...]) -> bool:
    outputs = _outputs_in_mode(model, inputs, training=False)
    return outputs is not None and not any(output.isnan().any() for output in outputs)


def _noise(like: Tensor, generator: torch.Generator, scale: float = 1.0) -> Tensor:
    return (scale * torch.randn(like.shape, generator=generator, device="cpu")).to(like)


def _outputs_in_mode(
    model: nn.Module, inputs: tuple[Any, ...], *, training: bool, seed: int = 0
) -> list[Tensor] | None:
    """What a forward in training or evaluation returns; None where it does not come through."""
    try:
        return outputs_of(model, inputs, training=training, seed=seed)
    except torch.OutOfMemoryError:
        raise
    except Exception:  # whatever the model's code raises
        return None


def _shapes(outputs: list[Tensor]) -> list[torch.Size]:
    return [output.shape for output in outputs]


def _are_close(some: list[Tensor], others: list[Tensor]) -> bool:
    """Equal but for rounding, which the norms of a small batch make larger."""
    if _shapes(some) != _shapes(others):
        return False
    some, others = ([t.to(torch.promote_types(t.dtype, torch.float64)) for t in several] for several in (some, others))
    scales = [other[other.isfinite()].abs().max().item() if other.isfinite().any() else 1.0 for other in others]
    return all(
        torch.allclose(a, b, rtol=0, atol=TOLERANCE[torch.float32] * scale, equal_nan=True)
        for a, b, scale in zip(some, others, scales, strict=True)
    )


def incomparable(model: nn.Module, inputs: tuple[Any, ...]) -> str | None:
    """Why the outputs of a model say nothing about a cut of it; None where they do, or where it does not run."""
    some, others = (_outputs_in_mode(model, inputs, training=False, seed=seed) for seed in (0, 1))
    if some is None or others is None:
        return None
    if not any(output.isfinite().any() for output in some):
        return "its outputs hold no numbers; look for weights that are none"
    if not _are_close(some, others):
        return "its outputs are others each time; draw no noise over units in evaluation"
    return None


def plain_copy(sparsifier: Sparsifier) -> nn.Module:
    """A copy of the gated model without gates, in the mode the model is in."""
    return duplicate(sparsifier, sparsifier.model).remove()


def fold(sparsifier: Sparsifier, gates: Tensor) -> None:
    """Multiply, in place, every gated parameter by its gates, in its own precision also under autocast."""
    check_parts(sparsifier)
    bank, done = sparsifier.bank, set[int]()
    with bank.holding(gates.to(sparsifier.log_alpha)), torch.no_grad():
        for module in sparsifier.model.modules():
            for name, factor in module.__dict__.get("_lzero_factors", {}).items():
                parameter = module._parameters[name]
                assert parameter is not None  # noqa: S101 (only parameters that exist have gates)
                if id(parameter) not in done:  # it may be shared
                    done.add(id(parameter))
                    parameter.data = factor.apply(bank, parameter.data)


def folded_copy(sparsifier: Sparsifier, decision: Decision) -> nn.Module:
    """A copy of the gated model with its gates folded into the weights."""
    other = duplicate(sparsifier, sparsifier.model)
    fold(other, decision.gates)
    return other.remove()
