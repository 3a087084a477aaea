"""From noisy views to what the release file holds: estimates, node sums, variance, and its promise.

Families of statistics are reconciled here, so that every view of a table tells the same totals.

**Privacy**: post-processing of noisy integers and public facts; nothing here sees a raw row.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from itertools import count
from math import isinf, prod
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from dpsql.mechanisms.family.measurement import DrawnMember
from dpsql.mechanisms.family.pooling import Relative, TotalsFactor
from dpsql.mechanisms.law import NoisyRows
from dpsql.publishing.bounding import DrawnRelease, bounding_of
from dpsql.publishing.planned import PlannedStatistic, ReleasePlan
from dpsql.publishing.userlevel.recipe import TableScale
from dpsql.release.format import (
    ChoiceMeta,
    MeasureScale,
    Promise,
    RelativeError,
    RowsBeyondBound,
    RunnerUp,
    ScaleMeta,
    SpentAmount,
    StatisticMeta,
)
from dpsql.release.write import (
    LOOKUP_ARITY,
    PlacedAxis,
    ReleaseBuilder,
    StatisticContent,
    StatisticPart,
    axis_parts,
)
from dpsql.star import Catalog, spec_hash
from dpsql.tree import Noisy, Tree, kary_tree
from dpsql.variance import AxisVariance
from dpsql.variance.kronecker import AxisSplit
from dpsql.variance.nonnegative import nonnegative, product_tree, signal_tree
from dpsql.variance.reading import Together
from dpsql.variance.reconcile import UNIT, ViewEstimate, node_sums, round_family, to_units
from dpsql.variance.scaled import ScaledReading

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

Components = dict[tuple[int, ...], float]

MOST_NONNEGATIVE = 1 << 20
"""Cells up to which counts get non-negative estimates unasked; the step takes about a second there."""


def release_content(drawn: DrawnRelease, release_id: str, *, insecure: bool) -> ReleaseBuilder:
    """All that the release file will hold.

    Args:
        drawn: what was measured.
        release_id: the release's id.
        insecure: whether the noise came from test entropy.
    """
    views = drawn.views
    plan, splits = _drawn_axes(drawn.plan, views)
    trees = [kary_tree(planned.axis.leaves, LOOKUP_ARITY) for planned in plan.axes]
    nodes, components = _estimates(plan, drawn, splits, trees)
    contents = [
        StatisticContent(
            view.value, view.budget, sums, _nonnegative(plan, i, sums, trees), _difference(drawn, i)
        )
        for i, (view, sums) in enumerate(zip(views, nodes, strict=True))
    ]
    models: list[AxisVariance | Together] = [split.model for split in splits]
    models += plan.joint.values()
    spreads = dict(zip(sorted(drawn.corrected), count(len(models))))
    models += [drawn.corrected[i].spread for i in spreads]
    metas = statistic_metas(plan, components, ScaledModels(spreads, frozenset(drawn.differences)))
    statistics = map(StatisticPart, metas, contents)
    builder = planned_release(plan, release_id, models, list(statistics), insecure=insecure)
    measured = [
        replace(
            unmeasured(plan.catalog, beyond.of), counted=_counted(plan, beyond.of, nodes), rows=beyond.rows,
            stderr=beyond.stderr, at_most=beyond.at_most,
        )
        for beyond in drawn.beyond
    ]  # fmt: skip
    scales = [scale_meta(scale) for scale in drawn.scales]
    return replace(builder, scales=scales, bounding=[*builder.bounding, *measured])


def _difference(drawn: DrawnRelease, index: int) -> Noisy | None:
    """The noisy integers of what one factor leaves out of a statistic, where that was measured."""
    return drawn.differences[index].value if index in drawn.differences else None


def unmeasured(catalog: Catalog, of: str) -> RowsBeyondBound:
    """What is known of a table's rows beyond its declared bound where nothing measures them."""
    word: Literal["truncate", "weight"] = "weight" if catalog.tables[of].bounding.weighs else "truncate"
    return RowsBeyondBound(of, word, catalog.star.tables[of].most)


def _counted(plan: ReleasePlan, of: str, nodes: Sequence[IntArray]) -> float | None:
    """The released number of a table's rows within the bound: the root of one of its counts."""
    counts = [i for i, s in enumerate(plan.statistics) if s.of == of and s.measure.name == "count"]
    return float(nodes[counts[0]].ravel()[0]) / UNIT if counts else None


