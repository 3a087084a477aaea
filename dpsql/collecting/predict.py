"""How noisy a collection's answers will be, before anyone reports: exact for evenly spread people."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpsql.client.plan import Plan, View
from dpsql.collecting.cells import axis_groups
from dpsql.collecting.kinds import kind_of
from dpsql.collecting.tallies import FOLDS, ViewTally, oracle_of
from dpsql.mechanisms.local.blue import blue, range_workload
from dpsql.mechanisms.local.truncation import lost_by_histogram

MANY = 1_000_000
"""Variances of evenly spread people go with 1 / people exactly: fewer than this are scaled, so that none round to 0."""


class Prediction(NamedTuple):
    """A kind of question, and the standard error of its COUNT in rows a person."""

    question: str
    error: float


def expected_tallies(plan: Plan, people: int) -> list[ViewTally]:
    """The tallies that evenly spread people would bring in on average, rounded."""
    total = sum(v.share for v in plan.views)
    found = []
    for view in plan.views:
        reports = people * view.share / total / FOLDS
        support = oracle_of(plan, view).even_support() * reports
        rows = np.rint(np.tile(support, (FOLDS, 1))).astype(np.int64)
        found.append(ViewTally(rows, np.full(FOLDS, round(reports), dtype=np.int64)))
    return found


def predict(plan: Plan, people: int) -> list[Prediction]:
    """Standard errors of the unbiased estimates.

    Args:
        plan: the plan.
        people: how many will report.

    Returns:
        One line per axis (a range) and per grid of several axes (one of its cells). A plan that asks for row counts
        alone: their mean.
    """
    if [kind_of(view).histogram for view in plan.views] == [True]:
        return [Prediction("the rows of a person", _rows_error(plan, people))]
    found = []
    for described, variance in zip(plan.axes, range_variances(plan, people), strict=True):
        found.append(Prediction(f"a range of {described.name}", plan.tau * float(np.sqrt(variance))))
    grids: dict[tuple[int, ...], View] = {}
    for view in plan.views:
        if view.asks.table and len(view.axes) > 1:
            grids.setdefault(view.axes, view)
    total = sum(v.share for v in plan.views)
    for axes, view in sorted(grids.items(), key=lambda held: (len(held[0]), held[0])):
        fan = 1.0 if view.measure is None else 2.0
        noise = oracle_of(plan, view).structure(np.full(1, 1 / view.domain), fan).diagonal[0]
        names = " and ".join(plan.axes[a].name for a in axes)
        error = plan.tau * float(np.sqrt(noise * total / (people * view.share)))
        found.append(Prediction(f"a grid cell of {names}", error))
    return found


def range_variances(plan: Plan, people: int) -> list[float]:
    """Mean variance of the unbiased share of each axis's ranges.

    Args:
        plan: the plan.
        people: how many will report.
    """
    many = max(people, MANY)
    tallies = expected_tallies(plan, many)
    found = []
    for axis, described in enumerate(plan.axes):
        leaves = described.leaves
        covariance = blue(axis_groups(plan, tallies, axis)).covariance[:leaves, :leaves]
        found.append(max(float((covariance * range_workload(leaves)).sum()), 0.0) * many / people)
    return found


def _rows_error(plan: Plan, people: int) -> float:
    """Standard error of the mean number of rows of a person."""
    oracle = oracle_of(plan, plan.views[0])
    return lost_by_histogram(oracle, oracle.even_support() * people, float(people), 0).error
