"""A layer torch lacks: a dense layer that reads some of its inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor, nn

from lzero.errors import ArgumentError


class IndexedLinear(nn.Linear):
    """$y = W x_I + b$: a dense layer over the inputs listed in `index`.

    >>> import torch
    >>> layer = IndexedLinear.over(nn.Linear(2, 3), torch.tensor([0, 4]))
    >>> layer(torch.randn(7, 5)).shape
    torch.Size([7, 3])
    """

    if TYPE_CHECKING:  # TorchScript would look for the type where it is not
        index: Tensor

    @classmethod
    def over(cls, linear: nn.Linear, index: Tensor) -> IndexedLinear:
        """Make a dense layer, in place, one that reads only these inputs."""
        linear.__class__ = cls
        linear.register_buffer("index", index)
        assert isinstance(linear, IndexedLinear)  # noqa: S101 (the class was set two lines above)
        return linear

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 (as torch names it)
        """Read the listed inputs, then multiply."""
        return F.linear(input.index_select(-1, self.index), self.weight, self.bias)


def inputs_read(layer: nn.Linear) -> list[int]:
    """The inputs that a dense layer reads, by their numbers in what it is given; none where all their weights are zero.

    >>> import torch
    >>> inputs_read(nn.Linear(2, 3)), inputs_read(IndexedLinear.over(nn.Linear(2, 3), torch.tensor([1, 4])))
    ([0, 1], [1, 4])
    """
    if not isinstance(layer, nn.Linear):
        raise ArgumentError.about("layer", expected="a dense layer", got=type(layer).__name__)
    given = layer.index.tolist() if isinstance(layer, IndexedLinear) else range(layer.in_features)
    return [number for number, is_read in zip(given, layer.weight.any(0).tolist(), strict=True) if is_read]
