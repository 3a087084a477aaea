"""One view of three to six axes as the tables of its pairs: what `collection: {estimate: lle}` stores (AHEAD's LLE).

Plan and reports are those of any collection: trees of axes, a grid a pair. What differs is the release. Of the view's
joint table, which may have a hundred million cells, it holds the margins of one axis and two, unbiased and with their
covariance as always; boxes over more axes are fitted to them when they are asked (`dpsql.matrices.max_entropy`).

That fit takes non-negative tables which agree on their axes. So the pairs' smooth tables, where they were fitted, or
else the unbiased ones without what is below 0, are raked to one table an axis: its stack, where the unbiased estimate
does not reject it, else the unbiased shares on the simplex.

| here     | there | unit |
|----------|-------|------|
| `shares` | of an axis, of a pair | slots |
| `units`  | node sums | 2^-20 rows |

**Privacy**: post-processing of reports that were private before they left the device.
**Source**: AHEAD, section 4.5.2; docs/method/local.md, "Maximum entropy".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from dpsql.local.estimate import AxisTable, FittedTable, Parts, Seen, Total, interaction, table
from dpsql.local.mechanisms.blue import ShareEstimate, normsub
from dpsql.local.oracles.oracle import FloatArray
from dpsql.local.parts import Estimates, grid_cells, interactions
from dpsql.local.smooth import SMOOTH, positive_shares
from dpsql.local.survey import Survey
from dpsql.local.totals import total_of
from dpsql.matrices import AxisVariance
from dpsql.matrices.estimated import Estimated, Integers
from dpsql.matrices.max_entropy import EntropyReading, FittedErrors, cell_spread, packed
from dpsql.matrices.model import Components
from dpsql.matrices.reading import Together
from dpsql.matrices.reconcile import node_sums, round_family
from dpsql.mechanisms.distribution import nothing_drawn
from dpsql.release.write import (
    Assembled,
    Description,
    Statistic,
    StatisticContent,
    StatisticPart,
    statistic_meta,
)
from dpsql.tree import IntArray, Tree

PairKey = tuple[int, int]
Tables = Mapping[PairKey, FloatArray]
LEAST = 1e-6
"""Part of a table of independent axes in every pair: raking cannot fill a line of zeros."""
SETTLED, SWEEPS = 1e-12, 2000


def pair_tables(
    axes: Sequence[int], axis_tables: Mapping[int, AxisTable], parts: Parts, total: Total
) -> tuple[Tables, Components]:
    """Unbiased tables of all pairs, and the variance of each of their parts.

    Args:
        axes: the view's axes, increasing.
        axis_tables: every axis's table.
        parts: interactions of pairs.
        total: of all rows.

    Returns:
        By positions in `axes`.
    """
    tables: dict[PairKey, FloatArray] = {}
    components: dict[tuple[int, ...], float] = {}
    for pair in combinations(range(len(axes)), 2):
        fitted: FittedTable = table([axes[i] for i in pair], axis_tables, parts, None, total)
        tables[pair] = fitted.values
        components |= {tuple(pair[i] for i in subset): s for subset, s in fitted.strengths.items()}
    return tables, components


def positive_tables(
    estimates: Estimates,
    axes: Sequence[int],
    unbiased: Tables,
    margins: Sequence[ShareEstimate],
) -> Tables:
    """Non-negative tables of all pairs that agree on every axis and on the total.

    Args:
        estimates: of the collection; without any joint fits, tables come straight from the grids.
        axes: the view's axes, increasing.
        unbiased: from `pair_tables`.
        margins: of every axis, from `axis_margin`.
    """
    total = float(next(iter(unbiased.values())).sum())
    counts, tables = [margin.shares * total for margin in margins], {}
    for (i, j), leaves in unbiased.items():
        pair = (axes[i], axes[j])
        smooth = None
        if estimates.fitted:
            smooth = positive_shares(estimates.collection, pair, estimates.axis_tables, estimates.shares)
        shares = leaves if smooth is None else smooth.shares
        independent = np.outer(counts[i], counts[j]) / total
        tables[i, j] = raked(np.maximum(shares, 0.0) + LEAST * independent, counts[i], counts[j])
    return tables


def axis_margin(estimates: Estimates, axis: int) -> ShareEstimate:
    """Non-negative shares of one axis that add up to 1, and the covariance of their errors.

    A stack less the mean error of its refits: what it flattens on every axis is one direction of a box over many.
    """
    collection, axis_tables, smooth = estimates.collection, estimates.axis_tables, None
    counts: ShareEstimate = axis_tables[axis].counts
    if collection.plan.axes[axis].smooth >= SMOOTH:
        smooth = positive_shares(collection, (axis,), axis_tables)
    shares, covariance = counts.shares, counts.covariance
    if smooth is not None and smooth.preferred and smooth.errors is not None and smooth.shift is not None:
        shares, hidden = smooth.shares - smooth.shift, smooth.errors.large
        covariance = (1 - hidden) * smooth.errors.refit + hidden * smooth.errors.unbiased
    shares = normsub(shares)
    return ShareEstimate(np.asarray(shares / shares.sum()), (covariance + covariance.T) / 2)


def fitted_errors(
    estimates: Estimates, axes: Sequence[int], margins: Sequence[ShareEstimate]
) -> FittedErrors:
    """Errors of the non-negative tables, in shares.

    Args:
        estimates: of the collection.
        axes: the view's axes, increasing.
        margins: of every axis.
    """
    edges: list[tuple[int, ...]] = [(0, margin.shares.size) for margin in margins]
    grids: dict[PairKey, Seen | None] = {}
    for places in combinations(range(len(axes)), 2):
        grids[places] = interaction(estimates.collection, [axes[i] for i in places], None)
        seen = grids[places]
        for i, cuts in zip(places, () if seen is None else seen.edges, strict=False):
            edges[i] = max(edges[i], tuple(int(cut) for cut in cuts), key=len)
    pairs = {}
    for (i, j), seen in grids.items():
        variance = 0.0 if seen is None else estimates.cells.get((axes[i], axes[j]), grid_cells(seen))
        for axis, cuts in zip((i, j), () if seen is None else seen.edges, strict=False):
            variance *= float(np.sum(cell_spread(cuts) ** 2) / np.sum(cell_spread(edges[axis]) ** 2))
        pairs[i, j] = variance
    return FittedErrors(tuple(margin.covariance for margin in margins), tuple(edges), pairs)


def raked(cells: FloatArray, rows: FloatArray, columns: FloatArray) -> FloatArray:
    """Cells scaled by rows and by columns until they have these sums, which have one total.

    >>> raked(np.array([[1.0, 1], [1, 3]]), np.array([2.0, 2]), np.array([2.0, 2])).sum(axis=1).tolist()
    [2.0, 2.0]
    """
    for _ in range(SWEEPS):
        cells = cells * _factor(columns, cells.sum(axis=0))
        cells = cells * _factor(rows, cells.sum(axis=1))[:, None]
        if float(np.abs(cells.sum(axis=0) - columns).max()) <= SETTLED * float(columns.sum()):
            break
    return cells


def _factor(wanted: FloatArray, sums: FloatArray) -> FloatArray:
    return np.divide(wanted, sums, out=np.zeros_like(sums), where=sums > 0)


def by_pairs(
    survey: Survey,
    estimates: Estimates,
    factor: float,
    models: Sequence[AxisVariance],
    trees: Sequence[Tree],
) -> Assembled:
    """The one statistic of a release: all pairs of its view.

    Args:
        survey: the questions; of one view that counts rows.
        estimates: of the collection.
        factor: rows per unit of share.
        models: of the survey's axes.
        trees: look-up trees of the survey's axes.
    """
    ((view, (axes, _)),) = survey.views.items()
    plan, axis_tables = estimates.collection.plan, estimates.axis_tables
    parts = interactions(estimates, [pair for pair, _ in survey.tables])
    unbiased, components = pair_tables(axes, axis_tables, parts, total_of(estimates.collection, axis_tables))
    margins = [axis_margin(estimates, axis) for axis in axes]
    positive = positive_tables(estimates, axes, unbiased, margins)
    errors = fitted_errors(estimates, axes, margins).scaled(factor)
    nothing = nothing_drawn(len(axes))
    described = Description(
        view,
        survey.of,
        "count",
        axes,
        plan.tau,
        plan.epsilon,
        "epsilon",
        family=None,
        nonnegative=True,
    )
    estimated = Estimated(
        np.zeros(0),
        EntropyReading.name,
        {subset: strength * factor**2 for subset, strength in components.items()},
        Integers(nothing, nothing),
        f"local: {', '.join(sorted({v.oracle for v in plan.views}))}; pairs, larger boxes by maximum entropy",
        model=errors,
    )
    every: list[AxisVariance | Together] = [*models, errors]
    meta = statistic_meta(0, Statistic(described, estimated), every)
    view_trees = [trees[axis] for axis in axes]
    nodes, nonnegative = (
        _units({pair: shares * factor for pair, shares in tables.items()}, view_trees)
        for tables in (unbiased, positive)
    )
    content = StatisticContent(nothing, nothing, nodes, nonnegative)
    return Assembled([StatisticPart(meta, content)], every)


def _units(tables: Tables, trees: Sequence[Tree]) -> IntArray:
    """Node sums of all pairs, which agree on what they share in every bit."""
    rounded = round_family([(pair, leaves) for pair, leaves in tables.items()])
    sums = {
        pair: node_sums(units, [trees[i] for i in pair]) for pair, units in zip(tables, rounded, strict=True)
    }
    return packed(sums, [tree.size for tree in trees])
