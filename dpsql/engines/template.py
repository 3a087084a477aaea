"""The one statement that counts a table: cells of all its views, at most so many rows of each privacy unit.

Every engine runs the same text but for the words of its `Dialect`. A row is placed once: each table on its way gives
small integers (leaves, clamped measures), added up to a few numbers in mixed radix, and only these meet in the joins.

    s0 ..   the rows of each table: keys, and what they add to each number
    t       the joined rows: unit, numbers, measures
    u       one line a unit: its number of rows n, and its weight w or its offset r
    x       the rows that count

| here | there | unit |
|---|---|---|
| `Digit` | a leaf or a measure of a row, as a digit in mixed radix | - |
| `Packed` | a number: of a view (its cell), or of all that any statistic reads (a row's place in the sampling) | - |
| `EveryRow`, `Sampled`, `Weighed` | how many rows of a unit count: all, tau of them, all for min(1, tau / n) | rows |

What comes back has the columns `view`, `cell`, `v0`, `v1` ..: the position of a group, a cell of it in row-major
order, and one sum for each of its values; BIGINT all of them. Cells without rows are absent.

**Privacy**: a row is in `t` or not by a rule that looks at it and at the rows that its keys name. n is counted in the
scan that ranks and weighs, so rows that arrive meanwhile move no bound. Sums are cut at 2^62, so no data can make a
statement fail. What comes back is raw and goes to `mechanisms` alone.
**Source**: docs/method/rows.md, "One statement a table".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple, Protocol

from dpsql.engines.dialect import Dialect
from dpsql.engines.sampling import hash_sql, is_kept, offset

Path = tuple[str, ...]

ROW = "this row"
"""Alias of the rows of a table where their digits are found; no column is called that."""

UNIT = 1 << 20
"""Integers that make a row where rows have weights."""

LARGEST = 1 << 62
"""Where sums are cut: far above every sum whose estimates a release can hold (2^42 at 2^-20)."""

NARROW = 1 << 29
"""Digits and numbers below are INTEGER, which halves what is stored of a row; the rest are BIGINT."""

BITS = 62
"""Of one packed number."""

MOST_ROWS = 1 << 40
"""Rows of a table whose sums are sure to fit where 64 bits are taken for them."""


class Digit(NamedTuple):
    """What is taken of a row on one axis, or of one measure.

    Args:
        name: `a3` of axis 3, `m0` of the first measure.
        path: the foreign keys to the table that it is found on.
        sql: over `ROW`. Of an axis: the leaf, NULL drops the row. Of a measure: NULL adds nothing.
        low: its least value.
        size: how many values it has.
        missing: the leaf of a row whose keys name no row of that table; None drops it.
        nullable: whether NULL is a value of its own: a measure.
        total: whether no row of that table is dropped.
    """

    name: str
    path: Path
    sql: str
    low: int
    size: int
    missing: int | None = None
    nullable: bool = False
    total: bool = False

    @property
    def type(self) -> str:
        """Its type: such that distances between values fit."""
        return "INTEGER" if max(abs(self.low), abs(self.low + self.size)) < NARROW else "BIGINT"

    @property
    def codes(self) -> int:
        """How many different digits there are."""
        return self.size + self.nullable

    @property
    def code(self) -> str:
        """The digit, at least 0, from its value."""
        shifted = f"({self.name} - ({self.low}))" if self.low else self.name
        return f"coalesce({shifted}, {self.size})" if self.nullable else shifted


class Side(NamedTuple):
    """The rows of one table where they meet others.

    Args:
        path: the foreign keys that lead to them; none for the counted rows.
        rows: what stands after FROM for them, in the engine's words.
        key: the column by which they are found; empty for the counted rows.
        carried: columns that others are joined by, or that name the unit.
        lookups: joins that the expressions need.
        once: keep one row of each key, the one with the least digits; for rows that no unit owns and nobody checked.
        drops: rows whose key names none are left out.
    """

    path: Path
    rows: str
    key: str = ""
    carried: tuple[str, ...] = ()
    lookups: tuple[str, ...] = ()
    once: bool = False
    drops: bool = False


class UnitKey(NamedTuple):
    """Where a row says whose it is: a carried column, and its type in DuckDB's words."""

    path: Path
    column: str
    kind: str | None


@dataclass(frozen=True)
class Rows:
    """The rows of one counted table.

    Args:
        sides: the counted rows, then every table on their ways, parents before children.
        axes: a digit for each axis.
        measures: a digit for each measure.
        unit: whose a row is; None where each is a unit.
    """

    sides: tuple[Side, ...]
    axes: tuple[Digit, ...]
    measures: tuple[Digit, ...]
    unit: UnitKey | None


