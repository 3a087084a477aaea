"""Values that the leaves of an axis stand for: intervals of the source's values, at the precision of the catalog.

| declared | an atom v stands for |
|---|---|
| `timestamp` with `grain: hour` | [v, v + 1 hour) |
| `date` | [v, v + 1 day), for conditions that name a time of day |
| `int`, `decimal` with `scale: s` | [v - u / 2, v + u / 2), u = 10^-s, for conditions on finer numbers |

A condition that is finer than an atom cuts it. It is evaluated on values spread over the atom, and on each constant
that lies in it and right beside it, which count for as good as nothing: an atom of which a condition may take any value
is cut, however little of it that is. A second is taken for a moment, since the catalog knows nothing finer; whole
days and numbers at the scale are compared as the catalog declares them. A field that is finer than the grain, such as
the MINUTE of hours, is refused. So what is cut follows from catalog and statement alone.

**Privacy**: public facts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from dpsql.catalog.base import GRAIN_MICROSECONDS
from dpsql.catalog.columns import Column
from dpsql.errors import NotSupportedError
from dpsql.executor.run import run
from dpsql.matrices.model import TABLE
from dpsql.planner.schema import Comparison, Expression, Predicate
from dpsql.release import AxisMeta, ColumnMeta, Release
from dpsql.release.format import OTHER
from dpsql.row_expressions import identifier as quoted

UNKNOWN = 2.0**-28
"""Coverage of the leaf of unshown keys by a condition that some of them may meet: as good as none, and the leaf is cut.