def _drawn_axes(plan: ReleasePlan, views: Sequence[NoisyRows]) -> tuple[ReleasePlan, list[AxisSplit]]:
    """The variance model of every axis; a data-dependent axis has the one that was drawn, and says so."""
    axes = list(plan.axes)
    models = [planned.strategy.variance() for planned in axes]
    for statistic, view in zip(plan.statistics, views, strict=True):
        drawn = statistic.measurement.drawn_axis(view)
        if drawn is not None:
            (i,) = statistic.axes
            models[i] = drawn.model
            axes[i] = replace(axes[i], choice=axes[i].choice._replace(name=drawn.words))
    return replace(plan, axes=tuple(axes)), [AxisSplit(model) for model in models]


def _nonnegative(plan: ReleasePlan, index: int, nodes: IntArray, trees: list[Tree]) -> IntArray | None:
    """Sums of the non-negative estimate of every node combination, where the release stores it."""
    statistic = plan.statistics[index]
    if not stores_nonnegative(plan, statistic):
        return None
    axis_trees = [trees[axis] for axis in statistic.axes]
    leaves = nodes[np.ix_(*(tree.leaves for tree in axis_trees))] / UNIT
    tree = signal_tree(len(leaves)) if len(axis_trees) == 1 else reduce(product_tree, axis_trees)
    return node_sums(to_units(nonnegative(tree, leaves.ravel()).reshape(leaves.shape)), axis_trees)


def _estimates(
    plan: ReleasePlan, drawn: DrawnRelease, splits: list[AxisSplit], trees: list[Tree]
) -> tuple[list[IntArray], list[Components]]:
    """Best estimates of every family, scaled and corrected where the table has a scale, then reconciled."""
    views = drawn.views
    strategies = {i: planned.strategy for i, planned in enumerate(plan.axes)}
    leaves: dict[int, FloatArray] = {}
    for members in plan.families:
        family = [DrawnMember(plan.statistics[i].axes, views[i]) for i in members]
        estimates = plan.statistics[members[0]].measurement.estimates(family, strategies)
        leaves |= zip(members, estimates, strict=True)
    measured = []
    for i, (s, view) in enumerate(zip(plan.statistics, views, strict=True)):
        scaled = leaves[i] * s.factor
        if i in drawn.corrected:
            scaled = scaled + drawn.corrected[i].leaves
        measured.append(ViewEstimate(s.axes, scaled, view.unit_variance * s.factor**2))
    return reconciled_nodes(plan, measured, splits, trees)


def reconciled_nodes(
    plan: ReleasePlan, measured: Sequence[ViewEstimate], splits: Sequence[AxisSplit], trees: Sequence[Tree]
) -> tuple[list[IntArray], list[Components]]:
    """Node sums of every statistic and the variance factors of its parts, family by family.

    Args:
        plan: what was measured.
        measured: leaf estimates of each statistic, in the plan's order.
        splits: the variance model of each axis.
        trees: the look-up tree of each axis.

    Returns:
        (node sums in units of 2^-20, components) of each statistic.
    """
    nodes: dict[int, IntArray] = {}
    components: dict[int, Components] = {}
    totals = {i: split.total for i, split in enumerate(splits)}
    spreads = {i: split.spread for i, split in enumerate(splits)}
    for members in plan.families:
        views = [measured[i] for i in members]
        measurement = plan.statistics[members[0]].measurement
        sigma2 = measurement.components([(m.axes, m.unit_variance) for m in views], totals)
        agreed = measurement.agreed(views, totals, spreads)
        leaves = round_family([(m.axes, x) for m, x in zip(views, agreed, strict=True)])
        for i, member, rounded in zip(members, views, leaves, strict=True):
            listed = plan.statistics[i].measurement.listed
            summed = [None if at in listed else trees[axis] for at, axis in enumerate(member.axes)]
            nodes[i] = node_sums(rounded, summed)
            components[i] = {
                component: s2 for component, s2 in sigma2.items() if set(component) <= set(member.axes)
            }
    order = range(len(plan.statistics))
    return [nodes[i] for i in order], [components[i] for i in order]


def planned_release(
    plan: ReleasePlan,
    release_id: str,
    models: Sequence[AxisVariance | Together],
    statistics: Sequence[StatisticPart],
    *,
    insecure: bool,
) -> ReleaseBuilder:
    """A release of a plan, without scales and without measured rows beyond contribution bounds.

    Args:
        plan: what was measured.
        release_id: the release's id.
        models: the variance model of each axis, then of each view whose axes are measured together, then how far
            shares of a scaled view may be off.
        statistics: in the plan's order.
        insecure: whether the noise came from test entropy, or there was none.
    """
    catalog, privacy = plan.catalog, plan.catalog.privacy
    promised = plan.currency.promise(sum((charge for _, charge in plan.lines), Fraction(0)))
    promise = Promise(
        unit=privacy.unit.name,
        neighbours=privacy.neighbours,
        epsilon=str(promised.epsilon),
        delta=str(promised.delta),
        mu2=None if promised.mu2 is None else str(promised.mu2),
        rows_per_unit={
            s.of: bounding_of(catalog, s.of).told(s.tau) for s in plan.statistics if not s.counts_people
        },
        rows=privacy.rows.name,
        vouched=catalog.vouched or None,
    )
    return ReleaseBuilder(
        release_id,
        json.loads(catalog.to_json()),
        spec_hash(catalog),
        promise,
        [SpentAmount(purpose, str(charge)) for purpose, charge in plan.lines],
        insecure,
        axes=axis_parts([PlacedAxis(p.axis, p.resolved.of, p.choice.name) for p in plan.axes]),
        models=models,
        statistics=statistics,
        choices=_choices(plan),
        bounding=[
            unmeasured(catalog, table.name)
            for table in catalog.star.tables.values()
            if table.cuts and not table.clipped_share
        ],
    )


