"""Unit labels: which positions of which dimensions live and die together.

Every position of a tensor's dimension carries a tuple of labels. It is alive when all of them are. Three operations
keep the labels of a model consistent: *unite* makes two labels one (an addition joins its operands' channels), *refine*
replaces a label by a tuple (a view of 32 as 4 × 8 makes unit 13 into head 1, inner 5), *pin* forbids removal and
remembers why.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
NONE = -1


@dataclass(frozen=True, eq=False)
class Dim:
    """One dimension of one tensor: the labels of each position, `[size, arity]`, padded with −1.

    `sources` names the parameter dimensions this one is a view or a multiple of: where a gate can act on what is read
    here.
    """

    labels: Ids
    sources: frozenset[tuple[str, int]] = field(default_factory=frozenset)

    @property
    def size(self) -> int:
        """The number of positions."""
        return len(self.labels)

    def positions(self, index: slice | Ids) -> Dim:
        """The same dimension restricted to some positions."""
        return Dim(self.labels[index], self.sources)

    def without_sources(self) -> Dim:
        """The same labels on a tensor that is computed, not a view of a parameter."""
        return Dim(self.labels)


def free(size: int) -> Dim:
    """A dimension without units, such as a batch or an image's width."""
    return Dim(np.empty((size, 0), dtype=np.int64))