Its error bar then allows for all of the leaf. Far above `NEAR`, so that the parts of a leaf still add up to 1.
"""
MAX_POINTS = 2**19
"""Values looked at on an axis."""
MOST_CONSTANTS = 64
"""Constants of a condition whose atoms are looked at more closely."""
MICROSECOND = timedelta(microseconds=1)
MOMENT = re.compile(r"'(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?))?'")
NUMBER = re.compile(r"(?<![\w'.])\d+(?:\.\d+)?(?![\w'.])")
COMPARED = re.compile(
    r"(?:[<>=(,]|\bBETWEEN|\bAND)\s*-?(\d+\.\d+)(?!\s*[*/+-])|(?<![\w.*/+-])(?<![*/+-] )(\d+\.\d+)\s*[<>=]",
    re.IGNORECASE,
)
"""Numbers that something is compared with; factors, as in `x * 0.5 > 2`, are none."""
FIELD = re.compile(r"(?<![)'\d] )\b(microsecond|millisecond|second|minute|hour)s?\b", re.IGNORECASE)
"""Fields of a time; the unit of an interval follows a number, a text or a bracket, and is none."""
FIELDS = {"microsecond": 1, "millisecond": 1000, **GRAIN_MICROSECONDS}
PLACEHOLDER = re.compile(r"\bdp_c(\d+)\b")
READS_TEXT = re.compile(r"\b(CAST|STRPTIME)\(", re.IGNORECASE)
"""Calls that fail where a text is not what they read."""


@dataclass(frozen=True)
class AxisQuery:
    """Filters, groupings and factors to evaluate on one axis table.

    Args:
        axis: id in the release.
        columns: placeholder number -> column name in the axis table.
        filters: predicates that every row must meet.
        groups: group expressions.
        classes: predicates whose truth is told apart.
        inner: whether the MISSING leaf is left out.
        factors: expressions that rows are multiplied by.
        partners: placeholder number -> the key, in the axis table, of the partner that a row has where the key is not
            NULL; None where the partner is the axis's own table, which MISSING says.
    """

    axis: int
    columns: tuple[tuple[int, str], ...]
    filters: tuple[Predicate, ...] = ()
    groups: tuple[Expression, ...] = ()
    classes: tuple[Predicate, ...] = ()
    inner: bool = False
    factors: tuple[Expression, ...] = ()
    partners: tuple[tuple[int, str | None], ...] = ()

    @property
    def fields(self) -> list[str]:
        """Columns of the axis table that replace the placeholders."""
        present = (
            (number, f"{quoted(key)} IS NOT NULL" if key else "kind <> 2") for number, key in self.partners
        )
        return [
            *(f"{quoted(name)} AS dp_c{number}" for number, name in self.columns),
            *(f"({test}) AS dp_c{number}" for number, test in present),
        ]

    @property
    def whole(self) -> bool:
        """True if every leaf counts fully and there is nothing to evaluate."""
        return not (self.filters or self.groups or self.classes or self.inner or self.factors)

    @property
    def plain(self) -> bool:
        """True if it is only asked which leaves meet its filters."""
        return not (self.groups or self.classes or self.factors)


def truth_sql(predicate: Predicate, sql: str | None = None) -> str:
    """A predicate as a two-valued DuckDB expression.

    >>> truth_sql(Predicate(Expression("dp_c0 > 1", frozenset({0})), negated=True))
    'NOT COALESCE(dp_c0 > 1, FALSE)'
    """
    text = f"COALESCE({predicate.expression.sql if sql is None else sql}, FALSE)"
    return f"NOT {text}" if predicate.negated else text


class ValueRange(NamedTuple):
    """The values that one atom of a column stands for.

    Args:
        number: of the column's placeholder.
        name, spec: its name in the axis table, and its declaration.
        always: whether every comparison cuts atoms, not only one with a finer constant.
    """

    number: int
    name: str
    spec: Column
    always: bool

    @property
    def step(self) -> int:
        """Microseconds of an atom of a time."""
        return GRAIN_MICROSECONDS["day" if self.spec.type == "date" else self.spec.grain]

    @property
    def is_time(self) -> bool:
        return self.spec.type in ("date", "timestamp")

    def is_finer(self, expression: Expression) -> bool:
        """True if an expression has a constant between two atoms."""
        if self.is_time:
            moments = MOMENT.finditer(_without_days(expression.sql))
            return any((moment - datetime.min) // MICROSECOND % self.step for moment in map(_moment, moments))
        return any(Decimal(match[1] or match[2]) % self.unit for match in COMPARED.finditer(expression.sql))

    @property
    def unit(self) -> Decimal:
        """The step of a number."""
        return Decimal(1).scaleb(-self.spec.digits)

    def field_finer(self, expression: Expression) -> str:
        """The first field of an expression that is finer than the grain; empty where there is none."""
        if not self.is_time:
            return ""
        words = (match[1].lower() for match in FIELD.finditer(expression.sql))
        return next((word for word in words if FIELDS[word] < self.step), "")

    def point(self, low: str, high: str, points: int) -> str:
        """The dp_i-th of evenly spaced values, as SQL."""
        if self.is_time:
            width = f"epoch_us({high}) - epoch_us({low}) + {self.step - 1}"
            return f"make_timestamp(epoch_us({low}) + ({width}) * dp_i // {points - 1})"
        kind = f"DECIMAL(38,{self.spec.digits + 6})"
        part = f"CAST({self.unit:f} AS {kind}) * (2 * dp_i + 1 - {points}) / {2 * points}"
        return f"CAST(CAST({low} AS {kind}) + {part} AS {kind})"

    def beside(self, expression: Expression) -> list[str]:
        """The constants of an expression and the values right beside them, as SQL."""
        if self.is_time:
            moments = [_moment(match) for match in MOMENT.finditer(expression.sql)]
            shifts = [
                moment + shift for moment in moments for shift in (-MICROSECOND, MICROSECOND * 0, MICROSECOND)
            ]
            return [f"TIMESTAMP '{moment.isoformat(' ')}'" for moment in shifts]
        tiny = self.unit.scaleb(-5)
        return [
            f"CAST({sign * Decimal(match[0]) + shift:f} AS DECIMAL(38,{self.spec.digits + 6}))"
            for match in NUMBER.finditer(expression.sql) for sign in (1, -1) for shift in (-tiny, 0 * tiny, tiny)
        ]  # fmt: skip

    def within(self, low: str, high: str, value: str) -> str:
        """True if an atom stands for a value, as SQL."""
        if self.is_time:
            start, end = f"epoch_us({low})", f"epoch_us({high}) + {self.step}"
            return f"epoch_us({value}) >= {start} AND epoch_us({value}) < {end}"
        half = f"CAST({self.unit / 2:f} AS DECIMAL(38,{self.spec.digits + 6}))"
        return f"{value} >= {low} - {half} AND {value} < {high} + {half}"


@dataclass(frozen=True)
class LeafValues:
    """An axis table as a question looks at it.

    Args:
        source: a table, or a subquery, of atom, leaf, kind, weight and the columns asked.
        ranges: columns whose atoms some condition cuts; empty where every atom is one value.
    """

    source: str
    ranges: tuple[ValueRange, ...] = ()

    @property
    def finer(self) -> bool:
        """True if some condition may cut an atom."""
        return bool(self.ranges)

    @property
    def fields(self) -> list[str]:
        """Values inside of atoms, for conditions that cut them."""
        return [f"dp_p{column.number}" for column in self.ranges]

    def sql(self, expression: Expression, *, grouped: bool = False) -> str:
        """An expression over the values that it tells apart: of atoms, or inside of them.

        Args:
            expression: the expression.
            grouped: whether it is the key of a group or a factor: a column by itself is that of its atom then.
        """
        inside = {
            column.number for column in self.ranges
            if column.number in expression.columns and _cuts(column, expression, grouped)
        }  # fmt: skip
        sql = PLACEHOLDER.sub(
            lambda match: f"dp_p{match[1]}" if int(match[1]) in inside else match[0], expression.sql
        )
        # the word of unlisted texts, such as `(other)`, is no date and no number
        return (
            f"CASE WHEN dp_kind = {OTHER} THEN TRY({sql}) ELSE {sql} END" if READS_TEXT.search(sql) else sql
        )

    def truth(self, predicate: Predicate) -> str:
        """A predicate as a two-valued DuckDB expression."""
        return truth_sql(predicate, self.sql(predicate.expression))


def leaf_values(release: Release, question: AxisQuery) -> LeafValues:
    """The values of an axis that a question looks at.

    Args:
        release: an open release.
        question: what the axis is asked.

    Raises:
        NotSupportedError: an axis whose atoms are whole leaves is asked something that is no comparison or monotone
            function; a field of a time that is finer than its grain.
    """
    meta, table = release.axes[question.axis], f"axis_{question.axis}"
    conditions = [predicate.expression for predicate in (*question.filters, *question.classes)]
    keys = [*question.groups, *question.factors]
    columns = [column for number, name in question.columns if (column := _range(release, meta, number, name))]
    for column, value in product(columns, (*conditions, *keys)):
        if column.number in value.columns and (field := column.field_finer(value)):
            precision = column.spec.grain if column.spec.type == "timestamp" else "day"
            raise NotSupportedError(
                f"{column.name} is known to the {precision}, and has no {field}",
                hint=f"ask for the {precision}, or for something coarser",
            ).at("WHERE", value.span)
    cut = [
        column for column in columns
        if any(_cuts(column, each, False) for each in conditions if column.number in each.columns)
        or any(_cuts(column, each, True) for each in keys if column.number in each.columns)
    ]  # fmt: skip
    if not meta.atomic:
        odd = next((each for each in (*conditions, *keys) if not each.monotone), None)
        if odd is not None:
            raise NotSupportedError(
                f"the axis {meta.name} has more values than are kept one by one, and takes comparisons only",
                hint="compare the column with constants, or truncate it with DATE_TRUNC or FLOOR",
            ).at("WHERE", odd.span)
    elif not cut:
        return LeafValues(table)
    points = max(2, min(64, MAX_POINTS // meta.leaves))
    ranges = {column.number: column for column in cut}
    even = [f"atom * {points} + dp_i AS atom", "leaf", "kind", f"weight / {points} AS weight"]
    near = [f"atom * {points} AS atom", "leaf", "kind", f"weight * {UNKNOWN!r} AS weight"]
    for number, name in question.columns:
        low, high = bounds_of(meta, name)
        a, b = quoted(low.name), quoted(high.name)
        at_atom = a if meta.atomic else between(low, high, points)
        even.append(f"{at_atom} AS {quoted(name)}")
        near.append(f"{a} AS {quoted(name)}")
        if number in ranges:
            even.append(f"{ranges[number].point(a, b, points)} AS dp_p{number}")
            near.append(
                f"dp_v{number} AS dp_p{number}" if number == cut[0].number else f"NULL AS dp_p{number}"
            )
    source = f"SELECT {', '.join(even)} FROM {table}, (SELECT unnest(range({points})) AS dp_i)"
    constants = list[str]()  # looked at besides the values that are spread evenly
    if len(cut) == 1 and len(question.columns) == 1:
        constants = list(dict.fromkeys(text for each in (*conditions, *keys) for text in cut[0].beside(each)))
    if constants:
        column = cut[0]
        a, b = (quoted(end.name) for end in bounds_of(meta, column.name))
        values = f"(SELECT unnest([{', '.join(constants[: 3 * MOST_CONSTANTS])}]) AS dp_v{column.number})"
        within = column.within(a, b, f"dp_v{column.number}")
        source += f" UNION ALL SELECT {', '.join(near)} FROM {table}, {values} WHERE kind = 0 AND {within}"
    return LeafValues(f"({source})", tuple(cut))


def _cuts(column: ValueRange, expression: Expression, grouped: bool) -> bool:
    """True if an expression may tell values of one atom apart."""
    if expression.of_null or expression.sql == f"dp_c{column.number}":
        return False
    if grouped and not column.is_time:
        return False
    return column.is_finer(expression) or (column.always and not grouped)


def _range(release: Release, meta: AxisMeta, number: int, name: str) -> ValueRange | None:
    """The declaration of a column whose atoms are intervals; None of any other."""
    column = next((column for column in meta.columns if column.name == name), None)
    if column is None or column.table not in release.catalog.tables:
        return None
    table = release.catalog.tables[column.table]
    spec = table.columns.get(column.column)
    if spec is None or table.is_public or spec.type not in ("int", "decimal", "date", "timestamp"):
        return None
    kind = "DATE" if spec.type == "date" else "TIMESTAMP" if spec.type == "timestamp" else ""
    if kind and column.type != kind:
        return None  # a field of the column
    return ValueRange(number, name, spec, spec.type == "timestamp" and spec.grain != "second")


DAYS = re.compile(r"DATE_TRUNC\('(?:DAY|WEEK|MONTH|QUARTER|YEAR)'|CAST\(", re.IGNORECASE)
"""Where a constant that is cut to whole days may begin."""


def _without_days(sql: str) -> str:
    """An expression without what is cut to whole days and holds no column.

    >>> _without_days("dp_c0 = CAST(CAST('2025-02-15 12:00:33' AS TIMESTAMP) AS DATE)")
    'dp_c0 = '
    """
    place = 0
    while match := DAYS.search(sql, place):
        depth, end = 1, sql.index("(", match.start()) + 1
        while depth and end < len(sql):
            depth += {"(": 1, ")": -1}.get(sql[end], 0)
            end += 1
        call = sql[match.start() : end]
        days = match[0].upper() != "CAST(" or call.upper().endswith(" AS DATE)")
        if days and not PLACEHOLDER.search(call):
            sql, place = sql[: match.start()] + sql[end:], match.start()
        else:
            place = match.end()
    return sql


def _moment(match: re.Match[str]) -> datetime:
    return datetime.fromisoformat(f"{match[1]} {match[2] or '00:00'}")


def bounds_of(meta: AxisMeta, name: str) -> tuple[ColumnMeta, ColumnMeta]:
    """The columns that hold a leaf's least and largest value."""
    low = next(column for column in meta.columns if column.name == name)
    same = [c for c in meta.columns if (c.path, c.table, c.column) == (low.path, low.table, low.column)]
    return same[0], same[-1]


