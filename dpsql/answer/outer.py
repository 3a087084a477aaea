"""The outer statement over its blocks' relations: its rows, and how far they may be off once that is asked.

A column that one block's row decides has a form, and its error is the block's. Any other noisy column has its error
from the cells it is made of, which the statement, run once more, carries beside it (`sql.carry`); not before it is
asked.

**Privacy**: post-processing of noisy groups.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import duckdb
import numpy as np

from dpsql.answer.block import Form, Ratio
from dpsql.answer.composite import Composite, Denominators, Sides, listed
from dpsql.answer.errorfunctions import ErrorFunction
from dpsql.answer.leafsets import UNBOUND, FloatArray
from dpsql.answer.relation import Relation
from dpsql.answer.result import Grid
from dpsql.answer.run import Answer, run_apart
from dpsql.answer.schema import Listing
from dpsql.answer.sql.carry import Carried, Emitted, carry
from dpsql.answer.sql.follow import Unknown
from dpsql.answer.sql.statement import Statement
from dpsql.errors import DataError, Error, InternalError, NotSupportedError, ProgrammingError

MOST_ROWS = 2048
"""Groups of a block up to which each row may be made of all of them: 4 million cells, some seconds."""
TOO_MANY = Unknown(f"each row would follow more than {MOST_ROWS} groups")

Row = tuple[Any, ...]
T = TypeVar("T")


class Lazy(Generic[T]):
    """A property that is worked out once, without a lock.

    Until Python 3.12 `cached_property` has one lock for all instances: a statement would wait for any other that runs.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self.make = make
        self.__doc__ = make.__doc__

    def __get__(self, instance: Any, owner: type | None = None) -> T:
        """The value; kept under the property's name, where Python looks first."""
        value = self.make(instance)
        instance.__dict__[self.make.__name__] = value
        return value


class Table(NamedTuple):
    """A relation that the statement reads: name, columns, DuckDB types and values column by column."""

    name: str
    columns: Sequence[str]
    types: Sequence[str]
    values: Sequence[Any]

    @property
    def source(self) -> str:
        """Its definition, with a placeholder for each column."""
        fields = ", ".join(
            f"unnest(?::{kind}[]) AS {column}" for column, kind in zip(self.columns, self.types, strict=True)
        )
        return f"{self.name} AS (SELECT {fields})"


