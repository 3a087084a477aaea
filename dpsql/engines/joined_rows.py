"""Rows of a table where they meet those of others, and the queries that later ones read by name.

Each table on a row's way gives small integers, its digits: leaves on axes, clamped measures. They are added up to a few
numbers in mixed radix where the table is read, so that the joins carry one integer a number.

    s0 ..   the rows of each table: keys, and what they add to each number
    t       the joined rows

| here | there | unit |
|---|---|---|
| `Digit` | a leaf or a measure of a row, as a digit in mixed radix | - |
| `Packed` | a number: of a view (its cell), or of all that any statistic reads (a row's place in the sampling) | - |

Queries that later ones read by name are temporary tables where rows may be stored, common tables where nothing may.

Bounds that are chosen take several questions: histograms of people, norms, weighted cells. Each is a query over the
ones before. DuckDB computes and stores a query when it is named. A server gets every question as one read-only
statement, with the queries that it may need before it; nothing is created there.

**Privacy**: whether a row is placed is decided by a rule that looks at it and at the rows that its keys name. Whole
numbers of one question at a time are handed out, for a draw.
**Source**: docs/method/rows.md, "One statement a table".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import prod
from typing import ClassVar, NamedTuple

from dpsql.engines.dialect import Dialect
from dpsql.errors import EngineLost
from dpsql.faults import NOTHING, told
from dpsql.tree import IntArray

Path = tuple[str, ...]

ROW = "this row"
"""Alias of the rows of a table where their digits are found; no column is called that."""

NARROW = 1 << 29
"""Digits and numbers below are INTEGER, which halves what is stored of a row; the rest are BIGINT."""

BITS = 62
"""Of one packed number."""


class Digit(NamedTuple):
    """Digit of a row: its leaf on one axis, or its value of one measure.

    Args:
        name: `a3` of axis 3, `m0` of the first measure.
        path: the foreign keys to the table that it is found on.
        sql: over `ROW`. Of an axis: the leaf, NULL drops the row. Of a measure: NULL adds nothing.
        low: its least value.
        size: how many values it has.
        missing: the leaf of a row whose keys name no row of that table; None drops it.
        nullable: whether NULL is a value of its own: a measure.
        total: whether no row of that table is dropped.
        found: whether the leaf follows from keys that were found; such a digit says nothing of which row is kept.
    """

    name: str
    path: Path
    sql: str
    low: int
    size: int
    missing: int | None = None
    nullable: bool = False
    total: bool = False
    found: bool = False

    @property
    def type(self) -> str:
        """Its type: such that distances between values fit."""
        return "INTEGER" if max(abs(self.low), abs(self.low + self.size)) < NARROW else "BIGINT"

    @property
    def codes(self) -> int:
        """Number of different digits."""
        return self.size + self.nullable

    @property
    def code(self) -> str:
        """The digit, at least 0, from its value."""
        shifted = f"({self.name} - ({self.low}))" if self.low else self.name
        return f"coalesce({shifted}, {self.size})" if self.nullable else shifted


class JoinSide(NamedTuple):
    """The rows of one table where they meet others.

    Args:
        path: the foreign keys that lead to them; none for the counted rows.
        rows: what stands after FROM for them, in the engine's words.
        key: the column by which they are found; empty for the counted rows.
        carried: columns that others are joined by, or that name the unit.
        lookups: joins that the expressions need.
        once: keep one row of each key, the one with the least digits; for rows that no unit owns and nobody checked.
        drops: rows whose key names none are left out.
        texts: SQL over `ROW` of private keys; after the digits they decide which row is kept, before and after keys
            were found alike.
        unique: no two rows have one key; otherwise all of a key are joined.
    """

    path: Path
    rows: str
    key: str = ""
    carried: tuple[str, ...] = ()
    lookups: tuple[str, ...] = ()
    once: bool = False
    drops: bool = False
    texts: tuple[str, ...] = ()
    unique: bool = False


class UnitKey(NamedTuple):
    """Carried column that identifies a row's unit, with its DuckDB type."""

    path: Path
    column: str
    kind: str | None


@dataclass(frozen=True)
class PlacedRows:
    """The rows of one counted table.

    Args:
        sides: the counted rows, then every table on their ways, parents before children.
        axes: a digit for each axis.
        measures: a digit for each measure.
        unit: whose a row is; None where each is a unit.
        letter: its common tables are called by it and a number.
        values: carried columns that a joined row keeps, as `value0`, `value1` ..
    """

    sides: tuple[JoinSide, ...]
    axes: tuple[Digit, ...]
    measures: tuple[Digit, ...]
    unit: UnitKey | None
    letter: str = "s"
    values: tuple[UnitKey, ...] = ()