def between(low: ColumnMeta, high: ColumnMeta, points: int) -> str:
    """The dp_i-th of evenly spaced values from one column to another.

    >>> x = ColumnMeta((), "t", "x", "x", "INTEGER")
    >>> between(x, x, 4)
    '"x" + CAST(("x" - "x") * dp_i / 3 AS INTEGER)'
    """
    a, b = quoted(low.name), quoted(high.name)
    if low.type.startswith("TIMESTAMP"):
        return (
            f"{a} + to_microseconds(CAST((epoch_us({b}) - epoch_us({a})) * dp_i // {points - 1} AS BIGINT))"
        )
    step = f"({b} - {a}) * dp_i / {points - 1}"
    return f"{a} + CAST({step} AS {'INTEGER' if low.type == 'DATE' else low.type})"


def has_runs(release: Release, axis: int) -> bool:
    """True if an axis is long, and its atoms are its leaves in their order, as the file has them too."""
    meta = release.axes[axis]

    def are_leaves() -> bool:
        atoms, moved = release.atoms(axis), f"SELECT COUNT(*) FROM axis_{axis} WHERE leaf <> rowid"
        whole = np.array_equal(atoms["leaf"], np.arange(meta.leaves)) and np.all(atoms["weight"] == 1.0)
        return bool(whole) and run(release, moved).rows[0][0] == 0

    return meta.atomic and meta.leaves > TABLE and release.kept(("atoms are leaves", axis), are_leaves)


