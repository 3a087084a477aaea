"""The outer statement over its blocks' relations: its rows, and how far they may be off once that is asked.

A column that one block's row decides has a form, and its error is the block's. Any other noisy column has its error
from the cells it is made of, which the statement, run once more, carries beside it (`sql.carry`); not before it is
asked.

**Privacy**: post-processing of noisy groups.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Generic, TypeVar

import duckdb
import numpy as np

from dpsql.errors import DataError, Error, InternalError, NotSupportedError, ProgrammingError, SqlSyntaxError
from dpsql.executor import readings, small_numbers
from dpsql.executor.relation import Relation
from dpsql.executor.run import UNBOUND, AnswerRelation, Rowset, finite_rows, in_order, run_apart
from dpsql.intervals.cells import (
    CELL,
    NOTHING,
    UNCOUNTED,
    Candidates,
    Extremes,
    NoisySelection,
    blocks_of_rows,
    cell_count,
    choice,
    composite,
    extremes,
    numbers_of,
    together,
)
from dpsql.intervals.composite import Composite
from dpsql.intervals.errorfunctions import (
    DEFAULT_LEVEL,
    FEW,
    HIGH,
    LOW,
    MODEL_BOUND,
    STDERR,
    ErrorFunction,
    Interval,
    interval,
    quantile,
)
from dpsql.planner.axis_query import IntArray
from dpsql.planner.block import CatalogValue, ErrorOf, Form
from dpsql.planner.notes import Note
from dpsql.planner.schema import Listing
from dpsql.release.request import MemoryCharge, check, paced, requested, size_of, take
from dpsql.results.render import NUMBERS, Grid
from dpsql.sql.added import UNSEEN, VALUE, bit_offsets, shifted
from dpsql.sql.carry import RATIO, Carried, LineageColumns, carry
from dpsql.sql.dependence import Unknown
from dpsql.sql.selection import PickQuery, pick_queries
from dpsql.sql.statement import ADDED, Statement, with_sources

MOST_ROWS = 2048
"""Groups of a block up to which each row may be made of all of them: 4 million cells, some seconds."""
TOO_MANY = Unknown(f"each row would depend on more than {MOST_ROWS} groups")
MOST_PAIRS = 2**29
"""Pairs of cells that the rows of one column follow: some fifteen seconds, as of a running sum of 1,170 groups."""
TOO_MUCH = Unknown("its rows depend on too many groups to compute their errors in the memory and time given")
TOO_DEEP = Unknown("the statement is nested too deeply to compute its errors")

NARROW = (
    "functions of an error inside the statement decide which rows it keeps: their intervals are not widened"
)

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


@dataclass(frozen=True, eq=False)
class OuterStatement:
    """A statement over its blocks' answers.

    Args:
        statement: the statement.
        relations: one for each block.
        listings: tables of information_schema and public ones; made when one is read.
        limit: seconds until a statement is stopped.
        hidden: for each block its unseen groups, where this is the second reading of a statement.
    """

    statement: Statement
    relations: tuple[Relation, ...]
    listings: Callable[[], Sequence[Listing]]
    limit: float
    hidden: tuple[readings.BoolArray, ...] = ()
    _held: MemoryCharge = field(default_factory=lambda: MemoryCharge(), repr=False)
    _composites: dict[tuple[int, int], Composite | Extremes] = field(default_factory=dict, repr=False)
    _shown: dict[tuple[int, int | None], tuple[Relation, Mapping[int, int]]] = field(
        default_factory=dict, repr=False
    )

    @Lazy
    def answer(self) -> Rowset:
        """Names, types and rows; hidden columns follow the named ones in each row."""
        if self.seen is None or not self.statement.asks_errors:
            return self._own_answer
        rows, others = self._own_answer.rows, self.seen.answer.rows
        combined = readings.combined_errors(rows, others, self.statement.counting, self._seen_at)
        return self._own_answer._replace(rows=combined)

    @Lazy
    def _own_answer(self) -> Rowset:
        """The answer of this reading alone."""
        with self._held.request(self.limit):
            return self._unjudged._replace(rows=self._judged.rows)

    @Lazy
    def _unjudged(self) -> Rowset:
        return self._answer(self._inside)

    @property
    def _min_people(self) -> int:
        return max((relation.min_people for relation in self.relations), default=0)

    @Lazy
    def _judged(self) -> readings.Judged:
        """The rows by the rule of small numbers; those of a block alone were judged when it was answered."""
        rows = self._unjudged.rows
        if not self._min_people or self.statement.direct:
            return readings.Judged(rows, [], {})
        columns = [
            forms if self._settled(forms) else self._columns[number]
            for number, forms in enumerate(self.statement.forms)
        ]
        lines = self._in_order if any(isinstance(column, LineageColumns) for column in columns) else []
        return readings.judge(rows, lines, columns, self.statement.carriers, self.relations)

    @Lazy
    def _unseen(self) -> tuple[readings.BoolArray, ...]:
        """The unseen groups of each block, where numbers depend on how many there are; empty where there are none."""
        large = any(len(relation.columns[0]) > readings.MOST_GROUPS for relation in self.relations)
        if self.hidden or large or not any(self.statement.counting):
            return ()
        with self._held.request(self.limit):
            groups = tuple(map(readings.unseen, self.relations))
        return groups if any(mask.any() for mask in groups) else ()

    @Lazy
    def seen(self) -> OuterStatement | None:
        """The statement read over groups that are seen alone; None where all are."""
        if not self._unseen:
            return None
        return OuterStatement(self.statement, self.relations, self.listings, self.limit, self._unseen)

    @Lazy
    def _seen_at(self) -> list[int | None]:
        """For each row that of the other reading."""
        if self.seen is None:
            return []
        kinds = self.statement.counting or ("",) * len(self.statement.names)
        labels = [c for c, kind in enumerate(kinds) if not kind]  # tell rows of both readings apart
        return readings.matches(self._own_answer.rows, self.seen.answer.rows, labels)

    @Lazy
    def _readings(self) -> Mapping[int, str]:
        """Columns that depend on which groups are empty, each with why that gives no interval; empty where it does."""
        kinds = self.statement.counting
        if (
            any(kinds)
            and not self.hidden
            and any(len(r.columns[0]) > readings.MOST_GROUPS for r in self.relations)
        ):
            return {c: readings.TOO_MANY_GROUPS for c, kind in enumerate(kinds) if kind}
        if self.seen is None:
            return {}
        reasons, rows, others = {}, self.answer.rows, self.seen.answer.rows
        counts = readings.group_counts(self.relations, self._unseen)
        blind = any(every == empty for every, empty in counts)
        for c in (c for c, kind in enumerate(kinds) if kind):
            pairs = [
                (row[c], None if at is None else others[at][c])
                for row, at in zip(rows, self._seen_at, strict=True)
            ]
            named = any(
                not isinstance(a, NUMBERS) and a != b and b is not None for a, b in pairs if a is not None
            )
            if blind and any(a is not None and b is None for a, b in pairs):
                reasons[c] = readings.NONE_SEEN  # an average over no group, where there are some
                continue
            reasons[c] = (
                readings.INSIDE
                if kinds[c] != VALUE
                else readings.ROWS_DIFFER
                if named or None in self._seen_at
                else ""
            )
        return reasons

    def _answer(self, inside: NoisySelection) -> Rowset:
        """The answer, functions of an error inside the statement widened for a choice."""
        if self.statement.asks_errors:
            return self._carry(inside)
        if len(self.relations) == 1 and self.statement.direct:
            # columns as they are: what DuckDB would give back, without asking it
            relation, names = self.relations[0], self.statement.names
            places = [relation.names.index(name) for name in self.statement.direct]
            rows = list(zip(*(relation.columns[place] for place in places), strict=True))
            take(size_of(rows))
            return Rowset(names, tuple(relation.types[place] for place in places[: len(names)]), rows)
        return self._run(self.statement.common, self.statement.outer, self._tables_for(inside))

    @Lazy
    def choice(self) -> NoisySelection:
        """Rows that the statement's clauses selected by noisy values."""
        if not (self.statement.keeps and self.relations):
            return NOTHING
        with self._held.request(self.limit):
            try:
                return together([self._choice(query) for query in pick_queries(self.statement)])
            except (RecursionError, NotSupportedError):
                return UNCOUNTED

    def _choice(self, query: PickQuery | None) -> NoisySelection:
        if query is None:
            return UNCOUNTED
        large = max(len(relation.columns[0]) for relation in self.relations) > MOST_ROWS
        executed_query = query.counted if query.score is None or (query.wide and large) else query
        rows = self._run(executed_query.common, executed_query.sql, self._carry_tables(NOTHING)).rows
        kept_mask = np.fromiter((row[0] for row in paced(rows)), bool, len(rows))
        score = executed_query.score
        if score is None:
            return choice(executed_query, Candidates(kept_mask, np.zeros(len(rows))))

        def intervals(indices: IntArray, level: float) -> Interval:
            nearest = [rows[i] for i in indices]
            ends = []
            for block in blocks_of_rows([score], nearest):
                check()
                numbers = composite(score, nearest[block.start : block.stop], self.relations)
                ends.append(interval(numbers, level))
            return Interval(*(np.concatenate(column) for column in zip(*ends, strict=True)))

        values = numbers_of([row[score.value] for row in paced(rows)])
        return choice(executed_query, Candidates(kept_mask, values, intervals))

    @Lazy
    def _inside(self) -> NoisySelection:
        """Selection that error functions inside the statement are widened for; none where other rows were kept."""
        if self.choice.share == 1.0 or not self._tells_errors:
            return NOTHING
        plain, wide = self._answer(NOTHING).rows, self._answer(self.choice).rows
        fixed = [c for c, forms in enumerate(self.statement.forms) if forms]
        fixed += range(len(self.statement.names), len(plain[0]) if plain else 0)
        same = len(plain) == len(wide) and all(
            a[c] == b[c] for a, b in zip(plain, wide, strict=True) for c in fixed
        )
        return self.choice if same else NOTHING

    @property
    def _tells_errors(self) -> bool:
        """True if the statement has functions of an error."""
        return self.statement.asks_errors or self.statement.block_errors

    @property
    def notes(self) -> list[Note]:
        """Notes on rows selected by noise."""
        narrow = self._tells_errors and self.choice.share < 1.0 and self._inside is NOTHING
        notes = [*self.choice.notes, *([Note(NARROW, flag=True)] if narrow else [])]
        if self.statement.counting:
            notes += readings.left_out_notes(self.relations)
        if any(r.conceals for r in self.relations) or any(map(any, self._judged.hidden.values())):
            notes.append(Note(small_numbers.REASON.format(self._min_people), flag=True))
        return [*notes, *([readings.domain_note(self.relations, self._unseen)] if self._unseen else [])]

    def grid(self, error: ErrorFunction, level: float, most: int | None = None) -> Grid:
        """Standard errors, interval ends or other errors of the first `most` rows, None where not defined.

        Args:
            error: which one.
            level: of an interval.
            most: rows that are shown; None for all.
        """
        with self._held.request(self.limit):
            level = self.choice.level(level)
            if error is FEW:
                return self._marks(most)
            columns = [
                self._both_readings(number, error, level, most)
                if number in self._readings
                else self._column(number, error, level, most)
                for number in range(len(self.statement.forms))
            ]
            return tuple(paced(zip(*columns, strict=True), size_of)) if columns else ()

    def _marks(self, most: int | None) -> Grid:
        count, columns = len(self.answer.rows[:most]), list[list[Any]]()
        for number, forms in enumerate(self.statement.forms):
            marks = self._column(number, FEW, DEFAULT_LEVEL, most) if self._settled(forms) else [0] * count
            hidden = self._judged.hidden.get(number, [False] * count)[:most]
            columns.append([self._min_people if h else m or 0 for m, h in zip(marks, hidden, strict=True)])
        return tuple(zip(*columns, strict=True))

    def _column(self, number: int, error: ErrorFunction, level: float, most: int | None) -> list[Any]:
        """A column's errors in one reading."""
        forms = self.statement.forms[number]
        if not self._settled(forms):
            return self._composite_errors(number, error, level, most)
        width = len(self.statement.names)
        carried = [row[width:] for row in islice(self.answer.rows, most)]
        column: list[Any] = [None] * len(carried)
        for place, block in enumerate(self.statement.carriers):
            form = forms.get(block)
            if form is None:
                continue
            check()
            relation, rows = self._shown_groups(place, most)
            values = relation.errors_of(error, form, level)[1] if rows else None
            for r, row in enumerate(carried if values is not None else ()):
                if row[place] is not None and values is not None:
                    column[r] = values[rows[row[place]]]
        return column

    def _both_readings(self, number: int, error: ErrorFunction, level: float, most: int | None) -> list[Any]:
        """The errors of a column that depends on which groups are empty: its interval holds both readings."""
        rows = self.answer.rows[:most]
        if self.seen is None or self._readings[number] or number in self._unknown:
            return [None] * len(rows)
        if error is STDERR:
            ends = [self._both_readings(number, end, DEFAULT_LEVEL, most) for end in (LOW, HIGH)]
            return [
                None if None in pair else (pair[1] - pair[0]) / (2 * quantile(DEFAULT_LEVEL))
                for pair in zip(*ends, strict=True)
            ]
        own, other = (reading._errors_or_values(number, error, level) for reading in (self, self.seen))
        if error not in (LOW, HIGH, MODEL_BOUND):
            return own[:most]
        sign, values, out = -1 if error is LOW else 1, self.seen.answer.rows, list[Any]()
        for end, at in zip(own, self._seen_at[: len(rows)], strict=False):
            absent = at is None or values[at][number] is None
            out.append(end if absent or at is None else readings.widest(end, other[at], sign))
        return out

    def _errors_or_values(self, number: int, error: ErrorFunction, level: float) -> list[Any]:
        """A column's errors; of numbers without noise the numbers as the ends of their intervals."""
        if number in self._moving:
            return self._column(number, error, level, None)
        ends = error in (LOW, HIGH)
        return [
            None if not isinstance(row[number], NUMBERS) else float(row[number]) if ends else 0.0
            for row in self.answer.rows
        ]

    def _shown_groups(self, place: int, row_limit: int | None) -> tuple[Relation, Mapping[int, int]]:
        """The groups of a carried block that the first rows show: their relation, and the row of each group in it."""
        if (place, row_limit) not in self._shown:
            column = len(self.statement.names) + place
            groups = sorted({row[column] for row in islice(self.answer.rows, row_limit)} - {None})
            relation = self.relations[self.statement.carriers[place]]
            if len(groups) < len(relation.columns[0]):
                relation = relation.at(groups) if groups else relation
            rows = {group: row for row, group in enumerate(groups)}
            self._shown[place, row_limit] = relation, rows
        return self._shown[place, row_limit]

    def _settled(self, forms: Mapping[int, Form]) -> bool:
        """True if blocks tell the errors of a column: it has a form, and one view holds all of it."""
        return bool(forms) and all(self.relations[block].holds(form) for block, form in forms.items())

    @Lazy
    def undefined(self) -> Mapping[str, str]:
        """Columns whose error is not defined, and why."""
        with self._held.request(self.limit):
            reasons = {**{c: why for c, why in self._readings.items() if why}, **self._unknown}
            return {self.statement.names[number]: why for number, why in sorted(reasons.items())}

    @Lazy
    def _unknown(self) -> Mapping[int, str]:
        """Columns whose cells cannot be followed, and why."""
        columns = {
            number: None if self._settled(forms) else self._columns[number]
            for number, forms in enumerate(self.statement.forms)
        }
        return {number: column.why for number, column in columns.items() if isinstance(column, Unknown)}

    @Lazy
    def moved(self) -> tuple[int, ...]:
        """Columns that noise moves, or which of the groups are empty, and whose error is defined."""
        with self._held.request(self.limit):
            known = {c for c, why in self._readings.items() if not why} - set(self._unknown)
            return tuple(sorted({*self._moving, *known} - {c for c, why in self._readings.items() if why}))

    @Lazy
    def _moving(self) -> tuple[int, ...]:
        """Columns that noise moves and whose cells can be followed."""
        return tuple(
            number
            for number, forms in enumerate(self.statement.forms)
            if (any(form.sides or (isinstance(form, CatalogValue) and form.has_error) for form in forms.values())
                if self._settled(forms)
                else isinstance(self._columns[number], LineageColumns))
        )  # fmt: skip

    def _composite_errors(
        self, number: int, error: ErrorFunction, level: float, row_limit: int | None
    ) -> list[Any]:
        column = self._columns[number]
        if column is None or isinstance(column, Unknown):
            return [None] * len(self.answer.rows[:row_limit])
        errors: list[Any] = []
        for block in self._blocks:
            if row_limit is not None and block.start >= row_limit:
                break
            check()
            if (number, block.start) not in self._composites:
                rows = self._ordered[block.start : block.stop]
                take(CELL * sum(cell_count(column, row) for row in rows))
                made = composite if column.extreme is None else extremes
                self._composites[number, block.start] = made(column, rows, self.relations)
            numbers = self._composites[number, block.start]
            if isinstance(numbers, Extremes):
                errors += numbers.column(error, level)
            else:
                errors += error.column(numbers, level)
        hidden = self._judged.hidden.get(number, [False] * len(errors))
        return [None if h else error for h, error in zip(hidden, errors[:row_limit], strict=False)]

    @Lazy
    def _blocks(self) -> list[range]:
        """Rows whose errors are worked out together; the same whichever of them are shown."""
        return list(
            blocks_of_rows([c for c in self._columns if isinstance(c, LineageColumns)], self._ordered)
        )

    @Lazy
    def _columns(self) -> Sequence[LineageColumns | Unknown | None]:
        """For each named column where its cells are, or why there are none."""
        unsettled = [number for number, forms in enumerate(self.statement.forms) if not self._settled(forms)]
        keys = bool(self.statement.direct) and all(
            self.statement.direct[n].startswith("k") for n in unsettled
        )
        if not self.statement.blocks or keys:  # labels of groups have no noise
            return [None] * len(self.statement.names)
        try:
            carried = self.carried
        except (RecursionError, SqlSyntaxError):
            return [None if self._settled(forms) else TOO_DEEP for forms in self.statement.forms]
        large = max(len(relation.columns[0]) for relation in self.relations) > MOST_ROWS
        why = TOO_MANY if large and carried.wide else self._refused
        if why is None:
            return carried.columns
        return [why if isinstance(column, LineageColumns) else column for column in carried.columns]

    @Lazy
    def _refused(self) -> Unknown | None:
        """Reason why cells cannot be carried: there are more than the limit."""
        if not any(isinstance(column, LineageColumns) for column in self.carried.columns):
            return None
        try:
            rows = self._carried_answer.rows
        except NotSupportedError as error:
            return Unknown(error.args[0])
        columns = [column for column in self.carried.columns if isinstance(column, LineageColumns)]
        followed = [[cell_count(column, row) for row in rows] for column in columns]
        with requested() as request:
            full = request.bytes + CELL * sum(map(sum, followed)) > request.most_bytes
        pairs = max(sum((cells // 2) ** 2 for cells in each) for each in followed)  # numbers and weights
        return TOO_MUCH if full or pairs > MOST_PAIRS else None

    @Lazy
    def carried(self) -> Carried:
        """The statement that carries cells."""
        return carry(self.statement)

    @Lazy
    def _in_order(self) -> list[Row | None]:
        """Rows with their cells, in the order of the answer's rows."""
        width = len(self.statement.names)
        return in_order([row[:width] for row in self._unjudged.rows], self._carried_answer.rows)

    @property
    def _ordered(self) -> Sequence[Row | None]:
        """The same, of sums of groups with their hidden ones."""
        return self._judged.lines or self._in_order

    def _tables_for(self, inside: NoisySelection) -> list[AnswerRelation]:
        tables = [
            AnswerRelation(f"dp_block_{i}", r.names, r.types, _widened(r, inside))
            for i, r in enumerate(self.relations)
        ]
        if self.statement.counting:
            offsets = bit_offsets(self.statement.blocks)
            for i, (table, relation, offset) in enumerate(zip(tables, self.relations, offsets, strict=True)):
                bits = [shifted(keys, offset) for keys in relation.added]
                if self.hidden:
                    bits = [b | UNSEEN * bool(h) for b, h in zip(bits, self.hidden[i], strict=True)]
                columns, types = [*table.columns, ADDED], [*table.types, "BIGINT"]
                tables[i] = AnswerRelation(table.name, columns, types, [*table.values, bits])
        if self.statement.catalog_tables or self.statement.public_tables:
            tables += [AnswerRelation(*listing) for listing in self.listings()]
        return tables

    @Lazy
    def _carried_answer(self) -> Rowset:
        return self._carry(self._inside)

    def _carry(self, inside: NoisySelection) -> Rowset:
        """Rows with their cells, functions of an error answered first."""
        answer = self._run(self.carried.common, self.carried.outer, self._carry_tables(inside))
        return Rowset(answer.names[: self.carried.width], answer.types, answer.rows)

    def _carry_tables(self, inside: NoisySelection) -> list[AnswerRelation]:
        """Relations read by a statement that carries cells: blocks with both sides of ratios, and errors of its
        probes."""
        blocks = self._tables_for(inside)
        tables = [*blocks[len(self.relations) :], *map(_with_sides, blocks, self.relations)]
        probes = self.carried.probes if self.statement.asks_errors else ()
        for number, probe in enumerate(probes):
            rows = self._run(probe.common, probe.sql, tables).rows
            keys = list({row[0]: row for row in rows}.values())
            level = inside.level(probe.level)
            values: list[Any] = []
            for block in blocks_of_rows([probe.column], keys):
                check()
                numbers = composite(probe.column, keys[block.start : block.stop], self.relations)
                values += probe.error.column(numbers, level)
            values = readings.of_shown(values, probe.column, keys, self.relations)
            columns = [[row[0] for row in keys], values]
            tables.append(
                AnswerRelation(f"dp_error_{number}", ("k", "e"), ("UBIGINT", probe.error.type), columns)
            )
        return tables

    def _run(self, common: Sequence[str], sql: str, tables: Sequence[AnswerRelation]) -> Rowset:
        """Run a statement, with the parts of its WITH clause, over tables."""
        definitions = [*(table.source for table in tables), *common]
        values = [column for table in tables for column in table.values]
        try:
            answer = run_apart(with_sources(definitions, sql), values)
        except duckdb.Error as error:
            raise outer_error(error) from error
        names = self.statement.names
        return Rowset(names, answer.types[: len(names)], finite_rows(answer.rows))


def _widened(relation: Relation, inside: NoisySelection) -> tuple[list[Any], ...]:
    """A relation's columns, its errors at the level of a choice."""
    if inside.share == 1.0:
        return relation.columns
    columns = list(relation.columns)
    for number, value in enumerate(relation.block.values):
        if isinstance(value, ErrorOf):
            errors = relation.errors_of(value.error, value.subject, inside.level(value.level))[1]
            columns[relation.names.index(f"v{number}")] = (
                errors or columns[relation.names.index(f"v{number}")]
            )
    return tuple(columns)


def _with_sides(table: AnswerRelation, relation: Relation) -> AnswerRelation:
    """A block's relation with both sides of its ratios beside them."""
    columns, values, rows = list(table.columns), list(table.values), len(relation.columns[0])
    for number, value in enumerate(relation.block.values):
        if len(value.sides) > 1:
            columns += [f"v{number}{letter}" for letter in RATIO]
            answered = relation.answered_for(value)
            for side in value.sides:  # NaN where no plan holds all of the ratio
                sides = np.full(rows, math.nan) if answered is None else answered.value(side)
                values.append(np.where(relation.hidden(value.subject), math.nan, sides).tolist())  # type: ignore[arg-type]
    types = [*table.types, *["DOUBLE"] * (len(columns) - len(table.columns))]
    return AnswerRelation(table.name, columns, types, values)


def outer_error(error: duckdb.Error) -> Error:
    """DuckDB's complaint about the post-processing, as a typed error of one line."""
    reason = str(error).splitlines()[0][:300]
    if isinstance(error, UNBOUND):
        return ProgrammingError(reason.replace("Binder Error: ", ""), hint="check names and types")
    if isinstance(error, duckdb.InternalException):
        return InternalError("DuckDB failed inside", hint="write the statement more simply")
    return DataError(reason, hint="check types and casts")