class Packed(NamedTuple):
    """A number in mixed radix.

    Args:
        name: of its column.
        digits: what it is made of, each with the number that a step of it adds.
    """

    name: str
    digits: tuple[tuple[Digit, int], ...]

    @property
    def type(self) -> str:
        return "INTEGER" if prod(digit.codes for digit, _ in self.digits) < NARROW else "BIGINT"


def row_numbers(rows: PlacedRows) -> list[Packed]:
    """All digits of a row, the first the slowest, in as few numbers as 62 bits allow; they sort as the digits do."""
    words: list[list[Digit]] = [[]]
    for digit in (*rows.axes, *rows.measures):
        if prod(member.codes for member in (*words[-1], digit)) >= 1 << BITS and words[-1]:
            words.append([])
        words[-1].append(digit)
    return [Packed(f"p{i}", mixed_radix(word)) for i, word in enumerate(words)]


def mixed_radix(digits: Sequence[Digit]) -> tuple[tuple[Digit, int], ...]:
    """Each digit with the number that a step of it adds; the last is the fastest."""
    return tuple((digit, prod(d.codes for d in digits[i + 1 :])) for i, digit in enumerate(digits))


def common_table(name: str, query: str, dialect: Dialect) -> str:
    """A common table, computed once where the engine can promise it."""
    return f"{name} AS {dialect.materialised or ''} ({query})"


def with_tables(tables: Sequence[str], query: str) -> str:
    """A statement over common tables."""
    return f"WITH {', '.join(tables)} {query}"


def side_tables(
    rows: PlacedRows, numbers: Sequence[Packed], dialect: Dialect, measures: Sequence[Digit] | None = None
) -> list[str]:
    """The common tables s0, s1 ..: what each table on the way adds to the numbers."""
    carried_measures = rows.measures if measures is None else measures
    tables = []
    for i, side in enumerate(rows.sides):
        leaves = [digit for digit in rows.axes if digit.path == side.path]
        side_digits = [
            *(d for n in numbers for d, _ in n.digits if d.path == side.path),
            *(carried_measures if i == 0 else ()),
        ]
        digits = {digit.name: digit for digit in (*leaves, *side_digits)}
        columns = [f"{addend} AS {n.name}" for n in numbers if (addend := _part(n, side.path))]
        columns += [m.name for m in carried_measures] if i == 0 else []
        condition = " AND ".join(f"{leaf.name} IS NOT NULL" for leaf in leaves if not leaf.total)
        if condition and may_miss(rows, side):
            columns, condition = [*columns, f"CASE WHEN {condition} THEN 1 ELSE 0 END AS ok"], ""
        where = f" WHERE {condition}" if condition else ""
        listed = ", ".join([*(name for _, name in _keys(side)), *columns]) or "1 AS one"
        tables.append(
            f"{rows.letter}{i} AS (SELECT {listed} FROM ({_rows(side, digits, dialect)}) AS d{where})"
        )
    return tables


def _keys(side: JoinSide) -> list[tuple[str, str]]:
    """The columns of a table that are kept as they are, and their names here."""
    keys = [(side.key, "k")] if side.key else []
    return keys + [(column, f"j{i}") for i, column in enumerate(side.carried)]


def _rows(side: JoinSide, digits: Mapping[str, Digit], dialect: Dialect) -> str:
    """The keys and digits of one table's rows; each digit is computed once a row."""
    row, names = dialect.identifier(ROW), [name for _, name in _keys(side)]
    plain = [f"{row}.{dialect.identifier(column)} AS {name}" for column, name in _keys(side)]
    texts = {f"t{i}": text for i, text in enumerate(side.texts if side.once else ())}
    named = [*plain, *(f"{d.sql} AS {d.name}" for d in digits.values())]
    columns = ", ".join([*named, *(f"{sql} AS {name}" for name, sql in texts.items())]) or "1 AS one"
    query = f"SELECT {columns} FROM {side.rows} AS {row} {' '.join(side.lookups)}"
    if not side.once:
        return query
    codes = [f"coalesce({d.name}, {d.low + d.size})" for d in digits.values() if not d.found]
    codes += [order for name in texts for order in (f"CASE WHEN {name} IS NULL THEN 1 ELSE 0 END", name)]
    rank = f"row_number() OVER (PARTITION BY k ORDER BY {', '.join([*codes, *names[1:]]) or 'k'}) AS nth"
    return f"SELECT * FROM (SELECT ranked.*, {rank} FROM ({query}) AS ranked WHERE k IS NOT NULL) AS o WHERE nth = 1"