class Value(NamedTuple):
    """What a row adds to a cell.

    Args:
        measure: name of a measure's digit; empty to count rows.
        mid: what is taken off the measure; None to count rows where it is not NULL.
        reach: the most that a row adds.
    """

    measure: str = ""
    mid: int | None = None
    reach: int = 1


class Group(NamedTuple):
    """The statistics of a table over the same axes.

    Args:
        axes: names of digits, the last one the fastest.
        values: what is summed.
    """

    axes: tuple[str, ...]
    values: tuple[Value, ...]


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
        """Its type."""
        return "INTEGER" if prod(digit.codes for digit, _ in self.digits) < NARROW else "BIGINT"


class Bound(Protocol):
    """How many rows of a unit count."""

    def statement(self, rows: Rows, groups: Sequence[Group], dialect: Dialect) -> str:
        """The statement that counts the groups of a table."""


@dataclass(frozen=True)
class EveryRow:
    """All rows count: every row is a unit."""

    def statement(self, rows: Rows, groups: Sequence[Group], dialect: Dialect) -> str:
        """See `Bound`."""
        numbers = cell_numbers(rows, groups)
        tables = [*_sides(rows, numbers, dialect), _table("t", _placed(rows, numbers), dialect)]
        return _with(tables, _counts("t", numbers, groups, "", dialect))


@dataclass(frozen=True)
class Weighed:
    """All rows count, those of one unit for min(1, tau / n), in units of 2^-20 and rounded down.

    **Privacy**: w n <= 2^20 tau, by the floor.
    """

    tau: int

    def statement(self, rows: Rows, groups: Sequence[Group], dialect: Dialect) -> str:
        """See `Bound`."""
        numbers = cell_numbers(rows, groups)
        share = dialect.quotient(f"CAST({UNIT * self.tau} AS BIGINT)", "n")
        weight = f"CASE WHEN n <= {self.tau} THEN {UNIT} ELSE {share} END AS w"
        tables = [
            *_sides(rows, numbers, dialect),
            _table("t", _placed(rows, numbers), dialect),
            *_per_unit(weight, dialect),
        ]
        return _with(tables, _counts("x", numbers, groups, "w", dialect))


@dataclass(frozen=True)
class Sampled:
    """Tau rows of each unit count, by systematic sampling (`dpsql.engines.sampling`).

    Args:
        tau: rows.
        coefficients: of the hash, drawn for the release.
    """

    tau: int
    coefficients: tuple[int, ...]

    def statement(self, rows: Rows, groups: Sequence[Group], dialect: Dialect) -> str:
        """See `Bound`."""
        words, numbers = row_numbers(rows), cell_numbers(rows, groups)
        kept = ", ".join(
            [*(_repacked(n, words, dialect) for n in numbers), *_unpacked(rows.measures, words, dialect)]
        )
        tables = [*self._kept(rows, words, dialect), _table("y", f"SELECT {kept} FROM x", dialect)]
        return _with(tables, _counts("y", numbers, groups, "", dialect))

    def stored(self, rows: Rows, dialect: Dialect) -> str:
        """The rows that count: each digit under its name, and `unit`."""
        words = row_numbers(rows)
        columns = ", ".join([*_unpacked((*rows.axes, *rows.measures), words, dialect), "unit"])
        return _with(self._kept(rows, words, dialect), f"SELECT {columns} FROM x")

    def _kept(self, rows: Rows, words: Sequence[Packed], dialect: Dialect) -> list[str]:
        """Tables up to `x`: the packed rows that count, and their units."""
        kind = rows.unit.kind if rows.unit else None
        order = ", ".join(word.name for word in words)
        window = "OVER (PARTITION BY unit"
        numbered = f"SELECT unit, {order}, row_number() {window} ORDER BY {order}) AS i, count(*) {window}) AS n FROM t"
        r = offset(hash_sql("unit", kind, self.coefficients, dialect), dialect)
        kept = f"SELECT unit, {order} FROM n WHERE {is_kept(self.tau, r, dialect)}"
        tables = [*_sides(rows, words, dialect, ()), f"t AS ({_placed(rows, words, ())})"]
        return [*tables, f"n AS ({numbered})", f"x AS ({kept})"]


