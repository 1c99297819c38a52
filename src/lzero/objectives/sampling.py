"""More than one sample of the gates in a step (Eq. 9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from lzero.arguments import whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


def monte_carlo(loss: Callable[[], Tensor], samples: int) -> Tensor:
    r"""$\frac1L \sum_{l=1}^L \mathcal L(h(x; \tilde\theta \odot z^{(l)}))$: each call of the model draws its own gates.

    >>> import lzero
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> _, x = lzero.sparsify(model, torch.randn(3, 4)), torch.randn(3, 4)
    >>> monte_carlo(lambda: model(x).square().mean(), samples=4).backward()
    """
    samples = whole("samples", samples)
    return loss() if samples == 1 else torch.stack([loss() for _ in range(samples)]).mean(0)