def _part(number: Packed, path: Path) -> str:
    """Contribution of one table to a number."""
    terms = [(digit, place) for digit, place in number.digits if digit.path == path]
    return " + ".join(_step(digit.code, place, number.type) for digit, place in terms)


def _step(code: str, place: int, kind: str) -> str:
    return f"CAST({code} AS {kind})" if place == 1 else f"CAST({code} AS {kind}) * CAST({place} AS {kind})"


def packed_value(number: Packed) -> str:
    """SQL of a number from columns of its digits' values."""
    return " + ".join(_step(digit.code, place, number.type) for digit, place in number.digits) or "0"


def placed_rows(rows: PlacedRows, numbers: Sequence[Packed], measures: Sequence[Digit] | None = None) -> str:
    """SELECT of the joined rows: `unit` where there is one, numbers, measures."""
    at, place, needed, joins = rows.letter, {side.path: i for i, side in enumerate(rows.sides)}, [], []
    for i, side in enumerate(rows.sides[1:], start=1):
        parent = rows.sides[place[side.path[:-1]]]
        on = f"{at}{place[parent.path]}.j{parent.carried.index(side.path[-1])} = {at}{i}.k"
        joins.append(f"{'LEFT JOIN' if may_miss(rows, side) else 'JOIN'} {at}{i} ON {on}")
        if may_miss(rows, side) and any(d.path == side.path and not d.total for d in rows.axes):
            needed.append(f"({at}{i}.k IS NULL OR {at}{i}.ok = 1)")
    columns = []
    for number in numbers:
        terms = [_term(rows, number, i) for i, side in enumerate(rows.sides) if _part(number, side.path)]
        columns.append(f"{' + '.join(terms) or '0'} AS {number.name}")
    if rows.unit is not None:
        i = place[rows.unit.path]
        unit = f"{at}{i}.j{rows.sides[i].carried.index(rows.unit.column)}"
        columns, needed = [f"{unit} AS unit", *columns], [f"{unit} IS NOT NULL", *needed]
    columns += [f"{at}0.{m.name}" for m in (rows.measures if measures is None else measures)]
    for n, value in enumerate(rows.values):
        i = place[value.path]
        columns.append(f"{at}{i}.j{rows.sides[i].carried.index(value.column)} AS value{n}")
    where = f" WHERE {' AND '.join(needed)}" if needed else ""
    return f"SELECT {', '.join(columns) or '1 AS one'} FROM {at}0 {' '.join(joins)}{where}"


def may_miss(rows: PlacedRows, side: JoinSide) -> bool:
    """True if a row counts though its key finds no row here."""
    missing = (digit.missing for digit in rows.axes if digit.path == side.path)
    return side.path != rows.sides[0].path and not side.drops and all(leaf is not None for leaf in missing)


def counted_sides(rows: PlacedRows) -> PlacedRows:
    """Rows without the tables that decide neither whether a row is placed nor how often, where none of it is read."""
    kept: list[JoinSide] = []
    for side in reversed(rows.sides):
        total = all(digit.total for digit in rows.axes if digit.path == side.path)
        named = [each.path for each in kept] + ([rows.unit.path] if rows.unit else [])
        read = any(path[: len(side.path)] == side.path for path in named)
        if read or not side.path or not side.unique or not total or not may_miss(rows, side):
            kept.insert(0, side)
    axes = (digit for digit in rows.axes if any(digit.path == side.path for side in kept))
    return replace(rows, sides=tuple(kept), axes=tuple(axes))


def _term(rows: PlacedRows, number: Packed, i: int) -> str:
    """Term of a joined row from one table; for a missing row, its MISSING leaves."""
    side = rows.sides[i]
    alias = f"{rows.letter}{i}"
    if not may_miss(rows, side):
        return f"{alias}.{number.name}"
    terms = [(digit, place) for digit, place in number.digits if digit.path == side.path]
    absent = sum(place * (digit.missing or 0) for digit, place in terms)
    if all(digit.total for digit, _ in terms):
        return f"coalesce({alias}.{number.name}, {absent})"
    return f"CASE WHEN {alias}.k IS NULL THEN {absent} ELSE {alias}.{number.name} END"


def _run(digits: Sequence[Digit], words: Sequence[Packed], dialect: Dialect) -> str:
    """Neighbouring digits out of the packed numbers, as one number."""
    word = next(word for word in words if any(digit == digits[-1] for digit, _ in word.digits))
    place = next(place for digit, place in word.digits if digit == digits[-1])
    above = word.name if place == 1 else dialect.quotient(word.name, f"CAST({place} AS BIGINT)")
    if digits[0] == word.digits[0][0]:
        return f"({above})"
    return f"({dialect.remainder(above, str(prod(digit.codes for digit in digits)))})"


