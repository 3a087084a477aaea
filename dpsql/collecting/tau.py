"""How many rows of one person may speak: tau declared, from a public guess (T), or from the people themselves (E).

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
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from dpsql.client.plan import Plan, largest_weight, read_plan
from dpsql.collecting.kinds import kind_of
from dpsql.collecting.plan import Design, PlannedRound, RowReports, build_plan, checked, facts_of
from dpsql.collecting.predict import range_variances
from dpsql.collecting.tallies import Tallies, oracle_of
from dpsql.collecting.views import ROW_COUNTS, SHARES, with_oracle
from dpsql.errors import DataError
from dpsql.mechanisms.local.blue import range_workload
from dpsql.mechanisms.local.truncation import theory_tau
from dpsql.mechanisms.oracles.oracle import FloatArray


class Question(NamedTuple):
    """A typical answer: its variance at tau = 1 and its share of all rows, both root mean squares over ranges."""

    noise: float
    answer: float


def first_plan(design: Design) -> bytes:
    """The plan that goes out first.

    Args:
        design: the curator's decisions.

    Returns:
        The whole collection's plan, or with `estimate` the first round's, which asks for row counts alone.

    Raises:
        CatalogError: as `build_plan`.
    """
    if design.tau_from == "theory":
        return build_plan(replace(design, tau=best_tau(design, np.array(design.row_guess))))
    if design.tau_from == "estimate":
        own = largest_weight(design.epsilon)
        return checked(design, [with_oracle(design, own, ROW_COUNTS)], _planned_round(design, 0))
    return build_plan(design)


def asks_rows_alone(plan: Plan) -> bool:
    """Whether a plan is the first round of two, which no release can be made of."""
    return plan.rounds == 2 and plan.round == 0 and [kind_of(view).histogram for view in plan.views] == [True]


def row_reports(plan: Plan, tallies: Tallies) -> RowReports:
    """What the first round's reports say.

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


def second_plan(design: Design, first: Plan, rows: RowReports) -> bytes:
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
    if facts.catalog != design.catalog or design.tau_from != "estimate":
        raise DataError(
            "the catalog is not the one of the first round",
            hint="bring it back, or start under another --label",
        )
    asked = replace(
        design,
        collection=first.collection,
        row_share=Fraction(0),
        simulated=design.simulated or facts.simulated,
    )
    people = max(round(design.people * (1 - design.counted_share)), 1)
    tau = best_tau(asked, rows.shares)
    return build_plan(replace(asked, tau=tau, people=people), _planned_round(design, 1, rows))


def best_tau(design: Design, row_shares: FloatArray) -> int:
    """The tau of least bias^2 + variance for a range of one axis.

    Args:
        design: the curator's decisions.
        row_shares: share of people with 0, 1, .. rows.

    Returns:
        tau, at most the largest number of rows in `row_shares`.
    """
    asked = typical_question(replace(design, tau=1))
    return theory_tau(row_shares, asked.noise, asked.answer)


def typical_question(design: Design) -> Question:
    """Predicted variance of a range's share and its size, over all ranges of all axes, for evenly spread people."""
    noise = np.mean(range_variances(read_plan(build_plan(design)), design.people))
    return Question(float(noise), float(np.sqrt(np.mean([_mean_square(a.leaves) for a in design.axes]))))


def _mean_square(leaves: int) -> float:
    """Mean square of the share of all rows in a range of evenly spread leaves."""
    return float(range_workload(leaves).sum()) / leaves**2


def _planned_round(design: Design, number: int, reports: RowReports | None = None) -> PlannedRound:
    """One of two rounds, drawn by weight."""
    first = min(max(round(design.counted_share * SHARES), 1), SHARES - 1)
    divisor = math.gcd(first, SHARES - first)
    return PlannedRound(number, 2, (first // divisor, (SHARES - first) // divisor), reports)
