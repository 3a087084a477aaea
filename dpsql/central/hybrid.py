"""Attributes that only devices know: their items joined to the curator's rows, counted as any column, then undone.

    attach    the reported item stands in the unit's table as a column, NULL where nobody reported
    invert_channel      noisy counts of items -> unbiased counts of values, by a public matrix

How the rows of one person add up, for error bars, is measured in `dpsql.central.row_pairs`.

Noise, sensitivity, ledger and storage are those of any other column: a unit's rows stand under one item.

**Privacy**: docs/privacy/local.md. For fixed reports the release is an ordinary one of the items; `invert_channel` is
post-processing of it. The stored reports never leave the curator.
**Source**: docs/method/local.md, "The channel".

A catalog without reported columns calls none of these steps.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np

from dpsql.axis.build import build_axis
from dpsql.axis.model import Axis
from dpsql.catalog import Catalog, spec_hash
from dpsql.catalog.graph import ResolvedAxis
from dpsql.catalog.private_columns import ReportedColumn, inner_catalog, reported_columns
from dpsql.central.planned import PlannedAxis, ReleasePlan
from dpsql.central.row_pairs import RowsOfPeople, hybrid_statistics, with_squares
from dpsql.engines.registry import Engine, kind_of
from dpsql.engines.values import canonical_text
from dpsql.errors import CatalogError, SourceError
from dpsql.local.mechanisms.channel import Channel, channel_of
from dpsql.matrices.channel import ChannelModel, ChannelReading
from dpsql.matrices.kronecker import AxisSplit, ProductReading
from dpsql.matrices.model import PrefixVariance
from dpsql.matrices.reconcile import node_sums
from dpsql.release import write
from dpsql.release.format import SpentAmount
from dpsql.release.reports import ReportedMeta
from dpsql.row_expressions import identifier, literal
from dpsql.scratch import scratch
from dpsql.tree import FloatArray, IntArray


def attach_reports(catalog: Catalog, engine: Engine) -> list[ReportedMeta]:
    """Put the reported items into the rows of their tables.

    A report of a person who is not in the table meets no row; one that is not of the plan, or out of its items, counts
    as none. Nothing fails by what a report says.

    Args:
        catalog: as it was written.
        engine: the raw side of the counted catalog, in DuckDB; gains a column for each reported one.

    Returns:
        What the release says of each reported column.

    Raises:
        SourceError: the reports' file is missing or is none of `dpsql collect --for`.
    """
    reported = []
    for column in reported_columns(catalog):
        source, raw = catalog.raw_source(), engine.as_duckdb("reported")
        channel = channel_of(*column.asked)
        file = source.folder(catalog.file) / source.reports[column.table]
        plan = _stored_plan(file, column, channel)
        key, name = str(catalog.tables[column.table].key), identifier(column.column)
        view, below = f"raw.{identifier(column.table)}", identifier(f"{column.table} without reports")
        with raw.step(f"reading the reports about {column}"):
            raw.connection.execute(
                f"CREATE TABLE raw.reports AS SELECT unit, min(item) AS item FROM read_parquet({literal(str(file))}) "
                f"WHERE item BETWEEN 0 AND {channel.items - 1} GROUP BY unit"
            )
        unit = canonical_text(f"t.{identifier(key)}", str(kind_of(raw, column.table, key)))
        raw.connection.execute(f"ALTER VIEW {view} RENAME TO {below}")
        own = [identifier(c) for c in raw.columns[column.table] if c.lower() != column.column.lower()]
        raw.connection.execute(
            f"CREATE VIEW {view} AS SELECT {', '.join(f't.{c}' for c in own)}, r.item AS {name} FROM raw.{below} AS t "
            f"LEFT JOIN raw.reports AS r ON {unit} = r.unit"
        )
        raw.columns[column.table] = {**raw.columns[column.table], column.column: "BIGINT"}
        reported.append(reported_meta(column, plan))
    return reported


def reported_meta(column: ReportedColumn, plan: str) -> ReportedMeta:
    """Metadata of a reported column.

    Args:
        column: of the catalog.
        plan: hash of the plan that devices answered.
    """
    declared, channel = column.told, channel_of(*column.asked)
    return ReportedMeta(
        str(column), str(declared.epsilon), declared.collection, plan, channel.words, channel.items,
        nonresponse=declared.nonresponse.name,
    )  # fmt: skip


def _stored_plan(file: Path, column: ReportedColumn, channel: Channel) -> str:
    """The hash of the plan that stored reports answer, whose channel has to be the catalog's."""
    if not file.is_file():
        raise SourceError(
            f"source.reports.{column.table}: there is no file {file.name}", hint="run dpsql collect --for"
        )
    try:
        with scratch() as connection:
            rows = connection.execute(
                f"SELECT key, value FROM parquet_kv_metadata({literal(str(file))})"
            ).fetchall()
    except duckdb.Error:
        rows = []
    metadata = {bytes(key).decode(): bytes(value).decode() for key, value in rows if key != b"ARROW:schema"}
    if metadata.get("column") != str(column) or "plan" not in metadata:
        raise SourceError(
            f"source.reports.{column.table}: {file.name} contains no reports of {column}",
            hint="run dpsql collect --for",
        )
    if metadata.get("channel") != channel.fingerprint:
        raise SourceError(
            f"source.reports.{column.table}: devices answered another plan than that of the catalog's {column}",
            hint="write the epsilon, cuts and mechanism that they were asked with, or ask in a new collection",
        )
    return metadata["plan"]


