"""Chi-squared test that a local release's respondents are a random sample of the population of a central release.

| here | meaning | unit |
|---|---|---|
| d | central cells less the respondents' cells scaled to the population | rows, or units of a measure |
| statistic | d' Cov(d)^-1 d, chi-squared if the respondents are a random sample | |
| farthest | the largest standardised residual of a cell | standard errors |

Releases are compared on common groups of values (`dpsql.federation.common_groups`): counts, and the sums that both
releases hold, over all cells that two views have in common, over each column alone, and in total. The chance of the
smallest is multiplied by their number (Bonferroni). Selection that no common column shows is not seen; nor is one that
is smaller than the noise.

**Privacy**: post-processing; published tables alone.

**Source**: docs/method/local.md, "What a local release stands for".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from dpsql.federation.common_groups import ColumnComparison, Overlap, overlaps_of
from dpsql.federation.tables import DECLARED, Everybody, ViewTable, read_table, sampled, scaled
from dpsql.intervals.estimated import LAPLACE_KURTOSIS, quantile
from dpsql.planner.axis_query import FloatArray
from dpsql.planner.plan import views_of
from dpsql.release import Release
from dpsql.release.reports import LocalMeta

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
        unasked = self.release.meta.unasked(table.of)
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