def stored_rows(rows: Rows, dialect: Dialect) -> str:
    """All placed rows: each digit under its name, and `unit` where there is one."""
    numbers = [Packed(digit.name, ((digit, 1),)) for digit in rows.axes]
    shifted = [f"{d.name} + ({d.low}) AS {d.name}" if d.low else d.name for d in rows.axes]
    columns = [*shifted, *(m.name for m in rows.measures), *(["unit"] if rows.unit else [])]
    return _with(
        [*_sides(rows, numbers, dialect), f"t AS ({_placed(rows, numbers)})"],
        f"SELECT {', '.join(columns) or '1 AS one'} FROM t",
    )


def left_out(rows: Rows, tau: int, most: int, dialect: Dialect) -> str:
    """The statement of the rows beyond tau, at most so many of one unit: one line, `v0`.

    **Privacy**: one unit changes it by at most `most`.
    """
    beyond = f"CASE WHEN n > {tau + most} THEN {most} WHEN n > {tau} THEN n - {tau} ELSE 0 END"
    per_unit = "SELECT unit, count(*) AS n FROM t GROUP BY unit"
    return _with(
        [*_sides(rows, (), dialect, ()), f"t AS ({_placed(rows, (), ())})"],
        f"SELECT {cut(dialect.total(beyond, most >= MOST_ROWS), dialect)} AS v0 FROM ({per_unit}) AS k",
    )


def cut(total: str, dialect: Dialect) -> str:
    """SQL of a BIGINT: a sum of any size, cut at `LARGEST`; 0 where there is nothing to sum."""
    low, high = (f"CAST({end} AS {dialect.wide})" for end in (-LARGEST, LARGEST))
    return f"CAST(greatest(least(coalesce({total}, 0), {high}), {low}) AS BIGINT)"


def cell_numbers(rows: Rows, groups: Sequence[Group]) -> list[Packed]:
    """The cell of a row in each group, in row-major order."""
    named = {digit.name: digit for digit in rows.axes}
    return [Packed(f"c{k}", _places([named[axis] for axis in group.axes])) for k, group in enumerate(groups)]


def row_numbers(rows: Rows) -> list[Packed]:
    """All digits of a row, the first the slowest, in as few numbers as 62 bits allow; they sort as the digits do."""
    words: list[list[Digit]] = [[]]
    for digit in (*rows.axes, *rows.measures):
        if prod(each.codes for each in (*words[-1], digit)) >= 1 << BITS and words[-1]:
            words.append([])
        words[-1].append(digit)
    return [Packed(f"p{i}", _places(word)) for i, word in enumerate(words)]


def _places(digits: Sequence[Digit]) -> tuple[tuple[Digit, int], ...]:
    return tuple((digit, prod(d.codes for d in digits[i + 1 :])) for i, digit in enumerate(digits))


def _table(name: str, query: str, dialect: Dialect) -> str:
    return f"{name} AS {dialect.materialised or ''} ({query})"


def _with(tables: Sequence[str], query: str) -> str:
    return f"WITH {', '.join(tables)} {query}"


def _sides(
    rows: Rows, numbers: Sequence[Packed], dialect: Dialect, measures: Sequence[Digit] | None = None
) -> list[str]:
    """The common tables s0, s1 ..: what each table on the way adds to the numbers."""
    kept = rows.measures if measures is None else measures
    tables = []
    for i, side in enumerate(rows.sides):
        leaves = [digit for digit in rows.axes if digit.path == side.path]
        own = [*(d for n in numbers for d, _ in n.digits if d.path == side.path), *(kept if i == 0 else ())]
        digits = {digit.name: digit for digit in (*leaves, *own)}
        columns = [f"{part} AS {n.name}" for n in numbers if (part := _part(n, side.path))]
        columns += [m.name for m in kept] if i == 0 else []
        condition = " AND ".join(f"{leaf.name} IS NOT NULL" for leaf in leaves if not leaf.total)
        if condition and _may_miss(rows, side):
            columns, condition = [*columns, f"CASE WHEN {condition} THEN 1 ELSE 0 END AS ok"], ""
        where = f" WHERE {condition}" if condition else ""
        listed = ", ".join([*(name for _, name in _keys(side)), *columns]) or "1 AS one"
        tables.append(f"s{i} AS (SELECT {listed} FROM ({_rows(side, digits, dialect)}) AS d{where})")
    return tables


def _keys(side: Side) -> list[tuple[str, str]]:
    """The columns of a table that are kept as they are, and their names here."""
    own = [(side.key, "k")] if side.key else []
    return own + [(column, f"j{i}") for i, column in enumerate(side.carried)]


