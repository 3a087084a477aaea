"""Tallies to a release of the same shape as a central one, so that the same SQL runs on it.

Counts are people x slots x share (and, with `row_weighting: mar`, times E r / E min(r, tau)); sums are stored around
the value that lets them err independently of counts (`centre`). Every view's margins agree, since all are put together
from the same parts.

**Privacy**: post-processing of reports that were private before they left the device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import duckdb
import numpy as np

from dpsql.axis import Axis, table_sql
from dpsql.catalog import spec_hash
from dpsql.client.plan import Plan
from dpsql.collecting.centre import centre_of, centred_on
from dpsql.collecting.collector import Manifest
from dpsql.collecting.estimate import AxisTable, Parts, Table, axis_table, model_of, table
from dpsql.collecting.influence import rows_moved
from dpsql.collecting.parts import interactions
from dpsql.collecting.plan import facts_of
from dpsql.collecting.positive import Positive, outside, positive_shares
from dpsql.collecting.scale import Scale, row_scale
from dpsql.collecting.survey import Survey
from dpsql.collecting.tallies import IntArray, Tallies, oracle_of
from dpsql.collecting.totals import total_of
from dpsql.mechanisms.central.rounding import node_sums, round_family, to_units
from dpsql.mechanisms.local.blue import Estimate
from dpsql.mechanisms.local.shuffle import shuffled_epsilon
from dpsql.mechanisms.oracles.oracle import influence
from dpsql.release.format import FORMAT, AxisMeta, ColumnMeta, ScaleMeta, StatisticMeta, to_json
from dpsql.release.write import ARRAYS, AxisContent, ReleaseContent, StatisticContent
from dpsql.tree import Tree, kary_tree
from dpsql.variance.prefix import PrefixVariance

ARITY = 4
SHUFFLE_DELTA = 1e-7


def release_content(
    survey: Survey, plan: Plan, tallies: Tallies, manifest: Manifest, release_id: str
) -> ReleaseContent:
    """All that the release file will hold.

    Args:
        survey: the catalog's questions.
        plan: the plan that people answered.
        tallies: counts per view.
        manifest: what was collected and rejected.
        release_id: the release's id.
    """
    known = {a: axis_table(plan, tallies, a) for a in range(len(survey.axes))}
    scale = row_scale(plan, tallies, known)
    trees = [kary_tree(axis.leaves, ARITY) for axis in survey.axes]
    models = [PrefixVariance(model_of(known[a].counts)) for a in range(len(survey.axes))]
    smooth = {held: positive_shares(plan, tallies, held, known) for held, _ in survey.views.values()}
    own = _positive_models(smooth, scale.factor, models)
    statistics: list[StatisticMeta] = []
    contents: list[StatisticContent] = []
    for measure in [None, *range(len(survey.measures))]:
        mid, found = _family(survey, plan, tallies, known, scale, measure)
        units = round_family([(t.axes, t.values) for _, t in found])
        for (view, held), leaves in zip(found, units, strict=True):
            positive = smooth[held.axes] if measure is None else None
            rows = None if positive is None else to_units(positive.shares * scale.factor)
            described = replace(_statistic(survey, plan, len(statistics), view, held, measure), mid=mid)
            bars = None if positive is None else own.get(held.axes)
            statistics.append(replace(described, nonnegative=rows is not None, nonnegative_model=bars))
            contents.append(statistic_content(leaves, rows, [trees[a] for a in held.axes]))
    axes = [AxisContent(a.arrays(), table_sql(a, ARRAYS), t) for a, t in zip(survey.axes, trees, strict=True)]
    scales = _scales(survey, plan, scale)
    meta = _promise(survey, plan, manifest, scale, release_id)
    meta["local"]["influence"]["rows_at_most"] = rows_moved(plan, tallies, scale.factor)
    meta["local"]["smooth_outside_unbiased"] = {
        survey.axes[a].name: outside(positive.shares, known[a].counts)
        for (a, *more), positive in smooth.items()
        if positive is not None and not more
    }
    meta["axes"] = [to_json(m) for m in axis_metas(survey)]
    meta["models"] = [m.kind for m in models]
    meta["statistics"] = [to_json(s) for s in statistics]
    meta["scales"] = [to_json(s) for s in scales]
    meta["bounding"] = _bounding(survey, plan, scale)
    return ReleaseContent(meta, axes, models, contents, scales)


def _positive_models(
    smooth: Mapping[tuple[int, ...], Positive | None], factor: float, models: list[PrefixVariance]
) -> dict[tuple[int, ...], int]:
    """Add the stacks' own variance models, in squared rows, after those of the axes; returns their numbers by axes."""
    found = {}
    for axes, positive in smooth.items():
        if positive is not None and positive.covariance is not None:
            found[axes] = len(models)
            spread = Estimate(positive.shares, positive.covariance * factor**2)
            models.append(PrefixVariance(model_of(spread)))
    return found


