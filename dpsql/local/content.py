"""Tallies to a release of the same shape as a central one, so that the same SQL runs on it.

Counts are people x slots x share (and, with bits, times E r / E min(r, tau)); sums are stored around
the value that lets them err independently of counts (`centre`). Every view's margins agree, since all are put together
from the same parts.

Weighted collections report one row and a bit. Beside the shares of all rows the same reports tell where one uniform
row of each person lies (`two_laws`). People without a row send any cell alike; how many they are is told by people
who were asked whether they have one, and their part is taken out.

| here       | there | unit |
|------------|-------|------|
| `none`     | z     | share of people without a row |
| influence  | gain x items | leaves moved by a view's items |

**Privacy**: post-processing of reports that were private before they left the device.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from dpsql.catalog import spec_hash
from dpsql.catalog.base import COUNT, MeasureName
from dpsql.client.plan import Plan
from dpsql.local.collector import CollectionManifest
from dpsql.local.estimate import (
    AxisReports,
    AxisTable,
    FittedTable,
    Parts,
    axis_table,
    model_of,
    one_row_each,
    rows_between,
    table,
    told_of,
)
from dpsql.local.mechanisms import truncation
from dpsql.local.mechanisms.blue import ShareEstimate, ViewReports, blue, gains
from dpsql.local.mechanisms.truncation import ValueWithError, shuffled_epsilon
from dpsql.local.oracles.oracle import FloatArray, influence
from dpsql.local.parts import Estimates, by_pairs, interactions
from dpsql.local.plan import plan_body, row_reports_of
from dpsql.local.smooth import Positive, outside, positive_shares
from dpsql.local.survey import Survey
from dpsql.local.tallies import CountedCollection, layout_of, oracle_of
from dpsql.local.totals import Scale, centre_of, centred_on, row_scale, rows_moved, total_of
from dpsql.matrices.channel import StackVariance
from dpsql.matrices.estimated import Estimated, Integers, Smooth
from dpsql.matrices.kronecker import ProductReading
from dpsql.matrices.model import Components, PrefixVariance
from dpsql.mechanisms.distribution import nothing_drawn
from dpsql.release import reports, write
from dpsql.release.format import MeasureScale, Promise, RelativeError, ScaleMeta, SpentAmount
from dpsql.tree import Tree

SHUFFLE_DELTA = 1e-7


def release_content(
    survey: Survey,
    collection: CountedCollection,
    manifest: CollectionManifest,
    release_id: str,
    *,
    joint: bool = True,
) -> write.ReleaseBuilder:
    """All that the release file will hold.

    Args:
        survey: the catalog's questions.
        collection: the counted reports.
        manifest: what was collected and rejected.
        release_id: the release's id.
        joint: whether several axes are fitted together; without, what they do together comes straight from the
            grids, with the grids' own errors, and their views have no smooth counts.
    """
    plan = collection.plan
    axis_tables = {a: axis_table(collection, a) for a in range(len(survey.axes))}
    scale = row_scale(collection, axis_tables)
    bits = weighted_tables(collection, axis_tables, scale.cut)
    axis_tables = axis_tables if bits is None else bits.known
    estimates = Estimates(collection, axis_tables, joint)
    interactions(estimates, [held for held, _ in survey.tables])
    models = [PrefixVariance(model_of(estimate.counts)) for _, estimate in sorted(axis_tables.items())]
    # non-negative shares of every view, by its axes; None where it has none
    smooth: dict[tuple[int, ...], Positive | None] = {}
    for held, _ in () if survey.collection.by_pairs else survey.views.values():
        if bits is not None and len(held) == 1:
            smooth[held] = bits.positive[held[0]]
        elif joint or len(held) == 1:
            smooth[held] = positive_shares(collection, held, axis_tables, estimates.shares)

    def assembled(trees: Sequence[Tree]) -> write.Assembled:
        if survey.collection.by_pairs:
            return by_pairs(survey, estimates, scale.factor, models, trees)
        return write.assemble(_statistics(survey, estimates, scale.factor, bits, smooth), models, trees)

    smooth_outside = {
        survey.axes[a].name: outside(positive.shares, axis_tables[a].counts)
        for (a, *other_axes), positive in smooth.items()
        if positive is not None and not other_axes
    }
    at_random = {} if bits is None else {survey.axes[a].name: r for a, r in bits.at_random.items()}
    clipped, first = scale.clipped, row_reports_of(plan)
    local = replace(
        local_meta(survey, plan, manifest, rows_moved(collection, scale.factor)),
        everybody=survey.collection.everybody,
        row_weight=scale.weight,
        row_weight_error=scale.weight_error,
        clipped_fraction=None if clipped is None else clipped.value,
        clipped_fraction_error=None if clipped is None else clipped.error,
        first_round=None if first is None else reports.FirstRoundMeta(first.plan, first.reports),
        people=None if first is None else manifest.accepted + first.reports,
        shuffled=_shuffled(plan, manifest) if plan_body(plan).get("shuffled") else None,
        smooth_outside_unbiased=smooth_outside,
        missing_at_random={name: p_value for name, (p_value, _) in at_random.items()} or None,
        mixed={name: share for name, (_, share) in at_random.items() if share is not None} or None,
    )
    content = local_release(survey, [plan], plan_body(plan).get("catalog"), assembled, local, release_id)
    return replace(content, scales=_scales(survey, plan, scale), bounding=_bounding(survey, plan, scale))


def survey_axes(survey: Survey) -> list[write.AxisPart]:
    """The survey's axes as a release holds them."""
    return write.axis_parts(write.PlacedAxis(axis, survey.of, "reports of people") for axis in survey.axes)


