"""Units of each key that nobody listed, by one statement; at most k keys of a unit count.

    p       unit, key: each once, over all counted rows that reach the column; without those that are listed already
    c       unit, d: how many keys it has
    i       the keys of units with more than k, with their places in the unit's choice of her own
    w       the keys that count: all of units with at most k, the first k of others
    ->      key, n: how many units

Every engine runs the same text but for the words of its `Dialect`: windows, MD5 and integers, no float.

| here | there | unit |
|---|---|---|
| `key_sql` | what a key is: NULL where a value is none | - |
| `counts_statement` | n of every key with rows | a unit |

Which of more than k keys count is a choice of the unit's own: the first k by md5(secret, unit, key). Equal hashes go by
the bytes of the key.

**Privacy**: which keys of a unit count follows from her own rows, the listed keys and the secret, so one unit moves at
most k counts, each by one. What comes back is raw and goes to `central.selection` alone.
**Source**: docs/method/keys.md, "The step".
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.catalog.columns import CONTROL
from dpsql.catalog.private_columns import PrivateColumn
from dpsql.engines.dialect import Dialect
from dpsql.engines.joined_rows import PlacedRows, placed_rows, side_tables, with_tables
from dpsql.engines.values import BITS, type_word
from dpsql.errors import SourceError

HASHED = "{secret}{unit} {key}"
"""The text whose MD5, in lower-case hexadecimal digits, orders the keys of a unit that has more than count: the
secret's digits, the unit's key as the engine writes it as text, a blank, and the key as text."""

LARGEST_KEY = 10**18
"""Whole numbers below it are keys, as they are values of an `int` column."""


def key_sql(column: PrivateColumn, value: str, kind: str | None, dialect: Dialect) -> str:
    """SQL of the key of a raw value: NULL where it is NULL or no key.

    Args:
        column: with private keys.
        value: SQL of the raw value.
        kind: its type in DuckDB's words; None where nobody knows it.
        dialect: of the engine.

    Raises:
        SourceError: the engine cannot read a column of that type as the catalog declares it.

    **Privacy**: a total function of one value.
    """
    if column.spec.type == "int":
        return _number(column, value, kind, dialect)
    if kind != "VARCHAR" and not dialect.reads_any:
        raise _unread(column, kind, "text")
    text = dialect.text(value)
    return (
        f"CASE WHEN {dialect.octets(text)} <= {column.keys.length} AND {text} <> {dialect.literal(column.spec.other)} "
        f"AND {dialect.without(text, CONTROL)} = {text} THEN {text} END"
    )


def _number(column: PrivateColumn, value: str, kind: str | None, dialect: Dialect) -> str:
    bounds = f"> -{LARGEST_KEY} AND {{}} < {LARGEST_KEY}"
    if BITS.get(kind or ""):
        return f"CASE WHEN {value} {bounds.format(value)} THEN CAST({value} AS BIGINT) END"
    if not dialect.reads_any:
        raise _unread(column, kind, "int")
    number = f"TRY_CAST({value} AS HUGEINT)"
    exact = f"{number} = TRY_CAST({value} AS DECIMAL(38,9))"
    return f"CASE WHEN {exact} AND {number} {bounds.format(number)} THEN CAST({number} AS BIGINT) END"


def _unread(column: PrivateColumn, kind: str | None, declared: str) -> SourceError:
    what = "a derived column" if kind is None else f"a column of type {type_word(kind)}"
    return SourceError(
        f"tables.{column.table}.columns.{column.column}: {what} cannot be read there as {declared}",
        hint="give the column its type in a view of the database, and name the view",
    )


def counts_statement(
    sources: Sequence[PlacedRows], clean: str, listed: str, most: int, secret: str, dialect: Dialect
) -> str:
    """The statement that counts the units of keys.

    Args:
        sources: the counted rows that reach the column, which is `value0` of each.
        clean: SQL of a key from `value0`; NULL where it is none.
        listed: what stands after FROM for the keys that do not count, a column `key`; empty where there are none.
        most: keys of one unit that count.
        secret: hex digits, drawn for the release.
        dialect: of the engine.

    Returns:
        A SELECT of `key` and `n`, a BIGINT above 0.
    """
    tables = [table for rows in sources for table in side_tables(rows, (), dialect, ())]
    union = " UNION ALL ".join(_keys(rows, clean) for rows in sources)
    unlisted = f" AND NOT EXISTS (SELECT 1 FROM {listed} AS a WHERE a.key = r.k)" if listed else ""
    present = f"FROM ({union}) AS r WHERE k IS NOT NULL{unlisted}"
    if sources[0].unit is None:
        # Each row is a unit with one key.
        return with_tables(tables, f"SELECT k AS key, count(*) AS n {present} GROUP BY k")
    texts = (dialect.literal(secret), dialect.text("p.unit"), dialect.literal(" "), dialect.text("p.k"))
    digest = dialect.text(f"md5({' || '.join(texts)})")
    place = f"row_number() OVER (PARTITION BY p.unit ORDER BY {digest}, p.k)"
    once, joined = dialect.materialised or "", "FROM p JOIN c ON p.unit = c.unit"
    tables += [
        f"p AS {once} (SELECT DISTINCT unit, k {present} AND unit IS NOT NULL)",
        f"c AS {once} (SELECT unit, count(*) AS d FROM p GROUP BY unit)",
        # whoever has no more keys than count makes no choice: a GROUP BY and a join cost a third of windows
        f"i AS (SELECT p.k, {place} AS place {joined} WHERE c.d > {most})",
        f"w AS (SELECT p.k {joined} WHERE c.d <= {most} UNION ALL SELECT k FROM i WHERE place <= {most})",
    ]
    return with_tables(tables, "SELECT k AS key, count(*) AS n FROM w GROUP BY k")


def _keys(rows: PlacedRows, clean: str) -> str:
    """SELECT of the keys of one table's rows, with their units."""
    unit = "unit, " if rows.unit is not None else ""
    return f"SELECT {unit}{clean} AS k FROM ({placed_rows(rows, (), ())}) AS j"