def _follows(last: tuple[Digit, int], step: tuple[Digit, int], words: Sequence[Packed]) -> bool:
    """True if two digits are neighbours in their word as in the number, so that they can be taken out as one."""
    (previous, above), (digit, place) = last, step
    pairs = [pair for word in words for pair in pairwise(d for d, _ in word.digits)]
    return (previous, digit) in pairs and above == place * digit.codes


def unpacked(digits: Sequence[Digit], words: Sequence[Packed], dialect: Dialect) -> list[str]:
    """Columns of values from the packed numbers."""
    columns = []
    for digit in digits:
        code = _run([digit], words, dialect)
        code = f"nullif({code}, {digit.size})" if digit.nullable else code
        columns.append(f"{code} + ({digit.low}) AS {digit.name}")
    return columns


def repacked(number: Packed, words: Sequence[Packed], parts: Sequence[Packed], dialect: Dialect) -> str:
    """A cell's number from the packed numbers, and from what the unit's tables add to it."""
    packed = [digit for word in words for digit, _ in word.digits]
    runs: list[list[tuple[Digit, int]]] = []
    for step in (step for step in number.digits if step[0] in packed):
        if runs and _follows(runs[-1][-1], step, words):
            runs[-1].append(step)
        else:
            runs.append([step])
    steps = [
        _step(_run([digit for digit, _ in run], words, dialect), run[-1][1], number.type) for run in runs
    ]
    steps += [number.name] if number in parts else []
    return f"{' + '.join(steps) or '0'} AS {number.name}"


Fetch = Callable[[str], Mapping[str, IntArray]]


NOTHING_HAPPENED = f"{NOTHING} and nothing was left behind"


def engine_lost(engine: str, step: str, why: str, hint: str = NOTHING_HAPPENED) -> EngineLost:
    """The one line about a statement that failed; why is a code or our own words, never the engine's text."""
    return EngineLost(f"{engine}: {step} failed ({why})", hint=told(hint))


BATCH = 50_000
"""Pairs that are fetched at a time."""


@dataclass(frozen=True)
class CommonRelations:
    """Common tables of every statement.

    Args:
        dialect: of the engine.
        run: fetches the answer of a statement.
        stream: fetches pairs, some at a time.

    Attributes:
        MOST_GROUPS: most groups of one counting statement, 0 for all. DuckDB takes 5 MB for each. A statement bounds
            what it counts by itself; a joint norm of all views needs rows that do not move between statements.
    """

    dialect: Dialect
    run: Fetch
    stream: Callable[[str], Iterator[list[tuple[str | int, int]]]]
    MOST_GROUPS: ClassVar[int] = 0
    _queries: dict[str, str] = field(default_factory=dict, repr=False)

    def make(self, name: str, query: str, order: str = "") -> str:
        """Name a query, which may read the ones before it; returns what stands after FROM for it.

        Args:
            name: of the query.
            query: its text.
            order: the column in whose order its rows lie where they are stored; nothing here stores them.

        Raises:
            EngineLost: the engine was lost.
        """
        table = self.dialect.identifier(name)
        self._queries.pop(table, None)  # a query that is named again stands after what it reads
        self._queries[table] = query
        return table

    def make_by_unit(self, name: str, query: Callable[[str], str], rows: str) -> str:
        """Name a query that has lines for each unit, as `make` does; rows that are stored are read in blocks of units.

        Args:
            name: of the query.
            query: its text from what stands after FROM for the rows.
            rows: with a column `unit`.
        """
        return self.make(name, query(rows))

    def fetch(self, statement: str) -> Mapping[str, IntArray]:
        """Whole numbers of a SELECT over named queries, by column; a common table that no other one reads is not
        computed.

        Raises:
            EngineLost: the engine was lost, or did not answer in time.

        **Privacy**: raw.
        """
        return self.run(self._whole(statement))

    def batches(self, statement: str) -> Iterator[list[tuple[str | int, int]]]:
        """Pairs of a SELECT, some at a time: a value and a whole number. Errors as of `fetch`.

        **Privacy**: raw values, the only ones of private rows that leave an engine; `central.selection` alone asks.
        """
        return self.stream(self._whole(statement))

    def _whole(self, statement: str) -> str:
        """A statement with the queries before it."""
        tables = [common_table(name, query, self.dialect) for name, query in self._queries.items()]
        if not tables:
            return statement
        if statement.startswith("WITH "):
            return f"WITH {', '.join(tables)}, {statement.removeprefix('WITH ')}"
        return with_tables(tables, statement)
