"""Raking: respondents weighted to the margins that a central release publishes.

| here | meaning | unit |
|---|---|---|
| x | the respondents' cells, counts first, then sums | rows, or units of a measure |
| T | 0/1 matrix: which cells of the counts a margin adds up | |
| M | the population's margins by a central release | rows |
| w | w = c exp(T' lambda) with T (w x) = M: the weights nearest to one factor c | rows of the population a respondent |
| y | w x | as x |

Raking (Deming and Stephan 1940) leaves the distribution inside of a cell of the margins as the respondents have it.
It removes the bias of a selection that depends on the margins' columns alone, and no other. A sample that no test
rejects is weighted too: a test that noise leaves without power rejects nothing. The test is asked again of the weighted
table, on everything else that the central release tells.

Errors are those of the linearised estimator (Deville and Sarndal 1992), with J = T diag(w x) T':

    dy_a = w dx_a + w x_a T' J^-1 (dM - T w dx)

Both sides' covariances enter. y is a table of cells, so parts add up to the whole. Reports err as independent draws
do; respondents are drawn without replacement, which takes min(1, w) y_a (off the margins) from the variance of counts.

**Privacy**: post-processing; published tables alone.

**Source**: docs/method/local.md, "Respondents who differ".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import sqrt
from typing import NamedTuple

import numpy as np

from dpsql.federation.common_groups import Overlap, overlaps_of
from dpsql.federation.population import RANK
from dpsql.federation.sample_test import Sample
from dpsql.federation.tables import COUNT, DECLARED, ViewTable, read_table, release_of, scaled
from dpsql.planner.axis_query import BoolArray, FloatArray
from dpsql.planner.plan import views_of
from dpsql.release import Release
from dpsql.release.reports import StandsFor

LARGEST_TABLE = 2048
"""Numbers of one table, cells times measures, whose covariances are worked out: a second of linear algebra."""
LARGEST_MARGIN = 256
"""Cells of one margin; of columns with more, each is a margin of its own."""
SEEN, MOSTLY = 3.0, 0.75
"""Standard errors that a group must exceed on both sides, else it is joined; and the share of cells that must."""
ROUNDS, CLOSE = 50, 0.05
"""Newton steps, and standard errors of M to which margins must agree in the end."""


class Margins(NamedTuple):
    """Margins of one local view.

    Args:
        design: T, shape (margins, cells of the view's counts).
        totals: M, shape (margins,).
        covariance: of M, shape (margins, margins).
        columns: names of the columns that they are about.
        head: how many of the first margins add up to the total.
    """

    design: FloatArray
    totals: FloatArray
    covariance: FloatArray
    columns: tuple[str, ...]
    head: int


def raked(sample: Sample, central: Release, *, random: bool) -> Release | None:
    """A local release with every view weighted to a central release's margins.

    Args:
        sample: the local release.
        central: a release of the population.
        random: whether the respondents are taken for a random sample where the releases have no margin in common.

    Returns:
        A release in memory of the views that have a column in common with the central release, and of a random sample's
        other views, scaled; None where no view has such a column.
    """
    tables, stands_for, columns = [], None, dict[str, None]()
    overlaps = overlaps_of(central, sample.release)[0]
    for view in views_of(sample.release):
        table = read_table(sample.release, view)
        if table is None or table.total <= 0:
            continue
        everybody = sample.everybody(table)
        small = len(table.measures) * np.prod(table.shape) <= LARGEST_TABLE
        margins = None
        if small and not sample.release.meta.unasked(table.of):
            margins = _margins(central, table, [each for each in overlaps if each.right.name == view.name])
        if margins is not None and everybody is not None and everybody.source == DECLARED:
            ones = np.ones((1, table.values[COUNT].size))  # a declared number of rows as the one margin
            total = Margins(ones, np.array([everybody.rows]), np.array([[everybody.error**2]]), (), 1)
            margins = _with_shares(total, margins)
        raked_table = None if margins is None else _weighted(table, margins)
        if margins is None or raked_table is None:
            tables += [scaled(table, everybody)] if random and everybody is not None else []
        else:
            tables.append(raked_table)
            columns |= dict.fromkeys(margins.columns)
            stands_for = StandsFor(
                raked_table.total, sqrt(raked_table.total_variance), central.name, tuple(columns), random
            )
    if stands_for is None:
        return None
    local = replace(sample.local, stands_for=stands_for)
    return release_of(tables, replace(sample.release.meta, local=local, scales=()))


def _margins(central: Release, table: ViewTable, overlaps: Sequence[Overlap]) -> Margins | None:
    """All margins that a central release has of a local table; further views add their shares of new columns."""
    margins: Margins | None = None
    for overlap in overlaps:
        columns = () if margins is None else margins.columns
        if any(axis.column not in columns for axis in overlap.axes):
            small = overlap.cells <= LARGEST_MARGIN
            for margin_overlap in [overlap] if small else [overlap._replace(axes=(a,)) for a in overlap.axes]:
                margin = _margin(margin_overlap, central, table)
                if margin is not None:
                    margins = margin if margins is None else _with_shares(margins, margin)
    return margins


def _with_shares(margins: Margins, extension: Margins) -> Margins:
    """Margins with the shares of others, times their own total N: both releases' totals would contradict each other.

    Cov(N f) = N^2 Cov(f) + Var(N) f f', Cov(M, N f) = Cov(M, N) f'. Noise of different views is taken as independent.
    """
    ones = np.ones(margins.head)
    total = float(margins.totals[: margins.head].sum())
    with_total = margins.covariance[:, : margins.head] @ ones
    share = extension.totals / extension.totals[: extension.head].sum()
    centred = (
        np.eye(len(share)) - np.outer(share, np.arange(len(share)) < extension.head)
    ) / extension.totals[: extension.head].sum()
    variance = float(with_total[: margins.head].sum())
    block = total**2 * (centred @ extension.covariance @ centred.T) + variance * np.outer(share, share)
    crossed = np.outer(with_total, share)
    return Margins(
        np.vstack([margins.design, extension.design]),
        np.concatenate([margins.totals, total * share]),
        np.block([[margins.covariance, crossed], [crossed.T, block]]),
        tuple(dict.fromkeys([*margins.columns, *extension.columns])),
        margins.head,
    )


def _margin(overlap: Overlap, central: Release, table: ViewTable) -> Margins | None:
    """T, M and Cov(M) over the common groups of two views: cells, or each column's groups where cells are noise."""
    left, right = overlap.tables(central, table.release)
    if left is None or right is None:
        return None
    order = [
        int(i) for i in np.argsort([axis.right for axis in overlap.axes])
    ]  # as the local view has its axes
    shape = tuple(left.shape[i] for i in order)
    totals, covariance = _cells(left, order)
    local_totals, local_covariance = _cells(right, order)

    def seen_by(rows: FloatArray) -> BoolArray:
        clear = np.ones(len(rows), bool)
        for values, errors in ((totals, covariance), (local_totals, local_covariance)):
            spread = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", rows, errors, rows), 0.0))
            clear &= rows @ values > SEEN * spread
        return clear

    cells = np.eye(totals.size)
    by_column = [_along(shape, i) for i in range(len(shape))]
    seen = seen_by(cells)
    if seen.mean() >= MOSTLY:
        candidates = [_joined(cells, seen, totals)]
    else:
        candidates = [_joined_neighbours(groups, seen_by) for groups in by_column]
    joined = [rows for rows in candidates if len(rows) > 1]
    if not joined:
        return None
    rows = np.vstack(joined)
    groups = {axis.right: axis.right_groups for axis in overlap.axes}
    design: FloatArray = np.ones((1, 1))
    for i, leaves in enumerate(table.shape):
        design = np.asarray(np.kron(design, groups.get(i, np.ones((1, leaves)))), np.float64)
    columns = tuple(axis.column for axis in overlap.axes)
    return Margins(rows @ design, rows @ totals, rows @ covariance @ rows.T, columns, len(joined[0]))


def _cells(table: ViewTable, order: Sequence[int]) -> tuple[FloatArray, FloatArray]:
    """Counts of a table's cells with its axes in another order, and their covariances."""
    index = np.arange(table.values[COUNT].size).reshape(table.shape).transpose(order).ravel()
    covariance = table.stacked([COUNT])
    return table.values[COUNT].ravel()[index], covariance[np.ix_(index, index)]


def _along(shape: Sequence[int], axis: int) -> FloatArray:
    """Incidence of cells in the groups of one axis, shape (groups, cells)."""
    rows: FloatArray = np.ones((1, 1))
    for i, size in enumerate(shape):
        rows = np.asarray(np.kron(rows, np.eye(size) if i == axis else np.ones((1, size))), np.float64)
    return rows


def _joined(rows: FloatArray, seen: BoolArray, totals: FloatArray) -> FloatArray:
    """Groups that noise does not hide, and all others added to the least of them."""
    joined = rows[seen]
    if len(joined):
        joined[int(np.argmin(joined @ totals))] += rows[~seen].sum(axis=0)
    return joined


def _joined_neighbours(rows: FloatArray, seen_by: Callable[[FloatArray], BoolArray]) -> FloatArray:
    """Runs of a column's groups, each no longer than it takes for noise not to hide it; the last takes what is over."""
    runs: list[FloatArray] = []
    run = np.zeros(rows.shape[1])
    for row in rows:
        run = run + row
        if seen_by(run[None, :])[0]:
            runs.append(run)
            run = np.zeros(rows.shape[1])
    if runs:
        runs[-1] = runs[-1] + run
    return np.array(runs).reshape(len(runs), rows.shape[1])


def _weighted(table: ViewTable, margins: Margins) -> ViewTable | None:
    """y and its covariances; None where no weights meet the margins."""
    x = table.values[COUNT].ravel()
    weights = _weights(x, margins)
    if weights is None:
        return None
    measures, cells = list(table.measures), len(x)
    values = np.concatenate([table.values[m].ravel() for m in measures])
    repeated = np.tile(weights, len(measures))
    design = margins.design
    inverse = np.linalg.pinv(design @ ((weights * x)[:, None] * design.T), rcond=RANK, hermitian=True)
    gain = (repeated * values)[:, None] * np.tile(design.T, (len(measures), 1)) @ inverse
    linear = np.diag(repeated)
    linear[:, :cells] -= gain @ (design * weights)
    covariance = linear @ table.stacked(measures) @ linear.T + gain @ margins.covariance @ gain.T
    if measures == [COUNT]:
        off_margins = np.eye(cells) - gain @ design
        drawn = np.maximum(weights * x, 0.0) * np.minimum(weights, 1.0)
        covariance -= off_margins @ (drawn[:, None] * off_margins.T)
    return table.measured(repeated * values, (covariance + covariance.T) / 2)


def _weights(x: FloatArray, margins: Margins) -> FloatArray | None:
    """w by Newton's method on lambda; None where it does not come close to the margins."""
    design, totals = margins.design, margins.totals
    factor = totals.sum() / max(float((design @ x).sum()), 1e-300)
    spread = np.sqrt(np.maximum(np.diag(margins.covariance), 1e-12)) + 1e-9 * np.abs(totals)
    multiplier = np.zeros(len(totals))
    for _ in range(ROUNDS):
        weights = factor * np.exp(np.clip(multiplier @ design, -20, 20))
        apart = design @ (weights * x) - totals
        if np.max(np.abs(apart) / spread) < CLOSE * 1e-3:
            break
        step = (
            np.linalg.pinv(design @ ((weights * x)[:, None] * design.T), rcond=RANK, hermitian=True) @ apart
        )
        multiplier -= np.clip(step, -2, 2)
    return weights if np.max(np.abs(apart) / spread) < CLOSE else None
