"""Respondents of a local release against a central one: test of a random sample, and raking to margins.

| here | meaning | unit |
|---|---|---|
| d | central cells less the respondents' cells scaled to the population | rows, or units of a measure |
| statistic | d' Cov(d)^-1 d, chi-squared if the respondents are a random sample | |
| farthest | the largest standardised residual of a cell | standard errors |
| x | the respondents' cells, counts first, then sums | rows, or units of a measure |
| T | 0/1 matrix: which cells of the counts a margin adds up | |
| M | the population's margins by a central release | rows |
| w | w = c exp(T' lambda) with T (w x) = M: the weights nearest to one factor c | rows of the population a respondent |
| y | w x | as x |

Releases are compared on common groups of values (`dpsql.federation.common_groups`): counts, and the sums that both
releases hold, over all cells that two views have in common, over each column alone, and in total. The chance of the
smallest is multiplied by their number (Bonferroni). Selection that no common column shows is not seen; nor is one that
is smaller than the noise.

Raking (Deming and Stephan 1940) leaves the distribution inside of a cell of the margins as the respondents have it.
It removes the bias of a selection that depends on the margins' columns alone, and no other. A sample that no test
rejects is weighted too: a test that noise leaves without power rejects nothing. The test is asked again of the weighted
table, on everything else that the central release tells.

Errors are those of the linearised estimator (Deville and Sarndal 1992), with J = T diag(w x) T':

    dy_a = w dx_a + w x_a T' J^-1 (dM - T w dx)

Both sides' covariances enter. y is a table of cells, so parts add up to the whole. Reports err as independent draws
do; respondents are drawn without replacement, which takes min(1, w) y_a (off the margins) from the variance of counts.

**Privacy**: post-processing; published tables alone.

**Source**: docs/method/local.md, "What a local release stands for", "Respondents who differ".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from dpsql.catalog.base import COUNT
from dpsql.federation.common_groups import ColumnComparison, Overlap, overlaps_of
from dpsql.federation.tables import (
    DECLARED,
    Everybody,
    ViewTable,
    read_table,
    release_of,
    sampled,
    scaled,
)
from dpsql.intervals.errorfunctions import LAPLACE_KURTOSIS, quantile
from dpsql.planner.axis_query import FloatArray
from dpsql.planner.plan import views_of
from dpsql.release import Release
from dpsql.release.reports import LocalMeta, StandsFor
from dpsql.tree import BoolArray

LEVEL = 0.01
FAR = 3.3
"""Standard errors by which no single cell may differ, of up to ten cells; of more, what leaves the same chance."""
RANK = 1e-9
"""Directions of a covariance with less than this part of what it was subtracted from are known exactly: no evidence.

