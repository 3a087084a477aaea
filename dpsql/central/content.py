"""From noisy views to what the release file holds: estimates, node sums, variance, and its promise.

Families of statistics are reconciled here, so that every view of a table tells the same totals.

**Privacy**: post-processing of noisy integers and public facts; nothing here sees a raw row.

Covariance of the counts of one draw: all rows, and those where a measure is not NULL.

| draw | Cov(COUNT(*), COUNT(x)) | Cov(COUNT(x), COUNT(y)) |
|---|---|---|
| rows with NULL apart | Var COUNT(x) | - |
| an indicator for each nullable measure | Var COUNT(*) / 2 | Var COUNT(*) / 4 |

Statistics of one draw have the same rows, so a covariance over cells is this factor times their common structure; and
once families are reconciled, part by part.

Non-negative estimates of two such counts have no stated covariance: an error over both is NULL. A sum about its centre
is uncorrelated with both.

**Privacy**: follows from public budgets.
**Source**: docs/method/rows.md, "Rows with NULL".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import combinations
from math import isinf, prod

from dpsql.catalog import spec_hash
from dpsql.catalog.base import MeasureName
from dpsql.central.bounding import DrawnRelease, UnitsBeyond, bounding_of, unmeasured
from dpsql.central.planned import PlannedStatistic, ReleasePlan
from dpsql.contributions.factors import Relative, TotalsFactor
from dpsql.contributions.recipe import TableScale
from dpsql.matrices import AxisVariance
from dpsql.matrices.estimated import Estimated
from dpsql.matrices.kronecker import AxisSplit, ScaledReading
from dpsql.matrices.reconcile import UNIT, Subset, component_covariances, component_variances
from dpsql.matrices.strategy import NullCount
from dpsql.mechanisms.designs.measurement import DrawnMember
from dpsql.mechanisms.distribution import NoisyRows, as_laplace
from dpsql.release import write
from dpsql.release.format import (
    ChoiceMeta,
    FamilyCovariance,
    MeasureScale,
    Promise,
    RelativeError,
    RunnerUp,
    ScaleMeta,
    SpentAmount,
    UnitsBeyondBound,
    ValuesBeyondBounds,
)
from dpsql.tree import IntArray, Tree, kary_tree


def family_covariances(plan: ReleasePlan) -> list[FamilyCovariance]:
    """The covariances of all families of a release that err together."""
    families = {i: number for number, members in enumerate(plan.families) for i in members}
    ratios: dict[tuple[int, int], list[tuple[Subset, float]]] = {}
    for draw in plan.draws:
        for i, j, ratio in _pairs(plan, draw):
            ratios.setdefault((families[i], families[j]), []).append((plan.statistics[i].axes, ratio))
    if not ratios:
        return []
    totals = {i: AxisSplit(planned.strategy.solver).total for i, planned in enumerate(plan.axes)}
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


CUT = (1 << 62) - (1 << 57)
"""A noisy integer beyond it may be of a cell that was cut at 2^62: noise of 2^57 is more than any plan allows."""

MOST_NONNEGATIVE = 1 << 20
"""Cells up to which counts get non-negative estimates unasked; the step takes about a second there."""


def release_content(drawn: DrawnRelease, release_id: str, *, insecure: bool) -> write.ReleaseBuilder:
    """All that the release file will hold.

    Args:
        drawn: what was measured.
        release_id: the release's id.
        insecure: whether the noise came from test entropy.
    """
    estimates = estimate(drawn.plan, drawn)
    plan, models = _drawn_axes(drawn.plan, estimates)
    statistics = list(map(write.Statistic, descriptions(plan), estimates))
    assembled = with_cuts(write.assemble(statistics, models, lookup_trees(plan)), plan, drawn.views)
    builder = planned_release(plan, release_id, assembled, insecure=insecure)
    nodes = [part.content.nodes for part in assembled.statistics]
    measured = [replace(beyond, counted=_counted(plan, beyond.of, nodes)) for beyond in drawn.beyond]
    scales = [scale_meta(scale) for scale in drawn.scales]
    excess = [excess_meta(plan, units, nodes) for units in drawn.excess]
    return replace(builder, scales=scales, bounding=[*builder.bounding, *measured], excess=excess)


def excess_meta(
    plan: ReleasePlan, beyond: UnitsBeyond, nodes: Sequence[IntArray] | None = None
) -> ValuesBeyondBounds:
    """The units with values of one measure beyond its bounds, as a release states them.

    Args:
        plan: what was drawn.
        beyond: their numbers.
        nodes: estimates of every statistic; None where there are none.
    """
    bounds, (up_near, up_far, down_near, down_far, *both) = beyond.bounds, beyond.units
    rows = None if nodes is None else _counted(plan, beyond.of, nodes)
    mean = None
    if nodes is not None and rows is not None:
        i = next(
            i for i, s in enumerate(plan.statistics) if (s.of, s.measure.name) == (beyond.of, beyond.measure)
        )
        total = float(nodes[i].ravel()[0]) / UNIT / max(1.0, rows) + plan.statistics[i].mid
        mean = min(max(total, bounds.lower), bounds.upper) * 10.0**-bounds.scale
    return ValuesBeyondBounds(
        beyond.of, MeasureName(beyond.measure), f"{Decimal(bounds.lower).scaleb(-bounds.scale):f}",
        f"{Decimal(bounds.upper).scaleb(-bounds.scale):f}", bounds.width * 10.0**-bounds.scale, beyond.stderr,
        UnitsBeyondBound(up_near, up_far), UnitsBeyondBound(down_near, down_far), both[0] if both else None, rows, mean,
    )  # fmt: skip


def with_cuts(assembled: write.Assembled, plan: ReleasePlan, views: Sequence[NoisyRows]) -> write.Assembled:
    """The same, and whether exact cells may have been cut where 64 bits end: then no view of the family is answered.

    Args:
        assembled: what the release holds.
        plan: what was drawn.
        views: its noisy integers.

    **Privacy**: a function of noisy integers.
    """
    parts = list(assembled.statistics)
    for members in plan.families:
        values = [views[i].value for i in members]
        cut = any(value.max(initial=0) >= CUT or value.min(initial=0) <= -CUT for value in values)
        for i in members:
            meta = replace(parts[i].meta, cut=cut, people_bounds=plan.statistics[i].people_bounds)
            parts[i] = parts[i]._replace(meta=meta)
    return assembled._replace(statistics=parts)


def _counted(plan: ReleasePlan, of: str, nodes: Sequence[IntArray]) -> float | None:
    """The released number of a table's rows within the bound: the root of one of its counts."""
    counts = [i for i, s in enumerate(plan.statistics) if s.of == of and s.measure.name.counts_rows]
    return float(nodes[counts[0]].ravel()[0]) / UNIT if counts else None


