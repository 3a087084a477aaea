"""An axis in DuckDB's words: from a raw value to its leaf, and from encoded arrays to the axis table.

Both are built from the catalog alone. `leaf_sql` is total: every raw value, NULL, NaN and infinities
included, has one leaf (or NULL where the catalog says that the row is left out), and it can raise no
error, since an error would itself tell something about a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from dpsql.axis.model import ABSENT, OTHER, Axis, AxisColumn, CategoryRule, KeyListRule, KeyRule, OrderedRule
from dpsql.catalog.base import GRAIN_MICROSECONDS
from dpsql.errors import InternalError
from dpsql.row_expressions import identifier, literal
from dpsql.row_expressions.expression import instant

_DAY = GRAIN_MICROSECONDS["day"]


def _leaf(leaf: int | None) -> str:
    """A leaf as SQL; NULL means that the row is left out."""
    return "NULL" if leaf is None else str(leaf)


def search(value: str, starts: Sequence[int | str], low: int, high: int) -> str:
    """Nested CASE that finds the last start at or below a value, in log2(leaves) comparisons."""
    if high - low == 1:
        return str(low)
    middle = (low + high) // 2
    return (
        f"CASE WHEN {value} < {starts[middle]} THEN {search(value, starts, low, middle)} "
        f"ELSE {search(value, starts, middle, high)} END"
    )


def _counted_sql(rule: OrderedRule, value: str) -> tuple[str, int]:
    """The value as an integer and how many of its steps make one unit of the column.

    Numbers are rounded to the scale and counted in units; times are counted in microseconds, so that
    comparing with the first microsecond of a leaf floors them to the grain. The integer is NULL where the
    value is not finite or not of the type. Wide types, since a value of any type may come.
    """
    if rule.type in ("int", "decimal"):
        exact = f"CAST(TRY_CAST({value} AS DECIMAL(18,{rule.scale})) AS DECIMAL(38,{rule.scale}))"
        return f"CAST({exact} * {10**rule.scale} AS HUGEINT)", 1
    steps = _DAY if rule.type == "date" else GRAIN_MICROSECONDS[rule.grain]
    return f"CAST(epoch_us({instant(value)}) AS HUGEINT)", steps


def _ordered_sql(axis: Axis, rule: OrderedRule, value: str) -> str:
    counted, steps = _counted_sql(rule, f"({value})")
    other_leaf = _leaf(axis.other_leaf)
    starts = [int(start) * steps for start in rule.starts]
    end = (rule.upper + 1) * steps
    widths = {stop - start for start, stop in pairwise(starts)}
    if len(widths) <= 1:
        width = widths.pop() if widths else end - starts[0]
        inner = f"least(({counted} - ({starts[0]})) // {width}, {len(starts) - 1})"
    else:
        inner = search(counted, starts, 0, len(starts))
    return (
        f"CASE WHEN {_is_absent(value)} THEN {_absent(axis)} WHEN {counted} IS NULL THEN {other_leaf} "
        f"WHEN {counted} < {starts[0]} OR {counted} >= {end} THEN {other_leaf} ELSE {inner} END"
    )


def _is_absent(value: str) -> str:
    """True if a number, time or truth is NULL, or a text that stands for none; a DOUBLE's NaN is out of the
    domain."""
    texts = ", ".join(map(literal, sorted(ABSENT)))
    text = f"typeof({value}) = 'VARCHAR' AND trim(CAST(({value}) AS VARCHAR)) IN ({texts})"
    return f"({value}) IS NULL OR ({text})"


def _absent(axis: Axis) -> str:
    """Leaf of NULL: its own if declared nullable, else out of the domain like any other bad value."""
    return _leaf(axis.null_leaf if axis.null_leaf is not None else axis.other_leaf)


def _category_sql(axis: Axis, rule: CategoryRule, value: str) -> str:
    other_leaf = _leaf(axis.other_leaf)
    if rule.boolean:
        cast, null = f"TRY_CAST(({value}) AS BOOLEAN)", f"WHEN {_is_absent(value)} THEN {_absent(axis)}"
        return f"CASE {null} WHEN {cast} IS NULL THEN {other_leaf} WHEN {cast} THEN 1 ELSE 0 END"
    whens = " ".join(f"WHEN {literal(text)} THEN {leaf}" for leaf, text in enumerate(rule.values))
    head = f"CASE WHEN ({value}) IS NULL THEN {_absent(axis)} ELSE "
    return f"{head}CASE CAST(({value}) AS VARCHAR) {whens} ELSE {other_leaf} END END"


def leaf_sql(axis: Axis, value: str, present: str | None = None) -> str:
    """A SQL expression that maps a raw value of any type to its leaf.

    Args:
        axis: an axis over one column; a public dimension at a grain goes by `KeyRule` and a join instead.
        value: SQL of the raw value.
        present: SQL that is true where the dimension's row was found; None where there is no dimension.

    Returns:
        An expression of type INTEGER: a leaf, or NULL where the row is left out by the catalog's rule.

    Raises:
        InternalError: the axis is a public dimension at a grain.

    **Privacy**: deterministic and total; no raw value can make it fail.
    """
    if isinstance(axis.rule, KeyRule | KeyListRule):
        raise InternalError(f"axis {axis.name}: leaves are found by key", hint="join its keys")
    ordered = isinstance(axis.rule, OrderedRule)
    leaf = _ordered_sql(axis, axis.rule, value) if isinstance(axis.rule, OrderedRule) else ""
    if not ordered and isinstance(axis.rule, CategoryRule):
        leaf = _category_sql(axis, axis.rule, value)
    if present is not None:
        leaf = f"CASE WHEN ({present}) THEN {leaf} ELSE {_leaf(axis.missing_leaf)} END"
    return f"CAST({leaf} AS INTEGER)"


def _decode(column: AxisColumn, encoded: bool) -> str:
    """The value of a column from its encoded array (int64 units) or as it is (objects)."""
    name = identifier(column.sql_name)
    if not encoded:
        return f"CAST({name} AS {column.type})"
    if column.type.startswith("DECIMAL"):
        scale = int(column.type.rstrip(")").split(",")[1])
        step = "1" if scale == 0 else f"0.{'0' * (scale - 1)}1"
        return f"CAST(CAST({name} AS DECIMAL(18,0)) * CAST({step} AS DECIMAL(10,{scale})) AS {column.type})"
    if column.type == "DATE":
        return f"DATE '1970-01-01' + CAST({name} AS INTEGER)"
    return f"CAST({name} AS {column.type})"


def table_sql(axis: Axis, relation: str) -> str:
    """The SELECT that makes an axis table of `Axis.arrays`, derived columns included.

    Args:
        axis: any axis.
        relation: SQL name under which the arrays are visible as columns.

    Returns:
        A SELECT with the columns atom, leaf, kind, weight, the public columns by ``sql_name`` and the
        derived ones; public columns are NULL on special leaves, but for texts outside of the domain, which have a
        word of their own. Rows are in atom order.
    """
    rule = axis.rule
    grain = GRAIN_MICROSECONDS[rule.grain] if isinstance(rule, OrderedRule) else 1
    inner, outer = ['atom AS "__atom", leaf AS "__leaf", kind AS "__kind", weight AS "__weight"'], []
    for position, column in enumerate(axis.columns):
        value = _decode(column, isinstance(rule, OrderedRule))
        if isinstance(rule, OrderedRule) and column.type == "TIMESTAMP":
            value = f"make_timestamp(CAST({identifier(column.sql_name)} AS BIGINT) * {grain})"
        word = axis.outside if column.type == "VARCHAR" else None
        outside = f" WHEN kind = {OTHER} THEN {literal(word)}" if word is not None else ""
        value = f"CASE WHEN kind = 0 THEN {value}{outside} END"
        inner.append(f'{value} AS "__c{position}"')
        if axis.derived and column.path == axis.path and column.bound == "":
            inner.append(f"{value} AS {identifier(column.column)}")
        outer.append(f'"__c{position}" AS {identifier(column.sql_name)}')
    kinds = "(0)" if axis.outside is None else f"(0, {OTHER})"
    for column, expression in axis.derived:
        outer.append(
            f'CASE WHEN "__kind" IN {kinds} THEN ({expression}) END AS {identifier(column.sql_name)}'
        )
    return (
        'SELECT CAST("__atom" AS INTEGER) AS atom, CAST("__leaf" AS INTEGER) AS leaf, '
        'CAST("__kind" AS TINYINT) AS kind, CAST("__weight" AS DOUBLE) AS weight, '
        f'{", ".join(outer)} FROM (SELECT {", ".join(inner)} FROM {relation}) ORDER BY "__atom"'
    )