def local_release(
    survey: Survey,
    plans: Collection[Plan],
    catalog: Mapping[str, Any] | None,
    assembled: Callable[[Sequence[Tree]], write.Assembled],
    local: reports.LocalMeta,
    release_id: str,
) -> write.ReleaseBuilder:
    """All that the release file of any collection holds.

    Args:
        survey: the catalog's questions.
        plans: all that one person answers.
        catalog: as the plans' collector has it.
        assembled: statistics and models on the look-up trees of the survey's axes.
        local: metadata of the reports.
        release_id: the release's id.
    """
    axes = survey_axes(survey)
    statistics, models = assembled([axis.tree for axis in axes])
    alone = "no central cap is charged; "
    if local.services is not None:
        alone = "the services' epsilons add up to this one; that a person is known to a service is not hidden, and "
    return write.ReleaseBuilder(
        release_id,
        catalog or {},
        spec_hash(survey.catalog),
        Promise(
            unit=survey.catalog.privacy.unit.name,
            neighbours="replace_one",
            trust="local",
            epsilon=str(sum((plan.epsilon for plan in plans), Fraction(0))),
            rows_per_unit={survey.of: local.tau},
            adds_up=f"{alone}whoever is also in a central release of the same people is promised, for replacing one "
            "person, twice its add-or-remove epsilon plus this one",
            simulated=local.simulated,
        ),
        [SpentAmount(f"one report of {plan.collection}", str(plan.epsilon)) for plan in plans],
        insecure=False,
        axes=axes,
        models=models,
        statistics=statistics,
        local=local,
    )


def _statistics(
    survey: Survey,
    estimates: Estimates,
    factor: float,
    bits: Weighted | None,
    smooth: Mapping[tuple[int, ...], Positive | None],
) -> list[write.Statistic]:
    """Counts and sums of every view as one table each, in rows: `factor` of them are a unit of share."""
    plan, positive = estimates.collection.plan, {}
    for held, smoothed in smooth.items():
        if smoothed is not None:
            errors = None if smoothed.errors is None else smoothed.errors.scaled(factor)
            positive[held] = Smooth(smoothed.shares * factor, errors, smoothed.preferred)
    return [
        write.Statistic(
            description(survey, view, fitted, measure, plan.tau, plan.epsilon),
            local_estimate(
                fitted.values * factor,
                {positions: s * factor**2 for positions, s in fitted.strengths.items()},
                ", ".join(sorted({v.oracle for v in plan.views})),
                positive.get(fitted.axes) if measure is None else None,
            ),
        )
        for measure in [None, *range(len(survey.measures))]
        for view, fitted in _family(survey, estimates, measure, bits)
    ]


def local_estimate(
    leaves: FloatArray, strengths: Components, words: str, smooth: Smooth | None = None
) -> Estimated:
    """A statistic of reports; there are no noisy integers of the curator's own."""
    nothing = nothing_drawn(leaves.ndim)
    integers = Integers(nothing, nothing)
    return Estimated(leaves, ProductReading.name, strengths, integers, f"local: {words}", smooth=smooth)