def _rows(side: Side, digits: Mapping[str, Digit], dialect: Dialect) -> str:
    """The keys and digits of one table's rows; each digit is computed once a row."""
    row, names = dialect.identifier(ROW), [name for _, name in _keys(side)]
    plain = [f"{row}.{dialect.identifier(column)} AS {name}" for column, name in _keys(side)]
    columns = (
        ", ".join([*plain, *(f"{digit.sql} AS {digit.name}" for digit in digits.values())]) or "1 AS one"
    )
    query = f"SELECT {columns} FROM {side.rows} AS {row} {' '.join(side.lookups)}"
    if not side.once:
        return query
    codes = (f"coalesce({digit.name}, {digit.low + digit.size})" for digit in digits.values())
    rank = f"row_number() OVER (PARTITION BY k ORDER BY {', '.join([*codes, *names[1:]]) or 'k'}) AS nth"
    return f"SELECT * FROM (SELECT r.*, {rank} FROM ({query}) AS r WHERE k IS NOT NULL) AS o WHERE nth = 1"


def _part(number: Packed, path: Path) -> str:
    """What one table adds to a number."""
    mine = [(digit, place) for digit, place in number.digits if digit.path == path]
    return " + ".join(_step(digit.code, place, number.type) for digit, place in mine)


def _step(code: str, place: int, kind: str) -> str:
    return f"CAST({code} AS {kind})" if place == 1 else f"CAST({code} AS {kind}) * CAST({place} AS {kind})"


def _placed(rows: Rows, numbers: Sequence[Packed], measures: Sequence[Digit] | None = None) -> str:
    """SELECT of the joined rows: `unit` where there is one, numbers, measures."""
    place, needed, joins = {side.path: i for i, side in enumerate(rows.sides)}, [], []
    for i, side in enumerate(rows.sides[1:], start=1):
        parent = rows.sides[place[side.path[:-1]]]
        on = f"s{place[parent.path]}.j{parent.carried.index(side.path[-1])} = s{i}.k"
        joins.append(f"{'LEFT JOIN' if _may_miss(rows, side) else 'JOIN'} s{i} ON {on}")
        if _may_miss(rows, side) and any(d.path == side.path and not d.total for d in rows.axes):
            needed.append(f"(s{i}.k IS NULL OR s{i}.ok = 1)")
    columns = []
    for number in numbers:
        terms = [_term(rows, number, i) for i, side in enumerate(rows.sides) if _part(number, side.path)]
        columns.append(f"{' + '.join(terms) or '0'} AS {number.name}")
    if rows.unit is not None:
        i = place[rows.unit.path]
        unit = f"s{i}.j{rows.sides[i].carried.index(rows.unit.column)}"
        columns, needed = [f"{unit} AS unit", *columns], [f"{unit} IS NOT NULL", *needed]
    columns += [f"s0.{m.name}" for m in (rows.measures if measures is None else measures)]
    where = f" WHERE {' AND '.join(needed)}" if needed else ""
    return f"SELECT {', '.join(columns) or '1 AS one'} FROM s0 {' '.join(joins)}{where}"


def _may_miss(rows: Rows, side: Side) -> bool:
    """Whether a row counts though its key finds no row here."""
    missing = (digit.missing for digit in rows.axes if digit.path == side.path)
    return bool(side.path) and not side.drops and all(leaf is not None for leaf in missing)


def _term(rows: Rows, number: Packed, i: int) -> str:
    """What a joined row has of a number from one table; of a row that is not there, its MISSING leaves."""
    side = rows.sides[i]
    if not _may_miss(rows, side):
        return f"s{i}.{number.name}"
    mine = [(digit, place) for digit, place in number.digits if digit.path == side.path]
    absent = sum(place * (digit.missing or 0) for digit, place in mine)
    if all(digit.total for digit, _ in mine):
        return f"coalesce(s{i}.{number.name}, {absent})"
    return f"CASE WHEN s{i}.k IS NULL THEN {absent} ELSE s{i}.{number.name} END"


def _per_unit(column: str, dialect: Dialect) -> list[str]:
    """Tables up to `x`: the rows of `t`, each with a column that follows from its unit's number of rows n."""
    if dialect.materialised is None:
        counted = "SELECT t.*, count(*) OVER (PARTITION BY unit) AS n FROM t"
        return [f"n AS ({counted})", f"x AS (SELECT n.*, {column} FROM n)"]
    counted = "SELECT unit AS owner, count(*) AS n FROM t GROUP BY unit"
    return [
        f"u AS (SELECT owner, {column} FROM ({counted}) AS k)",
        _table("x", "SELECT t.*, w FROM t JOIN u ON t.unit = u.owner", dialect),
    ]