Cov(d) is 0 by algebra wherever d is, as in a total that was scaled by itself, and comes out as some 1e-16 of the terms
that cancel: above 0 or below it, as the processor's kernels round.
"""
LARGEST = 1024
"""Cells of one comparison: solving takes a second there. Columns of longer tables are compared one by one."""


class SampleTest(NamedTuple):
    """True if respondents differ from the population, over all that two releases have in common.

    Args:
        local, central: names of the releases.
        statistic, freedom: of chi-squared, on the comparison with the smallest chance.
        chance: of a statistic as large, times the number of comparisons; 1 without any.
        farthest: the largest standardised residual.
        rejected: whether the respondents are not taken for a random sample, or for everybody where the catalog says so.
        columns: which columns were compared, and why the others were not.
    """

    local: str
    central: str
    statistic: float
    freedom: int
    chance: float
    farthest: float
    rejected: bool
    columns: tuple[ColumnComparison, ...] = ()

    @property
    def compared(self) -> bool:
        """True if there was anything to compare."""
        return any(column.compared for column in self.columns) or self.freedom > 0

    def words(self) -> str:
        if not self.compared:
            verdict = "not tested"
        else:
            verdict = (
                f"chi-squared {self.statistic:g}, degrees of freedom {self.freedom}, "
                f"largest residual {self.farthest:g} standard errors, "
                + ("rejected" if self.rejected else "not rejected")
            )
        columns = "; ".join(column.words() for column in self.columns)
        return f"{self.local} against {self.central}: {verdict}" + (f" ({columns})" if columns else "")


def chi_squared_tail(value: float, freedom: float) -> float:
    """Chance that chi-squared is larger, by Wilson and Hilferty's cube root.

    >>> round(chi_squared_tail(27.59, 17), 3)
    0.05
    """
    if freedom <= 0:
        return 1.0
    spread = 2 / (9 * freedom)
    return 1 - NormalDist().cdf(((max(value, 0.0) / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread))


def farthest_allowed(cells: int, kurtosis: float = 0.0) -> float:
    """Standard errors that no cell of a random sample's table passes, but with a chance of 1%.

    Args:
        cells: how many are compared.
        kurtosis: excess kurtosis of their differences.

    >>> round(farthest_allowed(4), 1), round(farthest_allowed(1000), 1)
    (3.3, 4.4)
    """
    return max(FAR, quantile(1 - LEVEL / max(cells, 1), kurtosis))


class Difference(NamedTuple):
    """Difference between two tables of one measure.

    Args:
        statistic, freedom: chi-squared and its degrees of freedom.
        farthest, cells: the largest standardised residual, and how many cells there are.
        kurtosis: excess kurtosis of a cell's difference.
    """

    statistic: float
    freedom: int
    farthest: float
    cells: int
    kurtosis: float

    @property
    def chance(self) -> float:
        """Chance of a statistic as large. Tails of single Laplace draws widen chi-squared: its variance is
        freedom (2 + kurtosis), as that of c times chi-squared with freedom / c, c = 1 + kurtosis / 2."""
        wide = 1 + self.kurtosis / 2
        return chi_squared_tail(self.statistic / wide, self.freedom / wide)


def difference(
    apart: FloatArray, covariance: FloatArray, magnitude: FloatArray, laplace: FloatArray
) -> Difference:
    """Standardised distance from 0 of a vector with a stated covariance.

    Args:
        apart: d, shape (n,).
        covariance: of d, shape (n, n).
        magnitude: sum of the absolute terms that make up each variance, shape (n,); its diagonal where nothing was
            subtracted.
        laplace: variance of each cell that single Laplace draws may have made, shape (n,).
    """
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    largest = max(float(values.max(initial=0.0)), float(magnitude.max(initial=0.0)))
    seen = values > RANK * largest
    along = vectors.T @ apart
    variance = np.diag(covariance)
    uncertain = variance > RANK * magnitude
    spread = np.sqrt(np.where(uncertain, variance, 1.0))
    single = np.divide(np.abs(apart), spread, out=np.zeros_like(spread), where=uncertain)
    share = np.divide(laplace, variance, out=np.zeros_like(spread), where=uncertain)
    return Difference(
        float(np.sum(along[seen] ** 2 / values[seen])),
        int(seen.sum()),
        float(single.max(initial=0.0)),
        len(apart),
        float(LAPLACE_KURTOSIS * np.mean(np.minimum(share, 1.0) ** 2)),
    )


@dataclass(frozen=True, eq=False)
class Sample:
    """A local release and what it says of the population.

    Args:
        release: the release.
        local: what it says of its collection.
        central: the release that counts the population best, where the catalog does not say how many it has.
    """

    release: Release
    local: LocalMeta
    central: Release | None

    def everybody(self, table: ViewTable) -> Everybody | None:
        """Rows that the population has in a table; None where nobody says.

        A declared number is of people. It is exact for them, and the rows of a person are as uncertain as reports say.
        """
        if self.local.everybody is not None:
            share = self.local.everybody / float(self.local.reporters)
            error = 0.0 if table.total_known else share * math.sqrt(table.total_variance)
            return Everybody(share * table.total, error, DECLARED)
        # Shares of rows that people were asked about are no shares of all rows.
        unasked = self.release.meta.left_out(table.of)
        total = None if self.central is None or unasked else best_total(self.central, table.of)
        return total if total is not None and total.rows > 3 * total.error else None


def best_total(release: Release, of: str) -> Everybody | None:
    """A release's best count of all rows of a table."""
    totals = []
    for view in views_of(release):
        table = read_table(release, view, ()) if view.of.lower() == of.lower() else None
        if table is not None:
            totals.append(Everybody(table.total, math.sqrt(table.total_variance), release.name))
    return min(totals, key=lambda total: total.error, default=None)


def scaled_to(sample: Sample, table: ViewTable, central: ViewTable) -> tuple[ViewTable, bool]:
    """A sample's table with the declared people of the population, else the rows of a central table.

    Returns:
        The table, and whether it was scaled by the central table, whose error is not in its errors yet.
    """
    if sample.local.everybody is not None and (declared := sample.everybody(table)) is not None:
        return scaled(table, declared), False
    rows = Everybody(central.total, math.sqrt(central.total_variance), central.release.name)
    return sampled(table, rows), True