def _family(
    survey: Survey, estimates: Estimates, measure: int | None, bits: Weighted | None
) -> list[tuple[str, FittedTable]]:
    """View by view the tables of one measure, as shares of the rows (or around its centre)."""
    views = {n: v for n, (v, m) in survey.views.items() if measure is None or measure in m}

    def effects_of(measure: int | None) -> Parts:
        effects: Parts = interactions(estimates, views.values(), measure)
        return effects if bits is None else bits.barred(effects)

    collection, axis_tables = estimates.collection, estimates.axis_tables
    effects, mid, half, shift = effects_of(measure), 0, 0.0, 1.0
    if measure is not None:
        centre = centre_of(collection, axis_tables, measure)
        axis_tables, effects = centred_on(centre, axis_tables, effects, effects_of(None), measure)
        mid, half, shift = centre.mid, centre.half, centre.shift
    total = total_of(collection, axis_tables, measure, half, shift)
    fitted = {name: table(axes, axis_tables, effects, measure, total) for name, axes in views.items()}
    return [(name, replace(held, mid=mid)) for name, held in fitted.items()]


def description(
    survey: Survey, view: str, held: FittedTable, measure: int | None, rows: int, epsilon: Fraction
) -> write.Description:
    """Description of a view's statistic: of a measure, or of rows; a person may have so many."""
    summed = None if measure is None else survey.measures[measure]
    return write.Description(
        view=view,
        of=survey.of,
        measure=COUNT if summed is None else summed.name,
        axes=held.axes,
        sensitivity=rows,
        budget=epsilon,
        currency="epsilon",
        family=measure,
        mid=held.mid,
        scale=0 if summed is None else summed.scale,
    )


def local_meta(
    survey: Survey, plan: Plan, manifest: CollectionManifest, rows_at_most: float | None = None
) -> reports.LocalMeta:
    """Metadata of the collected reports; of several rounds, of those to the last."""
    return reports.LocalMeta(
        collection=plan.collection,
        participation=survey.collection.participation.name,
        manifest=reports.ManifestMeta(**manifest._asdict()),
        tau=plan.tau,
        plan_hash=plan.hash.hex(),
        influence=reports.InfluenceMeta(max(influence(oracle_of(plan, v)) for v in plan.views), rows_at_most),
        simulated=bool(plan_body(plan).get("simulated")) or None,
    )


def _shuffled(plan: Plan, manifest: CollectionManifest) -> reports.ShuffledMeta:
    """The promise of all reports together, if a shuffler stood in between."""
    if manifest.tokens:
        return reports.ShuffledMeta(
            void=f"{manifest.tokens} reports came with a token, which a shuffler cannot hide"
        )
    return reports.ShuffledMeta(
        epsilon=shuffled_epsilon(manifest.accepted, float(plan.epsilon), SHUFFLE_DELTA),
        delta=SHUFFLE_DELTA,
        people=manifest.accepted,
        holds_if="reports reach the collector only through an anonymous shuffler, from honest distinct "
        "people who were all handed the same plan, each report once, in one round, without linkable tokens, "
        "timing or metadata; neighbours replace one person",
    )


def _bounding(survey: Survey, plan: Plan, scale: Scale) -> list[reports.SlotsLeftOut | reports.BitLeftOut]:
    """Rows beyond tau in the counted table; None where people have no more rows than slots."""
    if plan.rows_floor >= plan.tau:
        return []
    clipped = scale.clipped
    if clipped is not None and one_row_each(plan):
        return [reports.BitLeftOut(survey.of, plan.tau, plan.rows_cap, clipped.value, clipped.error)]
    if clipped is None:
        return [reports.SlotsLeftOut(survey.of, plan.tau, plan.tau)]
    return [reports.SlotsLeftOut(survey.of, plan.tau, plan.rows_cap, clipped.value, clipped.error)]


def _scales(survey: Survey, plan: Plan, scale: Scale) -> list[ScaleMeta]:
    """The weight of rows beyond tau: one error common to all counts and sums; none where there is no weight."""
    if scale.weight_error == 0:
        return []
    common, none = RelativeError(*[scale.weight_error / scale.weight] * 3), RelativeError(0.0, 0.0, 0.0)
    return [
        ScaleMeta(
            of=survey.of, tau=plan.tau, quantile=0.0, unseen=0, unseen_above=0,
            rows=round(scale.factor),
            public_rows=False,
            measures=(MeasureScale(MeasureName(""), scale.weight, 0.0, common, none, 1 - 1 / scale.weight),),
        )
    ]  # fmt: skip


MOST_WITHOUT = 0.95
"""Noise alone must not make nearly everybody a person without rows."""


