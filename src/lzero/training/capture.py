"""Steps on a GPU as one CUDA graph: small networks wait for launches, not for arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from lzero.training.session import Session

WARM_UP = 3  # steps in which lazy parts of torch and the optimizers come into being


class CapturedStep:
    """The step of a session, recorded once and replayed: every step counts, those of the warm-up too.

    What a step reads from the host must lie in tensors: the rows of the batch, learning rates, and the factor of the
    objective's schedule. After the network has changed, the next steps warm up and are recorded anew.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._graph: torch.cuda.CUDAGraph | None = None
        self._rows: Tensor | None = None
        self._ran, self._version = 0, session.version

    def __call__(self, rows: Tensor) -> None:
        """One step on these rows."""
        if self._version != self._session.version:  # what was recorded reads memory of a network that is gone
            self._graph, self._ran, self._version = None, 0, self._session.version
        if self._ran < WARM_UP:
            self._session.step(rows)
            self._ran += 1
            return
        if self._rows is None:
            self._rows = rows.clone()
        self._rows.copy_(rows)
        if self._graph is None:
            self._graph = self._record(self._rows)
        self._graph.replay()

    def _record(self, rows: Tensor) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        for generator in (self._session.gate_noise, self._session.augmentation):
            graph.register_generator_state(generator)
        with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
            self._session.step(rows)
        return graph
