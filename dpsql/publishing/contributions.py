"""From raw rows to integer histograms: what one privacy unit may contribute, and to which cells.

For each table that views count (`of`), every row gets a leaf on every axis and a bounded integer for
every measure; rows are ranked inside their unit by a keyed hash of their content and those above tau are
left out; what remains is counted and summed per cell. The rank of a row depends on its unit's rows and
the key alone, never on row order or on other people.

A foreign key leads to every row that has the key where those rows are a unit's own (`Join.own`), and to one row
where nobody owns them. So a row whose key two units share counts for each of them, within each one's bound.

**Privacy**: adding or removing one unit changes the counts by at most tau and the centred sums by at
most tau * reach, in L1. Every input has a leaf or is dropped by a rule that looks at its row alone.
**Source**: docs/method/rows.md, "At most tau rows of a unit", "Leaves and keys".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import duckdb
import numpy as np
import numpy.typing as npt

from dpsql.errors import SourceError
from dpsql.publishing.exact import cut_sum
from dpsql.sources import identifier, literal

IntArray = npt.NDArray[np.int64]
Path = tuple[str, ...]

ROW = "this row"


@dataclass(frozen=True)
class Join:
    """One hop along a foreign key.

    Args:
        path: foreign-key columns from the `of` table up to and including this hop.
        table: the table reached.
        key: its key column.
        on_missing: `keep` or `drop` rows whose key finds no row.
        own: whether the rows reached say whose the counted row is, so that all rows of a key are joined.
    """

    path: Path
    table: str
    key: str
    on_missing: str = "keep"
    own: bool = False

    @property
    def rows(self) -> str:
        """Name of the rows joined."""
        return counted(self.table) if self.own else checked(self.table)


@dataclass(frozen=True)
class RowPlan:
    """How the rows of one table become leaves and integers.

    Args:
        of: the table counted.
        joins: all hops needed, parents before children.
        axes: axis id -> SQL for the leaf (BIGINT; NULL drops the row), over `alias(path)`.
        measures: measure name -> SQL for the bounded integer or NULL.
        unit: SQL for the privacy unit, or None where every row is one.
        tau: rows kept of one unit; 1 where every row is a unit; 0 keeps all rows and their unit.
        lookups: SQL of further joins, for axes over public dimensions.
        keep_unit: keep the unit beside bounded rows too, for a cap that runs across batches.
    """

    of: str
    joins: Sequence[Join]
    axes: Mapping[int, str]
    measures: Mapping[str, str]
    unit: str | None
    tau: int
    lookups: Sequence[str] = ()
    keep_unit: bool = False


def alias(path: Path) -> str:
    """The SQL alias of the table at the end of a foreign-key path; no column is called that.

    >>> alias(()), alias(("order_id", "customer_id"))
    ('"this row"', '"this row.order_id.customer_id"')
    """
    return identifier(".".join((ROW, *path)))


def checked(table: str) -> str:
    """Name of the checked copy of a dimension that rows are joined to."""
    return f"checked.{identifier(table)}"


def counted(table: str) -> str:
    """Name of a table that is counted or lies on the way to the unit: its raw rows with their derived columns.

    Such rows need no unique key, since each unit's rows are bounded after all joins; keeping one row of a key that
    two units share would give one unit's rows to the other when that one comes.
    """
    return f"counted.{identifier(table)}"


def prepare_counted(connection: duckdb.DuckDBPyConnection, table: str, derived: Mapping[str, str]) -> None:
    """Make `counted.<table>`."""
    connection.execute("CREATE SCHEMA IF NOT EXISTS counted")
    connection.execute(f"CREATE OR REPLACE VIEW {counted(table)} AS {_with_derived(table, derived)}")


def check_dimension(
    connection: duckdb.DuckDBPyConnection, table: str, key: str, derived: Mapping[str, str], *, public: bool
) -> None:
    """Make `checked.<table>`: keys unique and not NULL, so that a join multiplies nothing.

    In a public table a duplicate or NULL key is an error. In a private one an error would tell something
    about its rows, so the row with the least keyed hash of its content is kept.

    **Privacy**: only for rows that no unit owns, which are alike in neighbours; which of two units' rows is kept
    would be decided by both.

    Raises:
        SourceError: a public table's key is not unique or holds NULL.
    """
    connection.execute("CREATE SCHEMA IF NOT EXISTS checked")
    column, rows = identifier(key), f"({_with_derived(table, derived)})"
    connection.execute(
        f"CREATE OR REPLACE TABLE {checked(table)} AS SELECT * FROM {rows} AS {alias(())} "
        + ("" if public else f"WHERE {column} IS NOT NULL QUALIFY row_number() OVER "
           f"(PARTITION BY {column} ORDER BY {_keyed_hash(alias(()))}, {alias(())}) = 1")
    )  # fmt: skip
    if not public:
        return
    total, distinct, present = _one_row(
        connection, f"SELECT count(*), count(DISTINCT {column}), count({column}) FROM {checked(table)}"
    )
    if total != present:
        raise SourceError(f"tables.{table}.key: {key} holds NULL", hint="a dimension's key names its rows")
    if total != distinct:
        raise SourceError(
            f"tables.{table}.key: {key} has duplicates, which would multiply facts",
            hint="remove them, or use a SELECT DISTINCT statement as the source of the table",
        )


def bounded_rows(connection: duckdb.DuckDBPyConnection, plan: RowPlan) -> str:
    """Place, rank and bound the rows of one table.

    Args:
        connection: raw side with `counted.*`, `checked.*` and the variable `contribution_key` set.
        plan: what to compute.

    Returns:
        Name of a temporary table with a column a<axis id> for each axis and m<i> for each measure, and
        with the column `unit` where tau is 0 or `keep_unit` says so.
    """
    table = identifier(f"bounded {plan.of}")
    columns = [f"{sql} AS a{axis}" for axis, sql in plan.axes.items()]
    columns += [f"{sql} AS m{i}" for i, sql in enumerate(plan.measures.values())]
    unit = plan.unit if plan.unit is not None else "0"
    bounded = plan.unit is not None and plan.tau > 0
    rank = _keyed_hash(alias(())) if bounded else "0"
    kept = [f"a{axis} IS NOT NULL" for axis in plan.axes]
    if plan.unit is not None:
        kept.append("unit IS NOT NULL")
    dropped = [
        f"{alias(join.path)}.{identifier(join.key)} IS NOT NULL"
        for join in plan.joins
        if join.on_missing == "drop"
    ]
    # A counted row that meets two rows of its unit ties with itself; equally placed rows are interchangeable.
    order = ["rank", *(f"a{axis}" for axis in plan.axes), *(f"m{i}" for i in range(len(plan.measures)))]
    slots = (
        f"QUALIFY row_number() OVER (PARTITION BY unit ORDER BY {', '.join(order)}) <= {plan.tau}"
        if bounded
        else ""
    )
    hidden = "rank" if plan.unit is not None and (plan.keep_unit or not bounded) else "unit, rank"
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE {table} AS WITH placed AS ("
        f"SELECT {', '.join([*columns, f'{unit} AS unit', f'{rank} AS rank'])} "
        f"FROM {counted(plan.of)} AS {alias(())} {_join_sql(plan)} "
        f"{'WHERE ' + ' AND '.join(dropped) if dropped else ''}) "
        f"SELECT * EXCLUDE ({hidden}) FROM placed WHERE {' AND '.join(kept) or 'true'} {slots}"
    )
    return table


def histogram(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    axes: Sequence[int],
    shape: Sequence[int],
    value: str = "1",
) -> IntArray:
    """Exact integer cells of one view.

    Args:
        connection: where `table` is.
        table: what `bounded_rows` returned.
        axes: axis ids of the view.
        shape: number of leaves of each axis.
        value: BIGINT expression summed per cell; NULL adds nothing.

    Returns:
        int64 array of the given shape; sums are cut at `exact.LARGEST`.
    """
    cells = np.zeros(tuple(shape), dtype=np.int64)
    keys = [f"a{axis}" for axis in axes]
    grouped = connection.execute(
        f"SELECT {', '.join([*keys, f'{cut_sum(value)} AS total'])} FROM {table} "
        + (f"GROUP BY {', '.join(keys)}" if keys else "")
    ).fetchnumpy()
    where = tuple(np.asarray(grouped[key], dtype=np.int64) for key in keys)
    total = np.asarray(grouped["total"], dtype=np.int64)
    cells[where] = total if keys else total[0]
    return cells


def set_key(connection: duckdb.DuckDBPyConnection, key: bytes) -> None:
    """Give the connection the secret that ranks rows. Drawn fresh for each release and kept nowhere."""
    connection.execute(f"SET VARIABLE contribution_key = {literal(key.hex())}")


def _keyed_hash(row: str) -> str:
    """SHA-256 over the secret and the row's content; identical rows tie and are interchangeable."""
    return f"sha256(getvariable('contribution_key') || CAST({row} AS VARCHAR))"


def _with_derived(table: str, derived: Mapping[str, str]) -> str:
    """The raw rows with derived columns (`catalog.derived`), which are NULL where they fail."""
    columns = "".join(f", {expression} AS {identifier(name)}" for name, expression in derived.items())
    return f"SELECT *{columns} FROM raw.{identifier(table)} AS {alias(())}"


def _join_sql(plan: RowPlan) -> str:
    """LEFT JOINs along the foreign keys; `sources.keys` has given both sides one type."""
    parts = []
    for join in plan.joins:
        child = alias(join.path)
        foreign, own = (
            f"{alias(join.path[:-1])}.{identifier(join.path[-1])}",
            f"{child}.{identifier(join.key)}",
        )
        parts.append(f"LEFT JOIN {join.rows} AS {child} ON {foreign} = {own}")
    return " ".join([*parts, *plan.lookups])


def _one_row(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[int, ...]:
    # fetchall: a result that is not read to its end blocks the connection.
    return tuple(int(value) for value in connection.execute(sql).fetchall()[0])