@dataclass(frozen=True, eq=False)
class Outer:
    """A statement over its blocks' answers.

    Args:
        statement: the statement.
        relations: one for each block.
        listings: the tables of information_schema; made when one is read.
        limit: seconds until a statement is stopped.
    """

    statement: Statement
    relations: tuple[Relation, ...]
    listings: Callable[[], Sequence[Listing]]
    limit: float

    @Lazy
    def answer(self) -> Answer:
        """Names, types and rows; hidden columns follow the named ones in each row."""
        if self.statement.asks_errors:
            return self._carried_answer
        if len(self.relations) == 1 and self.statement.direct:
            return _picked(self.statement, self.relations[0])
        return self._run(self.statement.over, self._tables)

    def grid(self, error: ErrorFunction, level: float) -> Grid:
        """Standard errors, interval ends or other errors in the shape of the rows; None where not defined."""
        width = len(self.statement.names)
        carried = [row[width:] for row in self.answer.rows]
        computed: dict[tuple[int, Form], list[Any] | None] = {}
        columns: list[list[Any]] = []
        for number, forms in enumerate(self.statement.forms):
            column: list[Any] = [None] * len(carried)
            for place, block in enumerate(self.statement.carriers):
                form = forms.get(block)
                if form is None:
                    continue
                if (block, form) not in computed:
                    computed[block, form] = self.relations[block].errors_of(error, form, level)[1]
                found = computed[block, form]
                for r, row in enumerate(carried if found is not None else ()):
                    if row[place] is not None and found is not None:
                        column[r] = found[row[place]]
            columns.append(column if self._settled(forms) else self._composite_errors(number, error, level))
        return tuple(zip(*columns, strict=True)) if columns else ()

    def _settled(self, forms: Mapping[int, Form]) -> bool:
        """Whether blocks tell the errors of a column: it has a form, and one view holds all of it."""
        return bool(forms) and all(self.relations[block].holds(form) for block, form in forms.items())

    @Lazy
    def undefined(self) -> Mapping[str, str]:
        """Columns whose error is not defined, and why."""
        found = {}
        for number, forms in enumerate(self.statement.forms):
            column = None if self._settled(forms) else self._columns[number]
            if isinstance(column, Unknown):
                found[self.statement.names[number]] = column.why
        return found

    def _composite_errors(self, number: int, error: ErrorFunction, level: float) -> list[Any]:
        column = self._columns[number]
        if column is None or isinstance(column, Unknown):
            return [None] * len(self.answer.rows)
        return error.column(self.composites[number], level)

    @Lazy
    def _columns(self) -> Sequence[Emitted | Unknown | None]:
        """For each named column where its cells are, or why there are none."""
        if not self.statement.blocks:
            return [None] * len(self.statement.names)
        large = max(len(relation.columns[0]) for relation in self.relations) > MOST_ROWS
        why = TOO_MANY if large and self.carried.wide else self._refused
        if why is None:
            return self.carried.columns
        return [why if isinstance(each, Emitted) else each for each in self.carried.columns]

    @Lazy
    def _refused(self) -> Unknown | None:
        """Why cells cannot be carried, where they are more than a question may take."""
        if not any(isinstance(each, Emitted) for each in self.carried.columns):
            return None
        try:
            self._carried_rows()
        except NotSupportedError as error:
            return Unknown(error.args[0])
        return None

    def _carried_rows(self) -> list[Row]:
        """Rows with their cells."""
        return self._carried_answer.rows

    @Lazy
    def carried(self) -> Carried:
        """The statement that carries cells."""
        return carry(self.statement)

    @Lazy
    def composites(self) -> Mapping[int, Composite]:
        """The columns that follow cells of several groups, by number, in the order of the answer's rows."""
        width = len(self.statement.names)
        rows = _in_order([row[:width] for row in self.answer.rows], self._carried_rows())
        return {
            number: composite(column, rows, self.relations)
            for number, column in enumerate(self._columns)
            if isinstance(column, Emitted)
        }

    @Lazy
    def _tables(self) -> list[Table]:
        tables = [Table(f"dp_block_{i}", r.names, r.types, r.columns) for i, r in enumerate(self.relations)]
        if self.statement.catalog_tables:
            tables += [Table(*each) for each in self.listings()]
        return tables

    @Lazy
    def _carried_answer(self) -> Answer:
        """Rows with their cells, functions of an error answered first."""
        tables = [*self._tables[len(self.relations) :], *map(_with_sides, self._tables, self.relations)]
        for number, probe in enumerate(self.carried.probes):
            rows = self._run(probe.over, tables).rows
            keys = list({row[0]: row for row in rows}.values())
            values = probe.error.column(composite(probe.column, keys, self.relations), probe.level)
            columns = [[row[0] for row in keys], values]
            tables.append(Table(f"dp_error_{number}", ("k", "e"), ("UBIGINT", probe.error.type), columns))
        answer = self._run(self.carried.over, tables)
        return Answer(answer.names[: self.carried.width], answer.types, answer.rows)

    def _run(self, over: Callable[[Sequence[str]], str], tables: Sequence[Table]) -> Answer:
        """Run a statement over tables."""
        sources = [table.source for table in tables]
        values = [column for table in tables for column in table.values]
        try:
            answer = run_apart(over(sources), values, limit=self.limit)
        except duckdb.Error as error:
            raise outer_error(error) from error
        names = self.statement.names
        return Answer(names, answer.types[: len(names)], _finite(answer.rows))


