"""Torch's multi-head attention with as many heads as its weights have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

NESTED = "_lzero_nested"  # the attribute of an encoder with gates that says whether it nested sequences before


class SlimAttention(nn.MultiheadAttention):
    r"""`nn.MultiheadAttention` with any number of heads: $\mathrm{softmax}(Q K^\top / \sqrt{d} + M)\, V$ in each.

    Torch's own layer takes its heads together to be as deep as its inputs are wide, which ends when one is removed.
    Here the shapes of the weights say how many heads there are; the call, and what it returns, are the same.

    >>> layer = nn.MultiheadAttention(8, 4)  # four heads, two deep
    >>> for name in ("in_proj_weight", "in_proj_bias"):
    ...     setattr(layer, name, nn.Parameter(getattr(layer, name)[:18]))
    >>> layer.out_proj.weight = nn.Parameter(layer.out_proj.weight[:, :6])
    >>> slim = SlimAttention.over(layer)
    >>> slim.num_heads, slim(*3 * [torch.randn(5, 2, 8)])[0].shape
    (3, torch.Size([5, 2, 8]))
    """

    @classmethod
    def over(cls, attention: nn.MultiheadAttention) -> SlimAttention:
        """Let a layer of torch's, in place, go by the shapes of its weights."""
        attention.__class__ = cls
        assert isinstance(attention, SlimAttention)  # noqa: S101 (the class was set the line above)
        return attention

    @property
    def num_heads(self) -> int:
        """How many heads there are; `head_dim` says how deep their queries are."""
        return self._widths()[0] // int(self.head_dim)

    @property
    def _qkv_same_embed_dim(self) -> bool:
        """What torch asks before it takes a fused kernel, which has sizes of its own."""
        return False

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend: arguments and results are those of `nn.MultiheadAttention`."""
        if is_causal and attn_mask is None:
            raise RuntimeError("is_causal is a hint about attn_mask, which must be given too")
        is_batched = query.dim() == 3
        q, k, v = self._heads(query, key, value)
        k, v = self._with_extra(k, v)
        is_hint = is_causal and key_padding_mask is None and not need_weights  # torch then takes the hint for the mask
        mask = self._mask(key_padding_mask, None if is_hint else attn_mask, k)
        dropout = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            scores = q @ k.mT / self.head_dim**0.5
            weights = F.dropout((scores if mask is None else scores + mask).softmax(-1), dropout)
            attended = weights @ v
            weights = weights.mean(1) if average_attn_weights else weights
        else:
            attended = F.scaled_dot_product_attention(q, k, v, mask, dropout, is_hint)
        output = self.out_proj(attended.transpose(1, 2).flatten(2))
        if not is_batched:
            return output.squeeze(0), None if weights is None else weights.squeeze(0)
        return output if self.batch_first else output.transpose(0, 1), weights

    def _widths(self) -> tuple[int, int, int]:
        """The rows of the projections of queries, keys and values."""
        own = self._parameters  # as they are: gates do not change their sizes
        packed, out = own["in_proj_weight"], self.out_proj._parameters["weight"]
        if packed is None or out is None:
            q, k, v = (0 if (weight := own[f"{name}_proj_weight"]) is None else len(weight) for name in "qkv")
            return q, k, v
        rest = len(packed) - out.shape[1]
        return rest // 2, rest // 2, out.shape[1]

    def _heads(self, *given: Tensor) -> list[Tensor]:
        """Queries, keys and values of each head: [batch, heads, length, depth]."""
        widths, heads = self._widths(), self.num_heads
        query, key, value = given
        if self.in_proj_weight is not None and query is key is value:
            projected = F.linear(self._batch_first(query), self.in_proj_weight, self.in_proj_bias).split(widths, dim=-1)
        else:
            separate = self.q_proj_weight, self.k_proj_weight, self.v_proj_weight
            weights = separate if self.in_proj_weight is None else self.in_proj_weight.split(widths)
            biases = (None, None, None) if self.in_proj_bias is None else self.in_proj_bias.split(widths)
            projected = [F.linear(self._batch_first(x), w, b) for x, w, b in zip(given, weights, biases, strict=True)]
        return [x.unflatten(-1, (heads, x.shape[-1] // heads)).transpose(1, 2) for x in projected]

    def _batch_first(self, x: Tensor) -> Tensor:
        if x.dim() == 2:
            return x.unsqueeze(0)
        return x if self.batch_first else x.transpose(0, 1)

    def _with_extra(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """With a learnt key and value, and with those of zeros, at the end, where the layer has them."""
        if self.bias_k is not None and self.bias_v is not None:
            k, v = (torch.cat([x, self._extra(x, bias)], dim=2) for x, bias in ((k, self.bias_k), (v, self.bias_v)))
        return (F.pad(k, (0, 0, 0, 1)), F.pad(v, (0, 0, 0, 1))) if self.add_zero_attn else (k, v)

    @staticmethod
    def _extra(x: Tensor, bias: Tensor) -> Tensor:
        batch, heads, _, depth = x.shape
        return bias.reshape(1, 1, heads, depth).transpose(1, 2).expand(batch, -1, -1, -1)

    @staticmethod
    def _mask(padding: Tensor | None, given: Tensor | None, k: Tensor) -> Tensor | None:
        """Both masks as one that is added to the scores: [batch, heads, queries, keys], or what broadcasts to it."""
        if given is not None and given.dim() == 3:
            given = given.unflatten(0, (len(k), -1))
        if padding is not None:
            padding = padding[:, None, None] if padding.dim() == 2 else padding[None, None, None]
        masks = [_added(mask, k) for mask in (given, padding) if mask is not None]
        return None if not masks else sum(masks[1:], masks[0])


def _added(mask: Tensor, k: Tensor) -> Tensor:
    """A mask as numbers to add; keys and values at the end that are not the caller's may be read by all."""
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=k.dtype).masked_fill(mask, float("-inf"))
    return F.pad(mask, (0, k.shape[2] - mask.shape[-1]))


