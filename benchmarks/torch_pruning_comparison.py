"""Which models lzero and Torch-Pruning can cut: the same units removed by both, the outputs compared.

Half of the units of every site are closed at random; the other gates are 1. Torch-Pruning starts from the same weights,
with the closed units' outgoing weights at zero, so that every right removal leaves the outputs as they are.
"""

from __future__ import annotations

import copy
import importlib
import signal
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch_pruning as tp  # type: ignore[import-untyped]
from torch import nn

from lzero.compact import compact
from lzero.decision import Decision, decide
from lzero.sparsifier import Sparsifier
from lzero.sparsify import sparsify
from lzero.structure.sites import Site
from lzero.structure.units import NONE
from lzero.verify import verify

sys.path.insert(0, str(Path(__file__).parent.parent))
families: Any = importlib.import_module("tests.models")
Conv1D: Any = importlib.import_module("transformers.pytorch_utils").Conv1D

SAME, PATIENCE = 1e-9, 5  # relative difference in float64; seconds for one attempt
NOTE = """
lzero: difference to the gated model over its largest output, in float64; parameters left; graphs by `fallback="graph"`.

Torch-Pruning: the outputs against those of lzero's model, and parameters left. Up to three attempts, each on a fresh
copy and for at most 5 seconds: (1) `DependencyGraph().build_dependency(model, inputs)` and, for each layer that makes
units of a site and was not cut along with another, `get_pruning_group(layer, prune_out_channels, closed).prune()`; (2)
the same, then sizes that are attributes set by hand, as its examples do for heads: `groups`, `num_groups`, GPT-2's
`split_size` and `num_heads`; (3) as 2, from the layers that read the units, with `prune_in_channels`: its own pruner
starts there for attention. If all fail, the message is that of attempt 1, and each site is tried alone. GPT-2's
`Conv1D` has a pruner written for it here, passed as `customized_pruners`. Heads inside `nn.MultiheadAttention` cannot
be expressed: its pruner removes channels of `embed_dim`, the same from inputs, heads and outputs."""


class Conv1DPruner(tp.BasePruningFunc):  # type: ignore[misc]
    """GPT-2's dense layer, a weight of inputs × outputs, for Torch-Pruning."""

    def prune_out_channels(self, layer: Any, idxs: Sequence[int]) -> Any:
        """Remove outputs."""
        kept = sorted(set(range(layer.nf)) - set(idxs))
        layer.weight, layer.nf = self._prune_parameter_and_grad(layer.weight, kept, 1), len(kept)
        layer.bias = self._prune_parameter_and_grad(layer.bias, kept, 0)
        return layer

    def prune_in_channels(self, layer: Any, idxs: Sequence[int]) -> Any:
        """Remove inputs."""
        kept = sorted(set(range(layer.nx)) - set(idxs))
        layer.weight, layer.nx = self._prune_parameter_and_grad(layer.weight, kept, 0), len(kept)
        return layer

    def get_out_channels(self, layer: Any) -> Any:
        """The number of outputs."""
        return layer.nf

    def get_in_channels(self, layer: Any) -> Any:
        """The number of inputs."""
        return layer.nx


def tied() -> nn.Module:
    """A language model whose width can be cut: one weight embeds and reads, and no norm mixes the channels."""
    embed, read = nn.Embedding(20, 12), nn.Linear(12, 20, bias=False)
    read.weight = embed.weight
    mlp = nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 12))
    return nn.Sequential(embed, families.Sum(nn.Identity(), mlp), read)


@dataclass
class Case:
    """A gated model with half of its units closed, and the same weights without gates, nothing cut yet."""

    model: nn.Module
    inputs: Any
    sparsifier: Sparsifier
    decision: Decision
    dense: nn.Module

    @classmethod
    def of(cls, name: str) -> Case:
        """Build, gate and close; zero what reads the closed units in the copy without gates."""
        torch.manual_seed(0)
        model, inputs = families.build(name)
        dense = copy.deepcopy(model.eval())
        sparsifier = sparsify(model, inputs)
        structure = sparsifier.structure
        with torch.no_grad():
            for site in structure.sites:
                closed = torch.randperm(site.size) < site.size // 2
                sparsifier.log_alpha[structure.span(site)] = torch.where(closed, -20.0, 20.0).double()
            is_closed = np.append(sparsifier.log_alpha.numpy() < 0, False)
            for where, table in structure.readers.items():
                unread = is_closed[np.where(table == NONE, -1, table)].any(axis=1)
                dense.get_parameter(where.tensor).index_fill_(where.dim, torch.as_tensor(np.flatnonzero(unread)), 0.0)
        verify(model, dense, inputs, tolerance=SAME)
        return cls(model, inputs, sparsifier, decide(sparsifier), dense)