def sample_test(sample: Sample, central: Release, *, scaled: bool = False) -> SampleTest:
    """Compare respondents with the population on all that both releases tell.

    Args:
        sample: the local release.
        central: a release of the population.
        scaled: whether the sample's tables are about the population already (`participation: all`, raked tables).
    """
    overlaps, columns = overlaps_of(central, sample.release)
    differences = [
        difference
        for overlap, measures in _comparisons(overlaps)
        for difference in _differences(sample, central, overlap, measures, scaled)
    ]
    worst: tuple[bool, float, Difference] | None = None
    for difference in differences:
        chance = difference.chance * len(differences)
        allowed = farthest_allowed(difference.cells * len(differences), difference.kurtosis)
        verdict = (chance < LEVEL or difference.farthest > allowed, -chance, difference)
        if worst is None or verdict[:2] > worst[:2]:
            worst = verdict
    names = sample.release.name, central.name
    if worst is None:
        return SampleTest(*names, 0.0, 0, 1.0, 0.0, False, columns)
    rejected, chance, largest = worst
    return SampleTest(
        *names, round(largest.statistic, 3), largest.freedom, min(1.0, -chance), round(largest.farthest, 3),
        rejected, columns,
    )  # fmt: skip


def _comparisons(overlaps: Sequence[Overlap]) -> Iterator[tuple[Overlap, frozenset[str]]]:
    """Measures to compare over common columns, each once: over all of them where that table is small, over each,
    and in total."""
    compared: set[tuple[frozenset[str], str]] = set()
    for overlap in overlaps:
        joint_axes = [overlap.axes] if len(overlap.axes) > 1 and overlap.cells <= LARGEST else []
        shared = overlap.left.statistics.keys() & overlap.right.statistics.keys()
        for axes in (*joint_axes, *((axis,) for axis in overlap.axes), ()):
            columns = frozenset(axis.column for axis in axes)
            measures = frozenset(measure for measure in shared if (columns, measure) not in compared)
            if measures:
                compared |= {(columns, measure) for measure in measures}
                yield overlap._replace(axes=tuple(axes)), measures


def _differences(
    sample: Sample, central: Release, overlap: Overlap, measures: frozenset[str], scaled: bool
) -> list[Difference]:
    """Of the counts, and of each sum that both releases hold at one scale."""
    left, right = overlap.tables(central, sample.release)
    if left is None or right is None or right.total <= 0:
        return []
    by_central = False
    if not scaled:
        right, by_central = scaled_to(sample, right, left)
    if by_central and left.total <= 3 * math.sqrt(left.total_variance):
        return []
    differences = []
    for measure, meta in left.measures.items():
        if measure in measures and measure in right.measures and right.measures[measure].scale == meta.scale:
            apart, covariance, magnitude = _residuals(left, right, measure, by_central)
            laplace = central.meta.local is None and not central.meta.privacy.mu2
            noise = np.diag(left.stacked([measure])) if laplace else np.zeros(len(apart))
            unit = math.sqrt(float(magnitude.max(initial=0.0)))
            if unit:
                differences.append(
                    difference(apart / unit, covariance / unit**2, magnitude / unit**2, noise / unit**2)
                )
    return [difference for difference in differences if difference.freedom]


def _residuals(
    left: ViewTable, right: ViewTable, measure: str, by_central: bool
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """d of a measure, its covariance, and the magnitude of what each variance was subtracted from.

    A table that was scaled by the total of the other one shares its error: d = x - f t with t that total, so that
    Cov(d) = A + B - a f' - f a' + Var(t) f f', a = Cov(x, t).
    """
    x, z = left.values[measure].ravel(), right.values[measure].ravel()
    covariance = left.stacked([measure]) + right.stacked([measure])
    magnitude = np.abs(np.diag(covariance))
    if by_central:
        share = z / left.total
        crossed = np.outer(left.matrix(left.with_count(measure)).sum(axis=1), share)
        scaled = left.total_variance * np.outer(share, share)
        covariance = covariance - crossed - crossed.T + scaled
        magnitude = magnitude + 2 * np.abs(np.diag(crossed)) + np.diag(scaled)
    return x - z, covariance, magnitude


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
        if small and not sample.release.meta.left_out(table.of):
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
