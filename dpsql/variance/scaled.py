"""How far an answer may be off when its view was measured with few rows of each person and then scaled.

A view's shape is scaled so that its total is right. What is left is a question of shares: noise of the part that a
question asks for, groups whose people own more or less than others, and rows of the few who own most.

| here | there | unit |
|---|---|---|
| `shares` | W: about which part of the rows each cell holds | 1 |
| F | the part of the rows that a question asks for | 1 |
| `groups[i].variance` | v_g: how far groups of one axis are off, squared, each by itself | squared stored units |
| `groups[i].halved` | v_k: how far the left half of a node of an ordered axis is off, squared | squared stored units |
| `groups[i].together` | u_g: how far they may be off together, pulled by rows that nothing shows | stored units |
| `interaction` | i2 cells: how far cells are off beyond their groups, over all cells | squared stored units |
| `most` | (U / 2)^2: how far off cells are at most, over F^2 | squared stored units |
| `tail` | (left n)^2 / H: what nobody's rows showed, in few hands | squared stored units |
| `taste` | (.8 left n)^2: the same, of people who all own the same things | squared stored units |

With m_g the part of group g that a question covers, and m_k the part of a left half less that of its right half, two
questions have in common

    noise      the view's own, both questions less their part F of the total: the total is scaled exactly
    spread     sum over axes and groups of v_g (m_g - mean m) (m'_g - mean m') + sum over axes and nodes of v_k m_k m'_k
               + sum over axes of [sum u_g (m_g - mean m)] [sum u_g (m'_g - mean m')]
               + alike root(cells of F) root(cells of F')         cells of F = min(interaction F (1 - F), most F^2)
    tail       tail (F_both - F F') + taste alike F (1 - F) F' (1 - F')

so that the whole has none of them. `alike` is the correlation that F_both - F F' gives, 1 of a question with itself.

**Source**: docs/method/user_level.md, "Intervals that cover the exact answer".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dpsql.tree import FloatArray, halves
from dpsql.variance import kronecker
from dpsql.variance.kronecker import FamilyAcross, ProductReading
from dpsql.variance.model import Columns, Covariance, Sum

CELLS, CONSTANTS = -1, -2
"""What `part` says in the stored table where it is no axis."""

WHOLE = 1e-9
"""A question that leaves out less asks for the whole."""


class GroupsOff(NamedTuple):
    """How far the groups of one axis may be off.

    Args:
        variance: of each by itself, shape (n,).
        together: of all of them together, shape (n,).
        halved: of left halves of the nodes of `halves(n)`, shape (n - 1,).
    """

    variance: FloatArray
    together: FloatArray
    halved: FloatArray

    def alone(self, part: FloatArray) -> FloatArray:
        """How far each group may be off, squared, shape (n,).

        Args:
            part: f_g, shape (n,).
        """
        single = _off(np.eye(part.size), part)
        return self.common(single, single)

    def common(self, one: Off, two: Off) -> FloatArray:
        """What two questions have in common, shape (g,)."""
        covariance = (one.groups * two.groups) @ self.variance + (one.halves * two.halves) @ self.halved
        return covariance + (one.groups @ self.together) * (two.groups @ self.together)


@dataclass(frozen=True, eq=False)
class Spread:
    """What a release holds of it, of one statistic.

    Args:
        shares: shape (n_1, .., n_d), adding to 1.
        groups: of each axis.
        interaction, most, tail, taste: as in the module's table.
    """

    shares: FloatArray
    groups: tuple[GroupsOff, ...]
    interaction: float = 0.0
    most: float = 0.0
    tail: float = 0.0
    taste: float = 0.0
    kind: ClassVar[str] = "spread"

    @property
    def constants(self) -> tuple[float, float, float, float]:
        """What is not of one axis."""
        return self.interaction, self.most, self.tail, self.taste

    def cells(self, share: FloatArray) -> FloatArray:
        """How far questions are off beyond their groups, squared, at most `most`.

        Args:
            share: F, shape (g,).
        """
        return np.minimum(self.interaction * np.maximum(share * (1 - share), 0.0), self.most * share**2)

    def columns(self) -> dict[str, Any]:
        """One table: cells, groups of each axis, constants."""
        none = np.zeros(self.shares.size)
        sections = [
            (CELLS, self.shares.ravel(), none, none),
            *(
                (i, group.variance, group.together, np.append(group.halved, 0.0))
                for i, group in enumerate(self.groups)
            ),
            (CONSTANTS, np.array(self.constants), np.zeros(4), np.zeros(4)),
        ]
        return {
            "part": np.concatenate(
                [np.full(len(values), section, np.int64) for section, values, *_ in sections]
            ),
            "place": np.concatenate([np.arange(len(values), dtype=np.int64) for _, values, *_ in sections]),
        } | {
            name: np.concatenate([np.asarray(columns[i], np.float64) for _, *columns in sections])
            for i, name in enumerate(("value", "together", "halved"))
        }

    def asked(self, masks: Sequence[FloatArray]) -> CovarianceSide:
        letters = "abcdefghijklmnopqrstuvwxyz"[: len(masks)]
        covered = []
        for i, mask in enumerate(masks):
            other_axes = [j for j in range(len(masks)) if j != i]
            names = ",".join([letters, *(f"z{letters[j]}" for j in other_axes)])
            if other_axes:
                inside = np.einsum(
                    f"{names}->z{letters[i]}", self.shares, *(masks[j] for j in other_axes), optimize=True
                )
                margin = self.shares.sum(axis=tuple(other_axes))
                mask = mask * np.divide(inside, margin, out=np.zeros_like(inside), where=margin > 0)
            covered.append(mask)
        share = self.part(masks)
        margins = [
            self.shares.sum(axis=tuple(j for j in range(len(masks)) if j != i)) for i in range(len(masks))
        ]
        return CovarianceSide(share, tuple(_off(m, f) for m, f in zip(covered, margins, strict=True)))

    def part(self, masks: Sequence[FloatArray]) -> FloatArray:
        """F of outer products of masks, shape (g,)."""
        if not masks:
            return np.ones(1)
        letters = "abcdefghijklmnopqrstuvwxyz"[: len(masks)]
        names = ",".join([letters, *(f"z{letter}" for letter in letters)])
        return np.asarray(np.einsum(f"{names}->z", self.shares, *masks, optimize=True), np.float64)


class Off(NamedTuple):
    """How unevenly questions cover one axis.

    Args:
        groups: m_g less its mean, shape (g, n).
        halves: m_k, shape (g, n - 1).
    """

    groups: FloatArray
    halves: FloatArray


def _off(covered: FloatArray, part: FloatArray) -> Off:
    """Of questions that cover parts of groups.

    Args:
        covered: m_g, shape (g, n).
        part: f_g, shape (n,).
    """
    nodes = halves(part.size)
    rows = nodes.sums(part)[:, None]
    left, right = np.divide(
        nodes.sums(covered * part), rows, out=np.zeros((2, len(covered), part.size - 1)), where=rows > 0
    )
    return Off(covered - (covered @ part)[:, None], left - right)


class CovarianceSide(NamedTuple):
    """One side of a covariance.

    Args:
        share: F, shape (g,).
        off: of each axis.
    """

    share: FloatArray
    off: tuple[Off, ...]


def from_columns(columns: Columns) -> Spread:
    """What `Spread.columns` gave."""
    section, value = np.asarray(columns["part"]), np.asarray(columns["value"], np.float64)
    together, halved = (np.asarray(columns[name], np.float64) for name in ("together", "halved"))
    axes = int(section.max(initial=CELLS)) + 1
    if axes > len(section):
        raise ValueError("a spread has more axes than lines")
    groups = tuple(
        GroupsOff(value[group], together[group], halved[group][:-1])
        for group in (section == i for i in range(axes))
    )
    shape = [len(group.variance) for group in groups]
    return Spread(value[section == CELLS].reshape(shape), groups, *value[section == CONSTANTS].tolist())


@dataclass(frozen=True, eq=False)
class ScaledReading:
    """How a statistic answers whose view was scaled to a total.

    Args:
        shape: how the view was measured, its variances scaled.
        spread: how far shares may be off.

    **Source**: docs/method/user_level.md, "Intervals that cover the exact answer".
    """

    shape: ProductReading
    spread: Spread
    name: ClassVar[str] = "scaled"
    listed: ClassVar[Mapping[int, int]] = {}

    def matrix(self, masks: Sequence[FloatArray]) -> FloatArray:
        """The noise of all combinations of rows, as `Reading` says."""
        return self.shape.matrix(masks)

    @property
    def indices(self) -> int:
        return self.shape.indices

    def takes(self, boxes: Iterable[Sequence[FloatArray]]) -> bool:
        return True

    def terms(self, masks: Sequence[FloatArray]) -> tuple[Sum, ...]:
        return self.shape.terms(masks)

    def covariance(
        self, masks: Sequence[FloatArray], other: Sequence[FloatArray] | None = None
    ) -> Covariance:
        """See `Reading`; noise, spread and tail."""
        left, second = self.spread.asked(masks), masks if other is None else other
        right = left if other is None else self.spread.asked(second)
        joint_share = self.spread.part([u * w for u, w in zip(masks, second, strict=True)])
        apart = joint_share - left.share * right.share
        alike = _alike(apart, left.share, right.share)
        left_off, right_off = (np.maximum(asked.share * (1 - asked.share), 0.0) for asked in (left, right))
        spread = alike * np.sqrt(self.spread.cells(left.share) * self.spread.cells(right.share))
        for group, first, last in zip(self.spread.groups, left.off, right.off, strict=True):
            spread = spread + group.common(first, last)
        tail = self.spread.tail * apart + self.spread.taste * alike * left_off * right_off
        return Covariance(self._noise(masks, second, left.share, right.share), spread, tail)

    def columns(self) -> tuple[Columns, ...]:
        """Those of the shape, then the spread's."""
        return (*self.shape.columns(), self.spread.columns())

    def _noise(
        self, masks: Sequence[FloatArray], other: Sequence[FloatArray], left: FloatArray, right: FloatArray
    ) -> FloatArray:
        """Of both questions less their parts of the total, whose covariance with any question is that of the first
        component alone."""
        total = self.shape.components[()]
        left_spread, right_spread = (
            prod((u @ axis.spread for axis, u in zip(self.shape.axes, side, strict=True)), start=np.ones(1))
            for side in (masks, other)
        )
        covariance = self.shape.covariance(masks, None if other is masks else other).noise
        noise = covariance + total * (left * right - left * right_spread - right * left_spread)
        return np.maximum(noise, 0.0) if other is masks else noise