def cut(case: Case, sites: Sequence[Site], *, from_readers: bool = False) -> nn.Module:
    """Remove the closed units of some sites with Torch-Pruning."""
    model, side = copy.deepcopy(case.dense), "prune_in_channels" if from_readers else "prune_out_channels"
    graph = tp.DependencyGraph().build_dependency(model, case.inputs, customized_pruners={Conv1D: Conv1DPruner()})
    for where in (where for site in sites for where in (site.consumers if from_readers else site.producers)):
        layer = model.get_submodule(where.tensor.rpartition(".")[0])
        if not isinstance(layer, (nn.modules.conv._ConvNd, nn.Linear, nn.Embedding, Conv1D)):
            raise NotImplementedError(f"cannot express heads of {type(layer).__name__}")
        closed = np.flatnonzero(~case.decision.kept(case.sparsifier.structure, where)).tolist()
        width = model.get_parameter(where.tensor).shape[where.dim]
        if closed and width == case.dense.get_parameter(where.tensor).shape[where.dim]:
            graph.get_pruning_group(layer, getattr(graph.get_pruner_of_module(layer), side), closed).prune()
    return model


def set_attributes(model: nn.Module, dense: nn.Module) -> None:
    """Set by hand the sizes that Torch-Pruning leaves as they were."""
    for layer, old in zip(model.modules(), dense.modules(), strict=True):
        new: Any = layer
        if isinstance(old, nn.GroupNorm):
            new.num_groups = old.num_groups * new.num_channels // old.num_channels
        elif isinstance(old, nn.modules.conv._ConvNd) and 1 < old.groups < old.in_channels:
            new.groups = old.groups * new.in_channels // old.in_channels
        elif hasattr(old, "split_size"):
            new.split_size = new.c_attn.nf // 3
            new.num_heads = new.split_size // new.head_dim


def attempts(case: Case, small: nn.Module, sites: Sequence[Site]) -> tuple[bool, str]:
    """Whether one of the three attempts succeeds, and what happens."""
    first = ""
    for by_hand, from_readers in ((False, False), (True, False), (True, True)):
        signal.setitimer(signal.ITIMER_REAL, PATIENCE, 1)  # again each second: a callback can swallow it
        try:
            model = cut(case, sites, from_readers=from_readers)
            if by_hand:
                set_attributes(model, case.dense)
            verify(small, model, case.inputs, tolerance=SAME)
            how = (", attributes set by hand" if by_hand else "") + (", from the readers" if from_readers else "")
            return True, f"same outputs, {left(case, model)}{how}"
        except Exception as error:
            ours = isinstance(error, (NotImplementedError, TimeoutError))  # raised in this file
            first = first or " ".join(f"{'' if ours else f'{type(error).__name__}: '}{error}".split())[:100]
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    return False, first


def torch_pruning_result(case: Case, small: nn.Module) -> str:
    """All sites at once; where that fails, which sites can be cut alone."""
    sites = case.sparsifier.structure.sites
    if (result := attempts(case, small, sites))[0]:
        return result[1]
    alone = [site.name for site in sites if attempts(case, small, [site])[0]]
    return f"{result[1]}. Alone: {len(alone)} of {len(sites)} sites" + (f" ({', '.join(alone)})" if alone else "")


def left(case: Case, model: nn.Module) -> str:
    """The share of parameters left, the form of the model, and what became of parameters with several names."""
    models = (case.dense, model)
    before, after = (len(list(m.named_parameters(remove_duplicate=False))) - len(list(m.parameters())) for m in models)
    share = sum(p.numel() for p in model.parameters()) / sum(p.numel() for p in case.dense.parameters())
    form = ", as a graph" if isinstance(model, torch.fx.GraphModule) else ""
    ties = ", tied weights kept" if after else ", tied weights separated"
    return f"{share:.0%}{form}{ties if before else ''}"


def stop(*_: object) -> None:
    """End an attempt that takes too long."""
    raise TimeoutError(f"no group found within {PATIENCE} s")


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, stop)
    families.MODELS["tied weights, width cut"] = (tied, families.tokens)
    print("| model | lzero | Torch-Pruning 1.6.1 |\n|---|---|---|")
    for name in families.MODELS:
        case = Case.of(name)
        small = compact(case.model, fallback="graph" if name in families.AS_GRAPH else "error")
        exact = verify(case.model, small, case.inputs)
        print(f"| {name} | {exact:.0e}, {left(case, small)} | {torch_pruning_result(case, small)} |", flush=True)
    print(NOTE)


if __name__ == "__main__":
    main()