class Units:
    """The labels of one model, and what is known of them."""

    def __init__(self) -> None:
        self._count = 0
        self._parent = np.arange(1024, dtype=np.int64)  # grown by doubling, so that labels cost linear time
        self._is_refined = np.zeros(1024, dtype=bool)
        self._axis = np.zeros(1024, dtype=np.int64)
        self._axis_parent: list[int] = []
        self._refined: dict[int, tuple[int, ...]] = {}
        self._reasons: dict[int, str] = {}
        self._depths: list[Ids] = []

    # Making labels

    def fresh(self, size: int, source: tuple[str, int] | None = None) -> Dim:
        """A dimension of `size` new units on an axis of its own."""
        first, self._count = self._count, self._count + size
        while self._count > len(self._parent):
            self._parent = np.concatenate([self._parent, np.arange(len(self._parent), 2 * len(self._parent))])
            self._is_refined = np.concatenate([self._is_refined, np.zeros_like(self._is_refined)])
            self._axis = np.concatenate([self._axis, np.zeros_like(self._axis)])
        ids = np.arange(first, self._count, dtype=np.int64)
        self._axis[ids] = len(self._axis_parent)
        self._axis_parent.append(len(self._axis_parent))
        return Dim(ids[:, None], frozenset() if source is None else frozenset({source}))

    # Reading labels

    def _find(self, ids: Ids) -> Ids:
        while True:
            parents = np.where(ids == NONE, NONE, self._parent[ids])
            if np.array_equal(parents, ids):
                return ids
            ids = parents

    def resolve(self, labels: Ids) -> Ids:
        """The labels as they stand now: representatives, refined ones replaced, repeats dropped, `[size, arity]`."""
        ids = self._find(labels)
        while ids.size and (hit := (ids != NONE) & self._is_refined[ids]).any():
            ids = self._find(self._expand(ids, hit))
        return _tidy(ids)

    def _expand(self, ids: Ids, hit: NDArray[np.bool_]) -> Ids:
        width = max(len(self._refined[int(label)]) for label in np.unique(ids[hit]))
        columns = []
        for column in range(ids.shape[1]):
            parts = np.full((len(ids), width), NONE, dtype=np.int64)
            parts[:, 0] = ids[:, column]
            for row in np.flatnonzero(hit[:, column]):
                children = self._refined[int(ids[row, column])]
                parts[row, : len(children)] = children
            columns.append(parts)
        return np.concatenate(columns, axis=1)

    def axis_of(self, label: int) -> int:
        """The axis a resolved label belongs to: units made together, or joined since."""
        axis = int(self._axis[label])
        while self._axis_parent[axis] != axis:
            self._axis_parent[axis] = self._axis_parent[self._axis_parent[axis]]
            axis = self._axis_parent[axis]
        return axis

    def reason(self, label: int) -> str | None:
        """Why a resolved label may not be removed; None where it may."""
        return self._reasons.get(label)

    def depths(self) -> set[int]:
        """The resolved labels that are the depth of a lone head."""
        return {int(label) for labels in self._depths for label in np.unique(self.resolve(labels)) if label != NONE}

    # Changing labels

    def mark_depth(self, labels: Ids) -> None:
        """Remember that these units are the depth of a lone head: no view tells them apart from heads."""
        self._depths.append(labels)

    def pin(self, labels: Ids, reason: str) -> None:
        """Forbid the removal of these units; the first reason is kept."""
        resolved = self.resolve(labels)
        for label in np.unique(resolved[resolved != NONE]):
            self._reasons.setdefault(int(label), reason)

    def unite(self, left: Ids, right: Ids, mismatch: str) -> None:
        """Make two equally long label arrays the same, position by position.

        Tuples of one length are united part by part; a single label meeting a tuple is refined to it; where units meet
        a position without any, or tuples of different lengths meet, they are pinned with `mismatch`.
        """
        left, right = self.resolve(left), self.resolve(right)
        if 0 in (left.shape[1], right.shape[1]):
            self.pin(left if left.shape[1] else right, mismatch)
            return
        if left.shape[1] == right.shape[1] == 1 and (left != NONE).all() and (right != NONE).all():
            for one, other in zip(left[:, 0].tolist(), right[:, 0].tolist(), strict=True):
                self._join(one, other)
            return
        for row in np.flatnonzero(_rows_differ(left, right)):
            self._unite_row(left[row : row + 1], right[row : row + 1], mismatch)

    def _unite_row(self, left: Ids, right: Ids, mismatch: str) -> None:
        mine, theirs = _parts(self.resolve(left)), _parts(self.resolve(right))
        if len(mine) == len(theirs):
            for one, other in zip(mine, theirs, strict=True):
                self._join(one, other)
        elif len(mine) == 1 and len(theirs) > 1 and mine[0] not in theirs:
            self._refine(mine[0], theirs)
        elif len(theirs) == 1 and len(mine) > 1 and theirs[0] not in mine:
            self._refine(theirs[0], mine)
        else:
            self.pin(np.array([mine + theirs]), mismatch)

    def unite_all(self, labels: Ids, mismatch: str) -> None:
        """Make all positions one unit, as the channels of a group are."""
        if len(labels) > 1:
            self.unite(labels[1:], np.repeat(labels[:1], len(labels) - 1, axis=0), mismatch)

    def _join(self, one: int, other: int) -> None:
        one, other = self._root(one), self._root(other)
        if one == other:
            return
        keep, drop = min(one, other), max(one, other)
        self._parent[drop] = keep
        if (reason := self._reasons.pop(drop, None)) is not None:
            self._reasons.setdefault(keep, reason)
        axes = self.axis_of(keep), self.axis_of(drop)
        self._axis_parent[max(axes)] = min(axes)

    def _root(self, label: int) -> int:
        while (parent := int(self._parent[label])) != label:
            label = parent
        return label

    def _refine(self, label: int, parts: tuple[int, ...]) -> None:
        self._refined[label] = parts
        self._is_refined[label] = True
        if (reason := self._reasons.pop(label, None)) is not None:
            for part in parts:
                self._reasons.setdefault(part, reason)

    # Shapes

    def merge(self, dims: list[Dim]) -> Dim:
        """One dimension in place of several, row-major: tuples are concatenated."""
        merged = dims[0]
        for dim in dims[1:]:
            left = np.repeat(merged.labels, dim.size, axis=0)
            right = np.tile(dim.labels, (merged.size, 1))
            merged = Dim(np.concatenate([left, right], axis=1), merged.sources | dim.sources)
        return merged

    def split(self, dim: Dim, sizes: list[int], reason: str) -> list[Dim]:
        """Several dimensions in place of one, row-major: labels are refined where they have to be."""
        if len(sizes) == 1:
            return [dim]
        outer, inner = self._split_in_two(dim, sizes[0], reason)
        return [outer, *self.split(inner, sizes[1:], reason)]

    def _split_in_two(self, dim: Dim, outer: int, reason: str) -> tuple[Dim, Dim]:
        inner = dim.size // outer
        table = self.resolve(dim.labels).reshape(outer, inner, -1)
        if outer == 1 or inner == 1:
            one, other = free(outer), free(inner)
            whole = Dim(table.reshape(dim.size, -1), dim.sources)
            return (one, whole) if outer == 1 else (whole, other)
        for column in range(table.shape[2]):
            if not self._factorise(table[:, :, column]):
                self.pin(dim.labels, reason)
                return self.opaque(outer, reason), self.opaque(inner, reason)
        table = self.resolve(table.reshape(outer * inner, -1)).reshape(outer, inner, -1)
        along_outer = [c for c in range(table.shape[2]) if (table[:, :, c] == table[:, :1, c]).all()]
        along_inner = [c for c in range(table.shape[2]) if c not in along_outer]
        return Dim(table[:, 0, along_outer], dim.sources), Dim(table[0][:, along_inner], dim.sources)

    def _factorise(self, table: Ids) -> bool:
        """Refine a table of labels so that each depends on its row or on its column alone; False where it cannot be."""
        if (table == table[:, :1]).all() or (table == table[:1]).all():
            return True
        rows, row_of = np.unique(table, axis=0, return_inverse=True)
        if (rows == NONE).any() or len(np.unique(rows)) != rows.size:
            return False
        outer, inner = self.fresh(len(rows)).labels[:, 0], self.fresh(rows.shape[1]).labels[:, 0]
        # Number the rows in the order they appear, so that head 0 is the first.
        order = np.argsort(np.argsort([int(np.flatnonzero(row_of.ravel() == r)[0]) for r in range(len(rows))]))
        for r in range(len(rows)):
            for c in range(rows.shape[1]):
                self._refine(int(rows[r, c]), (int(outer[order[r]]), int(inner[c])))
        return True

    def opaque(self, size: int, reason: str) -> Dim:
        """A dimension of units that may not be removed."""
        dim = self.fresh(size)
        self.pin(dim.labels, reason)
        return dim


def _tidy(ids: Ids) -> Ids:
    """Labels of each row without repeats, moved to the left; columns that are empty throughout are dropped."""
    if ids.shape[1] > 1:
        for column in range(1, ids.shape[1]):
            repeated = (ids[:, :column] == ids[:, column : column + 1]).any(axis=1)
            ids = ids.copy() if repeated.any() else ids
            ids[repeated, column] = NONE
        order = np.argsort(ids == NONE, axis=1, kind="stable")
        ids = np.take_along_axis(ids, order, axis=1)
    return ids[:, (ids != NONE).any(axis=0)] if ids.size else ids


def _rows_differ(left: Ids, right: Ids) -> NDArray[np.bool_]:
    width = max(left.shape[1], right.shape[1])
    return np.asarray((_padded(left, width) != _padded(right, width)).any(axis=1))


def _padded(ids: Ids, width: int) -> Ids:
    return np.pad(ids, ((0, 0), (0, width - ids.shape[1])), constant_values=NONE)


def _parts(row: Ids) -> tuple[int, ...]:
    return tuple(int(label) for label in row.ravel() if label != NONE)
