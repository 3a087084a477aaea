"""Attributes that only devices know: their items joined to the curator's rows, counted as any column, then undone.

    attach    the reported item stands in the unit's table as a column, NULL where nobody reported
    squares   how the rows of one person add up, a few noisy numbers: for error bars alone
    undo      noisy counts of items -> unbiased counts of values, by a public matrix

Noise, sensitivity, ledger and storage are those of any other column: a unit's rows stand under one item.

**Privacy**: docs/privacy/hybrid.md. For fixed reports the release is an ordinary one of the items; `undo` is
post-processing of it. The stored reports never leave the curator.
**Source**: docs/method/hybrid.md, "What is published".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dpsql.axis import build_axis
from dpsql.budget import NEIGHBOURS, currency_at
from dpsql.engines import RawSide
from dpsql.engines.engine import Engine
from dpsql.errors import CatalogError, SourceError
from dpsql.mechanisms.law import LAPLACE
from dpsql.mechanisms.local.channel import Channel, channel_of
from dpsql.noise import Noise
from dpsql.publishing.planned import PlannedStatistic, ReleasePlan, Step
from dpsql.publishing.rows import place_rows
from dpsql.release.format import UNIT, ReportedMeta, Spend
from dpsql.release.memory import node_sums
from dpsql.release.write import (
    AxisPart,
    PlacedAxis,
    ReleaseBuilder,
    StatisticContent,
    StatisticPart,
    axis_parts,
)
from dpsql.star import Catalog, spec_hash
from dpsql.star.reported import ReportedColumn, inner_catalog, reported_columns
from dpsql.star.sql import identifier, literal
from dpsql.variance.channel import ChannelModel, ChannelReading, Squares
from dpsql.variance.kronecker import AxisSplit, ProductReading
from dpsql.variance.leaves import PrefixVariance

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
SQUARES = "squares"
SQUARES_SHARE = Fraction(3, 100)
"""Part of a table's budget that error bars of its reported columns take."""
ROOM = 1 << 40
"""Most that one person's squares may be, so that all of them fit 62 bits."""


def counted_catalog(catalog: Catalog) -> Catalog:
    """What the curator counts: items in the place of reported values."""
    return inner_catalog(catalog, lambda column: channel_of(*column.asked).items)


def attach_reports(catalog: Catalog, engine: Engine) -> list[ReportedMeta]:
    """Put the reported items into the rows of their tables.

    A report of a person who is not in the table meets no row; one that is not of the plan, or out of its items, counts
    as none. Nothing fails by what a report says.

    Args:
        catalog: as it was written.
        engine: the raw side of `counted_catalog`, in DuckDB; gains a column for each reported one.

    Returns:
        What the release says of each reported column.

    Raises:
        SourceError: the reports' file is missing or is none of `dpsql collect --for`.
    """
    found = []
    for column in reported_columns(catalog):
        source, raw = catalog.raw_source(), engine.as_duckdb("reported")
        channel = channel_of(*column.asked)
        file = source.folder(catalog.file) / source.reports[column.table]
        plan = _stored_plan(file, column)
        key, name = str(catalog.tables[column.table].key), identifier(column.column)
        view, below = f"raw.{identifier(column.table)}", identifier(f"{column.table} without reports")
        raw.connection.execute(
            f"CREATE TABLE raw.reports AS SELECT unit, min(item) AS item FROM read_parquet({literal(str(file))}) "
            f"WHERE item BETWEEN 0 AND {channel.items - 1} GROUP BY unit"
        )
        raw.connection.execute(f"ALTER VIEW {view} RENAME TO {below}")
        own = [identifier(c) for c in raw.columns[column.table] if c.lower() != column.column.lower()]
        raw.connection.execute(
            f"CREATE VIEW {view} AS SELECT {', '.join(f't.{c}' for c in own)}, r.item AS {name} FROM raw.{below} AS t "
            f"LEFT JOIN raw.reports AS r ON CAST(t.{identifier(key)} AS VARCHAR) = r.unit"
        )
        raw.columns[column.table] = {**raw.columns[column.table], column.column: "BIGINT"}
        told = column.told
        found.append(
            ReportedMeta(
                str(column), str(told.epsilon), told.collection, plan,
                tuple(f"{level.oracle} of {level.nodes}" for level in channel.levels), channel.items,
            )
        )  # fmt: skip
    return found