def _digit(digit: Digit, words: Sequence[Packed], dialect: Dialect) -> str:
    """A digit out of the packed numbers."""
    word, place = next((w.name, p) for w in words for d, p in w.digits if d.name == digit.name)
    above = word if place == 1 else dialect.quotient(word, f"CAST({place} AS BIGINT)")
    return f"({dialect.remainder(above, str(digit.codes))})"


def _unpacked(digits: Sequence[Digit], words: Sequence[Packed], dialect: Dialect) -> list[str]:
    """Columns of values from the packed numbers."""
    columns = []
    for digit in digits:
        code = _digit(digit, words, dialect)
        code = f"nullif({code}, {digit.size})" if digit.nullable else code
        columns.append(f"{code} + ({digit.low}) AS {digit.name}")
    return columns


def _repacked(number: Packed, words: Sequence[Packed], dialect: Dialect) -> str:
    """A cell's number from the packed numbers."""
    steps = [_step(_digit(digit, words, dialect), place, number.type) for digit, place in number.digits]
    return f"{' + '.join(steps) or '0'} AS {number.name}"


def _counts(
    table: str, numbers: Sequence[Packed], groups: Sequence[Group], weight: str, dialect: Dialect
) -> str:
    """The sums of each group, from one table of rows that count."""
    if dialect.materialised is None:
        return _grouping_sets(table, numbers, groups, weight, dialect)
    width = max(len(group.values) for group in groups)
    parts = []
    for k, (number, group) in enumerate(zip(numbers, groups, strict=True)):
        sums = [_sum(value, weight, dialect) for value in group.values]
        sums += ["CAST(0 AS BIGINT)"] * (width - len(sums))
        listed = ", ".join(f"{each} AS v{i}" for i, each in enumerate(sums))
        parts.append(
            f"SELECT {k} AS view, CAST({number.name} AS BIGINT) AS cell, {listed} FROM {table} GROUP BY {number.name}"
        )
    return " UNION ALL ".join(parts)


def _grouping_sets(
    table: str, numbers: Sequence[Packed], groups: Sequence[Group], weight: str, dialect: Dialect
) -> str:
    """The same in one pass; sets are told apart by GROUPING, and a group reads its own sums alone."""
    every = list(dict.fromkeys(value for group in groups for value in group.values))
    sums = ", ".join(f"{_sum(value, weight, dialect)} AS y{i}" for i, value in enumerate(every))
    width = max(len(group.values) for group in groups)
    marks = ", ".join(f"GROUPING({n.name}) AS g{k}, {n.name}" for k, n in enumerate(numbers))
    sets = ", ".join(f"({number.name})" for number in numbers)
    columns = [
        f"CASE {' '.join(f'WHEN g{k} = 0 THEN {k}' for k in range(len(groups)))} END AS view",
        f"CASE {' '.join(f'WHEN g{k} = 0 THEN {n.name}' for k, n in enumerate(numbers))} END AS cell",
    ]
    for i in range(width):
        picked = " ".join(
            f"WHEN g{k} = 0 THEN y{every.index(group.values[i])}"
            for k, group in enumerate(groups)
            if i < len(group.values)
        )
        columns.append(f"CASE {picked} ELSE 0 END AS v{i}")
    inner = f"SELECT {marks}, {sums} FROM {table} GROUP BY GROUPING SETS ({sets})"
    return f"SELECT {', '.join(columns)} FROM ({inner}) AS g"


def _sum(value: Value, weight: str, dialect: Dialect) -> str:
    """SQL of what a cell holds of a value: a BIGINT, cut."""
    if not value.measure and not weight:
        return "count(*)"
    if value.measure and value.mid is None and not weight:
        return f"count({value.measure})"
    reach = value.reach * (UNIT if weight else 1)
    if not value.measure:
        row = weight
    elif value.mid is None:
        row = f"CASE WHEN {value.measure} IS NOT NULL THEN {weight} END"
    else:
        row = f"{value.measure} - ({value.mid})" if value.mid else value.measure
        times = weight if reach < 1 << 60 else f"CAST({weight} AS {dialect.wide})"
        row = f"{times} * ({row})" if weight else row
    return cut(dialect.total(row, reach * MOST_ROWS >= LARGEST), dialect)
