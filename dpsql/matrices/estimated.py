"""One statistic, estimated: what every mechanism hands to the release, of whatever trust.

| state | class | where |
|---|---|---|
| requested | `StarView` | `star` |
| planned | `PlannedStatistic` | `publishing` |
| drawn | `NoisyRows` | `mechanisms.law` |
| estimated | `Estimated` | here |
| stored | `StatisticPart` | `release` |

**Privacy**: post-processing of noisy integers or reports, and public facts.

Rows without a partner: what several axes of one dimension have in common beside the rows that they share.

A row whose foreign key names no row of a dimension lies in the MISSING leaf of *every* axis of that dimension. So the
MISSING leaves of age and of region are one number, whatever view measured them, and a cell that is MISSING on one
axis and has a value on the other holds no row. `reconcile` knows neither: it averages what views share on the same
axes. Here each view gives its estimate of the rows without a partner, over its other axes; these are estimates of one
table and are reconciled like views; and each view takes the result, its margins over other axes unchanged:

    m_v    the cell MISSING on all of the view's axes of the dimension, a table over its other axes
    m*_v   the same after m_v of all views are reconciled
    S_i    moves what lies in MISSING of axis i to the axis's other leaves, along h_i (their regression on MISSING
           where the total is known; adds to 1)
    x_v -> prod_i S_i (x_v - m_v (x) e) + (m_v - m*_v) (x) h + m*_v (x) e           e, h: of all these axes together

A view with one axis of the dimension only moves the difference m_v - m*_v; of several axes, cells that are MISSING on
one and not on all become 0. Tables m_v of one dimension may hold axes of another, so they are settled by the same
steps, without this dimension. A later dimension leaves an earlier one as it is: S and h of its axes keep both.

Errors are stated as without this step, which lowers them but for an axis of few leaves beside one of many (at most 1.12
times the stated variance).

With whole arrays and h on a single leaf all of it is in integers: parts add up exactly after rounding too.

**Privacy**: post-processing of noisy values; which leaf is MISSING is public.
**Source**: docs/method/views.md, "Views that share axes".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from dpsql.matrices.kronecker import AxisSplit
from dpsql.matrices.model import AxisVariance, Components
from dpsql.matrices.reading import READINGS, Together, reading
from dpsql.matrices.reconcile import Subset, ViewEstimate, agreed_units, reconcile, round_family
from dpsql.tree import FloatArray, IntArray, Noisy

Numbers: TypeAlias = npt.NDArray[Any]


class Partner(NamedTuple):
    """The dimension of an axis, and where the axis keeps rows that lack it.

    Args:
        path: foreign keys that lead to the dimension.
        missing: the MISSING leaf.
        noise: variance of that leaf at unit noise where the axis's total is known.
        spread: h, how what leaves MISSING is spread over the other leaves, shape (n,).
    """

    path: tuple[str, ...]
    missing: int
    noise: float
    spread: FloatArray


_LEAST = 1e-9
"""Of a leaf's variance that remains where the total is known; an axis of two leaves has half."""

Partners: TypeAlias = Mapping[int, Partner]
"""By axis id; axes without a MISSING leaf are not there."""


class _Table(NamedTuple):
    """A view, or its rows without some partner: axes, numbers, and the variance of a row of whole budget."""

    axes: Subset
    numbers: Numbers
    variance: float


class _Rule(NamedTuple):
    """Rule that makes tables agree on axes that they share; along `spreads`, by axis, what leaves MISSING."""

    agree: Callable[[Sequence[_Table]], Sequence[Numbers]]
    spreads: Mapping[int, Numbers]