def make_slim(model: nn.Module) -> None:
    """After a cut: attention goes by its shapes where torch's layer would not, and sequences are not nested."""
    for module in model.modules():
        if type(module) is nn.MultiheadAttention and not _is_whole(module):
            SlimAttention.over(module)
        elif isinstance(module, nn.TransformerEncoder):
            module.use_nested_tensor = False


def keep_padding(encoder: nn.TransformerEncoder) -> None:
    """Let torch's encoder not nest sequences of several lengths: it would need layers without gates for that."""
    encoder.__dict__.setdefault(NESTED, encoder.use_nested_tensor)
    encoder.use_nested_tensor = False


def nest_again(encoder: nn.TransformerEncoder) -> None:
    """Undo `keep_padding`."""
    encoder.use_nested_tensor = encoder.__dict__.pop(NESTED)


def _is_whole(attention: nn.MultiheadAttention) -> bool:
    """Whether the weights have the sizes torch's own layer relies on."""
    width = attention.embed_dim
    expected = {
        "in_proj_weight": (3 * width, width), "q_proj_weight": (width, width), "k_proj_weight": (width, attention.kdim),
        "v_proj_weight": (width, attention.vdim),
    }  # fmt: skip
    own = {name: attention._parameters[name] for name in expected}
    shapes = all(weight is None or weight.shape == expected[name] for name, weight in own.items())
    return shapes and attention.out_proj.weight.shape == (width, width)


@contextmanager
def slim(model: nn.Module) -> Iterator[None]:
    """All of torch's attention as it computes when it goes by shapes and by masks, inside the block.

    Torch's own code lays heads and examples along one dimension, in which heads are hard to follow; and its stacks of
    layers look at the numbers in a mask to see whether it is causal, which a graph cannot hold.
    """
    layers = [module for module in model.modules() if type(module) is nn.MultiheadAttention]
    stacks = [(module, CAUSAL[type(module)]) for module in model.modules() if type(module) in CAUSAL]
    hooks = [
        stack.register_forward_pre_hook(partial(_do_not_look, *where), with_kwargs=True) for stack, where in stacks
    ]
    for layer in layers:
        SlimAttention.over(layer)
    try:
        yield
    finally:
        for layer in layers:
            layer.__class__ = nn.MultiheadAttention
        for hook in hooks:
            hook.remove()


# The argument by which a stack is told whether its mask is causal, and its place; without it the mask is looked at.
CAUSAL: dict[type[nn.Module], tuple[str, int]] = {
    nn.TransformerEncoder: ("is_causal", 3),
    nn.TransformerDecoder: ("tgt_is_causal", 6),
}


def _do_not_look(
    name: str, place: int, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Say that a mask is not causal where nobody has said what it is: it is then taken as it stands."""
    return (args, kwargs) if len(args) > place else (args, {**kwargs, name: bool(kwargs.get(name))})