def two_laws(collection: CountedCollection, axis: int, counts: ShareEstimate) -> truncation.TwoLaws:
    """Both laws of one axis from all weighted views that touch it, with the exact covariance that they share.

    Args:
        plan: a plan with weighted views.
        tallies: counts per view.
        axis: position of the axis.
        counts: the axis's table of all rows.
    """
    with_rows = rows_between(collection, 0, 1) or ValueWithError(1.0, 0.0)  # by construction
    none = float(np.clip(1 - with_rows.value, 0.0, MOST_WITHOUT))
    first = told_of(collection, axis)
    second = [_one_row_each(collection, view_estimate, none) for view_estimate in first]
    person = blue([view_estimate.group for view_estimate in second])
    size = counts.shares.size
    cross, plain = np.zeros((size, size)), np.zeros((size, size))
    row_gains = gains([view_estimate.group for view_estimate in first])
    person_gains = gains([view_estimate.group for view_estimate in second])
    for of_rows, of_person, a, b in zip(first, second, row_gains, person_gains, strict=True):
        item_shares = np.clip(collection.shares(of_rows.number), 0, 1)
        structure = collection.oracle(of_rows.number).structure(item_shares)
        left, right = a @ of_rows.items, b @ of_person.items
        cross += structure.between(left, right) / of_rows.group.reports
        plain += structure.between(right, right) / of_rows.group.reports
    even = person.shares - 1 / size
    plain += (with_rows.error / (1 - none)) ** 2 * np.outer(even, even)
    return truncation.TwoLaws(counts.shares, person.shares, counts.covariance, plain, cross)


def _one_row_each(collection: CountedCollection, view_estimate: AxisReports, none: float) -> AxisReports:
    """Reports of a view as one uniform row a person: every state of a cell alike."""
    number, group = view_estimate.number, view_estimate.group
    view, layout = collection.plan.views[number], layout_of(collection.plan.views[number])
    inside = (view_estimate.items[:, layout.rows] != 0).astype(np.float64)
    items = np.zeros_like(view_estimate.items)
    for columns in (layout.rows, layout.silent, *([] if layout.bits is None else [layout.bits])):
        items[:, columns] = inside
    stretch, fan = 1 / (1 - none), items.sum(axis=1)
    seen = (items @ collection.shares(number) - none * inside.sum(axis=1) / view.cells) * stretch
    uniform = ViewReports(group.design, seen, group.reports, group.oracle, fan, stretch)
    return AxisReports(number, items * stretch, uniform, view_estimate.drift)


class Weighted(NamedTuple):
    """Metadata of a weighted collection beside its tables.

    Args:
        known: every axis's table with the clip bar in its covariances.
        factors: by axis, what the bar multiplied them by.
        positive: by axis, the shrunk mix; None where the axis is too long.
        at_random: by axis, the p-value of "rows are missing at random", and the share of the likelihood at no tilt;
            None where no mix was made.
    """

    known: dict[int, AxisTable]
    factors: dict[int, float]
    positive: dict[int, Positive | None]
    at_random: dict[int, tuple[float, float | None]]

    def barred(self, parts: Parts) -> Parts:
        """Interactions with the bar of the axis that it widens most."""
        return {
            key: effect._replace(strength=effect.strength * max(self.factors[a] for a in key))
            for key, effect in parts.items()
        }


def weighted_tables(
    collection: CountedCollection, known: Mapping[int, AxisTable], cut: float
) -> Weighted | None:
    """Bars, mixes and tests of every axis.

    Args:
        collection: the counted reports.
        known: every axis's table.
        cut: estimated share of rows beyond the cap.

    Returns:
        None for plans without weighted views.
    """
    if not one_row_each(collection.plan):
        return None
    weighted, cut = Weighted({}, {}, {}, {}), min(max(cut, 0.0), MOST_WITHOUT)
    for axis, axis_estimates in known.items():
        laws = two_laws(collection, axis, axis_estimates.counts)
        factor = truncation.clip_factor(laws, axis_estimates.counts.covariance, cut, truncation.BEYOND)
        weighted.factors[axis] = factor
        weighted.known[axis] = replace(
            axis_estimates,
            counts=ShareEstimate(axis_estimates.counts.shares, axis_estimates.counts.covariance * factor),
            signed=tuple(ShareEstimate(s.shares, s.covariance * factor) for s in axis_estimates.signed),
        )
        small = laws.rows.size <= truncation.LARGEST
        mixed, at_random = (
            truncation.shrink(laws, collection.plan.axes[axis].smooth) if small else (None, None)
        )
        weighted.at_random[axis] = truncation.missing_at_random(laws), at_random
        weighted.positive[axis] = None
        if mixed is not None:
            bar = truncation.clip_factor(laws, mixed.covariance, cut, truncation.BEYOND_MIXED)
            spread = mixed.covariance * bar
            weighted.positive[axis] = Positive(
                mixed.shares, StackVariance(spread, spread, mixed.shares, 0.0, 0.0)
            )
    return weighted