def _drawn_axes(plan: ReleasePlan, estimates: Sequence[Estimated]) -> tuple[ReleasePlan, list[AxisVariance]]:
    """The variance model of every axis; a data-dependent axis has the one that was drawn, and says so."""
    axes = list(plan.axes)
    models: list[AxisVariance] = [planned.strategy.solver for planned in axes]
    for statistic, estimated in zip(plan.statistics, estimates, strict=True):
        if estimated.axis is not None:
            (i,) = statistic.axes
            models[i], words = estimated.axis
            axes[i] = replace(axes[i], choice=axes[i].choice._replace(name=words))
    return replace(plan, axes=tuple(axes)), models


def estimate(plan: ReleasePlan, drawn: DrawnRelease) -> list[Estimated]:
    """Best estimates of every family, scaled and corrected where the table has a scale; families agree inside.

    Args:
        plan: what was drawn.
        drawn: its noisy integers.
    """
    estimates = dict[int, Estimated]()
    axes = {i: planned.measured(planned.strategy.solver) for i, planned in enumerate(plan.axes)}
    for members in plan.families:
        family = [_member(plan, drawn, i) for i in members]
        estimates |= zip(members, plan.statistics[members[0]].measurement.estimate(family, axes), strict=True)
    for i, statistic in enumerate(plan.statistics):
        estimates[i] = replace(estimates[i], notes=f"{statistic.law.name}: {estimates[i].notes}")
        if i in drawn.corrected:
            spread = drawn.corrected[i].spread
            estimates[i] = replace(estimates[i], reading=ScaledReading.name, model=spread)
    return [estimates[i] for i in range(len(plan.statistics))]


def _member(plan: ReleasePlan, drawn: DrawnRelease, index: int) -> DrawnMember:
    """A statistic as its family estimates it."""
    statistic, corrected = plan.statistics[index], drawn.corrected.get(index)
    return DrawnMember(
        statistic.axes,
        drawn.views[index],
        statistic.factor,
        None if corrected is None else corrected.leaves,
    )


def notes(plan: ReleasePlan, statistic: PlannedStatistic) -> str:
    """Measurement of a statistic in words."""
    choices = [plan.axes[axis].choice.name for axis in statistic.axes]
    return f"{statistic.law.name}: {statistic.measurement.words(choices)}"


def descriptions(plan: ReleasePlan) -> list[write.Description]:
    """Description of each statistic in a release, whatever was drawn."""
    return [
        write.Description(
            s.view, s.of, s.measure.name, s.axes, s.sensitivity, s.charge, plan.currency.name, s.family, s.mid,
            s.bounds.scale if s.bounds else 0, s.noise_mid, stores_nonnegative(plan, s),
        )
        for s in plan.statistics
    ]  # fmt: skip