def _with_sides(table: Table, relation: Relation) -> Table:
    """A block's relation with both sides of its ratios beside them."""
    columns, values = list(table.columns), list(table.values)
    for number, value in enumerate(relation.block.values):
        answered = relation.answered_for(value) if isinstance(value, Ratio) else None
        if isinstance(value, Ratio):
            columns += [f"v{number}a", f"v{number}b"]
            rows = len(values[0])
            sides = answered.parts(value) if answered is not None else (np.full(rows, np.nan),) * 2
            values += [np.broadcast_to(side, rows).tolist() for side in sides]
    types = [*table.types, *["DOUBLE"] * (len(columns) - len(table.columns))]
    return Table(table.name, columns, types, values)


def composite(column: Emitted, rows: Sequence[Row | None], relations: tuple[Relation, ...]) -> Composite:
    """A column's numbers with the cells that they follow.

    Args:
        column: where they are in each row.
        rows: rows of a carrying statement; None for one whose cells are not known.
        relations: the blocks' answers.
    """
    taken = iter(column.at)

    def values() -> list[Any]:
        place = next(taken)
        return [None if row is None else row[place] for row in rows]

    middle = _numbers([None if row is None else row[column.value] for row in rows])
    cells = listed(values(), values())
    quotient = near = None
    if column.follows.quotient is not None:
        above, above_cells = _numbers(values()), listed(values(), values())
        quotient = Sides(above, above_cells, _numbers(values()), listed(values(), values()))
    if column.follows.near:
        lines = ((r, each) for r, row in enumerate(values()) for each in row or ())
        found = [
            (r, each) for r, each in lines if each["g"] is not None
        ]  # None: of a branch that was not taken
        lists = [[tuple(cell.values()) for cell in each["g"]] for _, each in found]
        near = Denominators(
            np.array([r for r, _ in found], np.int64), _numbers([each["b"] for _, each in found]),
            listed([[c for c, _ in cells] for cells in lists], [[w for _, w in cells] for cells in lists]),
        )  # fmt: skip
    return Composite(relations, middle, cells, column.follows.linear, quotient, near)


def _numbers(values: Sequence[Any]) -> FloatArray:
    """Numbers, NaN for what is none."""
    return np.array(
        [math.nan if value is None or isinstance(value, str) else float(value) for value in values]
    )


def _in_order(wanted: Sequence[Row], rows: Sequence[Row]) -> list[Row | None]:
    """Rows of a second run in the order of the first: DuckDB may order ties, and what is not sorted, as it likes."""
    visible = [row[: len(wanted[0])] if wanted else row for row in rows]
    if list(wanted) == visible:
        return list(rows)
    places: dict[str, list[Row]] = {}
    for shown, row in zip(visible, rows, strict=True):
        places.setdefault(repr(shown), []).append(row)
    return [places[repr(row)].pop(0) if places.get(repr(row)) else None for row in wanted]


def _finite(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows without NaN or infinity: what a statement computes is guarded (`sql.finite`), text that it casts is not."""
    if not any(isinstance(value, float) and not math.isfinite(value) for row in rows for value in row):
        return rows
    return [
        tuple(None if isinstance(value, float) and not math.isfinite(value) else value for value in row)
        for row in rows
    ]


def _picked(statement: Statement, relation: Relation) -> Answer:
    """Columns of a block's relation as they are: what DuckDB would give back, without asking it."""
    places = [relation.names.index(name) for name in statement.direct]
    types = tuple(relation.types[place] for place in places[: len(statement.names)])
    return Answer(
        statement.names, types, list(zip(*(relation.columns[place] for place in places), strict=True))
    )


def outer_error(error: duckdb.Error) -> Error:
    """DuckDB's complaint about the post-processing, as a typed error of one line."""
    reason = str(error).splitlines()[0][:300]
    if isinstance(error, UNBOUND):
        return ProgrammingError(reason.replace("Binder Error: ", ""), hint="check names and types")
    if isinstance(error, duckdb.InternalException):
        return InternalError("DuckDB failed inside", hint="write the statement more simply")
    return DataError(reason, hint="check types and casts")
