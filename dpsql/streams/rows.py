"""The rows of one batch: which of the raw rows arrive with it, their types, and what they add to each statistic.

Every raw row belongs to exactly one batch. Without a file of its own a batch is the rows of the catalog's source
whose time lies in it. With one, it is that file, and its rows are

    in time    counted
    late       earlier, or without a date: counted as of this batch's beginning (`late: batch`) or left out (`drop`)
    early      later than the batch: left out; they belong to a batch of their own

Then c rows of a unit are sampled (`engines.template`), and those of units that have been in D batches before
are left out.

The first batch fixes the column types, so that a person is one person in every batch:

| column                                     | a later batch of another type                                    |
|--------------------------------------------|------------------------------------------------------------------|
| keys and foreign keys                      | carried by value into the type that the key had (`engines.keys`) |
| declared int, decimal                      | numbers as they are; text is read as a number, row by row        |
| declared date, timestamp                   | dates and times as they are; text is read as one, row by row     |
| declared string, bool                      | carried by value into the type that the column had               |

A batch may have its columns in any order and case; columns that the catalog does not use are not read. A column that
is missing, or whose type stands for no values of the first one's, is refused by name, before a row is read. A value
that cannot be carried becomes NULL on its row alone.

**Privacy**: what is left out is counted for the curator alone. Whether a unit is admitted depends on her own batches
and nobody else's rows. Column types of the source are not published; they stay in the private state.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from dpsql.catalog import Catalog
from dpsql.catalog.graph import roots
from dpsql.catalog.tables import Table
from dpsql.central.placed_rows import place_rows, placed_cells, prepare_tables
from dpsql.engines.duck import RawSide, missing_column, retyped
from dpsql.engines.registry import open_star
from dpsql.engines.schema_union import schema_of
from dpsql.engines.values import canonical_text, exact_cast, family, type_word, widest
from dpsql.errors import CatalogError, IntegrityError, SourceError
from dpsql.matrices.strategy import measure
from dpsql.row_expressions import identifier
from dpsql.row_expressions.expression import instant
from dpsql.streams.append import Batch
from dpsql.streams.plan import StreamPlan, batch_bounds, stream_column
from dpsql.tree import BoolArray, Exact, IntArray

Admit = Callable[[Sequence[str]], BoolArray]
NUMBERS = ("integer", "decimal", "float")
ANY_NUMBER = "DECIMAL(38,9)"
"""Holds every digit that a measure or an axis may declare."""


Arrived = tuple[int, bytes, dict[str, int]]
"""The rows that arrived, not yet bounded: the batch's number; their digest, of which the private state keeps a keyed
hash; rows that are not in time, by rule."""


def open_batch(catalog: Catalog, of: str, file: Path | None, types: StreamTypes | None) -> RawSide:
    """The raw side, with the batch's own file in place of the arriving table's source.

    Args:
        catalog: with the source of its tables.
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
    column_names = {column.lower(): column for column in raw.columns[of]}
    if name.lower() not in column_names:
        raise missing_column(of, name, len(column_names))
    column = identifier(column_names[name.lower()])
    start, end = batch_bounds(number, str(declared.lower), stream.grain)
    start = max(start, datetime.fromisoformat(str(declared.lower)))
    is_text = raw.columns[of][column_names[name.lower()]] == "VARCHAR"
    moment = instant(column) if is_text else f"TRY_CAST({column} AS TIMESTAMP)"
    in_time = f"({moment} >= TIMESTAMP '{start}' AND {moment} < TIMESTAMP '{end}')"
    rule = f"CASE WHEN {in_time} THEN 'in' WHEN {moment} >= TIMESTAMP '{end}' THEN 'early' ELSE 'late' END"
    connection.execute(
        f'CREATE TABLE arrived AS SELECT *, {rule} AS "arrival rule" FROM {table} '
        + ("" if own_file else f"WHERE {in_time}")
    )
    begin = f"DATE '{start.date()}'" if declared.type == "date" else f"TIMESTAMP '{start}'"
    kind = raw.columns[of][column_names[name.lower()]]
    moved = f"CASE \"arrival rule\" WHEN 'in' THEN {column} ELSE CAST({begin} AS {kind}) END"
    counted = ("in", "late") if stream.late.counted else ("in",)
    connection.execute(
        f'CREATE OR REPLACE VIEW {table} AS SELECT * EXCLUDE ("arrival rule") REPLACE ({moved} AS {column}) '
        f'FROM arrived WHERE "arrival rule" IN (SELECT unnest({list(counted)}))'
    )
    sums = connection.execute(
        'SELECT "arrival rule", count(*), sum(hash(CAST(arrived AS VARCHAR))::HUGEINT) FROM arrived GROUP BY 1'
    ).fetchall()
    by_rule = sorted((str(rule), (int(rows), str(total))) for rule, rows, total in sums)
    # independent of the order of rows
    content = hashlib.sha256(json.dumps(by_rule).encode()).digest()
    left_out = {rule: rows for rule, (rows, _) in by_rule if rule not in counted}
    return number, content, left_out | ({"no row": raw.left_out[of]} if of in raw.left_out else {})


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
    (number, content, not_in_time), catalog = arrived, plan.catalog
    prepare_tables(catalog, raw, plan.batch)
    total = _count(raw, f"raw.{identifier(plan.of)}")
    table, columns = place_rows(catalog, raw, plan.batch, plan.of, key)
    placed = _count(raw, table)
    people = () if plan.lifetime is None else _admitted(raw, table, admit)
    # a row whose key two units share is placed for each of them
    left_out = {"bounded": max(0, total - placed), "lifetime": placed - _count(raw, table)}
    cells = placed_cells(raw.connection, plan.batch, plan.of, table, columns)
    increments = []
    for index, statistic in enumerate(plan.batch.statistics):
        # leaf combinations as rows of the other axes' strategies, flat
        measured: IntArray = cells[index][0]
        for axis, strategy in enumerate(plan.batch.strategies(statistic)[1:]):
            measured = measure(strategy, measured, axis)
        increments.append(Exact(np.asarray(measured, dtype=np.int64).reshape(-1)))
    nonzero = {rule: rows for rule, rows in {**not_in_time, **left_out}.items() if rows}
    return Batch(number, content, tuple(increments), people, nonzero, types.text())