class ChannelInputs(NamedTuple):
    """Inputs of the inversion of a channel.

    Args:
        catalog: as it was written.
        plan: the release that was drawn, of items.
        squares: how the rows of one person add up.
        reports: of each reported column.
    """

    catalog: Catalog
    plan: ReleasePlan
    squares: RowsOfPeople
    reports: Sequence[ReportedMeta]


def invert_channel(builder: write.ReleaseBuilder, how: ChannelInputs) -> write.ReleaseBuilder:
    """A release of items -> the release of values that analysts ask.

    Args:
        builder: what was drawn, with items as leaves.
        how: the rest.
    """
    catalog, plan = how.catalog, how.plan
    hybrid = hybrid_statistics(plan, catalog)
    axes, models = list(builder.axes), list(builder.models)
    channels: dict[int, Channel] = {}
    sampled: dict[int, bool] = {}
    for number in sorted(set(hybrid.values())):
        column = reported_at(catalog, plan.axes[number].resolved)
        if column is None:
            continue
        channels[number], sampled[number] = channel_of(*column.asked), column.told.nonresponse.sampled
        axis = shown_axis(catalog, plan.axes[number])
        inner = builder.axes[number]
        (axis_part,) = write.axis_parts([write.PlacedAxis(axis, inner.meta.of, inner.meta.strategy)])
        axes[number] = axis_part._replace(meta=replace(axis_part.meta, model=inner.meta.model))
        matrix = _matrix(channels[number], axes[number].meta.leaves)
        split = AxisSplit(plan.axes[number].strategy.solver)
        remainder, share = split.table(np.eye(matrix.shape[1]))
        models[number] = PrefixVariance(matrix @ (remainder + split.total * share) @ matrix.T)
    counts: dict[str, FloatArray] = {}
    statistics = list(builder.statistics)
    order = sorted(range(len(statistics)), key=lambda i: not statistics[i].meta.measure.counts_rows)
    for i in order:
        if i in hybrid:
            number = hybrid[i]
            place = statistics[i].meta.axes.index(number)
            leaves = _undone(builder, i, place, _matrix(channels[number], axes[number].meta.leaves))
            cells, channel = statistics[i].meta.in_units(leaves), channels[number]
            count_cells = counts.setdefault(statistics[i].meta.view, cells)
            rows, apart = how.squares.rows(i, count_cells), how.squares.deviations(i, count_cells)
            model = ChannelModel(
                place, channel.law, channel.scores, count_cells, cells, rows, apart, sampled[number]
            )
            models.append(model)
            statistics[i] = _as_values(statistics[i], leaves, axes, len(models) - 1)
    lines = [SpentAmount(meta.line, "0") for meta in how.reports]
    reported = tuple(replace(meta, squares=how.squares.stored) for meta in how.reports)
    return replace(
        builder, catalog=json.loads(catalog.to_json()), spec_hash=spec_hash(catalog), axes=axes, models=models,
        statistics=statistics, spends=[*builder.spends, *lines], reported=reported,
    )  # fmt: skip


