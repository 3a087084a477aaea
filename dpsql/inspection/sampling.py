"""The mechanism that made a release, run again on made-up data and audited by what it puts out.

For each pure statistic the rows that hold one cell are drawn with the budgets in the file, on two inputs that differ
by k units' whole reach in that cell. Their outputs may differ by k epsilon at most; k is such that this is about 1.5,
where a few thousand samples tell most. The auditor's lower bound, divided by k, must not pass the statistic's epsilon.

**Privacy**: made-up data, fresh noise; nothing of the release is used but its public budgets.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import ceil

import numpy as np
import numpy.typing as npt

from dpsql.audit import audit
from dpsql.budget import scaled_denominator
from dpsql.inspection.numbers import Stored
from dpsql.inspection.replan import Replanned
from dpsql.inspection.report import Check
from dpsql.mechanisms.central.strategy import measure
from dpsql.noise import Noise

IntArray = npt.NDArray[np.int64]

TELLING = Fraction(3, 2)
"""The epsilon at which samples tell most about a scale."""

ROWS = 200
"""Most rows drawn per run: the largest budgets, which tell most."""


def check_sampled(made: Replanned, stored: dict[int, Stored], samples: int, noise: Noise) -> Iterator[Check]:
    """Audit every pure statistic by sampling.

    Args:
        made: the plan.
        stored: what the file holds.
        samples: runs on both neighbours together.
        noise: where noise comes from.
    """
    for index, each in stored.items():
        statistic = made.plan.statistics[index]
        what = f"auditor, view {statistic.view}: {statistic.measure.name}"
        if statistic.norm == 2:
            yield Check(what, None, "Gaussian noise has no finite epsilon; its rho follows from the budgets")
            continue
        column, budget = _rows_of_one_cell(each)
        denominator = scaled_denominator(statistic.drawn_sensitivity) * statistic.drawn_sensitivity

        def run(cell: IntArray, runs: int, column: IntArray = column, budget: IntArray = budget,
                denominator: int = denominator) -> IntArray:  # fmt: skip
            drawn = noise.laplace(np.tile(budget, runs), denominator).reshape(runs, len(budget))
            return drawn + column * int(cell[0])

        units = max(1, ceil(TELLING / statistic.spend))
        second = np.array([units * statistic.drawn_sensitivity])
        found = audit(run, np.array([0]), second, units * float(statistic.spend), samples)
        detail = f"at least {found.lower / units:.3g} of epsilon {float(statistic.spend):.3g}"
        yield Check(what, not found.violated, detail)


def _rows_of_one_cell(stored: Stored) -> tuple[IntArray, IntArray]:
    """Entries and budgets of the rows that hold the middle cell, largest weight first."""
    shape = tuple(strategy.n for strategy in stored.strategies)
    one = np.zeros(shape, np.int64)
    one[tuple(n // 2 for n in shape)] = 1
    for axis, strategy in enumerate(stored.strategies):
        one = measure(strategy, one, axis)
    column, budget = one.ravel(), stored.view.budget.ravel()
    order = np.argsort(-np.abs(column) * budget)[:ROWS]
    kept = order[column[order] != 0]
    return column[kept], budget[kept]
