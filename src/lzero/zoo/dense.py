"""Dense networks."""

from collections.abc import Sequence
from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from lzero.zoo.checks import check_dropout, check_sizes, check_widths


class MLP(nn.Module):
    """Dense layers and ReLU over flattened inputs; 784-300-100-10 is the LeNet-300-100 of LeCun et al., 1998."""

    def __init__(
        self, inputs: int = 784, widths: Sequence[int] = (300, 100), classes: int = 10, dropout: float = 0.0
    ) -> None:
        super().__init__()
        inputs, classes = check_sizes(inputs=inputs, classes=classes)
        sizes, dropout = (inputs, *check_widths(widths)), check_dropout(dropout)
        self.hidden = nn.ModuleList(nn.Linear(i, o) for i, o in pairwise(sizes))
        self.head = nn.Linear(sizes[-1], classes)
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Scores of classes."""
        x = x.flatten(1)
        for layer in self.hidden:
            x = self.dropout(F.relu(layer(x)))
        scores: Tensor = self.head(x)
        return scores
