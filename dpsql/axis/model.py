"""The axis: leaves, atoms and public columns of one published attribute, with the rule from value to leaf.

    atom    a value at the declared scale, or a row of a public dimension's grain
    leaf    what is counted: one atom or a run of them; fixed by the catalog and public rows alone
    kind    0 in the domain, 1 NULL, 2 MISSING (no dimension row), 3 OTHER (out of the domain)

Special leaves stand at the end, in the order NULL, MISSING, OTHER, where they can occur.

**Public rows** as the catalog declares them: a CSV file holds texts, and `type: int` says that they are numbers.

| declared | texts that are read | becomes |
|---|---|---|
| int | `-17` | BIGINT |
| decimal | `1.50`, `1e3` | DECIMAL of the declared scale where every value fits it, else DOUBLE |
| date, timestamp | ISO 8601, a zone turned to UTC | DATE, TIMESTAMP |
| bool | `true`, `false`, in capitals or not | BOOLEAN |

`NA` and the like are NULL there, as in private columns. Other texts are an error: a public table's rows are public.

In DuckDB's words it goes from a raw value to its leaf, and from encoded arrays to the axis table. `leaf_sql` is total:
every raw value, NULL, NaN and infinities included, has one leaf (or NULL where the catalog says that the row is left
out), and it can raise no error, since an error would itself tell something about a row.

**Privacy**: public tables and the catalog alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from math import prod

import numpy as np
from numpy.typing import NDArray

from dpsql.catalog.base import GRAIN_MICROSECONDS
from dpsql.catalog.columns import Column
from dpsql.catalog.graph import ResolvedAxis
from dpsql.errors import CatalogError, InternalError, SourceError
from dpsql.row_expressions import identifier, literal
from dpsql.row_expressions.expression import instant

IntArray = NDArray[np.int64]
IN_DOMAIN, NULL, MISSING, OTHER = 0, 1, 2, 3
ORDERED = (int, float, Decimal, date)
"""Types of values whose order says which ones are near each other."""
RESERVED = ("atom", "leaf", "kind", "weight")


@dataclass(frozen=True)
class AxisColumn:
    """A public column of an axis.

    Args:
        path: foreign keys from the view's table to `table`.
        table: the table that SQL names it under.
        column: its name there.
        sql_name: its name inside the axis table, unique there.
        type: DuckDB type; empty until a derived column was evaluated.
        description: for people.
        bound: empty for an exact value; ``lower`` or ``upper`` where an atom is a whole leaf.
    """

    path: tuple[str, ...]
    table: str
    column: str
    sql_name: str
    type: str
    description: str = ""
    bound: str = ""


@dataclass(frozen=True)
class OrderedRule:
    """Values counted in units: leaf l begins at ``starts[l]``; `upper` is inclusive."""

    type: str
    scale: int
    grain: str
    upper: int
    starts: IntArray = field(repr=False)


@dataclass(frozen=True)
class CategoryRule:
    """Leaf l is the value ``values[l]``; ``("false", "true")`` for a boolean column."""

    values: tuple[str, ...]
    boolean: bool = False

    @property
    def texts(self) -> bool:
        """True if values outside have a word of their own."""
        return not self.boolean


@dataclass(frozen=True)
class KeyListRule:
    """Leaf l is the key ``keys[l]`` of a list that was found when the release was made; found by value."""

    keys: tuple[str | int, ...] = field(repr=False)
    texts: bool


@dataclass(frozen=True)
class KeyRule:
    """A row of a public dimension, found by its key: row with ``keys[r]`` lies in leaf ``leaf[r]``."""

    key: str
    keys: tuple[object, ...] = field(repr=False)
    leaf: IntArray = field(repr=False)


Rule = OrderedRule | CategoryRule | KeyRule | KeyListRule


@dataclass(frozen=True)
class PublicTable:
    """The rows of a public table, handed in by whoever may read them.

    Args:
        name: the table.
        types: DuckDB type of each column.
        columns: values of each column, all of one length; None is NULL.
    """

    name: str
    types: Mapping[str, str]
    columns: Mapping[str, Sequence[object]]

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(next(iter(self.columns.values()), ()))


@dataclass(frozen=True)
class Axis:
    """One axis of a view. Built from the catalog and public rows; never from private ones.

    Args:
        name: as errors and plans call it.
        resolved: what it means in the catalog (hashable: equal ones make equal axes).
        leaves: number of leaves, special ones included.
        null_leaf: the leaf of NULL, or None where it cannot occur; likewise `missing_leaf`, `other_leaf`.
        columns: public columns, in the order of the axis table.
        derived: further columns as (column, SQL expression); whoever has an engine evaluates them.
        rule: how a raw value becomes a leaf.
        atomic: whether each atom is one value; False past 2**20 values, where atoms are the leaves.
        atom_leaf: leaf of each atom of the domain, increasing.
        values: per ``sql_name`` the encoded value of each atom (int64 units, or objects).
    """

    name: str
    resolved: ResolvedAxis
    leaves: int
    null_leaf: int | None
    missing_leaf: int | None
    other_leaf: int | None
    columns: tuple[AxisColumn, ...]
    derived: tuple[tuple[AxisColumn, str], ...]
    rule: Rule
    atomic: bool
    atom_leaf: IntArray = field(repr=False)
    values: Mapping[str, NDArray[np.generic]] = field(repr=False)

    @property
    def path(self) -> tuple[str, ...]:
        """Foreign keys from the view's table to the axis's table."""
        return self.resolved.path

    @property
    def table(self) -> str:
        """The table that holds the axis."""
        return self.resolved.table

    @property
    def ordered(self) -> bool:
        """True if neighbouring leaves are near each other: leaves of numbers, dates and times, but not of names."""
        if isinstance(self.rule, OrderedRule):
            return True
        grain = {(*member.path, member.column) for member in self.resolved.by[:1]}
        first = (self.values[c.sql_name] for c in self.columns if (*c.path, c.column) in grain)
        return all(value is None or isinstance(value, ORDERED) for value in next(first, ("",)))

    @property
    def names(self) -> bool:
        """True if leaves are names without an order, so that a range of them means nothing: no levels, no second
        column of a grain that makes runs of leaves."""
        spec = self.resolved.spec
        levels = () if spec is None or spec.axis is None else spec.axis.levels
        return not self.ordered and len(levels) < 2 and len(self.resolved.by) < 2

    @property
    def special(self) -> tuple[tuple[int, int], ...]:
        """(leaf, kind) of the special leaves there are, in leaf order."""
        pairs = ((self.null_leaf, NULL), (self.missing_leaf, MISSING), (self.other_leaf, OTHER))
        return tuple((leaf, kind) for leaf, kind in pairs if leaf is not None)

    @property
    def outside(self) -> str | None:
        """Label of OTHER; None where such values are NULL, as those of numbers and times are."""
        spec = self.resolved.spec
        texts = (
            isinstance(self.rule, CategoryRule | KeyListRule)
            and self.rule.texts
            and self.other_leaf is not None
        )
        return spec.other if texts and spec is not None else None

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """The axis table as equal-length arrays: atom, leaf, kind, weight and the encoded columns.

        `dpsql.axis.table_sql` decodes them. Special leaves are rows of their own at the end; their column
        values are fillers that the decoding turns into NULL.

        Returns:
            Arrays of one length: atoms of the domain, then one row per special leaf.
        """
        extra = self.special
        leaf = np.concatenate([self.atom_leaf, np.array([pair[0] for pair in extra], np.int64)])
        kind = np.zeros(leaf.size, np.int64)
        kind[self.atom_leaf.size :] = [pair[1] for pair in extra]
        weight = 1.0 / np.bincount(leaf, minlength=self.leaves)[leaf]
        arrays: dict[str, NDArray[np.generic]] = {
            "atom": np.arange(leaf.size, dtype=np.int64),
            "leaf": leaf,
            "kind": kind,
            "weight": weight,
        }
        for column in self.columns:
            values = self.values[column.sql_name]
            filler = np.zeros(len(extra), values.dtype)
            if values.dtype == object:
                filler = np.full(len(extra), None, dtype=object)
            arrays[column.sql_name] = np.concatenate([values, filler])
        return arrays


def check_cells(view: str, cap: int, axes: Sequence[Axis], hint: str) -> None:
    """Refuse a view whose table of leaf combinations nobody could store."""
    cells = prod(axis.leaves for axis in axes)
    if cells > cap:
        sizes = " x ".join(f"{axis.leaves} ({axis.name})" for axis in axes)
        raise CatalogError(f"views.{view}: {sizes} = {cells} cells are over the cap of {cap}", hint=hint)


ABSENT = frozenset(("", "NA", "N/A", "NaN", "nan", "NULL", "null", "None"))
"""Texts that stand for no value: R writes NA."""
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_DIGITS = 18


def as_declared(table: PublicTable, columns: Mapping[str, Column]) -> PublicTable:
    """A table with its texts read as their declared types.

    Args:
        table: as its source holds it.
        columns: what the catalog declares.

    Raises:
        SourceError: a text is none of its type.
    """
    declared = {name.lower(): column for name, column in columns.items()}
    types, values = dict(table.types), dict(table.columns)
    for name, kind in table.types.items():
        column = declared.get(name.lower())
        if kind == "VARCHAR" and column is not None and column.type in _READERS:
            try:
                types[name], values[name] = _read(table.columns[name], column)
            except (ValueError, InvalidOperation) as error:
                raise SourceError(
                    f"{table.name}.{name}: a value is not of type {column.type}, which the catalog declares",
                    hint="write `type: string` there, or correct the file",
                ) from error
    return replace(table, types=types, columns=values)


def _read(texts: Sequence[object], column: Column) -> tuple[str, Sequence[object]]:
    kind, read = _READERS[column.type]
    trimmed = (None if text is None else str(text).strip() for text in texts)
    values = [None if text is None or text in ABSENT else read(text) for text in trimmed]
    if column.type != "decimal":
        return kind, values
    numbers = [value for value in values if isinstance(value, Decimal)]
    limit, step = Decimal(10) ** (_DIGITS - column.digits), Decimal(1).scaleb(-column.digits)
    if all(abs(number) < limit and number == number.quantize(step) for number in numbers):
        return f"DECIMAL({_DIGITS},{column.digits})", values
    return "DOUBLE", [float(value) if isinstance(value, Decimal) else None for value in values]


def _whole(text: str) -> int:
    if _WHOLE.fullmatch(text) is None:
        raise ValueError
    return int(text)


def _decimal(text: str) -> Decimal:
    number = Decimal(text)
    if not number.is_finite():
        raise ValueError
    return number


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError
    return text.lower() == "true"


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)


_READERS: Mapping[str, tuple[str, Callable[[str], object]]] = {
    "int": ("BIGINT", _whole), "decimal": ("DECIMAL", _decimal), "date": ("DATE", date.fromisoformat),
    "timestamp": ("TIMESTAMP", _moment), "bool": ("BOOLEAN", _truth),
}  # fmt: skip


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
