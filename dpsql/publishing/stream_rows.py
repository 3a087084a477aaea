"""The rows of one batch: which of the raw rows arrive with it, and what they add to each statistic.

Every raw row belongs to exactly one batch. Without a file of its own a batch is the rows of the catalog's source
whose time lies in it. With one, it is that file, and its rows are

    in time    counted
    late       earlier, or without a date: counted as of this batch's beginning (`late: batch`) or left out (`drop`)
    early      later than the batch: left out; they belong to a batch of their own

Then c rows of a unit are kept by keyed hash (`contributions`), and those of units that have been in D batches before
are left out.

**Privacy**: what is left out is counted for the curator alone. Whether a unit is admitted depends on her own batches
and nobody else's rows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np

from dpsql.catalog import Catalog
from dpsql.catalog.base import nearest
from dpsql.catalog.source import Source
from dpsql.errors import SourceError
from dpsql.mechanisms.axis.strategy import measure
from dpsql.publishing.contributions import set_key
from dpsql.publishing.draw import histograms
from dpsql.publishing.rows import place_rows, prepare_tables
from dpsql.publishing.stream_calendar import batch_bounds
from dpsql.publishing.stream_plan import StreamPlan
from dpsql.publishing.stream_spec import Batch, IntArray
from dpsql.publishing.stream_state import BoolArray
from dpsql.publishing.stream_time import stream_column
from dpsql.publishing.stream_types import StreamTypes, carry_columns, check_unit_key, first_types
from dpsql.sources import RawSide, identifier
from dpsql.sources.keys import open_star

Admit = Callable[[Sequence[str]], BoolArray]


@dataclass(frozen=True)
class Arrived:
    """The rows that arrived, not yet bounded.

    Args:
        number: the batch.
        content: a digest of them; the private state keeps a keyed hash of it.
        left_out: rows that are not in time, by rule.
    """

    number: int
    content: bytes
    left_out: dict[str, int]


def open_batch(
    catalog: Catalog, source: Source, of: str, file: Path | None, types: StreamTypes | None
) -> RawSide:
    """The raw side, with the batch's own file in place of the arriving table's source.

    Args:
        catalog, source: the catalog and where its tables are.
        of: the table whose rows arrive.
        file: the batch's own file, if it has one.
        types: column types of the first batch; None where this is the first one.

    Raises:
        SourceError: a file is missing or cannot be read, or a column is not of the type that it had.
        CatalogError: people's keys come as text and the catalog does not say of what type they are.

    **Privacy**: reads the files' schemas, no row.
    """
    if file is not None and not file.is_file():
        raise SourceError(f"there is no file {file}", hint="pass a Parquet or CSV file with the batch's rows")
    raw = open_star(
        catalog, first=None if types is None else types.keys, own_files=None if file is None else {of: file}
    )
    try:
        if types is None and catalog.stream is not None and catalog.stream.max_batches is not None:
            check_unit_key(catalog, raw)
        carry_columns(catalog, raw, types or first_types(catalog, raw))
    except BaseException:
        raw.close()
        raise
    return raw


def arrive(raw: RawSide, catalog: Catalog, number: int, own_file: bool) -> Arrived:
    """Make the arriving table hold the batch's rows and nothing else.

    Args:
        raw: the raw side; its view of the arriving table is replaced.
        catalog: the stream's catalog.
        number: the batch.
        own_file: whether the table's rows came in a file of this batch.

    Raises:
        SourceError: the time column is not in the source.
    """
    stream, of, declared = stream_column(catalog)
    connection, table = raw.connection, f"raw.{identifier(of)}"
    name = stream.column.rpartition(".")[2]
    known = {column.lower(): column for column in raw.columns[of]}
    if name.lower() not in known:
        raise SourceError(
            f"tables.{of}: the source has no column `{name}`", hint=nearest(name, tuple(known.values()))
        )
    column = identifier(known[name.lower()])
    start, end = batch_bounds(number, str(declared.lower), stream.grain)
    start = max(start, datetime.fromisoformat(str(declared.lower)))
    moment = f"TRY_CAST({column} AS TIMESTAMP)"
    in_time = f"({moment} >= TIMESTAMP '{start}' AND {moment} < TIMESTAMP '{end}')"
    rule = f"CASE WHEN {in_time} THEN 'in' WHEN {moment} >= TIMESTAMP '{end}' THEN 'early' ELSE 'late' END"
    connection.execute(
        f'CREATE TABLE arrived AS SELECT *, {rule} AS "arrival rule" FROM {table} '
        + ("" if own_file else f"WHERE {in_time}")
    )
    begin = f"DATE '{start.date()}'" if declared.type == "date" else f"TIMESTAMP '{start}'"
    kind = raw.columns[of][known[name.lower()]]
    moved = f"CASE \"arrival rule\" WHEN 'in' THEN {column} ELSE CAST({begin} AS {kind}) END"
    kept = "('in', 'late')" if stream.late == "batch" else "('in')"
    connection.execute(
        f'CREATE OR REPLACE VIEW {table} AS SELECT * EXCLUDE ("arrival rule") REPLACE ({moved} AS {column}) '
        f'FROM arrived WHERE "arrival rule" IN {kept}'
    )
    content, left_out = _digest(connection.execute(
        'SELECT "arrival rule", count(*), sum(hash(CAST(arrived AS VARCHAR))::HUGEINT) FROM arrived GROUP BY 1'
    ).fetchall(), stream.late == "batch")  # fmt: skip
    return Arrived(number, content, left_out | ({"no row": raw.left_out[of]} if of in raw.left_out else {}))


def _digest(rows: Sequence[tuple[str, int, int]], late_kept: bool) -> tuple[bytes, dict[str, int]]:
    """An order-independent digest of all rows that arrived, and how many the rules leave out."""
    found = {str(rule): (int(count), str(total)) for rule, count, total in rows}
    dropped = ("early",) if late_kept else ("early", "late")
    left_out = {rule: found[rule][0] for rule in dropped if rule in found}
    return hashlib.sha256(json.dumps(sorted(found.items())).encode()).digest(), left_out


def aggregate(
    raw: RawSide, plan: StreamPlan, arrived: Arrived, key: bytes, admit: Admit, types: StreamTypes
) -> Batch:
    """Bound the batch's rows and add them up.

    Args:
        raw: the raw side after `arrive`.
        plan: the stream, planned for this batch.
        arrived: what `arrive` found.
        key: secret of the stream that ranks a unit's rows.
        admit: says which units may still be in a batch.
        types: column types of the rows; the first batch's are kept.

    Returns:
        The batch as exact sums of the other axes' rows.

    **Privacy**: raw; the sums go to the private state and, with noise, to the segment.
    """
    catalog, capped = plan.catalog, plan.lifetime is not None
    set_key(raw.connection, key)
    prepare_tables(catalog, raw, plan.batch)
    total = _count(raw, f"raw.{identifier(plan.of)}")
    table, columns = place_rows(catalog, raw, plan.batch, plan.of, keep_unit=capped)
    placed = _count(raw, table)
    people = _admitted(raw, table, admit) if capped else ()
    # a row whose key two units share is placed for each of them
    left_out = {"bounded": max(0, total - placed), "lifetime": placed - _count(raw, table)}
    cells = histograms(raw, plan.batch, plan.of, table, columns)
    increments = tuple(_rows(plan, index, cells[index]) for index in range(len(plan.batch.statistics)))
    nonzero = {rule: rows for rule, rows in {**arrived.left_out, **left_out}.items() if rows}
    return Batch(arrived.number, arrived.content, increments, people, nonzero, types.text())


def _rows(plan: StreamPlan, index: int, cells: IntArray) -> IntArray:
    """A batch's leaf combinations as rows of the other axes' strategies, flat."""
    statistic = plan.batch.statistics[index]
    measured = cells[0]
    for axis, strategy in enumerate(plan.batch.strategies(statistic)[1:]):
        measured = measure(strategy, measured, axis)
    return np.asarray(measured, dtype=np.int64).reshape(-1)


def _admitted(raw: RawSide, table: str, admit: Admit) -> tuple[str, ...]:
    """Leave out the rows of units that have been in all their batches; the units that are left."""
    query = f"SELECT DISTINCT CAST(unit AS VARCHAR) FROM {table} ORDER BY 1"
    people = [str(row[0]) for row in raw.connection.execute(query).fetchall()]
    allowed = admit(people)
    kept = [person for person, may in zip(people, allowed, strict=True) if may]
    if len(kept) < len(people):
        raw.connection.execute(
            f"DELETE FROM {table} WHERE CAST(unit AS VARCHAR) NOT IN (SELECT unnest(?))", [kept]
        )
    return tuple(kept)


def _count(raw: RawSide, table: str) -> int:
    return int(raw.connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0])