def statistic_content(leaves: IntArray, positive: IntArray | None, trees: list[Tree]) -> StatisticContent:
    """Node sums of a statistic; there are no noisy integers of the curator's own."""
    nothing = np.zeros((0,) * leaves.ndim, dtype=np.int64)
    smooth = None if positive is None else node_sums(positive, trees)
    return StatisticContent(nothing, nothing, node_sums(leaves, trees), smooth)


def _family(
    survey: Survey,
    plan: Plan,
    tallies: Tallies,
    known: Mapping[int, AxisTable],
    scale: Scale,
    measure: int | None,
) -> tuple[int, list[tuple[str, Table]]]:
    """One measure's centre and, view by view, its tables in rows (or measure units around the centre)."""
    views = {n: v for n, (v, m) in survey.views.items() if measure is None or measure in m}
    parts: Parts = interactions(plan, tallies, views.values(), known, measure)
    mid, half, shift = 0, 0.0, 1.0
    if measure is not None:
        centre = centre_of(plan, tallies, known, measure)
        counts = interactions(plan, tallies, views.values(), known)
        known, parts = centred_on(centre, known, parts, counts, measure)
        mid, half, shift = centre.mid, centre.half, centre.shift
    total, found = total_of(plan, tallies, known, measure, half, shift), []
    for name, axes in views.items():
        held = table(axes, known, parts, measure, total)
        strengths = {part: s * scale.factor**2 for part, s in held.strengths.items()}
        found.append((name, replace(held, values=held.values * scale.factor, strengths=strengths)))
    return mid, found


def _statistic(
    survey: Survey, plan: Plan, number: int, view: str, held: Table, measure: int | None
) -> StatisticMeta:
    bounds = None if measure is None else plan.measures[measure]
    return StatisticMeta(
        id=number,
        view=view,
        of=survey.of,
        measure="count" if measure is None else survey.measures[measure].name,
        axes=held.axes,
        mid=0,
        scale=0 if bounds is None else bounds.scale,
        kind="int" if bounds is None or bounds.scale == 0 else "decimal",
        sensitivity=plan.tau,
        budget=str(plan.epsilon),
        currency="epsilon",
        mechanism="local: " + ", ".join(sorted({v.oracle for v in plan.views})),
        cells=int(held.values.size),
        components=tuple(sorted((part, s) for part, s in held.strengths.items())),
    )


def axis_metas(survey: Survey) -> list[AxisMeta]:
    """What the release tells about its axes."""
    connection = duckdb.connect()
    try:
        return [_axis_meta(connection, survey, i, axis) for i, axis in enumerate(survey.axes)]
    finally:
        connection.close()


def _axis_meta(connection: duckdb.DuckDBPyConnection, survey: Survey, i: int, axis: Axis) -> AxisMeta:
    import pandas as pd

    connection.register(ARRAYS, pd.DataFrame({n: pd.Series(v[:1]) for n, v in axis.arrays().items()}))
    described = connection.execute(f"DESCRIBE {table_sql(axis, ARRAYS)}").fetchall()
    connection.unregister(ARRAYS)
    types = {str(row[0]): str(row[1]) for row in described}
    columns = tuple(
        ColumnMeta(c.path, c.table, c.column, c.sql_name, types[c.sql_name], c.description)
        for c in [*axis.columns, *(column for column, _ in axis.derived)]
    )
    return AxisMeta(
        axis.name, axis.table, axis.path, survey.of, axis.leaves, axis.null_leaf, axis.missing_leaf,
        axis.other_leaf, columns, axis.atomic, i, "reports of people",
    )  # fmt: skip


