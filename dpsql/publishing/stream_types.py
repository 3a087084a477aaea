"""The column types of a stream, fixed by its first batch, so that a person is one person in every batch.

| column                                     | a later batch of another type                                   |
|--------------------------------------------|-----------------------------------------------------------------|
| keys and foreign keys                      | carried by value into the type that the key had (`sources.keys`) |
| declared int, decimal                      | numbers as they are; text is read as a number, row by row        |
| declared date, timestamp                   | dates and times as they are; text is read as one, row by row     |
| declared string, bool                      | carried by value into the type that the column had               |

A batch may have its columns in any order and case; columns that the catalog does not use are not read. A column that
is missing, or whose type stands for no values of the first one's, is refused by name, before a row is read. A value
that cannot be carried becomes NULL on its row alone.

**Privacy**: column types of the source are not published; they stay in the private state.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from dpsql.catalog import Catalog
from dpsql.catalog.tables import Table
from dpsql.errors import CatalogError, IntegrityError, SourceError
from dpsql.sources import RawSide, identifier, retyped
from dpsql.sources.casts import exact_cast, family, widest
from dpsql.sources.keys import roots

NUMBERS = ("integer", "decimal", "float")
ANY_NUMBER = "DECIMAL(38,9)"
"""Holds every digit that a measure or an axis may declare."""


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
        """What `text` gave.

        Raises:
            IntegrityError: it is something else.
        """
        try:
            entry: dict[str, Any] = json.loads(text)
            return StreamTypes(
                dict(entry["keys"]), {t: dict(columns) for t, columns in entry["columns"].items()}
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
        own = {name.lower(): (name, kind) for name, kind in raw.columns[table].items()}
        carried = {}
        for column, first in columns.items():
            if column.lower() not in own:
                raise SourceError(
                    f"tables.{table}: this batch has no column `{column}`, which the first one had",
                    hint="write the column, empty where nothing is known",
                )
            name, kind = own[column.lower()]
            if (table, column.lower()) in keys:
                carried[column] = (identifier(name), kind)
                continue
            value = _carried(identifier(name), kind, first, _declared(catalog.tables[table], column))
            if value is None:
                raise SourceError(
                    f"tables.{table}.{column}: {kind} in this batch, {first} in the first one",
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
    unit, _, key = catalog.privacy.unit.rpartition(".")
    if unit in raw.from_csv and raw.key_types[unit] == "VARCHAR" and not _declared(catalog.tables[unit], key):
        raise CatalogError(
            f"tables.{unit}.columns.{key}: a CSV file does not say whether 7, 7.0 and 00007 are one person",
            hint=f"write `{key}: {{type: int}}` if they are, `{key}: {{type: string}}` if not",
        )


def _used(table: Table, columns: dict[str, str]) -> dict[str, str]:
    """The columns of a table that the catalog names, in the source's order; expressions see declared ones alone."""
    named = {name.lower() for name in (str(table.key), *table.foreign_keys, *table.columns)}
    return {name: kind for name, kind in columns.items() if name.lower() in named}


def _declared(table: Table, column: str) -> str:
    """The type that the catalog declares for a column, or an empty string."""
    declared = {name.lower(): entry.type for name, entry in table.columns.items()}
    return declared.get(column.lower(), "")


def _carried(value: str, own: str, first: str, declared: str) -> tuple[str, str] | None:
    """(SQL, type) of a column in this batch; None where its type does not fit."""
    if own == first:
        return value, own
    here, there = family(own), family(first)
    if declared in ("int", "decimal"):
        free: tuple[str, ...] = NUMBERS
        read = widest(first) if there == "float" or declared == "int" else ANY_NUMBER
    elif declared in ("date", "timestamp"):
        free, read = ("time",), "TIMESTAMP"
    else:
        target = widest(first)
        carried = exact_cast(value, own, target)
        return None if carried is None else (carried, target)
    if here in free or here == there == "text":
        return (f"CAST({value} AS VARCHAR)", "VARCHAR") if there == "text" else (value, own)
    carried = exact_cast(value, own, read) if here == "text" else None
    return None if carried is None else (carried, read)
