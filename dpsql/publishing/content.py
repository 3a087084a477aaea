"""Post-process noisy views into what the release file holds: estimates, node sums, variance, meta.

Families of statistics are reconciled here, so that every view of a table tells the same totals.

**Privacy**: post-processing of noisy integers and public facts; nothing here sees a raw row.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt

from dpsql.axis import table_sql
from dpsql.budget import epsilon_of
from dpsql.catalog import spec_hash
from dpsql.mechanisms.central.reconcile import Measured, component_variances, reconcile
from dpsql.mechanisms.central.rounding import node_sums, round_family
from dpsql.mechanisms.central.strategy import variance_model
from dpsql.mechanisms.central.view import NoisyView, leaf_estimates
from dpsql.publishing.axes import typed_columns
from dpsql.publishing.plan import ReleasePlan
from dpsql.publishing.userlevel import TableScale
from dpsql.release.format import FORMAT, AxisMeta, ColumnMeta, ScaleMeta, StatisticMeta, to_json
from dpsql.release.write import ARRAYS, AxisContent, ReleaseContent, StatisticContent
from dpsql.tree import Tree, kary_tree
from dpsql.variance.kronecker import AxisSplit

IntArray = npt.NDArray[np.int64]
Components = dict[tuple[int, ...], float]

LOOKUP_ARITY = 4
"""Children per node of the look-up trees: a range of 256 leaves needs at most 24 nodes, storage is 4/3 n."""


def release_content(
    plan: ReleasePlan,
    views: Sequence[NoisyView],
    connection: duckdb.DuckDBPyConnection,
    release_id: str,
    *,
    insecure: bool,
    scales: Sequence[TableScale] = (),
) -> ReleaseContent:
    """All that the release file will hold.

    Args:
        plan: what was measured.
        views: noisy integers of each statistic, in the plan's order.
        connection: any connection; types of derived axis columns are asked of it.
        release_id: the release's id.
        insecure: whether the noise came from test entropy.
        scales: of each table with `max_ids: auto`.
    """
    splits = [AxisSplit(variance_model(planned.strategy)) for planned in plan.axes]
    trees = [kary_tree(planned.axis.leaves, LOOKUP_ARITY) for planned in plan.axes]
    nodes, components = _estimates(plan, views, splits, trees)
    axes = [
        AxisContent(planned.axis.arrays(), table_sql(planned.axis, ARRAYS), tree)
        for planned, tree in zip(plan.axes, trees, strict=True)
    ]
    statistics = [
        StatisticContent(view.value, view.budget, sums) for view, sums in zip(views, nodes, strict=True)
    ]
    meta = _promise(plan, release_id, insecure)
    meta["axes"] = [to_json(_axis_meta(plan, connection, i)) for i in range(len(plan.axes))]
    meta["models"] = [split.model.kind for split in splits]
    meta["statistics"] = [to_json(_statistic_meta(plan, i, part)) for i, part in enumerate(components)]
    found = [_scale_meta(scale) for scale in scales]
    meta["scales"] = [to_json(each) for each in found]
    return ReleaseContent(meta, axes, [split.model for split in splits], statistics, found)


def _estimates(
    plan: ReleasePlan, views: Sequence[NoisyView], splits: list[AxisSplit], trees: list[Tree]
) -> tuple[list[IntArray], list[Components]]:
    """Node sums of every statistic and the variance factors of its parts, family by family."""
    nodes: dict[int, IntArray] = {}
    components: dict[int, Components] = {}
    totals = {i: split.total for i, split in enumerate(splits)}
    spreads = {i: split.spread for i, split in enumerate(splits)}
    for family in dict.fromkeys(s.family for s in plan.statistics):
        members = [i for i, s in enumerate(plan.statistics) if s.family == family]
        measured = [
            Measured(
                plan.statistics[i].axes,
                leaf_estimates(views[i], plan.strategies(plan.statistics[i])) * plan.statistics[i].factor,
                views[i].unit_variance * plan.statistics[i].factor ** 2,
            )
            for i in members
        ]
        sigma2 = component_variances([(m.axes, m.unit_variance) for m in measured], totals)
        leaves = round_family(
            [(m.axes, x) for m, x in zip(measured, reconcile(measured, totals, spreads), strict=True)]
        )
        for i, member, units in zip(members, measured, leaves, strict=True):
            nodes[i] = node_sums(units, [trees[axis] for axis in member.axes])
            components[i] = {part: s2 for part, s2 in sigma2.items() if set(part) <= set(member.axes)}
    order = range(len(plan.statistics))
    return [nodes[i] for i in order], [components[i] for i in order]


def _promise(plan: ReleasePlan, release_id: str, insecure: bool) -> dict[str, Any]:
    """Who is promised what, and what it cost."""
    catalog, privacy = plan.catalog, plan.catalog.privacy
    spends = [[purpose, str(charge)] for purpose, charge in plan.lines]
    return {
        "format": FORMAT,
        "release_id": release_id,
        "catalog": json.loads(catalog.to_json()),
        "spec_hash": spec_hash(catalog),
        "privacy": {
            "unit": privacy.unit,
            "neighbours": privacy.neighbours,
            **_guarantee(plan),
            "rows_per_unit": {s.of: "auto" if s.shape else s.tau for s in plan.statistics},
            "rows": privacy.rows,
        },
        "spends": spends,
        "insecure_entropy": insecure,
    }


def _guarantee(plan: ReleasePlan) -> dict[str, str]:
    """epsilon, or epsilon, delta and the rho that implies them."""
    total = sum((charge for _, charge in plan.lines), Fraction(0))
    delta = plan.catalog.privacy.delta
    if delta == 0:
        return {"epsilon": str(total), "delta": "0"}
    return {"epsilon": str(epsilon_of(total, delta)), "delta": str(delta), "rho": str(total)}


def _scale_meta(scale: TableScale) -> ScaleMeta:
    """The scale of one table, with what it says about bias."""
    choices, ratio = scale.choices, scale.ratio
    left_out = None if ratio.measured is None else max(0.0, 1.0 - 1.0 / ratio.measured)
    return ScaleMeta(
        of=scale.of, factor=ratio.value, relative_error=ratio.error, left_out=left_out, tau=choices.tau,
        quantile=choices.quantile, weighted_down=choices.weighted_down, sticky=scale.sticky,
        rows=choices.rows.value, public_rows=scale.public_rows,
    )  # fmt: skip


def _axis_meta(plan: ReleasePlan, connection: duckdb.DuckDBPyConnection, i: int) -> AxisMeta:
    planned = plan.axes[i]
    axis = planned.axis
    columns = tuple(
        ColumnMeta(c.path, c.table, c.column, c.sql_name, c.type, c.description)
        for c in typed_columns(connection, axis)
    )
    return AxisMeta(
        axis.name, axis.table, axis.path, planned.resolved.of, axis.leaves, axis.null_leaf, axis.missing_leaf,
        axis.other_leaf, columns, axis.atomic, i, planned.choice.name,
    )  # fmt: skip


def _statistic_meta(plan: ReleasePlan, i: int, components: Components) -> StatisticMeta:
    s = plan.statistics[i]
    positions = tuple(
        (tuple(s.axes.index(axis) for axis in part), sigma2) for part, sigma2 in sorted(components.items())
    )
    kind = "int" if s.bounds is None or s.bounds.scale == 0 else "decimal"
    noise = "Laplace" if s.norm == 1 else "Gaussian"
    mechanism = f"{noise}: " + " x ".join(plan.axes[axis].choice.name for axis in s.axes)
    currency = "rho" if plan.catalog.privacy.delta else "epsilon"
    return StatisticMeta(
        id=i, view=s.view, of=s.of, measure=s.measure.name, axes=s.axes, mid=s.mid,
        scale=s.bounds.scale if s.bounds else 0, kind=kind, sensitivity=s.sensitivity, budget=str(s.charge),
        currency=currency, mechanism=mechanism, cells=int(np.prod(plan.shape(s))), components=positions,
    )  # fmt: skip
