"""Sums over what indices choose: messages on the edges of a graph, bags of rows."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.fx import GraphModule

import lzero
from tests.models import set_gates

GATHERED = {
    "index_add": lambda nodes, to, messages: nodes.index_add(0, to, messages),
    "index_add in place": lambda nodes, to, messages: nodes.index_add_(0, to, messages),
    "scatter_add": lambda nodes, to, messages: nodes.scatter_add(0, to[:, None].expand_as(messages), messages),
    "mean": lambda nodes, to, messages: nodes.scatter_reduce(0, to[:, None].expand_as(messages), messages, "mean"),
}


class Passing(nn.Module):
    """Nodes send messages along edges and read the sum of those they get."""

    def __init__(self, gather, width):
        super().__init__()
        self.gather, self.sizes = gather, [] if width is None else [(width,)]  # too deep to be found
        self.node, self.message, self.update, self.read = (
            nn.Linear(4, 8), nn.Linear(16, 12), nn.Linear(20, 8), nn.Linear(8, 2),
        )  # fmt: skip

    def forward(self, x, edges):
        nodes = self.node(x).tanh()
        messages = F.softplus(self.message(torch.cat([nodes[edges[0]], nodes[edges[1]]], -1)))
        nobody = torch.zeros(len(x), *(self.sizes[0] if self.sizes else messages.shape[1:]), dtype=x.dtype)
        return self.read(self.update(torch.cat([nodes, self.gather(nobody, edges[1], messages)], -1)).tanh())


@pytest.mark.parametrize("width", [None, 12])
@pytest.mark.parametrize("gather", GATHERED)
def test_messages_lose_units(gather, width):
    """Where their number is written in the code, as a graph."""
    torch.manual_seed(0)
    model = Passing(GATHERED[gather], width).double()
    given = torch.randn(5, 4).double(), torch.randint(0, 5, (2, 9))
    sparsifier = lzero.sparsify(model, given)
    assert sum(group.stop - group.start for group in sparsifier.groups) == 8 + 12 + 8
    set_gates(sparsifier, 0.6)
    small = lzero.compact(model, fallback="graph")
    assert isinstance(small, GraphModule) == (width is not None)
    assert len(small.message.weight) < 12
    assert lzero.verify(model, small, given) <= 1e-9


class Bags(nn.Module):
    """The sum, mean or largest of some rows."""

    def __init__(self, mode):
        super().__init__()
        self.rows, self.read = nn.EmbeddingBag(20, 8, mode=mode), nn.Linear(8, 2)

    def forward(self, words):
        return self.read(self.rows(words))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_lose_columns(mode):
    model, words = Bags(mode).double(), torch.randint(0, 20, (3, 5))
    lzero.sparsify(model, words).log_alpha.data[:5] = -9.0
    small = lzero.compact(model)
    assert small.rows.embedding_dim == small.rows.weight.shape[1] == 3
    assert lzero.verify(model, small, words) <= 1e-9