def _stored_plan(file: Path, column: ReportedColumn) -> str:
    """The hash of the plan that stored reports answer."""
    import duckdb

    if not file.is_file():
        raise SourceError(
            f"source.reports.{column.table}: there is no file {file.name}", hint="run dpsql collect --for"
        )
    try:
        with duckdb.connect() as connection:
            rows = connection.execute(
                f"SELECT key, value FROM parquet_kv_metadata({literal(str(file))})"
            ).fetchall()
    except duckdb.Error:
        rows = []
    kept = {bytes(key).decode(): bytes(value).decode() for key, value in rows if key != b"ARROW:schema"}
    if kept.get("column") != str(column) or "plan" not in kept:
        raise SourceError(
            f"source.reports.{column.table}: {file.name} holds no reports of {column}",
            hint="run dpsql collect --for",
        )
    return kept["plan"]


class Squared(NamedTuple):
    """One noisy sum over people.

    Args:
        own: squares of single rows; else products of pairs of different rows of a person.
        axis: pairs in one cell of this axis; None for all of them.
        powers: how many of the two factors are the measure; the others count rows.
    """

    own: bool
    axis: int | None
    powers: int


@dataclass(frozen=True)
class SquaresOf:
    """What is asked of one statistic of a view with a reported column: its squares by `Squared`."""

    statistic: int
    asked: tuple[Squared, ...]


def hybrid_statistics(plan: ReleasePlan, catalog: Catalog) -> dict[int, int]:
    """Statistics with a reported column among their axes: position -> that axis's id."""
    known = {(each.table, each.column) for each in reported_columns(catalog)}
    found = {}
    for i, statistic in enumerate(plan.statistics):
        for axis in statistic.axes:
            meant = plan.axes[axis].resolved
            if (meant.table, meant.column) in known:
                found[i] = axis
    return found


def asked_squares(plan: ReleasePlan, catalog: Catalog) -> list[SquaresOf]:
    """The squares that error bars need; none where they are bounded, or where a person has one row and counts alone."""
    bars = {each.told.error_bar for each in reported_columns(catalog)}
    if "bound" in bars:
        return []
    found = []
    for i, axis in hybrid_statistics(plan, catalog).items():
        statistic = plan.statistics[i]
        reach = statistic.bounds.reach if statistic.bounds else 1
        if statistic.unit != 1 or (statistic.tau * reach) ** 2 >= ROOM:
            continue
        others = [None, *(a for a in statistic.axes if a != axis)]
        own = [Squared(True, None, 2)] if statistic.bounds else []
        powers = (1, 2) if statistic.bounds else (0,)
        pairs = [Squared(False, a, k) for k in powers for a in others] if statistic.tau > 1 else []
        if own or pairs:
            found.append(SquaresOf(i, (*own, *pairs)))
    return found


def with_squares(plan: ReleasePlan, catalog: Catalog) -> ReleasePlan:
    """The plan with 3% of its charges set aside for squares, evenly; charges add up to what they were."""
    asked = asked_squares(plan, catalog)
    lines = sum(len(each.asked) for each in asked)
    if not lines:
        return plan
    hybrid = hybrid_statistics(plan, catalog)
    whole = sum((plan.statistics[i].charge for i in hybrid), Fraction(0))
    charge, statistics, steps = whole * SQUARES_SHARE / lines, list(plan.statistics), []
    for i in hybrid:
        left = statistics[i].charge * (1 - SQUARES_SHARE)
        spend = statistics[i].spend * (1 - SQUARES_SHARE)
        statistics[i] = replace(statistics[i], charge=left, spend=spend)
    for each in asked:
        statistic = plan.statistics[each.statistic]
        for squared in each.asked:
            steps.append(Step(statistic.of, SQUARES, _words(statistic, squared), _pure(plan, charge), charge))
    return replace(plan, statistics=tuple(statistics), steps=(*plan.steps, *steps))