_COMPARED = {"TINYINT": 0, "SMALLINT": 0, "INTEGER": 0, "BIGINT": 0, "DATE": None}
_DECIMAL = re.compile(r"DECIMAL\(\d+,(?P<places>\d+)\)")
MOST_WHOLE = 10**15
"""Decimal numbers come as floats, which tell those of fewer digits apart."""


class CellColumn(NamedTuple):
    """A column of an axis table, as numpy compares it.

    Args:
        values: integers or days; of a decimal number the integer without its point.
        known: where they are not NULL.
        places: digits after the point; None for days.
        rising: how many atoms have a value, if these come first and never fall; 0 otherwise.
    """

    values: Any
    known: Any
    places: int | None
    rising: int


def cell_column(release: Release, axis: int, name: str) -> CellColumn | None:
    """A column whose comparisons mean the same in numpy; None for any other."""
    kind = next(column.type for column in release.axes[axis].columns if column.name == name)
    decimal = _DECIMAL.fullmatch(kind)
    if kind not in _COMPARED and decimal is None:
        return None
    return release.kept((axis, name), lambda: _column(release.atoms(axis)[name], kind, decimal))


def _column(values: Any, kind: str, decimal: re.Match[str] | None) -> CellColumn | None:
    not_null, numbers, places = ~np.ma.getmaskarray(values), np.ma.getdata(values), _COMPARED.get(kind)
    if decimal is not None:
        places = int(decimal["places"])
        integers = np.ma.filled(values, 0.0) * 10.0**places
        if np.max(np.abs(integers), initial=0.0) >= MOST_WHOLE:
            return None
        numbers = np.rint(integers).astype(np.int64)
    count = int(np.count_nonzero(not_null))
    rises = np.all(not_null[:count]) and np.all(numbers[1:count] >= numbers[: count - 1])
    return CellColumn(numbers, not_null, places, count if rises else 0)


def numpy_constant(column: CellColumn | None, comparison: Comparison) -> Any:
    """The constant of a comparison as numpy compares it; None where numpy cannot decide."""
    constant = comparison.constant
    if column is None or (column.places is None) != isinstance(constant, date):
        return None
    if isinstance(constant, date):
        return np.datetime64(constant, "D")
    scaled = Decimal(constant).scaleb(column.places or 0)
    return int(scaled) if int(scaled) == scaled else None