def _promise(survey: Survey, plan: Plan, manifest: Manifest, scale: Scale, release_id: str) -> dict[str, Any]:
    """Who is promised what, and what was collected."""
    facts = facts_of(plan)
    simulated = {"simulated": True} if facts.simulated else {}
    privacy: dict[str, Any] = {
        "unit": survey.catalog.privacy.unit,
        "neighbours": "replace_one",
        "trust": "local",
        "epsilon": str(plan.epsilon),
        "delta": "0",
        "rows_per_unit": {survey.of: plan.tau},
        "adds_up": "no central cap is charged; whoever is also in a central release of the same people is "
        "promised, for replacing one person, twice its add-or-remove epsilon plus this one",
    }
    return {
        "format": FORMAT,
        "release_id": release_id,
        "catalog": facts.catalog,
        "spec_hash": spec_hash(survey.catalog),
        "privacy": privacy | simulated,
        "spends": [[f"one report of {plan.collection}", str(plan.epsilon)]],
        "insecure_entropy": False,
        "local": {"participation": survey.participation}
        | _collected(plan, manifest, scale, facts.shuffled)
        | simulated,
    }


def _collected(plan: Plan, manifest: Manifest, scale: Scale, shuffled: bool) -> dict[str, Any]:
    """What was collected, how far one hostile report reaches, and what a shuffler adds."""
    reach = max(influence(oracle_of(plan, v)) for v in plan.views)
    found: dict[str, Any] = {
        "collection": plan.collection,
        "plan_hash": plan.hash.hex(),
        "manifest": manifest._asdict(),
        "tau": plan.tau,
        "row_weight": scale.weight,
        "row_weight_error": scale.weight_error,
        "clipped_fraction": None if scale.clipped is None else scale.clipped.value,
        "clipped_fraction_error": None if scale.clipped is None else scale.clipped.error,
        "influence": {"reports_in_its_view": reach},
    }
    first = facts_of(plan).row_reports
    if first is not None:
        found["first_round"] = {"plan_hash": first.plan, "reports_of_row_counts": first.reports}
    if shuffled and manifest.tokens:
        found["shuffled"] = {
            "void": f"{manifest.tokens} reports came with a token, which a shuffler cannot hide"
        }
    elif shuffled:
        honest = manifest.accepted
        found["shuffled"] = {
            "epsilon": shuffled_epsilon(honest, float(plan.epsilon), SHUFFLE_DELTA),
            "delta": SHUFFLE_DELTA,
            "people": honest,
            "holds_if": "reports reach the collector only through an anonymous shuffler, from honest distinct "
            "people who were all handed the same plan, each report once, in one round, without linkable tokens, "
            "timing or metadata; neighbours replace one person",
        }
    return found


def _bounding(survey: Survey, plan: Plan, scale: Scale) -> list[dict[str, Any]]:
    """What tau left out of the counted table; nothing where people have no more rows than slots."""
    if plan.rows_floor >= plan.tau:
        return []
    told = scale.clipped
    return [
        {
            "of": survey.of, "bounding": "slots", "tau": plan.tau,
            "clipped_fraction": None if told is None else told.value,
            "clipped_fraction_error": None if told is None else told.error,
            "put_back": scale.weight_error > 0,
        }
    ]  # fmt: skip


def _scales(survey: Survey, plan: Plan, scale: Scale) -> list[ScaleMeta]:
    """The weight of rows beyond tau: one error common to all counts and sums; none where there is no weight."""
    if scale.weight_error == 0:
        return []
    return [
        ScaleMeta(
            of=survey.of, factor=scale.weight, relative_error=scale.weight_error / scale.weight,
            left_out=1 - 1 / scale.weight, tau=plan.tau, quantile=0.0, weighted_down=0.0, sticky=(),
            rows=round(scale.factor), public_rows=False,
        )
    ]  # fmt: skip