def _words(statistic: PlannedStatistic, squared: Squared) -> str:
    axis = "" if squared.axis is None else f" on axis {squared.axis}"
    kind = "own" if squared.own else "pairs"
    return f"{statistic.view}, {statistic.measure.name}: {kind}, power {squared.powers}{axis}"


def _pure(plan: ReleasePlan, charge: Fraction) -> Fraction:
    """The epsilon of Laplace noise that a charge pays for."""
    privacy = plan.catalog.privacy
    currency = currency_at(privacy.delta)
    return LAPLACE.bought(currency.drawn(charge, NEIGHBOURS[privacy.neighbours]), currency)


Drawn = dict[tuple[int, Squared], float]


def draw_squares(plan: ReleasePlan, catalog: Catalog, engine: Engine, key: bytes, noise: Noise) -> Drawn:
    """Draw every square that the plan pays for.

    Args:
        plan, catalog, engine: the release being made; `catalog` is the one that is counted.
        key: the secret that picks rows: the same rows count as in the cells.
        noise: where noise comes from.

    **Privacy**: each line's epsilon. One person changes a sum by at most `_bound`, to which her part is cut.
    """
    found: Drawn = {}
    rows: dict[str, tuple[str, Mapping[str, str]]] = {}
    for each in asked_squares(plan, catalog):
        statistic, raw = plan.statistics[each.statistic], engine.as_duckdb("reported")
        if statistic.of not in rows:
            rows[statistic.of] = place_rows(catalog, raw, plan, statistic.of, key)
        table, columns = rows[statistic.of]
        measured = statistic.measure
        value = "0"
        if statistic.bounds is not None:
            value = f"coalesce({columns[f'{measured.table}.{measured.column}']} - ({statistic.mid}), 0)"
        for squared in each.asked:
            step = plan.step(statistic.of, SQUARES, _words(statistic, squared))
            assert step is not None
            bound = _bound(statistic, squared)
            unit = "rowid" if catalog.star.tables[statistic.of].unit is None else "unit"
            exact = _exact(raw, table, Summed(unit, value), squared, bound)
            drawn = LAPLACE.draw_bounded(np.array([exact], np.int64), bound, step.spend, noise)
            found[each.statistic, squared] = float(drawn.value[0])
    return found


def _bound(statistic: PlannedStatistic, squared: Squared) -> int:
    """The most that one person adds to a sum of squares, up or down."""
    reach = statistic.bounds.reach if statistic.bounds else 1
    rows = statistic.tau if squared.own else statistic.tau * (statistic.tau - 1)
    return int(max(1, rows) * reach**squared.powers)


class Summed(NamedTuple):
    """SQL of whose a row is, and of its centred value."""

    unit: str
    value: str


def _exact(raw: RawSide, table: str, of: Summed, squared: Squared, bound: int) -> int:
    """The exact sum, each person's part cut to the bound."""
    square = f"({of.value} * {of.value})::HUGEINT"
    if squared.own:
        inner = f"SELECT {of.unit} AS u, sum({square}) AS part FROM {table} GROUP BY 1"
    else:
        cell = "" if squared.axis is None else f", a{squared.axis}"
        both = ("n * n", "n * s", "s * s")[squared.powers]
        alone = ("n", "s", "q")[squared.powers]
        inner = (
            f"SELECT u, sum({both} - {alone}) AS part FROM (SELECT {of.unit} AS u{cell}, count(*)::HUGEINT AS n, "
            f"sum(({of.value})::HUGEINT) AS s, sum({square}) AS q FROM {table} GROUP BY 1{', 2' if cell else ''}) "
            "GROUP BY u"
        )
    ((found,),) = raw.connection.execute(
        f"SELECT CAST(coalesce(sum(greatest(least(part, {bound}), -{bound})), 0) AS BIGINT) FROM ({inner})"
    ).fetchall()
    return int(found)


