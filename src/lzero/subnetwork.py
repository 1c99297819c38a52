"""Training steps on the part of the network that a sample of the gates reads."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from lzero.arguments import whole
from lzero.belonging import sparsifier_of
from lzero.decision import decide_from
from lzero.errors import ArgumentError, LzeroError
from lzero.latency import median_seconds, step
from lzero.sparsifier import Sparsifier, check_sparsifier
from lzero.swapping import replaced
from lzero.traceless import keeping_noise, keeping_state
from lzero.trial import check_divisible, proven_layout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROUND_TO = 4  # on a CPU never slower than 1, and faster where layers are wide: results/subnetwork.md


class Subnetwork:
    """Call it in place of the model: in training it computes only what the sample of the gates reads.

    A gate is exactly 0 with probability $1 - P(z \\neq 0)$, and a unit whose gate is 0 reaches neither the output nor
    any gradient. So each forward draws its gates as the model would, with the same random numbers, and runs on the
    parameters of the units that are left. Outputs and gradients are those of the full step, the latter in full shape
    and 0 for what was left out. Two things differ: running statistics of channels that were left out stay as they
    are, and dropout draws noise for fewer numbers than it would.

    `wrapped` is what to call instead of the model: what Fabric or DDP made of it. Widths are kept divisible by
    `round_to`, with units whose gate is 0, because kernels are slow at odd ones. What cannot run in parts is refused
    here. In evaluation this is the model's ordinary forward. After `sparsifier.shrink` it goes on with what is left.

    >>> import lzero, torch
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    >>> forward = Subnetwork(lzero.sparsify(model, torch.randn(3, 4), keep_rate=0.5))
    >>> forward(torch.randn(3, 4)).square().mean().backward()
    >>> model[0].weight.grad.shape
    torch.Size([8, 4])
    """

    def __init__(
        self, sparsifier: Sparsifier, wrapped: Callable[..., Any] | None = None, *, round_to: int = ROUND_TO
    ) -> None:
        check_sparsifier(sparsifier)
        self.sparsifier, self.round_to = sparsifier, whole("round_to", round_to)
        self._wrapped = sparsifier_of(sparsifier.model).model if wrapped is None else wrapped
        check_divisible(sparsifier, self._wrapped)
        self._layout = proven_layout(sparsifier)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """A forward of the model."""
        return self._run(self._wrapped, *args, **kwargs)

    def _run(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        sparsifier, model = self.sparsifier, self.sparsifier.model
        if sparsifier.bank.is_held:
            raise LzeroError(
                "a part is chosen when gates are drawn, and they have been; leave `sparsifier.drawn()` first"
            )
        if not model.training:
            return call(*args, **kwargs)
        if self._layout.structure is not sparsifier.structure:  # it was shrunk
            self._layout = proven_layout(sparsifier)
        # The gates are drawn by a hook of the model, after what wrappers do to its buffers: it is cut right behind.
        try:
            with replaced(vars(model), "forward", partial(self._part, model.forward)):
                return call(*args, **kwargs)
        finally:
            while sparsifier.bank.inside:  # an interrupt skips the hook that ends a forward
                sparsifier.bank.end()

    def _part(self, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The model's forward on what its gates read."""
        sparsifier, gates = self.sparsifier, self.sparsifier.bank.values
        assert gates is not None  # noqa: S101 (the hook before this forward draws them)
        decision = decide_from(sparsifier, gates.detach().cpu(), self.round_to)
        with (
            replaced(vars(sparsifier.model), "forward", forward),  # a model that calls itself is cut once
            self._layout.swapped(decision, gates.device) as kept,
            sparsifier.bank.narrowed(kept),
        ):
            return sparsifier.model.forward(*args, **kwargs)  # which reads some of its inputs where it is a layer

    def relative_time(self, *inputs: Any, repeats: int = 5) -> float:
        """How long a forward of the model and its backward take, relative to those of the full one; below 1 it pays.

        $\\operatorname{median} t_\\text{part} / \\operatorname{median} t_\\text{full}$ over samples of the gates as
        they stand, taken in turn. A training goes on, bit for bit, as if nothing had been measured.

        >>> import lzero, torch
        >>> from torch import nn
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        >>> Subnetwork(lzero.sparsify(model, torch.randn(3, 4))).relative_time(torch.randn(3, 4)) > 0
        True
        """
        model = self.sparsifier.model
        if not model.training:
            raise ArgumentError.about("model", expected="training mode", got="evaluation", advice="call model.train()")
        cases = {
            "full": partial(step, model, model, inputs),
            "part": partial(step, partial(self._run, model), model, inputs),
        }
        with _unchanged(self.sparsifier):
            seconds = median_seconds(cases, repeats)
        return seconds["part"] / seconds["full"]


@contextmanager
def _unchanged(sparsifier: Sparsifier) -> Iterator[None]:
    """Random numbers, what a forward changes and the last sample are afterwards what they were."""
    bank, before = sparsifier.bank, vars(sparsifier.bank).copy()
    noise = None if bank.generator is None else bank.generator.get_state()
    try:
        with keeping_noise(), keeping_state(sparsifier.model):
            yield
    finally:
        vars(bank).update(before)
        if bank.generator is not None and noise is not None:
            bank.generator.set_state(noise)
