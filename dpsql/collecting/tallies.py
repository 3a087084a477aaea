"""Counts of reports per view and fold of people: all that estimation ever sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpsql.client.plan import Plan, View
from dpsql.mechanisms.oracles.oracle import FloatArray, Oracle, estimate
from dpsql.mechanisms.oracles.registry import oracle_named

IntArray = NDArray[np.int64]
FOLDS = 4
"""Folds of people, for choosing how smooth a histogram is by held-out people."""


@dataclass(frozen=True)
class ViewTally:
    """Counts of one view.

    Args:
        support: reports that support each cell of the oracle, shape (folds, cells).
        reports: reports per fold, shape (folds,).
    """

    support: IntArray
    reports: IntArray

    @property
    def total(self) -> int:
        """Reports of all folds."""
        return int(self.reports.sum())


Tallies = Sequence[ViewTally]


def oracle_of(plan: Plan, view: View) -> Oracle:
    """The view's oracle."""
    return oracle_named(view.oracle, view.domain, plan.own, view.extra)


def empty_tallies(plan: Plan) -> list[ViewTally]:
    """Zero counts for every view."""
    return [
        ViewTally(
            np.zeros((FOLDS, oracle_of(plan, view).width), dtype=np.int64), np.zeros(FOLDS, dtype=np.int64)
        )
        for view in plan.views
    ]


def added(first: Tallies, second: Tallies) -> list[ViewTally]:
    """Sum of two sets of tallies."""
    return [
        ViewTally(a.support + b.support, a.reports + b.reports) for a, b in zip(first, second, strict=True)
    ]


def shares(plan: Plan, number: int, tally: ViewTally, folds: Sequence[int] | None = None) -> FloatArray:
    """Unbiased shares of a view's items from some folds (all if None)."""
    kept = list(range(FOLDS)) if folds is None else list(folds)
    return estimate(
        oracle_of(plan, plan.views[number]),
        tally.support[kept].sum(axis=0).astype(np.float64),
        float(max(tally.reports[kept].sum(), 1)),
    )
