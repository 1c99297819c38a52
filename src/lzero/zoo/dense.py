"""Dense networks."""

from collections.abc import Sequence
from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from lzero.errors import ArgumentError
from lzero.zoo.checks import check_sizes


class MLP(nn.Module):
    """Dense layers and ReLU over flattened inputs; 784-300-100-10 is the LeNet-300-100 of LeCun et al., 1998."""

    def __init__(self, inputs: int = 784, widths: Sequence[int] = (300, 100), classes: int = 10) -> None:
        super().__init__()
        check_sizes(inputs=inputs, classes=classes)
        if not isinstance(widths, Sequence):
            raise ArgumentError.about("widths", expected="one whole number for each hidden layer", got=repr(widths))
        for width in widths:
            check_sizes(widths=width)
        sizes = (inputs, *widths)
        self.hidden = nn.ModuleList(nn.Linear(i, o) for i, o in pairwise(sizes))
        self.head = nn.Linear(sizes[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of classes."""
        x = x.flatten(1)
        for layer in self.hidden:
            x = F.relu(layer(x))
        scores: Tensor = self.head(x)
        return scores