def _admitted(raw: RawSide, table: str, admit: Admit) -> tuple[str, ...]:
    """Leave out the rows of units that have been in all their batches; the units that are left."""
    # the canonical text by which the private state knows a unit again
    person = canonical_text("unit", schema_of(raw.connection, f"(SELECT unit FROM {table})")["unit"])
    query = f"SELECT DISTINCT {person} FROM {table} ORDER BY 1"
    people = [str(row[0]) for row in raw.connection.execute(query).fetchall()]
    allowed = admit(people)
    admitted = [person for person, may in zip(people, allowed, strict=True) if may]
    if len(admitted) < len(people):
        raw.connection.execute(f"DELETE FROM {table} WHERE {person} NOT IN (SELECT unnest(?))", [admitted])
    return tuple(admitted)


def _count(raw: RawSide, table: str) -> int:
    return int(raw.connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0])


@dataclass(frozen=True)
class StreamTypes:
    """DuckDB types at the first batch.

    Args:
        keys: table -> type of its key and of all foreign keys that name it.
        columns: private table -> column -> type, for the columns that the catalog uses, in their first order.
    """

    keys: dict[str, str]
    columns: dict[str, dict[str, str]]

    def text(self) -> str:
        """JSON for the private state; the order of columns is kept."""
        return json.dumps(asdict(self))

    @staticmethod
    def parse(text: str) -> StreamTypes:
        """Parse the output of `text`.

        Raises:
            IntegrityError: it is something else.
        """
        try:
            body: dict[str, Any] = json.loads(text)
            return StreamTypes(
                dict(body["keys"]), {t: dict(columns) for t, columns in body["columns"].items()}
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise IntegrityError("the private state is damaged", hint="restore its newest copy") from error


def first_types(catalog: Catalog, raw: RawSide) -> StreamTypes:
    """The types that a stream has from its first batch on.

    Args:
        catalog: the catalog.
        raw: the raw side, its keys in one form each.
    """
    private = [name for name, table in catalog.tables.items() if not table.is_public and name in raw.columns]
    columns = {name: _used(catalog.tables[name], raw.columns[name]) for name in private}
    return StreamTypes(dict(raw.key_types), columns)


def carry_columns(catalog: Catalog, raw: RawSide, types: StreamTypes) -> None:
    """Give every private table the columns that it had at the first batch, in their types.

    Args:
        catalog: the catalog.
        raw: the raw side, its keys carried into `types.keys`; its views are replaced.
        types: of the first batch.

    Raises:
        SourceError: a column is missing, or of a type that stands for none of the first one's values.
    """
    keys = roots(catalog)
    for table, columns in types.columns.items():
        batch_columns = {name.lower(): (name, kind) for name, kind in raw.columns[table].items()}
        carried = {}
        for column, first in columns.items():
            if column.lower() not in batch_columns:
                raise SourceError(
                    f"tables.{table}: this batch has no column `{column}`, which the first one had",
                    hint="write the column, empty where nothing is known",
                )
            name, kind = batch_columns[column.lower()]
            if (table, column.lower()) in keys:
                carried[column] = (identifier(name), kind)
                continue
            value = _carried(identifier(name), kind, first, _declared(catalog.tables[table], column))
            if value is None:
                raise SourceError(
                    f"tables.{table}.{column}: {type_word(kind)} in this batch, {type_word(first)} in the first one",
                    hint="write the column in the type that it had",
                )
            carried[column] = value
        retyped(raw, table, carried)


def check_unit_key(catalog: Catalog, raw: RawSide) -> None:
    """Refuse to count people's batches by text of which nobody said whether it is a number.

    Args:
        catalog: the catalog.
        raw: the raw side of the first batch.

    Raises:
        CatalogError: the unit's key comes as text and the catalog does not say of what type it is.
    """
    unit, key = catalog.privacy.unit
    if (
        unit is not None
        and unit in raw.from_csv
        and raw.key_types[unit] == "VARCHAR"
        and not _declared(catalog.tables[unit], key)
    ):
        raise CatalogError(
            f"tables.{unit}.columns.{key}: a CSV file does not say whether 7, 7.0 and 00007 are one person",
            hint=f"write `{key}: {{type: int}}` if they are, `{key}: {{type: string}}` if not",
        )


def _used(table: Table, columns: dict[str, str]) -> dict[str, str]:
    """The columns of a table that the catalog names, in the source's order; expressions see declared ones alone."""
    named = {name.lower() for name in (str(table.key), *table.foreign_keys, *table.written)}
    return {name: kind for name, kind in columns.items() if name.lower() in named}


def _declared(table: Table, column: str) -> str:
    """The type that the catalog declares for a column, or an empty string."""
    declared = {name.lower(): described.type for name, described in table.columns.items()}
    return declared.get(column.lower(), "")


def _carried(value: str, kind: str, first: str, declared: str) -> tuple[str, str] | None:
    """(SQL, type) of a column in this batch; None where its type does not fit."""
    if kind == first:
        return value, kind
    kind_family, first_family = family(kind), family(first)
    if declared in ("int", "decimal"):
        free: tuple[str, ...] = NUMBERS
        read = widest(first) if first_family == "float" or declared == "int" else ANY_NUMBER
    elif declared in ("date", "timestamp"):
        free, read = ("time",), "TIMESTAMP"
    else:
        target = widest(first)
        carried = exact_cast(value, kind, target)
        return None if carried is None else (carried, target)
    if kind_family in free or kind_family == first_family == "text":
        return (canonical_text(value, kind), "VARCHAR") if first_family == "text" else (value, kind)
    carried = exact_cast(value, kind, read) if kind_family == "text" else None
    return None if carried is None else (carried, read)
