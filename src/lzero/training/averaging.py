"""Polyak averaging of all parameters, log α included, with bias correction from a zero start."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from lzero.errors import ArgumentError


class Polyak(AveragedModel):
    r"""A copy with parameters $\bar\theta_t / (1 - d^t)$, where $\bar\theta_t = d\,\bar\theta_{t-1} + (1-d)\,\theta_t$.

    Written as one running mean, $\theta$ counts with the weight $(1-d)/(1-d^t)$; buffers are those of the model. Unlike
    its base it never looks at a number on a GPU, so that a captured step can contain it.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        if not 0 < decay < 1:
            raise ArgumentError.about("average", expected="a decay between 0 and 1", got=decay)
        super().__init__(model)
        self.decay = decay
        self.n_averaged = self.n_averaged.to(next(model.parameters()).device)

    @torch.no_grad()
    def update_parameters(self, model: nn.Module) -> None:
        """Count the model's parameters in."""
        self.n_averaged += 1
        # In float64: with a decay of 0.999 the first differences from 1 are lost in float32.
        weight = (1 - self.decay) / (1 - self.decay ** self.n_averaged.double())
        mine: list[Tensor] = list(self.module.parameters())
        theirs: list[Tensor] = list(model.parameters())
        differences = list(torch._foreach_sub(theirs, mine))
        torch._foreach_mul_(differences, weight.to(mine[0].dtype))
        torch._foreach_add_(mine, differences)
        for own, other in zip(self.module.buffers(), model.buffers(), strict=True):
            own.copy_(other)