class Undone(NamedTuple):
    """What undoing needs.

    Args:
        catalog: as it was written.
        plan: the release that was drawn, of items.
        squares: noisy sums.
        told: of each reported column.
    """

    catalog: Catalog
    plan: ReleasePlan
    squares: Drawn
    told: Sequence[ReportedMeta]


def undo(builder: ReleaseBuilder, how: Undone) -> ReleaseBuilder:
    """A release of items -> the release of values that analysts ask.

    Args:
        builder: what was drawn, with items as leaves.
        how: the rest.
    """
    catalog, plan = how.catalog, how.plan
    hybrid = hybrid_statistics(plan, catalog)
    axes, models = list(builder.axes), list(builder.models)
    channels: dict[int, Channel] = {}
    for number in sorted(set(hybrid.values())):
        resolved = plan.axes[number].resolved
        column = next(
            c for c in reported_columns(catalog) if (c.table, c.column) == (resolved.table, resolved.column)
        )
        channels[number] = channel_of(*column.asked)
        axes[number] = _outer_axis(catalog, plan, number, column, builder.axes[number])
        matrix = _matrix(channels[number], axes[number].meta.leaves)
        split = AxisSplit(plan.axes[number].strategy.variance())
        rest, share = split.table(np.eye(matrix.shape[1]))
        models[number] = PrefixVariance(matrix @ (rest + split.total * share) @ matrix.T)
    counts: dict[str, FloatArray] = {}
    statistics = list(builder.statistics)
    order = sorted(range(len(statistics)), key=lambda i: statistics[i].meta.measure != "count")
    for i in order:
        if i in hybrid:
            number = hybrid[i]
            place = statistics[i].meta.axes.index(number)
            leaves = _undone(builder, i, place, _matrix(channels[number], axes[number].meta.leaves))
            if statistics[i].meta.measure == "count":
                counts[statistics[i].meta.view] = leaves / UNIT
            held = counts[statistics[i].meta.view]
            alone, beside = _sizes(how, i, held, float(leaves.sum()) / UNIT)
            channel = channels[number]
            models.append(ChannelModel(place, channel.law, channel.scores, held, alone, beside))
            statistics[i] = _as_values(statistics[i], leaves, axes, len(models) - 1)
    lines = [Spend(each.line, "0") for each in how.told]
    return replace(
        builder, catalog=json.loads(catalog.to_json()), spec_hash=spec_hash(catalog), axes=axes, models=models,
        statistics=statistics, spends=[*builder.spends, *lines], reported=tuple(how.told),
    )  # fmt: skip


def _outer_axis(
    catalog: Catalog, plan: ReleasePlan, number: int, column: ReportedColumn, inner: AxisPart
) -> AxisPart:
    """The attribute's own axis: its values, then NULL, the leaf of those who did not report."""
    resolved = replace(plan.axes[number].resolved, spec=column.spec.model_copy(update={"nullable": True}))
    axis = build_axis(catalog, resolved, {})
    (part,) = axis_parts([PlacedAxis(axis, inner.meta.of, inner.meta.strategy)])
    return AxisPart(replace(part.meta, model=inner.meta.model), part.content)


def _matrix(channel: Channel, leaves: int) -> FloatArray:
    """What turns items into values; special leaves stay as they are, shape (leaves, items and special leaves)."""
    special = leaves - channel.leaves
    matrix = np.zeros((leaves, channel.items + special))
    matrix[: channel.leaves, : channel.items] = channel.scores
    matrix[channel.leaves :, channel.items :] = np.eye(special)
    return matrix


