"""Between a model and its gates: which module reads which piece of the bank."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from lzero.attach import CHANGED, Factor, base_of, gated_class
from lzero.attention import keep_padding, nest_again
from lzero.errors import LzeroError
from lzero.structure.units import NONE, Ids

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

    from lzero.sparsifier import Sparsifier
    from lzero.structure.sites import Slice


def gate_modules(sparsifier: Sparsifier) -> list[RemovableHandle]:
    """Let every gated parameter of the model read as gated; the hooks that do it are returned."""
    model, factors = sparsifier.model, _factors(sparsifier)
    classes = {  # before anything changes: code of the model's own may have something against it
        path: gated_class(base_of(module), tuple(factors.get(path, {})), module is model)  # type: ignore[arg-type]
        for path, module in model.named_modules()
        if path in factors or module is model
    }
    handles = [
        model.register_forward_pre_hook(sparsifier.bank.begin),
        model.register_forward_hook(sparsifier.bank.end, always_call=True),
    ]
    for path, module in model.named_modules():
        if isinstance(module, nn.TransformerEncoder):
            keep_padding(module)
        mine = factors.get(path, {})
        if path in classes:
            module.__dict__["_lzero_bank"], module.__dict__["_lzero_factors"] = sparsifier.bank, mine
            module.__class__ = classes[path]
        if mine and module is not model:
            handles.append(module.register_forward_pre_hook(sparsifier.bank.require))
    return handles


def check_parts(sparsifier: Sparsifier) -> None:
    """Refuse a model of which parts with units have other names since it got gates, or are others that have none."""
    sparsifier.check_current()
    model, structure = sparsifier.model, sparsifier.structure
    named = dict((*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)))
    gated = {where.tensor for where in gate_tables(sparsifier)} | {group.elements for group in sparsifier.groups}
    for alias, name in structure.aliases.items():
        path, _, attribute = alias.rpartition(".")
        if name in gated:
            is_right = alias in named and attribute in model.get_submodule(path).__dict__.get("_lzero_factors", {})
        else:
            is_right = alias in named or not structure.has_units(name)
        if not is_right:
            raise LzeroError(CHANGED.format(name=alias))


def _factors(sparsifier: Sparsifier) -> dict[str, dict[str, Factor]]:
    """For each module path and parameter name, where its gates are in the bank, which gets the index of all of them."""
    structure, bank = sparsifier.structure, sparsifier.bank
    tables = gate_tables(sparsifier)
    elements = [group for group in sparsifier.groups if group.elements]
    bank.sizes = [len(table) for table in tables.values()]
    bank.element_sizes = [group.size for group in elements]
    index = torch.from_numpy(_stacked(list(tables.values()), sparsifier.num_gates))
    bank.index = index if sparsifier.log_alpha.is_meta else index.to(sparsifier.log_alpha.device)
    dims: dict[str, dict[int, int]] = {}
    for number, where in enumerate(tables):
        dims.setdefault(where.tensor, {})[where.dim] = number
    own = {group.elements: len(tables) + k for k, group in enumerate(elements)}
    factors: dict[str, dict[str, Factor]] = {}
    for alias, name in structure.aliases.items():
        path, _, attribute = alias.rpartition(".")
        if name in dims or name in own:
            factors.setdefault(path, {})[attribute] = Factor(dims.get(name, {}), own.get(name))
    return factors


def _stacked(tables: list[Ids], one: int) -> Ids:
    """All tables one below the other, filled up to one width with the number that stands for no gate."""
    width = max((table.shape[1] for table in tables), default=1)
    padded = [np.pad(table, ((0, 0), (0, width - table.shape[1])), constant_values=one) for table in tables]
    return np.concatenate([np.empty((0, width), dtype=np.int64), *padded])


def gate_tables(sparsifier: Sparsifier) -> dict[Slice, Ids]:
    """For each gated dimension the numbers of each position's gates; positions without point past the last gate."""
    columns = {where: group for group in sparsifier.groups for where in group.columns}
    readers = sparsifier.structure.readers if sparsifier.gates_units else {}
    tables = {}
    for where in dict.fromkeys([*readers, *columns]):
        parts = []
        if where in readers:
            parts.append(readers[where])
        if where in columns:
            parts.append((columns[where].start + columns[where].gate_of_column)[:, None])
        table = np.concatenate(parts, axis=1)
        tables[where] = np.where(table == NONE, sparsifier.num_gates, table)
    return tables


def release(module: nn.Module) -> None:
    """Give a module its own class back."""
    if isinstance(module, nn.TransformerEncoder):
        nest_again(module)
    if module.__dict__.pop("_lzero_factors", None) is None:
        return
    module.__class__ = base_of(module)
    del module.__dict__["_lzero_bank"]
