"""Errors of answers read off boxes and blocks of cells: noise, and the position of rows inside them.

Blocks (`BlockVariance`). A node is a box of cells, and nodes are a forest: a leaf is one number that is spread evenly
over a cells, a loud block is measured cell by cell, and a node above them is the sum of the nodes below it. A mask u
covers the share s_n of a node, sum u / a of a leaf or block; above them s_n is the mean of the shares of its children
by their variances. Errors of all nodes have one form:

    covariance = sum over nodes of  A sum(u w) + B s(u) s(w)

| here | loud block | node above others | leaf of a cells |
|---|---|---|---|
| `noise` (A, B) | v, V - R | 0, V - R | 0, V |
| `within` (A, B) | 0, 0 | 0, 0 | M / a, -M |
| `shared` (A, B) | 0, 0 | 0, 0 | with the view's count, likewise |

V is the variance of a node's total by its look and by all that is below it, R by what is below it alone.
M is a mean square of the leaves' numbers, itself measured: if all of a leaf's X rows lie in one cell, nobody knows
which, then a share f of its cells errs with variance X^2 f (1 - f); any more even lie errs less.

The model speaks of boxes that were chosen without knowing where rows lie. Where rows lie evenly inside of leaves
intervals are too wide; where they lie along lines some are still too narrow (84 to 89% of ranges of one axis on the
worst planes).

**Source**: docs/method/views.md, "Inside a leaf".

Boxes (`BoxVariance`). A table is known box by box, and taken as even inside each box for want of better knowledge. An
answer reads of each box the mean of its mask over the box's cells. Two things are uncertain: the boxes' sums, by a
covariance, and how each sum lies inside its box. For that a box holds one number, the variance of a sum that takes the
cells with a mask of variance 1: `within` x (mean of u^2 - (mean of u)^2). A whole box does not see it.

| here     | there | unit |
|----------|-------|------|
| `bounds` | half-open bounds of each box along each axis | leaves |
| `sums`   | covariance of the boxes' sums | (measure unit)^2 |
| `within` | s^2/12 for a box of sum s in adaptive collections of one axis | (measure unit)^2 |

A few questions (`AskedVariance`). Cells that the same questions hold are one class; cells that no question holds were
not measured. The rows are over the classes, and there may be fewer of them than classes: an answer is a sum of what is
stored if it takes whole classes, and if its weights on them are a mean of rows. All others are refused.

| here | there | unit |
|---|---|---|
| `classes` | class of every cell, -1: not measured | - |
| `rows` | H at unit noise, over the classes | rows x classes |
| `covariance` | (H'H)^+ | 1 at unit noise |

**Source** docs/method/views.md, "A few questions"; Li et al. (2015).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dpsql.matrices.model import (
    CHUNK,
    Columns,
    Components,
    Covariance,
    Masks,
    Reading,
    Shared,
    arrays_of,
    crossed,
    outer_products,
    symmetric,
    table,
    upper,
)
from dpsql.tree import FloatArray, IntArray


def box_sums(bounds: IntArray, masks: Masks) -> FloatArray:
    """Sum of each product of masks over each box, shape (g, boxes)."""
    sums = np.ones((len(masks[0]), len(bounds)))
    for axis, mask in enumerate(masks):
        low, high = bounds[:, axis].T
        prefix = np.concatenate([np.zeros((len(mask), 1)), np.cumsum(mask, axis=1)], axis=1)
        sums *= prefix[:, high] - prefix[:, low]
    return sums


@dataclass(frozen=True, eq=False)
class BoxVariance:
    """Variance model of a table in boxes.

    Args:
        bounds: shape (boxes, axes, 2); the boxes do not overlap and cover everything.
        sums: covariance of the boxes' sums, shape (boxes, boxes).
        within: shape (boxes,).

    >>> model = BoxVariance(np.array([[[0, 2]], [[2, 3]]]), np.eye(2), np.array([0.5, 0.0]))
    >>> model.covariance([np.array([[1.0, 1, 0], [1, 0, 0]])]).tolist()
    [1.0, 0.375]
    """

    bounds: IntArray
    sums: FloatArray
    within: FloatArray
    kind: ClassVar[str] = "boxes"

    def means(self, masks: Masks) -> FloatArray:
        """Mean of each product of masks over each box, shape (g, boxes)."""
        cells = np.prod(self.bounds[:, :, 1] - self.bounds[:, :, 0], axis=1)
        return np.asarray(box_sums(self.bounds, masks) / cells)

    def covariance(self, masks: Masks, other: Masks | None = None) -> FloatArray:
        """Covariances of the answers under products of masks, shape (g,)."""
        right = masks if other is None else other
        left_means, right_means = self.means(masks), self.means(right)
        joint = self.means([u * w for u, w in zip(masks, right, strict=True)])
        inside = (joint - left_means * right_means) @ self.within
        return np.asarray(np.sum((left_means @ self.sums) * right_means, axis=1) + inside)

    def columns(self) -> Columns:
        """The bounds, the upper triangle of the sums' covariance, and the variances inside of boxes."""
        return table(self.bounds, upper(self.sums), self.within)


