"""Covariance of the counts of one draw: all rows, and those where a measure is not NULL.

| draw | Cov(COUNT(*), COUNT(x)) | Cov(COUNT(x), COUNT(y)) |
|---|---|---|
| rows with NULL apart | Var COUNT(x) | - |
| an indicator for each nullable measure | Var COUNT(*) / 2 | Var COUNT(*) / 4 |

Statistics of one draw have the same rows, so a covariance over cells is this factor times their common structure; and
once families are reconciled, part by part.

**Privacy**: follows from public budgets.
**Source**: docs/method/noise.md, "Rows with NULL".
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from dpsql.central.planned import ReleasePlan
from dpsql.matrices.kronecker import AxisSplit
from dpsql.matrices.reconcile import Subset, component_covariances, component_variances
from dpsql.mechanisms.distribution import as_laplace
from dpsql.mechanisms.integer_rows import NullCount
from dpsql.release.format import FamilyCovariance


def family_covariances(plan: ReleasePlan) -> list[FamilyCovariance]:
    """The covariances of all families of a release that err together."""
    families = {i: number for number, members in enumerate(plan.families) for i in members}
    ratios: dict[tuple[int, int], list[tuple[Subset, float]]] = {}
    for draw in plan.draws:
        for i, j, ratio in _pairs(plan, draw):
            ratios.setdefault((families[i], families[j]), []).append((plan.statistics[i].axes, ratio))
    if not ratios:
        return []
    totals = {i: AxisSplit(planned.strategy.variance()).total for i, planned in enumerate(plan.axes)}
    components = {}
    for number in {number for pair in ratios for number in pair}:
        members = [plan.statistics[i] for i in plan.families[number]]
        components[number] = component_variances(
            [(s.axes, s.variance_at_unit_budget(plan.axes)) for s in members], totals
        )
    return [
        FamilyCovariance(
            tuple(plan.families[left]), tuple(plan.families[right]),
            tuple(sorted(component_covariances(views, (components[left], components[right]), totals).items())),
        )
        for (left, right), views in sorted(ratios.items())
    ]  # fmt: skip


def _pairs(plan: ReleasePlan, draw: list[int]) -> Iterator[tuple[int, int, float]]:
    """Pairs of counts of one draw that err together, each with its covariance over both variances."""
    laws = {i: law for i in draw if (law := as_laplace(plan.statistics[i].law))}
    rows = [i for i, law in laws.items() if law.counts is NullCount.ROWS]
    present = [i for i, law in laws.items() if law.counts is NullCount.PRESENT]
    variances = {i: plan.statistics[i].variance_at_unit_budget(plan.axes) for i in (*rows, *present)}
    for i in rows:
        for j in present:
            covariance = variances[j] if laws[i].apart else variances[i] / 2
            yield i, j, covariance / (variances[i] * variances[j])
        for j, k in combinations(present, 2):
            yield j, k, variances[i] / 4 / (variances[j] * variances[k])
