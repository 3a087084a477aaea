"""Forecast noise of a collection, and the choice of tau.

The prediction is exact for evenly spread people. From it tau is chosen: declared, from a public guess (T), or from the
people themselves (E).

| kind       | there       | what happens |
|------------|-------------|--------------|
| `declared` |             | one round, tau as written |
| `theory`   | LPRR-JOIN-T | one round, the best tau for `row_guess` |
| `estimate` | LPRR-JOIN-E | round 0: some people report min(rows, R); round 1: the others answer at the best tau |

The best tau has the least bias^2 + variance of the count of a range, the mean over all ranges of all axes.

**Privacy**: a device draws its round before it answers anything, by public weights, and answers in that round alone,
with all of epsilon. The second plan is a function of the first round's reports, all of other people.
**Source**: docs/method/local.md, "Truncation".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dpsql.client.plan import Plan, View, largest_weight, read_plan
from dpsql.errors import DataError
from dpsql.local.estimate import EVERY, told_of
from dpsql.local.mechanisms.blue import blue, range_workload
from dpsql.local.mechanisms.truncation import lost_by_histogram, weighting_named
from dpsql.local.oracles.oracle import FloatArray
from dpsql.local.plan import (
    ROW_COUNTS,
    SHARES,
    CollectionDesign,
    PlannedRound,
    RowReports,
    build_plan,
    checked,
    facts_of,
    with_oracle,
)
from dpsql.local.tallies import FOLDS, Tallies, ViewTally, kind_of, oracle_of

MANY = 1_000_000
"""Variances of evenly spread people go with 1 / people exactly: fewer than this are scaled, so that none round to 0."""


class Prediction(NamedTuple):
    """A kind of question, and the standard error of its COUNT in rows a person.

    Args:
        question: in words.
        error: one standard error.
        axes: positions of its axes in the plan.
        size: the answer itself if people are spread evenly, in people.
    """

    question: str
    error: float
    axes: tuple[int, ...] = ()
    size: float = 1.0


def expected_tallies(plan: Plan, people: int) -> list[ViewTally]:
    """The tallies that evenly spread people with a row in each slot would bring in on average, rounded."""
    total = sum(v.share for v in plan.views)
    tallies = []
    for view in plan.views:
        reports = people * view.share / total / FOLDS
        support = oracle_of(plan, view).estimate.even_support() * reports
        rows = np.rint(np.tile(support, (FOLDS, 1))).astype(np.int64)
        tallies.append(ViewTally(rows, np.full(FOLDS, round(reports), dtype=np.int64)))
    return tallies


def predict(plan: Plan, people: int) -> list[Prediction]:
    """Standard errors of the unbiased estimates.

    Args:
        plan: the plan.
        people: how many will report.

    Returns:
        One line per axis (a range) and per grid of several axes (one of its cells). A plan that asks for row counts
        alone: their mean.
    """
    if asks_rows_alone(plan):
        oracle = oracle_of(plan, plan.views[0])
        even = oracle.estimate.even_support() * people
        return [Prediction("the rows of a person", lost_by_histogram(oracle, even, float(people), 0).error)]
    predictions = []
    for axis, variance in enumerate(range_variances(plan, people)):
        described = plan.axes[axis]
        error, size = plan.tau * float(np.sqrt(variance)), (described.leaves + 2) / (3 * described.leaves)
        predictions.append(Prediction(f"a range of {described.name}", error, (axis,), size))
    grids: dict[tuple[int, ...], View] = {}
    for view in plan.views:
        if view.asks.table and len(view.axes) > 1:
            grids.setdefault(view.axes, view)
    total = sum(v.share for v in plan.views)
    for axes, view in sorted(grids.items(), key=lambda grid: (len(grid[0]), grid[0])):
        fan = 1.0 if view.measure is None else 2.0
        noise = oracle_of(plan, view).estimate.structure(np.full(1, 1 / view.domain), fan).diagonal[0]
        names = " and ".join(plan.axes[a].name for a in axes)
        error = plan.tau * float(np.sqrt(noise * total / (people * view.share)))
        predictions.append(Prediction(f"a grid cell of {names}", error, axes, 1 / view.cells))
    return predictions


def range_variances(plan: Plan, people: int) -> list[float]:
    """Mean variance of the unbiased share of each axis's ranges.

    Args:
        plan: the plan.
        people: how many will report.
    """
    many = max(people, MANY)
    tallies = expected_tallies(plan, many)
    variances = []
    for axis, described in enumerate(plan.axes):
        leaves = described.leaves
        # In slots: what weighting makes of their noise is tau for tau slots, too.
        groups = [view_estimate.group for view_estimate in told_of(plan, tallies, axis, filled=EVERY)]
        covariance = blue(groups).covariance[:leaves, :leaves]
        variances.append(max(float((covariance * range_workload(leaves)).sum()), 0.0) * many / people)
    return variances


def first_plan(design: CollectionDesign) -> bytes:
    """The plan that goes out first.

    Args:
        design: the curator's decisions.

    Returns:
        The whole collection's plan, or with `estimate` the first round's, which asks for row counts alone.

    Raises:
        CatalogError: as `build_plan`.
    """
    return FIRST_PLANS[design.tau_from](design)


def _row_counts(design: CollectionDesign) -> bytes:
    truth_weight = largest_weight(design.epsilon)
    return checked(design, [with_oracle(design, truth_weight, ROW_COUNTS)], _planned_round(design, 0))


FIRST_PLANS: dict[str, Callable[[CollectionDesign], bytes]] = {
    "declared": build_plan,
    "theory": lambda design: build_plan(replace(design, tau=best_tau(design, np.array(design.row_guess)))),
    "estimate": _row_counts,
}
"""By the origin of tau, the plan that goes out first; `_row_counts` asks some people how many rows they have."""


def asks_rows_alone(plan: Plan) -> bool:
    """True if a plan is the first round of two, which no release can be made of."""
    return [kind_of(view).histogram for view in plan.views] == [True]


def row_reports(plan: Plan, tallies: Tallies) -> RowReports:
    """Reports of the first round.

    Raises:
        DataError: another kind of plan, or no accepted report.
    """
    if not asks_rows_alone(plan):
        raise DataError(
            "this plan is not the first round of `tau: estimate`",
            hint="name the plan that asked for row counts",
        )
    if tallies[0].total == 0:
        raise DataError(
            "no report of the first round was accepted", hint="check that the reports belong to it"
        )
    support = tuple(int(v) for v in tallies[0].support.sum(axis=0))
    return RowReports(plan.hash.hex(), oracle_of(plan, plan.views[0]), support, tallies[0].total)


def second_plan(design: CollectionDesign, first: Plan, rows: RowReports) -> bytes:
    """The plan of the second round: tau from the first round's reports, which it carries.

    Args:
        design: the same decisions as for the first plan.
        first: the first round's plan.
        rows: from `row_reports`.

    Raises:
        DataError: the catalog has changed since the first round.

    **Privacy**: a function of reports that are private already; the people asked now have not answered before.
    """
    facts = facts_of(first)
    if facts.catalog != design.catalog or FIRST_PLANS[design.tau_from] is not _row_counts:
        raise DataError(
            "the catalog is not the one of the first round",
            hint="bring it back, or start under another --label",
        )
    second_design = replace(
        design,
        collection=first.collection,
        row_share=weighting_named(design.row_weighting).counted_again(design.row_share),
        simulated=design.simulated or facts.simulated,
    )
    people = max(round(design.people * (1 - design.row_share)), 1)
    tau = best_tau(second_design, rows.shares)
    return build_plan(replace(second_design, tau=tau, people=people), _planned_round(design, 1, rows))


def best_tau(design: CollectionDesign, row_shares: FloatArray) -> int:
    """The tau of least bias^2 + variance for a range of one axis.

    Args:
        design: the curator's decisions.
        row_shares: share of people with 0, 1, .. rows.

    Returns:
        tau, at most the largest number of rows in `row_shares`.
    """
    noise, answer = typical_question(replace(design, tau=1))
    return weighting_named(design.row_weighting).best(row_shares, noise, answer)


def typical_question(design: CollectionDesign) -> tuple[float, float]:
    """Predicted variance of a range's share, and its size, root mean squares over all ranges of all axes, for evenly
    spread people."""
    noise = np.mean(range_variances(read_plan(build_plan(design)), design.people))
    # The mean square of the share of all rows in a range of evenly spread leaves.
    squares = [float(range_workload(axis.leaves).sum()) / axis.leaves**2 for axis in design.axes]
    return float(noise), float(np.sqrt(np.mean(squares)))


def _planned_round(design: CollectionDesign, number: int, reports: RowReports | None = None) -> PlannedRound:
    """One of two rounds, drawn by weight."""
    first = min(max(round(design.row_share * SHARES), 1), SHARES - 1)
    divisor = math.gcd(first, SHARES - first)
    return PlannedRound(number, 2, (first // divisor, (SHARES - first) // divisor), reports)
