"""The variance of answers over an attribute that was reported through a channel: noise, and what the channel adds.

| here | there | unit |
|---|---|---|
| law, scores | K, s | 1 |
| g | sum of s over the asked leaves, one number an item | 1 |
| h | sum_y K_ya g_y^2 - (sum_y K_ya g_y)^2: variance of one row's score | 1 |
| H | sum of h over the rows of a box, by the released counts | rows |
| own, pairs, stick | mu, lambda, theta: of rows of one person, by `Squares` | (measure unit)^2, 1 |

A person's rows share one item. Over a box Z of the other axes her n rows add h n^2: the rows themselves, mu, and pairs
of different rows, lambda. A pair lies in the box as often as chance has it, or surely, as far as her rows stick
together on an axis:

    Var = H (mu + lambda prod_j (theta_j + (1 - theta_j) pi_j))        pi_j: released share of the rows in Z_j

Without squares mu is the most that n rows may be, tau, and lambda is 0: never too little.

**Privacy**: published numbers alone.
**Source**: docs/method/hybrid.md, "Error bars".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from dpsql.tree import FloatArray
from dpsql.variance.kronecker import ProductReading
from dpsql.variance.model import Columns, Covariance, Sum
from dpsql.variance.pooled import weigh

LEAST = 0.2
"""Part of the least h that a row adds at least, where noise hides how many rows a box has."""
LAW, SCORES, CELLS, CONSTANTS, STICK = range(5)


class Squares(NamedTuple):
    """How the rows of one person add up, for two statistics of a view.

    Args:
        own: mu, what a row's own square is on average.
        pairs: lambda, likewise of pairs of different rows.
        stick: theta of each axis, in [0, 1]; 0 for the attribute.
    """

    own: float
    pairs: float
    stick: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class ChannelModel:
    """What a release holds of a statistic's channel.

    Args:
        place: the attribute's axis in the view.
        law: K, shape (items, leaves in the domain).
        scores: s, shape (leaves in the domain, items).
        counts: released counts of the view's cells.
        alone, beside: squares of the statistic, and of it with the view's count.
    """

    place: int
    law: FloatArray
    scores: FloatArray
    counts: FloatArray
    alone: Squares
    beside: Squares
    kind: ClassVar[str] = "channel"

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Parts one after the other; `shape` says how each is folded."""
        axes = self.counts.ndim
        constants = [self.place, *self.law.shape, axes, *self.counts.shape]
        constants += [self.alone.own, self.alone.pairs, self.beside.own, self.beside.pairs]
        parts = [
            (LAW, self.law.ravel()), (SCORES, self.scores.ravel()), (CELLS, self.counts.ravel()),
            (CONSTANTS, np.array(constants, np.float64)), (STICK, np.array([*self.alone.stick, *self.beside.stick])),
        ]  # fmt: skip
        return {
            "part": np.concatenate([np.full(len(values), part, np.int64) for part, values in parts]),
            "place": np.concatenate([np.arange(len(values), dtype=np.int64) for _, values in parts]),
            "value": np.concatenate([np.asarray(values, np.float64) for _, values in parts]),
        }

    def asked(self, masks: Sequence[FloatArray]) -> FloatArray:
        """g of each mask of the attribute, shape (g, items)."""
        leaves = self.law.shape[1]
        return np.asarray(masks[self.place][:, :leaves] @ self.scores)

    def added(
        self, left: Sequence[FloatArray], right: Sequence[FloatArray], squares: Squares, *, alone: bool
    ) -> FloatArray:
        """What the channel adds to covariances, shape (g,).

        Args:
            left, right: masks of both questions.
            squares: of the two statistics that they are put to.
            alone: whether both are one question, so that nothing is below 0.
        """
        one, two = self.asked(left), self.asked(right)
        h = (one * two) @ self.law - (one @ self.law) * (two @ self.law)
        special = np.zeros((len(h), self.counts.shape[self.place] - h.shape[1]))
        both = [u * v for u, v in zip(left, right, strict=True)]
        both[self.place] = np.hstack([h, special])
        rows = weigh(self.counts, both)
        if alone:
            box = [*both]
            box[self.place] = np.hstack([np.ones_like(h), special])
            least = LEAST * h.min(axis=1) * np.maximum(weigh(self.counts, box), 0.0)
            rows = np.maximum(rows, np.maximum(least, h.max(axis=1)))
        together = np.ones(len(h))
        total = max(float(self.counts.sum()), 1.0)
        for axis, stick in enumerate(squares.stick):
            if axis != self.place:
                others = tuple(i for i in range(self.counts.ndim) if i != axis)
                margin = np.maximum(self.counts.sum(axis=others), 0.0) / total
                second = np.clip(right[axis] @ margin, 0.0, 1.0)
                first = np.clip(left[axis] @ margin, 1e-12, 1.0)
                shared = np.clip((left[axis] * right[axis]) @ margin / first, 0.0, 1.0)
                together = together * (stick * shared + (1 - stick) * second)
        size = squares.own + squares.pairs * together
        return np.asarray(rows * (np.maximum(size, squares.own / 2) if alone else size))


