"""Before anyone reports: what each view costs, which answers drown in noise, how many must answer.

Everybody answers one question with all of epsilon, so a view costs the part of the people who are asked about it.

| here       | unit |
|------------|------|
| `error`    | one standard error of a count, in rows a person |
| `size`     | the answer itself, in rows a person, if rows are spread evenly |
| is noise   | an error of more than half the answer: its 95% interval holds 0 |

**Noise and tau.** Errors are those that intervals of evenly spread people would print, before counts are smoothed. Tau
is declared, or chosen from a public guess (T) or the people themselves (E).

| kind       | there       | what happens |
|------------|-------------|--------------|
| `declared` |             | one round, tau as written |
| `theory`   | LPRR-JOIN-T | one round, the best tau for `row_guess` |
| `estimate` | LPRR-JOIN-E | round 0: some people report min(rows, R); round 1: the others answer at the best tau |

The best tau has the least bias^2 + variance of the count of a range, the mean over all ranges of all axes.

**Privacy**: public facts alone, and reports that are private already. A device draws its round before it answers
anything, by public weights, and answers in that round alone, with all of epsilon. The second plan is a function of the
first round's reports, all of other people.
**Source**: docs/method/local.md, "Truncation".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from dpsql.client.plan import Plan, View, largest_weight, read_plan
from dpsql.errors import DataError, InterfaceError
from dpsql.local.estimate import axis_groups, axis_table, filled_share, one_row_each
from dpsql.local.mechanisms.blue import blue, range_workload
from dpsql.local.mechanisms.truncation import TYPICAL, lost_by_histogram, lost_rows, weighting_named
from dpsql.local.oracles.oracle import FloatArray
from dpsql.local.plan import (
    ROW_COUNTS,
    SHARES,
    CollectionDesign,
    PlannedRound,
    RowReports,
    build_plan,
    checked,
    plan_body,
    row_reports_of,
    with_oracle,
)
from dpsql.local.survey import first_guess
from dpsql.local.tallies import FOLDS, CountedCollection, ViewTally, kind_of, oracle_of
from dpsql.local.totals import row_scale
from dpsql.release.reports import TASTE, UNSEEN

MANY = 1_000_000
"""Variances of evenly spread people go with 1 / people exactly: fewer than this are scaled, so that none round to 0."""


class Prediction(NamedTuple):
    """A kind of question, and what one standard error of its COUNT will be: the lower half of its 95% interval by 1.96.

    Args:
        question: in words.
        error: in rows a person.
        axes: positions of its axes in the plan.
        size: the answer itself if rows are spread evenly, in rows a person.
    """

    question: str
    error: float
    axes: tuple[int, ...] = ()
    size: float = 1.0

    @property
    def is_noise(self) -> bool:
        """True if noise is more than half of an even answer."""
        return self.error > NOISE_SHARE * self.size


def expected_collection(plan: Plan, people: float, row_shares: FloatArray) -> CountedCollection:
    """The counts that evenly spread people would bring in on average, rounded.

    Args:
        plan: the plan.
        people: how many will report.
        row_shares: share of people with 0, 1, .. rows.
    """
    total, lost = sum(v.share for v in plan.views), lost_rows(row_shares)
    within = lost[0] - lost[np.minimum(np.arange(max(plan.rows_cap, plan.tau) + 1), lost.size - 1)]
    tallies = []
    for view in plan.views:
        reports = people * view.share / total / FOLDS
        support = oracle_of(plan, view).expected_support(_item_shares(plan, view, within)) * reports
        rows = np.rint(np.tile(support, (FOLDS, 1))).astype(np.int64)
        tallies.append(ViewTally(rows, np.full(FOLDS, round(reports), dtype=np.int64)))
    return CountedCollection(plan, tallies)


def _item_shares(plan: Plan, view: View, within: FloatArray) -> FloatArray:
    """Shares of a view's items that evenly spread people send, values in the middle of their bounds.

    Args:
        plan: the plan.
        view: one of its views.
        within: mean rows of a person up to 0, 1, .. of them.
    """
    layout = kind_of(view).layout(view)
    if view.rows:
        floor, cap = view.rows
        up = (within[cap] - within[floor]) / (cap - floor)
        return np.array([1 - up, up])
    if layout is None:
        return np.full(view.domain, 1 / view.domain)
    shares, filled = np.zeros(view.domain), float(within[plan.tau]) / plan.tau
    shares[layout.rows] = filled
    if layout.bits is not None:
        shares[[*layout.rows, *layout.bits]] = filled / 2
    shares[layout.silent] = (1 - filled) * layout.rows.size / max(layout.silent.size, 1)
    return np.asarray(shares / shares.sum())


def predict(plan: Plan, people: int, row_guess: Sequence[float] = ()) -> list[Prediction]:
    """Standard errors of counts as their intervals will print them.

    Rows beyond a bit's cap are taken to lie elsewhere by `TYPICAL`, as where the cap was chosen: where the rows of
    people with many lie further apart, or are more than guessed, intervals come out wider.

    Args:
        plan: the plan.
        people: how many will report, in all rounds.
        row_guess: public guess of the share of people with 0, 1, .. rows; without one `first_guess`, and after a first
            round what its reports say.

    Returns:
        One line per axis (a range) and per grid of several axes (one of its cells). A plan that asks for row counts
        alone: their mean.
    """
    asked = people * plan.round_shares[plan.round] / sum(plan.round_shares) if plan.round_shares else people
    if asks_rows_alone(plan):
        oracle = oracle_of(plan, plan.views[0])
        even = oracle.expected_support(np.full(plan.views[0].domain, 1 / plan.views[0].domain)) * asked
        return [Prediction("the rows of a person", lost_by_histogram(oracle, even, float(asked), 0).error)]
    many, first = max(asked, MANY), row_reports_of(plan)
    guess = row_guess or (first_guess(plan.rows_cap) if plan.rows_floor == 0 else (0.0, 1.0))
    expected = expected_collection(plan, many, np.array(guess) if first is None else first.shares)
    known = {axis: axis_table(expected, axis) for axis in range(len(plan.axes))}
    scale, few = row_scale(expected, known), many / asked
    rows = scale.factor / (expected.accepted + (0 if first is None else first.reports))
    whole = rows * float(np.mean([estimates.filled for estimates in known.values()]))
    clipped = scale.clipped if one_row_each(plan) else None
    cut = 0.0 if clipped is None else math.hypot(clipped.value, clipped.error * math.sqrt(few))
    variances = {
        axis: max(float((table.counts.covariance * range_workload(plan.axes[axis].leaves)).sum()), 1e-300)
        for axis, table in known.items()
    }
    questions: list[tuple[str, tuple[int, ...], float, float]] = [
        (f"a range of {axis.name}", (number,), variances[number], (axis.leaves + 2) / (3 * axis.leaves))
        for number, axis in enumerate(plan.axes)
    ]
    # the first view of each set of axes
    grids = {view.axes: view for view in reversed(plan.views) if view.asks.table and len(view.axes) > 1}
    total = sum(v.share for v in plan.views)
    for axes, view in sorted(grids.items(), key=lambda grid: (len(grid[0]), grid[0])):
        fan = 1.0 if view.measure is None else 2.0
        spread = oracle_of(plan, view).structure(np.full(1, 1 / view.domain), fan).diagonal[0]
        stretch = kind_of(view).stretch(filled_share(expected)).value
        variance = float(spread) * stretch**2 * total / (many * view.share)
        names = " and ".join(plan.axes[a].name for a in axes)
        questions.append((f"a grid cell of {names}", axes, variance, 1 / view.cells))
    predictions = []
    for question, axes, variance, share in questions:
        total_error = whole * share * scale.weight_error / scale.weight
        noise = math.sqrt(few) * math.hypot(rows * math.sqrt(variance), total_error)
        # as `truncation.clip_factor` widens variances, and `intervals.excess.reach_of` both ends
        elsewhere = TYPICAL * cut * rows * math.sqrt(variance / min(variances[a] for a in axes))
        lasting = cut * math.hypot(1, UNSEEN) * TASTE * (1 - share) * whole * share
        predictions.append(Prediction(question, math.hypot(noise, elsewhere) + lasting, axes, whole * share))
    return predictions


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
    "theory": lambda design: build_plan(with_best_rows(design, np.array(design.row_guess))),
    "estimate": _row_counts,
}
"""By the origin of tau, the plan that goes out first; `_row_counts` asks some people how many rows they have."""


def asks_rows_alone(plan: Plan) -> bool:
    """True if a plan is the first round of two, which no release can be made of."""
    return [kind_of(view).histogram for view in plan.views] == [True]


def row_reports(collection: CountedCollection) -> RowReports:
    """Reports of the first round.

    Raises:
        DataError: another kind of plan, or no accepted report.
    """
    if not asks_rows_alone(collection.plan):
        raise DataError(
            "this plan is not the first round of `tau: estimate`",
            hint="name the plan that asked for row counts",
        )
    if collection.accepted == 0:
        raise DataError(
            "no report of the first round was accepted", hint="check that the reports belong to it"
        )
    support = tuple(int(v) for v in collection.tallies[0].support.sum(axis=0))
    return RowReports(collection.plan.hash.hex(), collection.oracle(0), support, collection.accepted)


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
    body = plan_body(first)
    if body.get("catalog") != design.catalog or FIRST_PLANS[design.tau_from] is not _row_counts:
        raise DataError(
            "the catalog is not the one of the first round",
            hint="bring it back, or start under another --label",
        )
    second_design = replace(
        design,
        collection=first.collection,
        row_share=weighting_named(design.row_weighting).counted_again(design.row_share),
        simulated=design.simulated or bool(body.get("simulated")),
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


ROW_SHARES = (Fraction(1, 10), Fraction(1, 5), Fraction(3, 10), Fraction(2, 5))
"""Parts of the people who may be asked for nothing but their number of rows."""


def with_best_rows(design: CollectionDesign, row_shares: FloatArray) -> CollectionDesign:
    """The design with tau and, unless the catalog declares it, the part of the people who report their number of rows.

    A count is a share of all rows times their number, and both err: shares by `1 / (1 - part)`, the number by
    `1 / part`. Where people may have 28 rows and 20,000 report, a tenth left it an error of 22% at epsilon 1.

    Args:
        design: the curator's decisions.
        row_shares: public guess of the share of people with 0, 1, .. rows.
    """
    if not design.row_share_free:
        return replace(design, tau=best_tau(design, row_shares))
    weighting, lost = weighting_named(design.row_weighting), lost_rows(row_shares)
    noise, answer = typical_question(replace(design, tau=1))
    candidates = []
    for part in ROW_SHARES:
        range_noise = noise * float((1 - design.row_share) / (1 - part))
        tau = weighting.best(row_shares, range_noise, answer)
        candidate, within = replace(design, row_share=part, tau=tau), float(lost[0] - lost[tau])
        plan = read_plan(build_plan(candidate))
        scale = row_scale(expected_collection(plan, max(design.people, MANY), row_shares), {})
        rows_error = scale.weight_error / scale.weight * math.sqrt(MANY / min(design.people, MANY))
        errors = (TYPICAL * float(lost[tau] / lost[0]), answer * rows_error)
        candidates.append(((tau / within) ** 2 * range_noise + sum(np.square(errors)), part, candidate))
    return min(candidates, key=lambda priced: priced[:2])[2]


def typical_question(design: CollectionDesign) -> tuple[float, float]:
    """Predicted variance of a range's share, and its size, root mean squares over all ranges of all axes, for evenly
    spread people."""
    plan, noise = read_plan(build_plan(design)), []
    many, full = max(design.people, MANY), np.eye(1, plan.tau + 1, plan.tau)[0]
    expected = expected_collection(plan, many, full)
    for number, axis in enumerate(design.axes):
        covariance = blue(axis_groups(expected, number)).covariance[: axis.leaves, : axis.leaves]
        noise.append(float((covariance * range_workload(axis.leaves)).sum()))
    # The mean square of the share of all rows in a range of evenly spread leaves.
    squares = [float(range_workload(axis.leaves).sum()) / axis.leaves**2 for axis in design.axes]
    return float(np.mean(noise)) * many / design.people, float(np.sqrt(np.mean(squares)))


def _planned_round(design: CollectionDesign, number: int, reports: RowReports | None = None) -> PlannedRound:
    """One of two rounds, drawn by weight."""
    first = min(max(round(design.row_share * SHARES), 1), SHARES - 1)
    divisor = math.gcd(first, SHARES - first)
    return PlannedRound(number, 2, (first // divisor, (SHARES - first) // divisor), reports)


NOISE_SHARE = 0.5
"""Which part of an answer an error may be at most."""
CLOSE = 0.99
MOST_PEOPLE = 10**12


class ViewCost(NamedTuple):
    """Cost and yield of one view of the catalog.

    Args:
        view: its name.
        part: part of the people whose report tells about some of its axes.
        error: largest standard error of its questions.
        question: which question that is.
    """

    view: str
    part: float
    error: float
    question: str


class CollectionForecast(NamedTuple):
    """Forecast of a collection plan.

    Args:
        plan: the plan; None where services have one each.
        people: how many were taken to report.
        predictions: errors by question.
        costs: what each view costs.
        services: epsilon of each service's report, where services are asked.
        seconds: that `dpsql collect` will work on joint fits, about, on one core.
    """

    plan: Plan | None
    people: int
    predictions: list[Prediction]
    costs: list[ViewCost]
    services: Mapping[str, str]
    seconds: float = 0.0


def view_costs(
    plan: Plan, views: Mapping[str, tuple[int, ...]], predictions: Sequence[Prediction]
) -> list[ViewCost]:
    """Cost and yield of each view of a catalog.

    Args:
        plan: the plan.
        views: positions of each view's axes.
        predictions: from `predict`.
    """
    costs = []
    for name, axes in views.items():
        view_predictions = [p for p in predictions if p.axes and set(p.axes) <= set(axes)]
        worst = max(view_predictions, key=lambda p: p.error, default=None)
        if worst is not None:
            costs.append(ViewCost(name, _part(plan, axes), worst.error, worst.question))
    return costs


def _part(plan: Plan, axes: Sequence[int]) -> float:
    """Part of the people whose report tells about some of these axes and no other."""
    share = sum(view.share for view in plan.views if view.axes and set(view.axes) <= set(axes))
    return share / sum(view.share for view in plan.views)


def people_needed(worst: Callable[[int], float], target: float) -> int:
    """Number of respondents needed for no standard error to pass a target, to a hundredth.

    A plan for more people has finer grids and a higher cap of the bit, so it is made anew for each number tried.

    Args:
        worst: people to the largest error of the plan that is made for them, in rows a person.
        target: the largest error wanted, in rows a person.

    Raises:
        InterfaceError: a target outside (0, 1), or one that no number of people reaches.
    """
    if not 0 < target < 1:
        raise InterfaceError("a target is a share of the people between 0 and 1", hint="write 5% or 0.05")
    too_few, enough = 0, MOST_PEOPLE
    if worst(enough) > target:
        raise InterfaceError("no number of people reaches this target", hint="name a larger one")
    while too_few < min(math.floor(CLOSE * enough), enough - 1):
        people = max(math.isqrt(too_few * enough), too_few + 1)
        too_few, enough = (people, enough) if worst(people) > target else (too_few, people)
    return enough
