"""The gates of a model during a forward: drawn once, and held for whatever reads them."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
import torch.utils.checkpoint
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lzero.errors import LzeroError
from lzero.laws import Estimator, HardConcrete
from lzero.pending import Pending
from lzero.tensors import last_product, outside_inference_mode

LOG_ALPHA = "lzero_log_alpha"


class Bank:
    """The values of all gates during the current forward of the root, laid out for the modules that read them.

    All gates are drawn at once, spread by one index over every gated position of the model, and split into one piece
    for each gated dimension: a handful of kernels for the whole model, whatever its depth.
    """

    def __init__(self, beta: float, gamma: float, zeta: float, estimator: Estimator) -> None:
        self.beta, self.gamma, self.zeta, self.estimator = beta, gamma, zeta, estimator
        # The gates of every gated position. No buffer of the model: averages of its buffers would change numbers in it.
        self.index = torch.empty(0, 0, dtype=torch.int64, device="cpu")
        self.sizes: list[int] = []  # positions of each gated dimension, in the order of the index
        self.element_sizes: list[int] = []  # numbers of each parameter whose elements have gates
        self.generator: torch.Generator | None = None  # where the noise comes from; torch's own if none
        self.values: Tensor | None = None
        self.inside = False
        self._depth = 0
        self.is_held = False
        self._pieces: tuple[Tensor, ...] = ()
        self._is_part = False  # whether the last forward was that of a part
        self._pending = Pending()
        # The DDP around the last forward, and around the last one before a cut.
        self._wrapper: weakref.ref[DistributedDataParallel] | None = None
        self._outdated: weakref.ref[DistributedDataParallel] | None = None

    def law(self, log_alpha: Tensor) -> HardConcrete:
        """The law of the gates."""
        return HardConcrete(log_alpha, self.beta, self.gamma, self.zeta, validate_args=False)

    def begin(self, root: nn.Module, *_: object) -> None:
        """Draw one sample for this forward: the root's forward pre-hook."""
        if self.is_held:
            return
        if self._depth and not _is_running(root):
            self._depth = 0  # an interrupt has skipped the hook that ends a forward
        self._depth += 1
        if self._depth > 1:  # a model that calls itself is still in the same forward
            return
        if not torch.compiler.is_compiling():
            self._check_wrapper()
        self._spread(self.draw(root))
        self.inside = True

    def _check_wrapper(self) -> None:
        """Refuse a DDP from before a cut: it no longer hears of gradients, and processes would drift apart unseen."""
        active = DistributedDataParallel._active_ddp_module
        if active is None:
            return
        if self._outdated is not None and self._outdated() is active:
            raise LzeroError("the model was cut after DistributedDataParallel had wrapped it; wrap it anew after a cut")
        self._wrapper = weakref.ref(active)

    def was_cut(self) -> None:
        """Remember that what is around the model has to be made anew."""
        self._outdated = self._wrapper

    def draw(self, root: nn.Module) -> Tensor:
        """The gates of one forward: a sample in training, the estimate in evaluation."""
        self._pending.begin()
        law = self.law(getattr(root, LOG_ALPHA))  # a plain tensor under torch.func.functional_call
        if not root.training:
            return law.estimate(self.estimator)
        return self._pending.watched(law.base.from_logit(law.base.noise(law.batch_shape, self.generator)).clamp(0, 1))

    def _spread(self, gates: Tensor) -> None:
        if self.index.device != gates.device and not gates.is_meta:  # the model has moved since
            with outside_inference_mode():  # what is kept must serve a training too
                self.index = self.index.to(gates.device)
        index = self.index.to(gates.device)
        padded = torch.cat([gates, gates.new_ones(1)])  # past the last gate: no gate
        spread = padded.index_select(0, index.flatten()).view(index.shape)
        positions = last_product(spread)
        elements = gates.split(self.element_sizes) if self.element_sizes else ()
        self._is_part = False
        self.values, self._pieces = gates, (*positions.split(self.sizes), *elements)

    def end(self, *_: object) -> None:
        """The root's forward hook: what reads gates from now on recomputes an earlier forward."""
        if self.is_held:
            return
        self._depth = max(0, self._depth - 1)
        if self._depth:
            return
        self.inside = False
        if torch.compiler.is_compiling():  # the compiler recomputes by itself, and would guard on what is left here
            self.values, self._pieces = None, ()

    def abandon(self) -> None:
        """End a forward that was interrupted: torch runs its hooks after errors alone."""
        if not self.is_held:
            self._depth, self.inside = 0, False

    def require(self, module: nn.Module, *_: object) -> None:
        """A gated module's forward pre-hook: it runs as a part of the root, or not at all."""
        if not self.is_read():
            advice = "call that model as a whole, or parts of it inside `with sparsifier.drawn():`"
            raise LzeroError(f"this {type(module).__name__} has gates that its model draws: {advice}")

    def is_read(self) -> bool:
        """Whether gates count now: in a forward of the root, or where a backward recomputes one.

        At any other time a gated parameter reads as it is, for initialisers, wrappers and the curious.
        """
        return self.inside or torch._C._current_graph_task_id() != -1

    def piece(self, number: int) -> Tensor:
        """The gates of one dimension in this forward, or in the last one where a checkpoint recomputes it."""
        if not self.inside and not torch.compiler.is_compiling() and _is_reentrant():
            raise LzeroError(
                "a reentrant checkpoint runs a backward of its own for each part, and gates belong to all of them; "
                "use torch.utils.checkpoint.checkpoint(…, use_reentrant=False)"
            )
        if not self.inside and not torch.compiler.is_compiling():
            self._pending.check_recomputation()
            if self._is_part:
                raise LzeroError(
                    "activation checkpointing recomputes a forward of a part of the model, which is whole again; call "
                    "the model itself in place of lzero.subnetwork.Subnetwork, or switch checkpointing off"
                )
        return self._pieces[number]

    @contextmanager
    def holding(self, gates: Tensor) -> Iterator[None]:
        """Given values instead of drawn ones, inside the block."""
        before = self.values, self._pieces, self.inside, self.is_held
        self._spread(gates)
        self.inside = self.is_held = True
        try:
            yield
        finally:
            self.values, self._pieces, self.inside, self.is_held = before

    @contextmanager
    def drawing(self, root: nn.Module) -> Iterator[None]:
        """One sample for all that runs inside the block; it stays, as after a forward, for checkpoints to recompute."""
        if self.is_held:
            raise LzeroError("the gates have been drawn already; one block inside another would draw them again")
        self._spread(self.draw(root))
        self.inside = self.is_held = True
        try:
            yield
        finally:
            self.inside = self.is_held = False

    @contextmanager
    def narrowed(self, kept: Sequence[Tensor | None]) -> Iterator[None]:
        """Of each gated dimension the listed positions alone, or all of them, inside the block."""
        before = self._pieces
        self._pieces = tuple(
            piece if index is None else piece.index_select(0, index) for piece, index in zip(before, kept, strict=True)
        )
        try:
            yield
        finally:
            self._pieces, self._is_part = before, True

    def __getstate__(self) -> dict[str, Any]:
        # Values are part of an autograd graph, which can be neither copied nor pickled; a generator is one model's.
        now = {"values": None, "_pieces": (), "inside": False, "is_held": False, "_depth": 0}
        return {**self.__dict__, **now, "generator": None, "_wrapper": None, "_outdated": None}


def _is_running(root: nn.Module) -> bool:
    """Whether a forward of this module is under way, further up in what Python is doing."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        first = frame.f_code.co_varnames[:1]
        if frame.f_code.co_name == "forward" and first and frame.f_locals.get(first[0]) is root:
            return True
    return False


def _is_reentrant() -> bool:
    """Whether a checkpoint of the older kind recomputes its part, further up in what Python is doing."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is torch.utils.checkpoint.CheckpointFunction.backward.__code__:
            return True
        frame = frame.f_back
    return False
