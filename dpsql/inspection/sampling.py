"""The mechanism that made a release, run again on made-up data and audited by what it puts out.

For each linear statistic the rows that hold one cell are drawn with the budgets in the file, on two inputs that differ
by k units' whole reach in that cell. Pure: their outputs may differ by k epsilon at most; k is such that this is about
1.5, where a few thousand samples tell most, and the auditor's lower bound, divided by k, must not pass the statistic's
epsilon. Under zCDP: k units cost k^2 rho; k is such that this is about 1/2, and the bound at delta 0.1 must not pass
the epsilon of that rho at this delta.

**Privacy**: made-up data, fresh noise; nothing of the release is used but its public budgets.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import ceil, isqrt, prod

import numpy as np
import numpy.typing as npt

from dpsql.audit import TELLING_RHO, Finding, audit, audit_rho
from dpsql.budget import scaled_denominator
from dpsql.inspection.numbers import Stored
from dpsql.inspection.replan import Replanned
from dpsql.inspection.report import Check
from dpsql.mechanisms.law import GAUSSIAN, LAPLACE
from dpsql.noise import Noise
from dpsql.publishing.planned import PlannedStatistic

IntArray = npt.NDArray[np.int64]

TELLING = Fraction(3, 2)
"""The epsilon at which samples tell most about a scale."""

ROWS = 200
"""Most rows drawn per run: the largest budgets, which tell most."""


def check_sampled(made: Replanned, stored: dict[int, Stored], samples: int, noise: Noise) -> Iterator[Check]:
    """Audit every linear statistic by sampling.

    Args:
        made: the plan.
        stored: what the file holds.
        samples: runs on both neighbours together.
        noise: where noise comes from.
    """
    for index, each in stored.items():
        statistic = made.plan.statistics[index]
        check = CHECKS[statistic.law]
        found, detail = check(statistic, each, samples, noise)
        yield Check(f"auditor, view {statistic.view}: {statistic.measure.name}", not found.violated, detail)


def _check_laplace(
    statistic: PlannedStatistic, stored: Stored, samples: int, noise: Noise
) -> tuple[Finding, str]:
    """The finding on k units' change, and what it says of one."""
    column, budget = _rows_of_one_cell(stored)
    denominator = scaled_denominator(statistic.drawn_sensitivity) * statistic.drawn_sensitivity

    def run(cell: IntArray, runs: int) -> IntArray:
        drawn = noise.laplace(np.tile(budget, runs), denominator).reshape(runs, len(budget))
        return drawn + column * int(cell[0])

    units = max(1, ceil(TELLING / statistic.spend))
    second = np.array([units * statistic.drawn_sensitivity])
    found = audit(run, np.array([0]), second, units * float(statistic.spend), samples)
    return found, f"at least {found.lower / units:.3g} of epsilon {float(statistic.spend):.3g}"


def _check_gaussian(
    statistic: PlannedStatistic, stored: Stored, samples: int, noise: Noise
) -> tuple[Finding, str]:
    """The same under zCDP, at the delta where samples tell most."""
    column, budget = _rows_of_one_cell(stored)
    whole = prod(strategy.total for strategy in stored.terms.strategies) * statistic.drawn_sensitivity
    variance = Fraction(whole**2) / (2 * statistic.spend)

    def run(cell: IntArray, runs: int) -> IntArray:
        drawn = np.empty((runs, len(budget)), np.int64)
        for share in np.unique(budget):
            same = np.flatnonzero(budget == share)
            sigma2 = GAUSSIAN.row_variance(int(share), variance)
            drawn[:, same] = noise.gaussian(sigma2, runs * len(same)).reshape(runs, len(same))
        return drawn + column * int(cell[0])

    units = max(1, isqrt(ceil(TELLING_RHO / statistic.spend)))
    second = np.array([units * statistic.drawn_sensitivity])
    found = audit_rho(run, np.array([0]), second, units**2 * statistic.spend, samples)
    of = f"{units} unit{'s' * (units > 1)} at delta {found.delta:g}"
    return found, f"at least {found.lower:.3g} of epsilon {found.claimed:.3g} ({of})"


CHECKS = {LAPLACE: _check_laplace, GAUSSIAN: _check_gaussian}


def _rows_of_one_cell(stored: Stored) -> tuple[IntArray, IntArray]:
    """Entries and budgets of the rows that hold the middle cell, largest weight first."""
    shape = tuple(strategy.leaves for strategy in stored.terms.strategies)
    one = np.zeros(shape, np.int64)
    one[tuple(n // 2 for n in shape)] = 1
    column, budget = stored.rows(one).ravel(), stored.view.budget.ravel()
    order = np.argsort(-np.abs(column) * budget)[:ROWS]
    kept = order[column[order] != 0]
    return column[kept], budget[kept]
