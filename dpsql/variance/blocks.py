"""How far answers may be off that are read off blocks of cells: noise, and where rows lie inside of a leaf.

A piece is a box of cells: measured cell by cell, or as one number that is spread evenly. Both errors of a piece have
one form. For masks u, w that cover U = sum u and W = sum w of its cells,

    covariance = sum over pieces of  A sum(u w) + B U W

| here | loud block of k cells | leaf of a cells |
|---|---|---|
| `noise` (A, B) | v2, -v2^2 / (k v2 + v1) | 0, v / a^2 |
| `within` (A, B) | 0, 0 | M / a, -M / a^2 |
| `shared` (A, B) | 0, 0 | with the view's count, likewise |

M is a mean square of the leaves' numbers, itself measured: if all of a leaf's X rows lie in one cell, nobody knows
which, then a share f of its cells errs with variance X^2 f (1 - f); any more even lie errs less.

**Source**: docs/method/blocks.md, "Inside a leaf".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, ClassVar

import numpy as np

from dpsql.tree import FloatArray, IntArray
from dpsql.variance.kronecker import ProductReading
from dpsql.variance.model import Columns, Components, Covariance, Sum

Masks = Sequence[FloatArray]

CHUNK = 4_000_000
"""Parts of masks that are looked at together."""


@dataclass(frozen=True, eq=False)
class BlockVariance:
    """What is known of the errors of a view's cells.

    Args:
        bounds: half-open bounds of each piece, shape (pieces, axes, 2); pieces do not overlap and cover everything.
        noise, within, shared: A and B of each piece, shape (pieces, 2).

    >>> bounds, nothing = np.array([[[0, 2]], [[2, 3]]]), np.zeros((2, 2))
    >>> model = BlockVariance(bounds, np.array([[1.0, -0.25], [0, 4]]), np.array([[2.0, -1.0], [0, 0]]), nothing)
    >>> found = model.covariance([np.array([[1.0, 1, 0], [1, 0, 1]])])
    >>> found.noise.tolist(), found.within_leaf.tolist()
    ([1.0, 4.75], [0.0, 1.0])
    """

    bounds: IntArray
    noise: FloatArray
    within: FloatArray
    shared: FloatArray
    kind: ClassVar[str] = "blocks"

    def covered(self, masks: Masks) -> FloatArray:
        """Sum of each product of masks over each piece, shape (g, pieces)."""
        sums = np.ones((len(masks[0]), len(self.bounds)))
        for axis, mask in enumerate(masks):
            low, high = self.bounds[:, axis].T
            prefix = np.concatenate([np.zeros((len(mask), 1)), np.cumsum(mask, axis=1)], axis=1)
            sums *= prefix[:, high] - prefix[:, low]
        return sums

    def covariance(self, masks: Masks, other: Masks | None = None) -> Covariance:
        """Covariances of noise and of what lies inside leaves, each of shape (g,)."""
        right = masks if other is None else other
        rows, step = len(masks[0]), max(1, CHUNK // max(len(self.bounds), 1))
        noise, within = np.zeros(rows), np.zeros(rows)
        for a in range(0, rows, step):
            u, w = ([mask[a : a + step] for mask in side] for side in (masks, right))
            joint = self.covered([first * second for first, second in zip(u, w, strict=True)])
            apart = self.covered(u) * self.covered(w)
            noise[a : a + step] = joint @ self.noise[:, 0] + apart @ self.noise[:, 1]
            within[a : a + step] = joint @ self.within[:, 0] + apart @ self.within[:, 1]
        return Covariance(noise, within_leaf=within)

    def columns(self) -> dict[str, Any]:
        """One line per piece: its bounds along each axis, then A and B of each part."""
        sides = {f"{end}{axis + 1}": self.bounds[:, axis, i]
                 for axis in range(self.bounds.shape[1]) for i, end in enumerate(("lo", "hi"))}  # fmt: skip
        coefficients = {"noise": self.noise, "within": self.within, "shared": self.shared}
        return sides | {
            f"{name}_{letter}": values[:, i]
            for name, values in coefficients.items()
            for i, letter in enumerate("ab")
        }


def from_columns(columns: Columns) -> BlockVariance:
    """The model that `columns` were read from."""
    axes = sum(name.startswith("lo") for name in columns)
    sides = [[columns[f"{end}{axis + 1}"].astype(np.int64) for end in ("lo", "hi")] for axis in range(axes)]
    noise, within, shared = (
        np.stack([columns[f"{name}_{letter}"].astype(np.float64) for letter in "ab"], axis=1)
        for name in ("noise", "within", "shared")
    )
    return BlockVariance(np.moveaxis(np.array(sides), 2, 0), noise, within, shared)


@dataclass(frozen=True)
class BlockReading:
    """How a statistic answers that was measured by blocks.

    Args:
        pieces: the one model.
        components: the one part, of all axes, with what the model is multiplied by.
    """

    pieces: tuple[BlockVariance]
    components: Components
    name: ClassVar[str] = "blocks"
    listed: ClassVar[Mapping[int, int]] = {}

    @property
    def indices(self) -> int:
        """One: what chose the blocks, the looks at them, then the rows."""
        return 1

    def takes(self, boxes: Iterable[Masks]) -> bool:
        return True

    def terms(self, masks: Masks) -> tuple[Sum, ...]:
        return (Sum("node_combination", tuple(masks)),)

    def covariance(self, masks: Masks, other: Masks | None = None) -> Covariance:
        """Covariances under `masks` and `other`, as `Reading` says."""
        (model,), (factor,) = self.pieces, self.components.values()
        covariance = model.covariance(masks, other)
        scaled = [factor * covariance.noise, factor * np.asarray(covariance.within_leaf)]
        noise, within = (np.maximum(values, 0.0) if other is None else values for values in scaled)
        return Covariance(noise, within_leaf=within)

    def matrix(self, masks: Masks) -> FloatArray:
        """Covariances of all combinations of rows, as `Reading` says; what lies inside leaves is in them.

        Who pools estimates of several releases weighs them by all that they err by.
        """
        places = [grid.ravel() for grid in np.indices([len(mask) for mask in masks])]
        every = [mask[place] for mask, place in zip(masks, places, strict=True)]
        covariances = [
            self.covariance([np.broadcast_to(u[k], u.shape) for u in every], every)
            for k in range(len(places[0]))
        ]
        return np.array([covariance.noise + covariance.within_leaf for covariance in covariances])

    def columns(self) -> tuple[Columns, ...]:
        return tuple(model.columns() for model in self.pieces)


@dataclass(frozen=True, eq=False)
class SharedBlocks:
    """How two statistics of a view err together: noise is independent, rows inside of a leaf are the same.

    Args:
        model: its `within` is what both share.
        factor: what it is multiplied by.
    """

    model: BlockVariance
    factor: float

    def covariance(self, masks: Masks, other: Masks | None = None) -> Covariance:
        covariance = self.model.covariance(masks, other)
        return Covariance(covariance.noise, within_leaf=self.factor * np.asarray(covariance.within_leaf))


def shared_blocks(one: BlockReading, other: BlockReading) -> SharedBlocks:
    """How a view's count errs with another statistic; two others are taken for independent.

    Args:
        one, other: as stored; the count, which comes first, shares nothing with itself.
    """
    (first,), (second,) = one.pieces, other.pieces
    none = np.zeros_like(first.noise)
    common = none if np.any(first.shared) else second.shared
    factor = sqrt(sum(one.components.values()) * sum(other.components.values()))
    return SharedBlocks(BlockVariance(first.bounds, none, common, none), factor)


@dataclass(frozen=True)
class LookedReading:
    """How a statistic answers that was measured axis by axis, once a noisy number had said that it should be.

    Args:
        product: the axes.
    """

    product: ProductReading
    name: ClassVar[str] = "looked"
    listed: ClassVar[Mapping[int, int]] = {}

    @property
    def indices(self) -> int:
        """One: the number that chose, then the rows."""
        return 1

    def takes(self, boxes: Iterable[Masks]) -> bool:
        return True

    def terms(self, masks: Masks) -> tuple[Sum, ...]:
        return self.product.terms(masks)

    def covariance(self, masks: Masks, other: Masks | None = None) -> Covariance:
        return self.product.covariance(masks, other)

    def matrix(self, masks: Masks) -> FloatArray:
        return self.product.matrix(masks)

    def columns(self) -> tuple[Columns, ...]:
        return self.product.columns()


def looked_reading(pieces: tuple[Any, ...], components: Components) -> LookedReading:
    """The reading of the axes' splits."""
    return LookedReading(ProductReading(pieces, components))