def _settled(tables: Sequence[_Table], partners: Partners, rule: _Rule) -> list[_Table]:
    """All tables, agreed on shared axes and on the rows without each partner."""
    numbers = rule.agree(tables)
    settled = [table._replace(numbers=agreed) for table, agreed in zip(tables, numbers, strict=True)]
    for path in sorted({partner.path for partner in partners.values()}):
        siblings = {axis: partner for axis, partner in partners.items() if partner.path == path}
        holders = [k for k, table in enumerate(settled) if siblings.keys() & set(table.axes)]
        if len({axis for k in holders for axis in settled[k].axes if axis in siblings}) < 2:
            continue
        remaining = {axis: partner for axis, partner in partners.items() if partner.path != path}
        lacking = [_without_partner(settled[k], siblings) for k in holders]
        for k, before, after in zip(holders, lacking, _settled(lacking, remaining, rule), strict=True):
            settled[k] = _replaced(settled[k], siblings, (before.numbers, after.numbers), rule.spreads)
    return settled


def _without_partner(table: _Table, siblings: Partners) -> _Table:
    """A table's rows without a partner, over its other axes."""
    noise = prod(siblings[axis].noise for axis in table.axes if axis in siblings)
    others = tuple(axis for axis in table.axes if axis not in siblings)
    return _Table(others, table.numbers[_diagonal(table, siblings)].copy(), table.variance * noise)


def _replaced(
    table: _Table, siblings: Partners, lacking: tuple[Numbers, Numbers], spreads: Mapping[int, Numbers]
) -> _Table:
    """A table with `lacking[1]` in the place of `lacking[0]` on the diagonal, and no row that lacks the partner on
    one axis alone; sums along the axes of the dimension are what they were."""
    before, after = lacking
    diagonal, numbers = _diagonal(table, siblings), table.numbers.copy()
    numbers[diagonal] = 0
    positions = [position for position, axis in enumerate(table.axes) if axis in siblings]
    share = before - after
    for position in positions:
        axis, slices = table.axes[position], [slice(None)] * numbers.ndim
        slices[position] = slice(siblings[axis].missing, siblings[axis].missing + 1)
        moved = numbers[tuple(slices)].copy()
        numbers[tuple(slices)] = 0
        spread = spreads[axis].reshape([-1 if place == position else 1 for place in range(numbers.ndim)])
        numbers = numbers + moved * spread
        share = np.expand_dims(share, position)
    for position in positions:
        axis = table.axes[position]
        share = share * spreads[axis].reshape([-1 if at == position else 1 for at in range(numbers.ndim)])
    numbers = numbers + share
    numbers[diagonal] += after
    return table._replace(numbers=numbers)


def _diagonal(table: _Table, siblings: Partners) -> tuple[slice | int, ...]:
    return tuple(siblings[axis].missing if axis in siblings else slice(None) for axis in table.axes)


def reconcile_with_partners(
    views: Sequence[ViewEstimate],
    totals: Mapping[int, float],
    spreads: Mapping[int, FloatArray],
    partners: Partners,
) -> list[FloatArray]:
    """`reconcile`, and all views agree on the rows without a partner.

    Args:
        views, totals, spreads: as of `reconcile`.
        partners: of the axes that have a MISSING leaf.

    Returns:
        As of `reconcile`.
    """

    def agree(tables: Sequence[_Table]) -> list[FloatArray]:
        return reconcile([ViewEstimate(*table) for table in tables], totals, spreads)

    present = {axis: partner.spread for axis, partner in partners.items()}
    tables = [_Table(view.axes, view.estimate, view.variance_at_unit_budget) for view in views]
    return [table.numbers for table in _settled(tables, partners, _Rule(agree, present))]


