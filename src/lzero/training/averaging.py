"""Polyak averaging of all parameters, log α included, with bias correction from a zero start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.optim.swa_utils import AveragedModel

from lzero.errors import ArgumentError

if TYPE_CHECKING:
    from torch import Tensor, nn


def averaged(model: nn.Module, decay: float) -> AveragedModel:
    r"""A copy with parameters $\bar\theta_t / (1 - d^t)$, where $\bar\theta_t = d\,\bar\theta_{t-1} + (1-d)\,\theta_t$.

    Written as one running mean, $\theta$ counts with the weight $(1-d)/(1-d^t)$; buffers are those of the model.
    """
    if not 0 < decay < 1:
        raise ArgumentError.about("average", expected="a decay between 0 and 1", got=decay)

    def mean(average: Tensor, parameter: Tensor, count: Tensor | int) -> Tensor:
        # In float64: with a decay of 0.999 the first differences from 1 are lost in float32.
        power = torch.as_tensor(count + 1, dtype=torch.float64, device=average.device)
        weight = (1 - decay) / (1 - decay**power)
        return average + weight.to(average.dtype) * (parameter - average)

    return AveragedModel(model, avg_fn=mean)