class ScaledModels(NamedTuple):
    """What is stored of scaled statistics beside their views.

    Args:
        spreads: statistic -> number of the model of how far its shares may be off.
        differences: statistics with a second table of noisy integers.
    """

    spreads: Mapping[int, int]
    differences: frozenset[int]


UNSCALED = ScaledModels({}, frozenset())


def statistic_metas(
    plan: ReleasePlan, components: Sequence[Components], scaled: ScaledModels = UNSCALED
) -> list[StatisticMeta]:
    """What a release says of each statistic.

    Args:
        plan: what was measured.
        components: the variance factors of each one's parts.
        scaled: of those that are scaled.
    """
    return [_statistic_meta(plan, i, factors, scaled) for i, factors in enumerate(components)]


def stores_nonnegative(plan: ReleasePlan, statistic: PlannedStatistic) -> bool:
    """Whether the release holds non-negative estimates of a statistic too: of counts, unless the view says no."""
    if statistic.bounds is not None or not statistic.axes or statistic.measurement.listed:
        return False
    view = plan.catalog.views.get(statistic.view)
    wanted = None if view is None else view.nonnegative
    return prod(plan.shape(statistic)) <= MOST_NONNEGATIVE if wanted is None else wanted


def _choices(plan: ReleasePlan) -> list[ChoiceMeta]:
    """How the strategies of axes were chosen, and of views of two axes that may be measured together."""
    joint = plan.joint
    alone = {axis for s in plan.statistics if s.joint not in joint for axis in s.axes}
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
    return ScaleMeta(
        of=scale.of, tau=choices.tau, quantile=choices.quantile, weighted_down=choices.weighted_down,
        follows=scale.follows, unseen=round(choices.owned.unseen), rows=round(choices.rows.value),
        public_rows=scale.public_rows,
        measures=tuple(_measure_scale(name, factor) for name, factor in scale.factors.items()),
    )  # fmt: skip


def _measure_scale(name: str, factor: TotalsFactor) -> MeasureScale:
    left_out = None if factor.measured is None else max(0.0, 1.0 - 1.0 / factor.measured)
    return MeasureScale(
        name, factor.value, factor.put_back, _relative(factor.error), _relative(factor.mean_error), left_out,
    )  # fmt: skip


def _relative(error: Relative) -> RelativeError:
    """As a file holds it: what has no end is no number."""
    return RelativeError(error.noise, error.down, None if isinf(error.up) else error.up)


def _statistic_meta(plan: ReleasePlan, i: int, components: Components, scaled: ScaledModels) -> StatisticMeta:
    s, spread = plan.statistics[i], scaled.spreads.get(i)
    positions = tuple(
        (tuple(s.axes.index(axis) for axis in component), sigma2)
        for component, sigma2 in sorted(components.items())
    )
    kind = "int" if s.bounds is None or s.bounds.scale == 0 else "decimal"
    mechanism = f"{s.law.name}: {s.measurement.words([plan.axes[axis].choice.name for axis in s.axes])}"
    together = list(plan.joint)
    models = (len(plan.axes) + together.index(s.joint),) if s.joint in together else s.axes
    reading = s.measurement.reading if spread is None else ScaledReading.name
    return StatisticMeta(
        id=i, view=s.view, of=s.of, measure=s.measure.name, axes=s.axes, mid=s.mid,
        scale=s.bounds.scale if s.bounds else 0, kind=kind, sensitivity=s.sensitivity, budget=str(s.charge),
        currency=plan.currency.name, mechanism=mechanism, cells=int(np.prod(plan.shape(s))),
        reading=reading, models=models if spread is None else (*models, spread), components=positions,
        nonnegative=stores_nonnegative(plan, s), biased=s.measurement.biased, noise_mid=s.noise_mid,
        difference=i in scaled.differences,
    )  # fmt: skip