def from_columns(columns: Columns) -> ChannelModel:
    """What `ChannelModel.columns` gave."""
    part, value = np.asarray(columns["part"]), np.asarray(columns["value"], np.float64)
    place, items, leaves, axes, *rest = value[part == CONSTANTS].tolist()
    n = int(axes)
    shape = tuple(int(size) for size in rest[:n])
    own, pairs, beside, crossed = rest[n:]
    stick = tuple(value[part == STICK].tolist())
    return ChannelModel(
        int(place),
        value[part == LAW].reshape(int(items), int(leaves)),
        value[part == SCORES].reshape(int(leaves), int(items)),
        value[part == CELLS].reshape(shape),
        Squares(own, pairs, stick[:n]),
        Squares(beside, crossed, stick[n:]),
    )


@dataclass(frozen=True, eq=False)
class ChannelReading:
    """How a statistic answers whose view has a reported attribute.

    Args:
        noise: the view's noise, seen through the scores.
        channel: the rest.
    """

    noise: ProductReading
    channel: ChannelModel
    name: ClassVar[str] = "channel"

    @property
    def indices(self) -> int:
        """Those of the noise."""
        return self.noise.indices

    @property
    def listed(self) -> Mapping[int, int]:
        """None."""
        return self.noise.listed

    def takes(self, boxes: Iterable[Sequence[FloatArray]]) -> bool:
        """As the noise does."""
        return self.noise.takes(boxes)

    def terms(self, masks: Sequence[FloatArray]) -> tuple[Sum, ...]:
        """Its own node combinations."""
        return self.noise.terms(masks)

    def covariance(
        self, masks: Sequence[FloatArray], other: Sequence[FloatArray] | None = None
    ) -> Covariance:
        """See `Reading`; noise and channel."""
        right = masks if other is None else other
        added = self.channel.added(masks, right, self.channel.alone, alone=other is None)
        return Covariance(self.noise.covariance(masks, other).noise + added, channel=added)

    def matrix(self, masks: Sequence[FloatArray]) -> FloatArray:
        """Noise and channel of all combinations of rows, as `Reading` says."""
        grids = np.meshgrid(*(np.arange(len(mask)) for mask in masks), indexing="ij")
        cells = [mask[grid.ravel()] for mask, grid in zip(masks, grids, strict=True)]
        found = self.noise.matrix(masks)
        for i in range(len(found)):
            row = [np.broadcast_to(cell[i], cell.shape) for cell in cells]
            found[i] += self.channel.added(row, cells, self.channel.alone, alone=False)
        return found

    def beside(self) -> BesideReading:
        """By the channel alone: a person's rows are counted and summed under one item."""
        return BesideReading(self.noise, self.channel)

    def columns(self) -> tuple[Columns, ...]:
        """Those of the noise, then the channel's."""
        return (*self.noise.columns(), self.channel.columns())

    def page(self) -> Mapping[str, Any]:
        """Nothing: a page tells of noise by each axis's table."""
        return {}


@dataclass(frozen=True, eq=False)
class BesideReading:
    """How a statistic errs with its view's count.

    Args:
        noise: the statistic's own, which is independent of the count's.
        channel: what both share.
    """

    noise: ProductReading
    channel: ChannelModel

    @property
    def indices(self) -> int:
        """Those of the noise."""
        return self.noise.indices

    @property
    def listed(self) -> Mapping[int, int]:
        """None."""
        return self.noise.listed

    def takes(self, boxes: Iterable[Sequence[FloatArray]]) -> bool:
        """As the noise does."""
        return self.noise.takes(boxes)

    def terms(self, masks: Sequence[FloatArray]) -> tuple[Sum, ...]:
        """Those of the noise."""
        return self.noise.terms(masks)

    def covariance(
        self, masks: Sequence[FloatArray], other: Sequence[FloatArray] | None = None
    ) -> Covariance:
        """See `Reading`; the channel alone."""
        added = self.channel.added(masks, masks if other is None else other, self.channel.beside, alone=False)
        return Covariance(added, channel=added)

    def matrix(self, masks: Sequence[FloatArray]) -> FloatArray:
        """See `Reading`."""
        grids = np.meshgrid(*(np.arange(len(mask)) for mask in masks), indexing="ij")
        cells = [mask[grid.ravel()] for mask, grid in zip(masks, grids, strict=True)]
        rows = [[np.broadcast_to(cell[i], cell.shape) for cell in cells] for i in range(len(cells[0]))]
        return np.array([self.channel.added(row, cells, self.channel.beside, alone=False) for row in rows])

    def columns(self) -> tuple[Columns, ...]:
        """Nothing of its own."""
        return ()

    def page(self) -> Mapping[str, Any]:
        """Nothing."""
        return {}


def channel_reading(pieces: tuple[Any, ...], components: Mapping[tuple[int, ...], float]) -> ChannelReading:
    """The reading of stored pieces: the axes' splits, then the channel."""
    return ChannelReading(ProductReading(pieces[:-1], components), pieces[-1])