def _alike(apart: FloatArray, left: FloatArray, right: FloatArray) -> FloatArray:
    """The correlation that F_both - F F' gives; 0 where a question asks for nothing or for the whole."""
    alone = np.sqrt(np.maximum(left * (1 - left) * right * (1 - right), 0.0))
    some = (np.minimum(left, right) > 0) & (np.maximum(left, right) < 1 - WHOLE)
    return np.asarray(np.divide(apart, alone, out=np.zeros_like(apart), where=some & (alone > 0)), np.float64)


def scaled_reading(pieces: tuple[Any, ...], components: Mapping[tuple[int, ...], float]) -> ScaledReading:
    """The reading of stored pieces: the axes' splits, then the spread."""
    return ScaledReading(ProductReading(pieces[:-1], components), pieces[-1])


@dataclass(frozen=True, eq=False)
class ScaledAcross:
    """How two views that were scaled to one total err together: the noise of both less their parts of the total.

    Args:
        shapes: how the views err together before they are scaled.
        left, right: how each answers.
    """

    shapes: FamilyAcross
    left: ScaledReading
    right: ScaledReading

    def covariance(
        self, masks: Sequence[FloatArray], other: Sequence[FloatArray] | None = None
    ) -> Covariance:
        """Covariances under `masks` of the left view and `other` of the right one: noise alone."""
        second = masks if other is None else other
        left_spread, right_spread = (
            prod((u @ axis.spread for axis, u in zip(view.shape.axes, side, strict=True)), start=np.ones(1))
            for view, side in ((self.left, masks), (self.right, second))
        )
        left, right = self.left.spread.part(masks), self.right.spread.part(second)
        total = self.left.shape.components[()]
        noise = self.shapes.covariance(masks, second).noise
        return Covariance(noise + total * (left * right - left * right_spread - right * left_spread))


def of_one_family(
    left: ScaledReading, right: ScaledReading, pairs: tuple[tuple[int, int], ...]
) -> ScaledAcross | None:
    """How two views of a measure err together; None where they were not made to agree."""
    shapes = kronecker.of_one_family(left.shape, right.shape, pairs)
    return None if shapes is None else ScaledAcross(shapes, left, right)
