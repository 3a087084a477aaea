"""Units of each key that nobody listed; at most k keys of a unit count.

    pairs   unit, k: each once, over all counted rows that reach the column; read by every round
    p       those whose key is not listed, where some are
    c       unit, n: how many keys it has
    o       the keys of units with more than k, numbered i by value, with the unit's offset r
    w       the keys that count: all of units with at most k, k of others
    ->      key, n: how many units

Every engine runs the same text but for the words of its `Dialect`: windows and integers, no float. Where a common table
may be computed again, n comes from the scan that numbers.

| here | there | unit |
|---|---|---|
| `key_sql` | what a key is: NULL where a value is none | - |
| `pairs_statement` | who has which key | - |
| `counts_statement` | n of every key with rows | a unit |

Which of more than k keys count is a choice of the unit's own, by systematic sampling (`dpsql.engines.counting`): key i
of n counts if (i k + r) mod n < k, which exactly k of them do, each with the same chance; no key is hashed.

**Privacy**: which keys of a unit count follows from her own rows, the listed keys and the secret, so one unit moves at
most k counts, each by one. What comes back is raw and goes to `central.selection` alone.
**Source**: docs/method/rows.md, "The step", "At most tau rows of a unit".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dpsql.catalog.columns import CONTROL
from dpsql.catalog.private_columns import PrivateColumn
from dpsql.engines.counting import is_kept
from dpsql.engines.dialect import Dialect
from dpsql.engines.joined_rows import PlacedRows, common_table, placed_rows, side_tables, with_tables
from dpsql.engines.values import BITS, type_word
from dpsql.errors import SourceError

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


def pairs_statement(sources: Sequence[PlacedRows], clean: str, dialect: Dialect) -> str:
    """The statement of who has which key: a SELECT of `unit` and `k`; of `k` and `n` where each row is a unit.

    Args:
        sources: the counted rows that reach the column, which is `value0` of each.
        clean: SQL of a key from `value0`; NULL where it is none.
        dialect: of the engine.
    """
    tables = [table for rows in sources for table in side_tables(rows, (), dialect, ())]
    union = " UNION ALL ".join(_keys(rows, clean) for rows in sources)
    present = f"FROM ({union}) AS j WHERE k IS NOT NULL"
    if sources[0].unit is None:
        return with_tables(tables, f"SELECT k, count(*) AS n {present} GROUP BY k")
    return with_tables(tables, f"SELECT DISTINCT unit, k {present} AND unit IS NOT NULL")


def counts_statement(
    pairs: str, listed: str, most: int, offsets: Callable[[str], str] | None, dialect: Dialect
) -> str:
    """The statement that counts the units of keys.

    Args:
        pairs: what stands after FROM for the rows of `pairs_statement`.
        listed: what stands after FROM for the keys that do not count, a column `key`; empty where there are none.
        most: keys of one unit that count.
        offsets: units -> the statement of their offsets, as of `with_offsets`; None where each row is a unit.
        dialect: of the engine.

    Returns:
        A SELECT of `key` and `n`, a BIGINT above 0.
    """
    unlisted = f"{pairs} AS r WHERE NOT EXISTS (SELECT 1 FROM {listed} AS a WHERE a.key = r.k)"
    if offsets is None:
        return f"SELECT k AS key, n FROM {unlisted if listed else pairs}"
    p, kept = "p" if listed else pairs, is_kept(most, "r", dialect)
    window = "OVER (PARTITION BY unit"
    place = f"row_number() {window} ORDER BY k) AS i"
    tables = [common_table("p", f"SELECT unit, k FROM {unlisted}", dialect)] if listed else []
    if dialect.materialised is None:
        tables += [
            f"c AS (SELECT unit AS owner, k, {place}, count(*) {window}) AS n FROM {p})",
            f"w AS (SELECT k FROM ({offsets('c')}) AS o WHERE {kept})",
        ]
    else:
        joined = f"FROM {p} AS p JOIN {{}} AS u ON p.unit = u.owner"
        tables += [
            common_table("c", f"SELECT unit AS owner, count(*) AS n FROM {p} GROUP BY unit", dialect),
            f"u AS ({offsets(f'c WHERE n > {most}')})",
            f"o AS (SELECT k, {place}, n, r {joined.format('u')})",
            # whoever has no more keys than count makes no choice: a join costs a third of windows
            f"w AS (SELECT k {joined.format('c')} WHERE n <= {most} UNION ALL SELECT k FROM o WHERE {kept})",
        ]
    return with_tables(tables, "SELECT k AS key, count(*) AS n FROM w GROUP BY k")


def _keys(rows: PlacedRows, clean: str) -> str:
    """SELECT of the keys of one table's rows, with their units."""
    unit = "unit, " if rows.unit is not None else ""
    return f"SELECT {unit}{clean} AS k FROM ({placed_rows(rows, (), ())}) AS j"
