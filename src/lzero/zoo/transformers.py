"""Transformers for images and for text."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lzero.errors import ArgumentError
from lzero.zoo.checks import check_multiple, check_sizes
from lzero.zoo.initial import narrow


class Attention(nn.Module):
    """Multi-head attention (Vaswani et al., 2017); how many heads there are follows from the weights."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.head_dim, self.causal = width // heads, causal
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """What each token takes from the others."""
        projected = (self.query(x), self.key(x), self.value(x))
        q, k, v = (part.unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for part in projected)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out


class Layer(nn.Module):
    """Attention, then two dense layers, each after a norm and beside the stream."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, heads, causal)
        self.norm2, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """The stream after this layer."""
        x = x + self.attention(self.norm1(x))
        out: Tensor = x + self.down(F.gelu(self.up(self.norm2(x))))
        return out


def layers(width: int, depth: int, heads: int, causal: bool) -> nn.Sequential:
    """As many layers as `depth`."""
    width, depth, heads = check_sizes(width=width, depth=depth, heads=heads)
    check_multiple("width", width, heads, "the number of heads")
    return nn.Sequential(*(Layer(width, heads, causal) for _ in range(depth)))


class ViT(nn.Module):
    """A vision transformer with a class token (Dosovitskiy et al., 2021)."""

    def __init__(
        self,
        size: int = 32,
        patch: int = 4,
        width: int = 192,
        depth: int = 6,
        heads: int = 3,
        classes: int = 10,
        channels: int = 3,
    ) -> None:
        super().__init__()
        size, patch, width = check_sizes(size=size, patch=patch, width=width)
        classes, channels = check_sizes(classes=classes, channels=channels)
        check_multiple("size", size, patch, "the size of a patch")
        self.layers = layers(width, depth, heads, causal=False)
        self.embed = nn.Conv2d(channels, width, patch, stride=patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(0.02 * torch.randn(1 + (size // patch) ** 2, width))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)
        self.apply(narrow)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of classes."""
        patches = self.embed(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(x.shape[0], -1, -1), patches], dim=1)
        scores: Tensor = self.head(self.norm(self.layers(tokens + self.places)[:, 0]))
        return scores


class GPT(nn.Module):
    """A decoder-only transformer with learned positions (Radford et al., 2019); the head is a matrix of its own."""

    def __init__(
        self, vocabulary: int = 256, context: int = 64, width: int = 128, depth: int = 4, heads: int = 4
    ) -> None:
        super().__init__()
        vocabulary, context, width = check_sizes(vocabulary=vocabulary, context=context, width=width)
        self.layers = layers(width, depth, heads, causal=True)
        self.embed, self.places = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.context = context
        self.apply(narrow)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of the next token, at each token."""
        if tokens.shape[1] > self.context:
            raise ArgumentError.about("tokens", expected=f"at most context={self.context}", got=tokens.shape[1])
        x = self.embed(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        scores: Tensor = self.head(self.norm(self.layers(x)))
        return scores