def boxes_from_columns(columns: Columns) -> BoxVariance:
    """The model that `columns` were read from."""
    bounds, sums, within = arrays_of(columns)
    return BoxVariance(bounds.astype(np.int64), symmetric(sums, len(bounds)), within)


@dataclass(frozen=True)
class BoxReading(Reading):
    """Reading of a statistic that is known box by box.

    Args:
        pieces: the one model.
        components: the one part, of all axes, with what the model is multiplied by.
    """

    pieces: tuple[BoxVariance]
    components: Components
    name: ClassVar[str] = "boxes"


LOOKED = "looked"
"""Name of the product reading of a statistic that a noisy number had chosen to be measured axis by axis."""


@dataclass(frozen=True, eq=False)
class NodeTree:
    """The boxes of a forest.

    Args:
        bounds: half-open bounds of each node, shape (nodes, axes, 2).
        parent: of each node, which comes before it; -1 for a root.
        weight: of each node's share in that of its parent.
    """

    bounds: IntArray
    parent: IntArray
    weight: FloatArray

    @cached_property
    def generations(self) -> list[IntArray]:
        """Nodes that have parents, by their depth, from the deepest up; siblings stand together."""
        generation = np.flatnonzero(self.parent < 0)
        generations: list[IntArray] = []
        while len(generation):
            children = np.flatnonzero(np.isin(self.parent, generation))
            generation = children[np.argsort(self.parent[children], kind="stable")]
            generations.append(generation)
        return generations[-2::-1]

    @cached_property
    def is_piece(self) -> npt.NDArray[np.bool_]:
        """Mask of nodes without children."""
        is_piece = np.ones(len(self.parent), np.bool_)
        is_piece[self.parent[self.parent >= 0]] = False
        return is_piece

    def covered(self, masks: Masks) -> FloatArray:
        """Sum of each product of masks over each node without children, 0 of others; shape (g, nodes)."""
        covered = np.zeros((len(masks[0]), len(self.bounds)))
        covered[:, self.is_piece] = box_sums(self.bounds[self.is_piece], masks)
        return covered

    def shares(self, masks: Masks) -> FloatArray:
        """s_n of each node, shape (g, nodes)."""
        shares = self.covered(masks) / np.prod(self.bounds[:, :, 1] - self.bounds[:, :, 0], axis=1)
        for children in self.generations:
            parents, first = np.unique(self.parent[children], return_index=True)
            shares[:, parents] = np.add.reduceat(self.weight[children] * shares[:, children], first, axis=1)
        return np.asarray(shares)