def _undone(builder: ReleaseBuilder, index: int, place: int, matrix: FloatArray) -> IntArray:
    """Leaf estimates of values in units of 2^-20; they add up to what items added up to, exactly."""
    meta, content = builder.statistics[index].meta, builder.statistics[index].content
    trees = [builder.axes[axis].content.tree for axis in meta.axes]
    items = np.moveaxis(content.nodes[np.ix_(*(tree.leaves for tree in trees))], place, 0)
    values = np.rint(np.tensordot(matrix, items.astype(np.float64), axes=(1, 0))).astype(np.int64)
    values[0] += items.sum(axis=0) - values.sum(axis=0)
    return np.moveaxis(values, 0, place)


def _as_values(part: StatisticPart, leaves: IntArray, axes: Sequence[AxisPart], model: int) -> StatisticPart:
    meta = part.meta
    if meta.reading != ProductReading.name:
        raise CatalogError(
            f"views.{meta.view}.mechanism: items of a reported column are measured one by one",
            hint="write identity",
        )
    trees = [axes[axis].content.tree for axis in meta.axes]
    told = replace(
        meta,
        reading=ChannelReading.name,
        models=(*meta.models, model),
        nonnegative=False,
        cells=prod(leaves.shape),
    )
    content = StatisticContent(part.content.value, part.content.budget, node_sums(leaves, trees))
    return StatisticPart(told, content)


def _sizes(how: Undone, index: int, counts: FloatArray, total: float) -> tuple[Squares, Squares]:
    """Squares of a statistic alone, and with its view's count; the bound where none were drawn.

    Args:
        how: what was drawn.
        index: the statistic.
        counts: its view's.
        total: all of it.
    """
    statistic = how.plan.statistics[index]
    rows, flat = max(float(counts.sum()), 1.0), (0.0,) * counts.ndim
    drawn = {squared: value for (i, squared), value in how.squares.items() if i == index}
    reach = float(statistic.bounds.reach if statistic.bounds else 1)
    own = drawn.get(Squared(True, None, 2))
    bound = Squares(statistic.tau * reach**2, 0.0, flat)
    nothing = Squares(0.0, 0.0, flat)
    if statistic.bounds is None:
        if not drawn:
            return bound, bound
        return _squares(1.0, Pairs(drawn, 0, statistic), counts), nothing
    if own is None:
        return bound, nothing
    return (
        _squares(float(np.clip(own / rows, 0.0, reach**2)), Pairs(drawn, 2, statistic), counts),
        _squares(float(np.clip(total / rows, -reach, reach)), Pairs(drawn, 1, statistic), counts),
    )


class Pairs(NamedTuple):
    """Noisy sums over pairs of rows of one person, of one statistic and kind."""

    drawn: Mapping[Squared, float]
    powers: int
    statistic: PlannedStatistic


def _squares(own: float, pairs: Pairs, counts: FloatArray) -> Squares:
    """mu, lambda and theta of one kind of pairs."""
    rows = max(float(counts.sum()), 1.0)
    whole = pairs.drawn.get(Squared(False, None, pairs.powers), 0.0)
    whole = whole if pairs.powers == 1 else max(whole, 0.0)
    stick = []
    for place, axis in enumerate(pairs.statistic.axes):
        others = tuple(i for i in range(counts.ndim) if i != place)
        shares = np.maximum(counts.sum(axis=others), 0.0) / rows
        chance = float(np.minimum((shares**2).sum(), 0.999))
        alike = pairs.drawn.get(Squared(False, axis, pairs.powers))
        share = 0.0 if alike is None or not whole else alike / whole
        stick.append(float(np.clip((share - chance) / (1 - chance), 0.0, 1.0)))
    return Squares(own, whole / rows, tuple(stick))
