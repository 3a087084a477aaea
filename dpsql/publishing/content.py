"""Post-process noisy views into what the release file holds: estimates, node sums, variance, meta.

Families of statistics are reconciled here, so that every view of a table tells the same totals.

**Privacy**: post-processing of noisy integers and public facts; nothing here sees a raw row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import duckdb
import numpy as np
import numpy.typing as npt

from dpsql.axis import table_sql
from dpsql.mechanisms.central.nonnegative import nonnegative, product_tree
from dpsql.mechanisms.central.reconcile import Measured
from dpsql.mechanisms.central.rounding import UNIT, node_sums, round_family, to_units
from dpsql.mechanisms.central.signal import signal_tree
from dpsql.mechanisms.family.measurement import DrawnMember
from dpsql.mechanisms.law import NoisyRows
from dpsql.publishing.bounding import LeftOut
from dpsql.publishing.describe import Components, left_out_json, release_meta, scale_meta, stores_nonnegative
from dpsql.publishing.planned import ReleasePlan
from dpsql.publishing.userlevel import TableScale
from dpsql.release.format import to_json
from dpsql.release.write import ARRAYS, AxisContent, ReleaseContent, StatisticContent
from dpsql.tree import Tree, kary_tree
from dpsql.variance import AxisVariance
from dpsql.variance.kronecker import AxisSplit
from dpsql.variance.plane import PlaneVariance
from dpsql.variance.prefix import scaled_leaves

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

LOOKUP_ARITY = 4
"""Children per node of the look-up trees: a range of 256 leaves needs at most 24 nodes, storage is 4/3 n."""


def release_content(
    plan: ReleasePlan,
    views: Sequence[NoisyRows],
    connection: duckdb.DuckDBPyConnection,
    release_id: str,
    *,
    insecure: bool,
    scales: Sequence[TableScale] = (),
    left_out: Sequence[LeftOut] = (),
) -> ReleaseContent:
    """All that the release file will hold.

    Args:
        plan: what was measured.
        views: noisy integers of each statistic, in the plan's order.
        connection: any connection; types of derived axis columns are asked of it.
        release_id: the release's id.
        insecure: whether the noise came from test entropy.
        scales: of each table with `max_ids: auto`.
        left_out: of each table with `clipped_share`.
    """
    plan, splits = _drawn_axes(plan, views)
    trees = [kary_tree(planned.axis.leaves, LOOKUP_ARITY) for planned in plan.axes]
    nodes, components = _estimates(plan, views, splits, trees)
    axes = [
        AxisContent(planned.axis.arrays(), table_sql(planned.axis, ARRAYS), tree)
        for planned, tree in zip(plan.axes, trees, strict=True)
    ]
    statistics = [
        StatisticContent(view.value, view.budget, sums, _nonnegative(plan, i, sums, trees))
        for i, (view, sums) in enumerate(zip(views, nodes, strict=True))
    ]
    models: list[AxisVariance | PlaneVariance] = [split.model for split in splits]
    models += plan.joint.values()
    meta = release_meta(plan, connection, release_id, models, components, insecure=insecure)
    found = [scale_meta(scale) for scale in scales]
    meta["scales"] = [to_json(each) for each in found]
    meta["bounding"] = [left_out_json(each, _kept(plan, each.of, nodes)) for each in left_out]
    return ReleaseContent(meta, axes, models, statistics, found)


def _kept(plan: ReleasePlan, of: str, nodes: Sequence[IntArray]) -> float:
    """The released number of a table's rows that counted: the root of one of its counts."""
    counts = [i for i, s in enumerate(plan.statistics) if s.of == of and s.measure.name == "count"]
    return float(nodes[counts[0]].ravel()[0]) / UNIT if counts else 0.0


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
        elif statistic.settled is not None and statistic.settled.groups is not None:
            i, factors = statistic.settled.groups
            models[i] = scaled_leaves(axes[i].strategy.variance(), np.array(factors))
    return replace(plan, axes=tuple(axes)), [AxisSplit(model) for model in models]


def _nonnegative(plan: ReleasePlan, index: int, nodes: IntArray, trees: list[Tree]) -> IntArray | None:
    """Sums of the non-negative estimate of every node combination, where the release stores it."""
    statistic = plan.statistics[index]
    if not stores_nonnegative(plan, statistic):
        return None
    own = [trees[axis] for axis in statistic.axes]
    leaves = nodes[np.ix_(*(tree.leaves for tree in own))] / UNIT
    tree = signal_tree(len(leaves)) if len(own) == 1 else reduce(product_tree, own)
    return node_sums(to_units(nonnegative(tree, leaves.ravel()).reshape(leaves.shape)), own)


def _estimates(
    plan: ReleasePlan, views: Sequence[NoisyRows], splits: list[AxisSplit], trees: list[Tree]
) -> tuple[list[IntArray], list[Components]]:
    """Best estimates of every family, then reconciled."""
    strategies = {i: planned.strategy for i, planned in enumerate(plan.axes)}
    leaves: dict[int, FloatArray] = {}
    for members in plan.families:
        drawn = [DrawnMember(plan.statistics[i].axes, views[i]) for i in members]
        estimates = plan.statistics[members[0]].measurement.estimates(drawn, strategies)
        leaves |= zip(members, estimates, strict=True)
    measured = []
    for i, (s, view) in enumerate(zip(plan.statistics, views, strict=True)):
        own = leaves[i]
        if s.settled is not None and s.settled.groups is not None:
            along = [-1 if axis == s.settled.groups.axis else 1 for axis in s.axes]
            own = own * np.array(s.settled.groups.factors).reshape(along)
        measured.append(Measured(s.axes, own * s.factor, view.unit_variance * s.factor**2))
    return reconciled_nodes(plan, measured, splits, trees)


def reconciled_nodes(
    plan: ReleasePlan, measured: Sequence[Measured], splits: Sequence[AxisSplit], trees: Sequence[Tree]
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
            nodes[i] = node_sums(rounded, [trees[axis] for axis in member.axes])
            components[i] = {part: s2 for part, s2 in sigma2.items() if set(part) <= set(member.axes)}
    order = range(len(plan.statistics))
    return [nodes[i] for i in order], [components[i] for i in order]