@dataclass(frozen=True, eq=False)
class BlockVariance:
    """Variance model of a view's cells.

    Args:
        nodes: those without children do not overlap and cover everything.
        noise, within, shared: A and B of each node, shape (nodes, 2).

    >>> nodes = NodeTree(np.array([[[0, 2]], [[2, 3]]]), np.array([-1, -1]), np.zeros(2))
    >>> noise, within = np.array([[1.0, -1.0], [0, 4]]), np.array([[2.0, -4.0], [0, 0]])
    >>> found = BlockVariance(nodes, noise, within, np.zeros((2, 2))).covariance([np.array([[1.0, 1, 0], [1, 0, 1]])])
    >>> found.noise.tolist(), found.within_leaf.tolist()
    ([1.0, 4.75], [0.0, 1.0])
    """

    nodes: NodeTree
    noise: FloatArray
    within: FloatArray
    shared: FloatArray
    kind: ClassVar[str] = "blocks"

    def covariance(self, masks: Masks, other: Masks | None = None) -> Covariance:
        """Covariances of noise and of what lies inside leaves, each of shape (g,)."""
        right = masks if other is None else other
        rows, step = len(masks[0]), max(1, CHUNK // max(len(self.nodes.parent), 1))
        noise, within = np.zeros(rows), np.zeros(rows)
        for a in range(0, rows, step):
            u, w = ([mask[a : a + step] for mask in side] for side in (masks, right))
            joint = self.nodes.covered([first * second for first, second in zip(u, w, strict=True)])
            shares = self.nodes.shares(u)
            apart = shares * (shares if other is None else self.nodes.shares(w))
            noise[a : a + step] = joint @ self.noise[:, 0] + apart @ self.noise[:, 1]
            within[a : a + step] = joint @ self.within[:, 0] + apart @ self.within[:, 1]
        return Covariance(noise, within_leaf=within)

    def columns(self) -> dict[str, Any]:
        """One line per node: its bounds along each axis, its parent and weight, then A and B of each component."""
        bounds = self.nodes.bounds
        sides = {f"{end}{axis + 1}": bounds[:, axis, i]
                 for axis in range(bounds.shape[1]) for i, end in enumerate(("lo", "hi"))}  # fmt: skip
        coefficients = {"noise": self.noise, "within": self.within, "shared": self.shared}
        return (
            sides
            | {"parent": self.nodes.parent, "weight": self.nodes.weight}
            | {
                f"{name}_{letter}": values[:, i]
                for name, values in coefficients.items()
                for i, letter in enumerate("ab")
            }
        )


def from_columns(columns: Columns) -> BlockVariance:
    """The model that `columns` were read from.

    Raises:
        ValueError: an empty box, or a node before its parent.
    """
    axes = sum(name.startswith("lo") for name in columns)
    sides = [[columns[f"{end}{axis + 1}"].astype(np.int64) for end in ("lo", "hi")] for axis in range(axes)]
    noise, within, shared = (
        np.stack([columns[f"{name}_{letter}"].astype(np.float64) for letter in "ab"], axis=1)
        for name in ("noise", "within", "shared")
    )
    bounds = np.moveaxis(np.array(sides), 2, 0)
    nodes = NodeTree(bounds, columns["parent"].astype(np.int64), columns["weight"].astype(np.float64))
    interpolation_bound = (nodes.parent < -1) | (nodes.parent >= np.arange(len(bounds)))
    if interpolation_bound.any() or np.any(np.diff(bounds, prepend=0) < [0, 1]):
        raise ValueError("an empty box, or a node before its parent")
    return BlockVariance(nodes, noise, within, shared)


@dataclass(frozen=True)
class BlockReading(Reading):
    """Reading of a statistic measured by blocks.

    Args:
        pieces: the one model.
        components: the one part, of all axes, with what the model is multiplied by.
    """

    pieces: tuple[BlockVariance]
    components: Components
    name: ClassVar[str] = "blocks"

    def covariance(self, masks: Masks, other: Masks | None = None) -> Covariance:
        """Covariances under `masks` and `other`, as `Reading` says."""
        (model,), (factor,) = self.pieces, self.components.values()
        covariance = model.covariance(masks, other)
        scaled = [factor * covariance.noise, factor * np.asarray(covariance.within_leaf)]
        noise, within = (np.maximum(values, 0.0) if other is None else values for values in scaled)
        return Covariance(noise, within_leaf=within)


def shared_blocks(one: BlockReading, other: BlockReading) -> Shared:
    """Covariance of a view's count with another statistic; two others are taken for independent.

    Noise is independent, rows inside of a leaf are the same.

    Args:
        one, other: as stored; the count, which comes first, shares nothing with itself.
    """
    (first,), (second,) = one.pieces, other.pieces
    none = np.zeros_like(first.noise)
    common = none if np.any(first.shared) else second.shared
    factor = sqrt(sum(one.components.values()) * sum(other.components.values()))
    model = BlockVariance(first.nodes, none, common, none)

    def between(masks: Masks, second: Masks) -> Covariance:
        covariance = model.covariance(masks, second)
        return Covariance(covariance.noise, within_leaf=factor * np.asarray(covariance.within_leaf))

    return Shared(between)


NEAR = 1e-6
"""Weights that lie this near to a mean of rows are one; what is known and what is not are far apart."""

MOST_CELLS = 1 << 25
"""Entries of the rows over the cells of a view that a file may name."""


@dataclass(frozen=True, eq=False)
class AskedVariance:
    """Variance model of a table's cells from the asked sums.

    Args:
        classes: shape (n_1, .., n_d), 0 to K - 1, or -1.
        rows: shape (p, K).

    >>> model = AskedVariance(np.array([0, 0, 1, -1]), np.array([[1.0, 1.0]]))
    >>> both, first = np.array([[1.0, 1, 1, 0]]), np.array([[1.0, 1, 0, 0]])
    >>> model.knows([both]), model.knows([first]), model.covariance([both]).round(6).tolist()
    (True, False, [1.0])
    """

    classes: IntArray
    rows: FloatArray
    kind: ClassVar[str] = "asked"

    @cached_property
    def _seen(self) -> tuple[FloatArray, FloatArray]:
        """Directions that rows see, shape (K, rank), and how precisely, shape (rank,)."""
        values, vectors = np.linalg.eigh(self.rows.T @ self.rows)
        seen = values > 1e-10 * max(float(values[-1]), 1e-300)
        return vectors[:, seen], values[seen]

    @property
    def rank(self) -> int:
        """Number of independent sums known."""
        return len(self._seen[1])

    @cached_property
    def covariance_of_classes(self) -> FloatArray:
        """(H'H)^+, shape (K, K)."""
        vectors, values = self._seen
        return np.asarray((vectors / values) @ vectors.T, np.float64)

    @cached_property
    def sizes(self) -> FloatArray:
        """Cells of each class, shape (K,)."""
        measured = self.classes[self.classes >= 0]
        return np.bincount(measured, minlength=self.rows.shape[1]).astype(np.float64)

    @cached_property
    def _place(self) -> tuple[IntArray, IntArray]:
        """Cells in the order of their classes, and where each class begins; what was not measured comes first."""
        flat = self.classes.ravel()
        order = np.argsort(flat, kind="stable")
        return order, np.searchsorted(flat[order], np.arange(self.rows.shape[1]))

    def means(self, masks: Masks) -> FloatArray:
        """Mean weight of each class under products of masks, shape (g, K)."""
        order, first = self._place
        step = max(1, CHUNK // max(1, self.classes.size))
        chunks = [
            np.add.reduceat(outer_products([mask[i : i + step] for mask in masks])[:, order], first, axis=1)
            for i in range(0, len(masks[0]), step)
        ]
        return np.concatenate(chunks) / self.sizes

    def covariance(self, masks: Masks, other: Masks | None = None) -> FloatArray:
        """Covariances of the answers under products of masks, at unit noise, shape (g,)."""
        left = self.means(masks)
        right = left if other is None else self.means(other)
        return np.asarray(np.sum((left @ self.covariance_of_classes) * right, axis=1), np.float64)

    def knows(self, *boxes: Masks) -> bool:
        """True if the answers under some products of masks, added up, follow from the rows.

        Args:
            boxes: for each box one array (g, n_i) an axis.
        """
        step = max(1, CHUNK // max(1, self.classes.size))
        order, _ = self._place
        flat, vectors = self.classes.ravel()[order], self._seen[0]
        for i in range(0, len(boxes[0][0]) if boxes else 0, step):
            cells = sum(outer_products([mask[i : i + step] for mask in box])[:, order] for box in boxes)
            means = sum(self.means([mask[i : i + step] for mask in box]) for box in boxes)
            even = np.where(flat >= 0, np.take(means, np.maximum(flat, 0), axis=1), 0.0)
            unseen = means - (means @ vectors) @ vectors.T
            if np.abs(cells - even).max(initial=0.0) > NEAR or np.abs(unseen).max(initial=0.0) > NEAR:
                return False
        return True

    def columns(self) -> dict[str, np.typing.NDArray[np.generic]]:
        """The classes, and the entries of the rows that are not 0: their places and values."""
        return table(self.classes, np.argwhere(self.rows), self.rows[self.rows != 0])


def asked_from_columns(columns: Columns) -> AskedVariance:
    """The model that `columns` were read from.

    Raises:
        ValueError: rows of more than `MOST_CELLS` entries: a file that says so could ask for any amount of memory.
    """
    classes, entry, value = arrays_of(columns)
    row, column = entry.astype(np.int64).T
    size = int(row.max(initial=-1)) + 1, int(classes.max(initial=-1)) + 1
    if min(size) < 0 or size[0] * size[1] > MOST_CELLS:
        raise ValueError("rows over the cells of a view are larger than any")
    rows = np.zeros(size)
    rows[row, column] = value
    return AskedVariance(classes.astype(np.int64), rows)


@dataclass(frozen=True)
class AskedReading(Reading):
    """Reading of a statistic that was measured for a few questions.

    Args:
        pieces: the one model, at unit noise.
        components: the one part, of all axes, with what the model is multiplied by.
    """

    pieces: tuple[AskedVariance]
    components: Components
    name: ClassVar[str] = "asked"

    def takes(self, boxes: Iterable[Masks]) -> bool:
        """True if the questions that were measured tell the sums."""
        return self.pieces[0].knows(*(crossed(box) for box in boxes))

    def matrix(self, masks: Masks) -> FloatArray:
        """Covariances of all combinations of rows, as `Reading` says."""
        (model,), (factor,) = self.pieces, self.components.values()
        means = model.means(crossed(masks))
        return np.asarray(factor * means @ model.covariance_of_classes @ means.T, np.float64)