def lookup_trees(plan: ReleasePlan) -> list[Tree]:
    """The look-up tree of each axis."""
    return [kary_tree(planned.axis.leaves, write.LOOKUP_ARITY) for planned in plan.axes]


def planned_release(
    plan: ReleasePlan,
    release_id: str,
    assembled: write.Assembled,
    *,
    insecure: bool,
) -> write.ReleaseBuilder:
    """A release of a plan, without scales and without measured rows beyond contribution bounds.

    Args:
        plan: what was measured.
        release_id: the release's id.
        assembled: its statistics and models.
        insecure: whether the noise came from test entropy, or there was none.
    """
    catalog, privacy = plan.catalog, plan.catalog.privacy
    promised = plan.currency.promise(plan.charge)
    promise = Promise(
        unit=privacy.unit.name,
        neighbours=privacy.neighbours,
        epsilon=str(promised.epsilon),
        delta=str(promised.delta),
        mu2=None if promised.mu2 is None else str(promised.mu2),
        rows_per_unit={
            s.of: s.tau if bounding_of(catalog, s.of).tau else "auto"
            for s in plan.statistics
            if not s.counts_units
        },
        rows=privacy.rows.name,
        vouched=catalog.vouched or None,
        key_delta=str(sum(line.delta for line in plan.lines)) if privacy.key_delta else None,
    )
    return write.ReleaseBuilder(
        release_id,
        json.loads(catalog.to_json()),
        spec_hash(catalog),
        promise,
        [SpentAmount(line.purpose, str(line.amount), str(line.delta)) for line in plan.lines],
        insecure,
        axes=write.axis_parts([write.PlacedAxis(p.axis, p.resolved.of, p.choice.name) for p in plan.axes]),
        models=assembled.models,
        statistics=assembled.statistics,
        covariances=family_covariances(plan),
        choices=_choices(plan, assembled),
        bounding=[
            unmeasured(catalog, table.name)
            for table in catalog.star.tables.values()
            if table.cuts and not table.bounding.clipped_share
        ],
    )


def stores_nonnegative(plan: ReleasePlan, statistic: PlannedStatistic) -> bool:
    """True if the release holds non-negative estimates of a statistic too: of counts, unless the view says no."""
    if statistic.bounds is not None or not statistic.axes or statistic.measurement.facts.listed:
        return False
    view = plan.catalog.views.get(statistic.view)
    wanted = None if view is None else view.nonnegative
    return prod(plan.shape(statistic)) <= MOST_NONNEGATIVE if wanted is None else wanted


def _choices(plan: ReleasePlan, assembled: write.Assembled) -> list[ChoiceMeta]:
    """Choices of the strategies of axes, and of views of two axes that may be measured together."""
    metas = [part.meta for part in assembled.statistics]
    alone = {axis for meta in metas if set(meta.axes) <= set(meta.models) for axis in meta.axes}
    chosen = [(plan.axes[i].axis.name, plan.axes[i].choice) for i in sorted(alone)]
    return [
        *(ChoiceMeta(c.name, c.expected_error, _runners_up(c.runners_up), axis=axis) for axis, c in chosen),
        *(
            ChoiceMeta(
                c.name, c.expected_error, _runners_up(c.runners_up), view=view.name, whole=question.whole
            )
            for question, c in plan.chosen
            if c.runners_up and len(question.views) == 1
            for view in question.views
        ),
    ]


def _runners_up(runners_up: Iterable[tuple[str, float]]) -> tuple[RunnerUp, ...]:
    return tuple(RunnerUp(name, error) for name, error in runners_up)


def scale_meta(scale: TableScale) -> ScaleMeta:
    """The scale of one table, and of each of its measures."""
    choices = scale.choices
    unseen, above = choices.owned.unseen
    return ScaleMeta(
        of=scale.of, tau=choices.tau, quantile=choices.quantile,
        unseen=unseen, unseen_above=above, rows=round(choices.rows.value),
        public_rows=scale.public_rows,
        measures=tuple(_measure_scale(name, factor) for name, factor in scale.factors.items()),
    )  # fmt: skip


def _measure_scale(name: str, factor: TotalsFactor) -> MeasureScale:
    left_out = None if factor.measured is None else max(0.0, 1.0 - 1.0 / factor.measured)
    return MeasureScale(
        MeasureName(name), factor.value, factor.put_back, _relative(factor.error), _relative(factor.mean_error),
        left_out,
    )  # fmt: skip


def _relative(error: Relative) -> RelativeError:
    """As a file holds it: what has no end is no number."""
    return RelativeError(error.noise, error.down, None if isinf(error.up) else error.up)