def reported_at(catalog: Catalog, resolved: ResolvedAxis) -> ReportedColumn | None:
    """The reported column that an axis is made of; None if of none."""
    columns = {(reported.table, reported.column): reported for reported in reported_columns(catalog)}
    return columns.get((resolved.table, str(resolved.column)))


def shown_axis(catalog: Catalog, planned: PlannedAxis) -> Axis:
    """The axis that a release shows; a reported attribute's values, then NULL, the leaf of those who did not report.

    Args:
        catalog: as it was written.
        planned: the axis of what is counted.
    """
    column = reported_at(catalog, planned.resolved)
    if column is None:
        return planned.axis
    spec = column.spec.model_copy(update={"nullable": True})
    return build_axis(catalog, replace(planned.resolved, spec=spec), {})


def _matrix(channel: Channel, leaves: int) -> FloatArray:
    """Matrix from items to values; special leaves stay as they are, shape (leaves, items and special leaves)."""
    special = leaves - channel.leaves
    matrix = np.zeros((leaves, channel.items + special))
    matrix[: channel.leaves, : channel.items] = channel.scores
    matrix[channel.leaves :, channel.items :] = np.eye(special)
    return matrix


def _undone(builder: write.ReleaseBuilder, index: int, place: int, matrix: FloatArray) -> IntArray:
    """Leaf estimates of values in units of 2^-20; they add up to what items added up to, exactly."""
    meta, content = builder.statistics[index].meta, builder.statistics[index].content
    trees = [builder.axes[axis].tree for axis in meta.axes]
    items = np.moveaxis(content.nodes[np.ix_(*(tree.leaves for tree in trees))], place, 0)
    values = np.rint(np.tensordot(matrix, items.astype(np.float64), axes=(1, 0))).astype(np.int64)
    values[0] += items.sum(axis=0) - values.sum(axis=0)
    return np.moveaxis(values, 0, place)


def _as_values(
    statistic: write.StatisticPart, leaves: IntArray, axes: Sequence[write.AxisPart], model: int
) -> write.StatisticPart:
    meta = statistic.meta
    if meta.reading != ProductReading.name:
        raise CatalogError(
            f"views.{meta.view}.mechanism: items of a reported column are measured one by one",
            hint="write identity",
        )
    trees = [axes[axis].tree for axis in meta.axes]
    values_meta = replace(
        meta,
        reading=ChannelReading.name,
        models=(*meta.models, model),
        nonnegative=False,
        cells=prod(leaves.shape),
    )
    content = write.StatisticContent(
        statistic.content.value, statistic.content.budget, node_sums(leaves, trees)
    )
    return write.StatisticPart(values_meta, content)


def counted_catalog(catalog: Catalog) -> Catalog:
    """Catalog of what the curator counts: items in the place of reported values."""
    if not reported_columns(catalog):
        return catalog
    return inner_catalog(catalog, lambda column: channel_of(*column.asked).items)


def supplemented(plan: ReleasePlan, catalog: Catalog) -> ReleasePlan:
    """A plan with the squares that error bars of reported columns need.

    Args:
        plan: of what is counted.
        catalog: as it was written, or what is counted of it.
    """
    return with_squares(plan, plan.catalog) if reported_columns(catalog) else plan