def partner_of(path: tuple[str, ...], missing: int, split: AxisSplit) -> Partner:
    """The dimension of an axis, with the regression of its leaves on MISSING where the total is known.

    Args:
        path: foreign keys that lead to the dimension.
        missing: the MISSING leaf.
        split: the axis's variance model.
    """
    model, leaf = split.model, np.arange(split.model.n + 1)
    below, above = leaf[: missing + 1], leaf[missing + 1 :]
    noise = float(model.ranges(missing, missing + 1)[0])
    # Var(a + m) = Var(a) + Var(m) + 2 Cov(a, m) for the ranges a that end or begin at MISSING
    ending = np.diff(model.ranges(below, missing + 1) - model.ranges(below, missing)) / -2
    beginning = np.diff(model.ranges(missing, above) - model.ranges(missing + 1, above)) / 2
    covariance = np.concatenate([ending, [noise], beginning])
    remaining = covariance - split.total * split.spread * split.spread[missing]
    conditional = max(float(remaining[missing]), noise * _LEAST)
    spread = -remaining / conditional
    spread[missing] = 0.0
    return Partner(path, missing, conditional, np.asarray(spread / spread.sum(), dtype=np.float64))


def round_with_partners(views: Sequence[tuple[Subset, FloatArray]], partners: Partners) -> list[IntArray]:
    """`round_family`, and all views agree on the rows without a partner, exactly.

    Args:
        views: as of `round_family`; they agree up to float rounding.
        partners: as of `reconcile_with_partners`.
    """

    def agree(tables: Sequence[_Table]) -> list[IntArray]:
        return agreed_units([(table.axes, table.numbers) for table in tables])

    leaves = {axis: n for axes, estimate in views for axis, n in zip(axes, estimate.shape, strict=True)}
    first = {
        axis: (np.arange(leaves[axis]) == (0 if partner.missing else 1)).astype(np.int64)
        for axis, partner in partners.items()
        if axis in leaves
    }
    rounded = round_family(views)
    tables = [_Table(axes, units, 1.0) for (axes, _), units in zip(views, rounded, strict=True)]
    return [table.numbers for table in _settled(tables, partners, _Rule(agree, first))]


class Integers(NamedTuple):
    """Drawn integers of a statistic.

    Args:
        value: noisy integers, shape (rows_1, .., rows_d); (rows,) where the axes are measured together.
        budget: integer budget of each, the same shape.
    """

    value: Noisy
    budget: IntArray


class Smooth(NamedTuple):
    """A non-negative estimate that was made along with the unbiased one.

    Args:
        leaves: non-negative, in the shape of the unbiased leaves.
        model: of its errors; None where the unbiased estimate's tell them.
        preferred: whether it answers unless unbiased estimates are asked for.
    """

    leaves: FloatArray
    model: Together | None
    preferred: bool


@dataclass(frozen=True, eq=False)
class Estimated:
    """A statistic before it is rounded; leaves of one family agree on shared margins up to float rounding.

    Args:
        leaves: leaf estimates in the measure's units, shape (n_1, .., n_d).
        reading: how it answers, one of `READINGS`.
        components: axis positions of every independent part -> its variance factor.
        integers: what was drawn.
        notes: how it was measured, in words.
        biased: whether estimates are biased by more than bounding.
        model: of its cells: alone where axes were measured together, else beside its axes' models; None where these
            say all.
        axis: of a statistic whose rows the draw itself chose: the variance model of its one axis, and what was
            measured, in words.
        smooth: the non-negative estimate, where the mechanism makes one itself.
        partners: of the family's axes, where it agrees on the rows without a partner.
        prefers: whether the non-negative estimate that is made of it answers unless unbiased ones are asked for.
    """

    leaves: FloatArray
    reading: str
    components: Components
    integers: Integers
    notes: str
    biased: bool = False
    model: Together | None = None
    axis: tuple[AxisVariance, str] | None = None
    smooth: Smooth | None = None
    partners: Partners = field(default_factory=dict)
    prefers: bool = False

    @property
    def by_axis(self) -> bool:
        """True if its errors are made of its axes' models, with or without one of its own."""
        of = READINGS[self.reading].of
        return AxisSplit in (of if isinstance(of, tuple) else (of,))

    @property
    def listed(self) -> frozenset[int]:
        """Positions of axes along which numbers do not add up."""
        if self.by_axis or self.model is None:
            return frozenset()
        return frozenset(reading(self.reading, [self.model], self.components).listed)
