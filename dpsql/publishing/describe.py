"""What a release says about itself: promise, axes, statistics, how its mechanisms were chosen.

**Privacy**: a function of the plan and of drawn values' public shapes; nothing here sees a raw row.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from fractions import Fraction
from math import prod
from typing import Any

import duckdb
import numpy as np

from dpsql.budget import epsilon_of
from dpsql.catalog import spec_hash
from dpsql.publishing.axes import typed_columns
from dpsql.publishing.bounding import LeftOut
from dpsql.publishing.planned import PlannedStatistic, ReleasePlan
from dpsql.publishing.userlevel import TableScale
from dpsql.release.format import FORMAT, AxisMeta, ColumnMeta, ScaleMeta, StatisticMeta, to_json
from dpsql.variance import AxisVariance
from dpsql.variance.plane import PlaneVariance

Components = dict[tuple[int, ...], float]

MOST_NONNEGATIVE = 1 << 20
"""Cells up to which counts get non-negative estimates unasked; the step takes about a second there."""


def release_meta(
    plan: ReleasePlan,
    connection: duckdb.DuckDBPyConnection,
    release_id: str,
    models: Sequence[AxisVariance | PlaneVariance],
    components: Sequence[Components],
    *,
    insecure: bool,
) -> dict[str, Any]:
    """The `meta` table, without scales.

    Args:
        plan: what was measured.
        connection: any connection; types of derived axis columns are asked of it.
        release_id: the release's id.
        models: the variance model of each axis, then of each view whose axes are measured together.
        components: the variance factors of each statistic's parts.
        insecure: whether the noise came from test entropy, or there was none.
    """
    meta = _promise(plan, release_id, insecure)
    meta["axes"] = [to_json(_axis_meta(plan, connection, i)) for i in range(len(plan.axes))]
    meta["models"] = [model.kind for model in models]
    meta["statistics"] = [to_json(_statistic_meta(plan, i, part)) for i, part in enumerate(components)]
    joint = plan.joint
    alone = {axis for s in plan.statistics if s.view not in joint for axis in s.axes}
    meta["choices"] = [*(choice_json(plan, i) for i in sorted(alone)), *_choices_of_views(plan)]
    return meta


def stores_nonnegative(plan: ReleasePlan, statistic: PlannedStatistic) -> bool:
    """Whether the release holds non-negative estimates of a statistic too: of counts, unless the view says no."""
    if statistic.bounds is not None or not statistic.axes:
        return False
    view = plan.catalog.views.get(statistic.view)
    wanted = None if view is None else view.nonnegative
    return prod(plan.shape(statistic)) <= MOST_NONNEGATIVE if wanted is None else wanted


def left_out_json(left_out: LeftOut, kept: float) -> dict[str, Any]:
    """What bounding left out, with the part of all rows that it is; `kept` is the released number that counted."""
    return asdict(left_out) | {"clipped_fraction": left_out.fraction(kept)}


def choice_json(plan: ReleasePlan, axis: int) -> dict[str, Any]:
    """How an axis's strategy was chosen: its exact expected error and those of the runners-up, best first.

    Errors are mean variances over the axis's workload at epsilon 1 (Laplace) or rho 1/2 (Gaussian).
    """
    choice = plan.axes[axis].choice
    others = [{"strategy": name, "expected_error": error} for name, error in choice.runners_up]
    return {"axis": plan.axes[axis].axis.name, "strategy": choice.name,
            "expected_error": choice.expected_error, "runners_up": others}  # fmt: skip


def _choices_of_views(plan: ReleasePlan) -> list[dict[str, Any]]:
    """The same of views of two axes that may be measured together: errors over ranges on both."""
    compared = {s.view: s.measurement.compared for s in plan.statistics if s.measurement.compared is not None}
    return [
        {"view": view, "strategy": each.name, "expected_error": each.expected_error, "whole": each.whole,
         "runners_up": [{"strategy": name, "expected_error": error} for name, error in each.runners_up]}
        for view, each in compared.items()
    ]  # fmt: skip


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
            **({"vouched": list(catalog.vouched)} if catalog.vouched else {}),
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


def scale_meta(scale: TableScale) -> ScaleMeta:
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
    mechanism = f"{s.law.name}: {s.measurement.words([plan.axes[axis].choice.name for axis in s.axes])}"
    together = list(plan.joint)
    joint = len(plan.axes) + together.index(s.view) if s.view in together else None
    currency = "rho" if plan.catalog.privacy.delta else "epsilon"
    return StatisticMeta(
        id=i, view=s.view, of=s.of, measure=s.measure.name, axes=s.axes, mid=s.mid,
        scale=s.bounds.scale if s.bounds else 0, kind=kind, sensitivity=s.sensitivity, budget=str(s.charge),
        currency=currency, mechanism=mechanism, cells=int(np.prod(plan.shape(s))), components=positions,
        nonnegative=stores_nonnegative(plan, s), biased=s.measurement.biased, joint=joint,
    )  # fmt: skip
