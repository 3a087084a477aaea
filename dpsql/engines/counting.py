"""The one statement that counts a table: cells of all its views, at most so many rows of each privacy unit.

Every engine runs the same text but for the words of its `Dialect`. A row is placed once: each table on its way gives
small integers (leaves, clamped measures), added up to a few numbers in mixed radix, and only these meet in the joins.

    s0 ..   the rows of each table: keys, and what they add to each number
    t       the joined rows: unit, numbers, measures
    u       one line a unit: its number of rows n, and its weight w or its offset r
    x       the rows that count

What hangs on the unit's own key is the same for all its rows: b0 .. are those tables, and where rows are sampled or
weighted they are joined to units instead of rows.

| here | there | unit |
|---|---|---|
| `EveryRow`, `Sampled`, `RowWeighting` | rows of a unit that count: all, tau of them, all for min(1, tau / n) | rows |

What comes back has the columns `view`, `cell`, `v0`, `v1` ..: the position of a group, a cell of it in row-major
order, and one sum for each of its values; BIGINT all of them. Cells without rows are absent. Where DuckDB counts more
groups than memory holds at once, there are several of these statements, each with its own bound.

**At most tau rows of each unit**: systematic sampling over the unit's own rows, in integers. A unit's n placed rows
are sorted by all that any statistic reads of them and numbered i = 1 .. n. Row i is kept if

    n <= tau   or   (i tau + r) mod n < tau,      r = h n div P

h in [0, P) is a cubic polynomial of the unit's key modulo the prime P = 2^31 - 1, its coefficients drawn for the
release. Sorting needs one integer a row, and no row is hashed: about a quarter of the time that a keyed hash of the
row's text takes.

A linear polynomial would not do: on consecutive keys its offsets bunch together. Where d rows have the unit's key, n =
m d: the j-th of them with the i-th of the unit's own m rows is number (i - 1) d + j. The coefficients are kept nowhere;
a stream keeps its key, and bounds each batch by itself.

| here | there | unit |
|---|---|---|
| `hash_sql` | h | below P |
| `offset` | r | below n |
| `is_kept` | the condition above | - |

**Privacy**: a row is in `t` or not by a rule that looks at it and at the rows that its keys name. n is counted in the
scan that ranks and weighs, so rows that arrive meanwhile move no bound. Sums are cut at 2^62, so no data can make a
statement fail. What comes back is raw and goes to `mechanisms` alone.
For every r in [0, n) exactly min(n, tau) rows are kept: i is kept iff floor((i tau + r) / n) exceeds
floor(((i - 1) tau + r) / n), and the sum over i telescopes to floor((n tau + r) / n) - floor(r / n) = tau. Which ones
follows from the unit's rows and the coefficients alone; rows of equal p are interchangeable, so ties change no cell.
The hash makes the choice even; the bound does not rest on it.
**Source**: docs/method/rows.md, "One statement a table" and "At most tau rows of a unit".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from dpsql.engines.dialect import Dialect
from dpsql.engines.joined_rows import (  # fmt: skip
    Digit,
    Packed,
    PlacedRows,
    UnitKey,
    common_table,
    counted_sides,
    may_miss,
    mixed_radix,
    placed_rows,
    repacked,
    row_numbers,
    side_tables,
    unpacked,
    with_tables,
)
from dpsql.engines.values import INTEGERS

PRIME = (1 << 31) - 1
WORDS = 6
"""Coefficients: the cubic's four, and one each for what is left of wide keys and for their sign."""


def coefficients(key: bytes) -> tuple[int, ...]:
    """The hash's coefficients from a release's secret key: those of x, x^2 and x^3 are not 0.

    Args:
        key: at least 24 bytes.

    Example:
        >>> len(coefficients(bytes(32))), coefficients(bytes(32))[1]
        (6, 1)
    """
    words = [int.from_bytes(key[4 * i : 4 * i + 4], "big") for i in range(WORDS)]
    return (words[0] % PRIME, *(1 + word % (PRIME - 1) for word in words[1:]))


def with_offsets(units: str, kind: str | None, c: tuple[int, ...], dialect: Dialect) -> str:
    """The statement of units with their offsets: all columns of `units`, and `r`.

    Args:
        units: what stands after FROM, with columns `owner`, a unit's key that is not NULL, and `n`.
        kind: the key's type.
        c: the hash's coefficients.
        dialect: of the engine.
    """
    # x is a column of its own: the hash reads it three times, and a digest costs more than all the rest
    x = unit_number("owner", kind, c, dialect)
    r = offset(hash_sql("x", kind, c, dialect), dialect)
    return f"SELECT o.*, {r} AS r FROM (SELECT *, {x} AS x FROM {units}) AS o"


def unit_number(unit: str, kind: str | None, c: tuple[int, ...], dialect: Dialect) -> str:
    """SQL of a unit's key as a whole number: of one that is none, 28 bits of the MD5 of the secret and its text."""
    digest = dialect.md5(f"'{c[4]} {c[5]} ' || {dialect.text(unit)}")
    return unit if kind in INTEGERS else dialect.number(f"substr({digest}, 1, 7)")


def hash_sql(x: str, kind: str | None, c: tuple[int, ...], dialect: Dialect) -> str:
    """SQL of h, at least 0 and below P.

    Args:
        x: SQL of a `unit_number`.
        kind, c, dialect: as of `with_offsets`.
    """

    def mod(value: str) -> str:
        return f"({dialect.remainder(value, str(PRIME))})"

    def cubic(x: str, c0: str) -> str:
        quadratic = mod(f"{c[3]} * ({x}) + {c[2]}")
        return mod(f"{mod(f'{quadratic} * ({x}) + {c[1]}')} * ({x}) + {c0}")

    if kind not in INTEGERS:
        return cubic(x, str(c[0]))
    # % keeps the sign; what is left above P, and the sign, must not make two units one. The quotient goes towards 0
    # by way of (x - x % P) / P; a part of it is taken mod P before anything is multiplied. Most keys need none of it.
    remainder = mod(f"CAST({mod(x)} AS BIGINT) + {PRIME}")
    quotient = f"CAST({mod(dialect.quotient(f'abs({x} - {mod(x)})', str(PRIME)))} AS BIGINT)"
    sign = f"CASE WHEN {x} < 0 THEN {c[5]} ELSE 0 END"
    wide = cubic(remainder, mod(f"{c[0]} + {mod(f'{quotient} * {c[4]}')} + {sign}"))
    narrow = cubic(f"CAST({x} AS BIGINT)", str(c[0]))
    return f"CASE WHEN {x} >= 0 AND {x} < {PRIME} THEN {narrow} ELSE {wide} END"


def is_kept(tau: int, r: str, dialect: Dialect) -> str:
    """The condition over the columns `i` and `n`, and r."""
    return f"n <= {tau} OR {dialect.remainder(f'i * {tau} + {r}', 'n')} < {tau}"


def offset(h: str, dialect: Dialect) -> str:
    """SQL of r, at least 0 and below `n`."""
    return dialect.quotient(f"({h}) * n", str(PRIME))


UNIT = 1 << 20
"""Integers that make a row where rows have weights."""

LARGEST = 1 << 62
"""Where sums are cut: far above every sum whose estimates a release can hold (2^42 at 2^-20)."""

SHORT = 1 << 14
"""Leaves below are SMALLINT where rows are stored: a third of what they take."""

MOST_ROWS = 1 << 40
"""Rows of a table whose sums are sure to fit where 64 bits are taken for them."""


class Value(NamedTuple):
    """Value that a row adds to a cell.

    Args:
        measure: name of a measure's digit; empty to count rows.
        mid: what is taken off the measure; None to count rows where it is not NULL.
        reach: the most that a row adds.
    """

    measure: str = ""
    mid: int | None = None
    reach: int = 1


class StatisticGroup(NamedTuple):
    """The statistics of a table over the same axes.

    Args:
        axes: names of digits, the last one the fastest.
        values: what is summed.
    """

    axes: tuple[str, ...]
    values: tuple[Value, ...]


class Bound(Protocol):
    """Contribution bound on the rows of a unit."""

    def statement(self, rows: PlacedRows, groups: Sequence[StatisticGroup], dialect: Dialect) -> str:
        """The statement that counts the groups of a table."""


class EveryRow:
    """All rows count: every row is a unit."""

    def statement(self, rows: PlacedRows, groups: Sequence[StatisticGroup], dialect: Dialect) -> str:
        numbers = cell_numbers(rows, groups)
        placed = common_table("t", placed_rows(rows, numbers), dialect)
        tables = [*side_tables(rows, numbers, dialect), placed]
        return with_tables(tables, counts("t", numbers, groups, "", dialect))


@dataclass(frozen=True)
class RowWeighting:
    """All rows count, those of one unit for min(1, tau / n), in units of 2^-20 and rounded down.

    **Privacy**: w n <= 2^20 tau, by the floor.
    """

    tau: int

    def statement(self, rows: PlacedRows, groups: Sequence[StatisticGroup], dialect: Dialect) -> str:
        numbers, split = cell_numbers(rows, groups), by_unit(rows)
        near, below = [n._replace(name=f"p{k}") for k, n in enumerate(numbers)], _parts(split.below, numbers)
        columns = [
            f"{part.name} + {number.name} AS {number.name}"
            if number in below
            else f"{part.name} AS {number.name}"
            for part, number in zip(near, numbers, strict=True)
        ]
        share = dialect.quotient(f"CAST({UNIT * self.tau} AS BIGINT)", "n")
        weight = f"CASE WHEN n <= {self.tau} THEN {UNIT} ELSE {share} END AS w"
        carried_columns, joined = "", "t JOIN u ON t.unit = u.owner"
        if dialect.materialised is None:
            carried_columns, joined = f"{_listed(near, rows.measures)}, ", "u"
        rows_with_weights = (
            f"SELECT {', '.join([*columns, *(m.name for m in rows.measures), 'w'])} FROM {joined}"
        )
        tables = [
            *_owners(split.near, near, rows.measures, "", dialect),
            *_units(split, below, carried_columns, dialect),
            f"u AS (SELECT *, {weight} FROM v)",
            common_table("x", rows_with_weights, dialect),
        ]
        return with_tables(tables, counts("x", numbers, groups, "w", dialect))


@dataclass(frozen=True)
class Sampled:
    """Tau rows of each unit count, by systematic sampling (`dpsql.engines.counting`).

    Args:
        tau: rows.
        coefficients: of the hash, drawn for the release.
    """

    tau: int
    coefficients: tuple[int, ...]

    def statement(self, rows: PlacedRows, groups: Sequence[StatisticGroup], dialect: Dialect) -> str:
        numbers = cell_numbers(rows, groups)
        return with_tables(self._kept(rows, numbers, dialect), counts("x", numbers, groups, "", dialect))

    def stored(self, rows: PlacedRows, dialect: Dialect) -> str:
        """The rows that count: each digit under its name, and `unit`."""
        columns = ", ".join([*_values(rows), "owner AS unit"])
        return with_tables(self._kept(rows, _alone(rows), dialect), f"SELECT {columns} FROM x")

    def _kept(self, rows: PlacedRows, numbers: Sequence[Packed], dialect: Dialect) -> list[str]:
        """Tables up to `x`: the rows that count, with their numbers, measures and `owner`."""
        split = by_unit(rows)
        words, unit_numbers = row_numbers(split.near), _parts(split.below, numbers)
        packed = _listed(words)
        place = f", row_number() OVER (PARTITION BY unit ORDER BY {packed}) AS place"
        carried_columns, joined = (
            ("", "o JOIN u ON o.unit = u.owner") if dialect.materialised else (f"{packed}, place, ", "u")
        )
        kind = rows.unit.kind if rows.unit else None
        listed = [
            "owner",
            packed,
            *(unit_number.name for unit_number in unit_numbers),
            "n",
            "r",
            "(place - 1) * d + j AS i",
        ]
        columns = [repacked(number, words, unit_numbers, dialect) for number in numbers]
        columns += ["owner", *unpacked(rows.measures, words, dialect)]
        numbered = f"SELECT {', '.join(listed)} FROM {joined}"
        query = f"SELECT {', '.join(columns)} FROM ({numbered}) AS q WHERE {is_kept(self.tau, 'r', dialect)}"
        return [
            *_owners(split.near, words, (), place, dialect),
            *_units(split, unit_numbers, carried_columns, dialect),
            f"u AS ({with_offsets('v', kind, self.coefficients, dialect)})",
            common_table("x", query, dialect),
        ]


def _owners(
    near: PlacedRows, numbers: Sequence[Packed], measures: Sequence[Digit], place: str, dialect: Dialect
) -> list[str]:
    """Tables up to `k`: owners with their m rows of `t`.

    Args:
        near: the rows.
        numbers, measures: what is kept of each.
        place: a column that numbers each owner's rows, here or in a table `o` of its own; empty where nothing asks.
        dialect: of the engine.
    """
    columns, placed = f"{_listed(numbers, measures)}{place}", placed_rows(near, numbers, measures)
    if dialect.materialised is None:
        counted = f"SELECT unit AS owner, {columns}, count(*) OVER (PARTITION BY unit) AS m FROM t"
        tables = [f"t AS ({placed})", f"k AS ({counted})"]
    else:
        counted = "SELECT unit AS owner, count(*) AS m FROM t GROUP BY unit"
        tables = [common_table("t", placed, dialect), f"k AS ({counted})"]
        tables += [f"o AS (SELECT unit, {columns} FROM t)"] if place else []
    return [*side_tables(near, numbers, dialect, measures), *tables]


def _listed(numbers: Sequence[Packed], measures: Sequence[Digit] = ()) -> str:
    return ", ".join([*(number.name for number in numbers), *(measure.name for measure in measures)])


class ByUnit(NamedTuple):
    """The rows of a table as the sampling sees them.

    Args:
        near: all that differs between the rows of a unit.
        below: the tables on the unit's own key; None where there are none, or where they may drop rows or miss.
        misses: whether a unit counts that has no row in them.
    """

    near: PlacedRows
    below: PlacedRows | None
    misses: bool


def by_unit(rows: PlacedRows) -> ByUnit:
    """Take off the tables on the unit's own key: they say the same of all its rows."""
    top = (*rows.unit.path, rows.unit.column) if rows.unit else ()
    sides = tuple(side for side in rows.sides if top and side.path[: len(top)] == top)
    axes = tuple(digit for digit in rows.axes if digit.path in {side.path for side in sides})
    if rows.unit is None or not sides or sides[0].once:
        return ByUnit(rows, None, False)
    misses = may_miss(rows, sides[0])
    if misses and not (all(d.total for d in axes) and all(may_miss(rows, side) for side in sides)):
        return ByUnit(rows, None, False)
    unit_side = sides[0]._replace(key="", carried=(sides[0].key, *sides[0].carried))
    unit = UnitKey(top, sides[0].key, rows.unit.kind)
    near = replace(
        rows,
        sides=tuple(side for side in rows.sides if side not in sides),
        axes=tuple(digit for digit in rows.axes if digit not in axes),
    )
    return ByUnit(near, PlacedRows((unit_side, *sides[1:]), axes, (), unit, "b"), misses)


def stored_rows(rows: PlacedRows, dialect: Dialect) -> str:
    """All placed rows: each digit under its name, and `unit` where there is one."""
    numbers, columns = _alone(rows), [*_values(rows), *(["unit"] if rows.unit else [])]
    return with_tables(
        [*side_tables(rows, numbers, dialect), f"t AS ({placed_rows(rows, numbers)})"],
        f"SELECT {', '.join(columns) or '1 AS one'} FROM t",
    )


def _alone(rows: PlacedRows) -> list[Packed]:
    """Each axis as a number of its own."""
    return [Packed(digit.name, ((digit, 1),)) for digit in rows.axes]


def _values(rows: PlacedRows) -> list[str]:
    """Columns of the digits' values, from numbers of their own and measures; leaves are short where their gaps fit."""
    leaves = [f"CAST({d.name} AS SMALLINT) AS {d.name}" if d.size < SHORT else d.name for d in rows.axes]
    return [*leaves, *(m.name for m in rows.measures)]


def beyond_bound(rows: PlacedRows, tau: int, most: int, dialect: Dialect) -> str:
    """The statement of the rows beyond tau of units with at most so many, and of the units with more: `v0` and `v1`.

    **Privacy**: one unit changes the first by at most `most`, or the second by 1; n decides which.
    """
    beyond = f"CASE WHEN n > {tau + most} THEN 0 WHEN n > {tau} THEN n - {tau} ELSE 0 END"
    farther = f"CASE WHEN n > {tau + most} THEN 1 ELSE 0 END"
    split = by_unit(rows)
    near = counted_sides(split.near)
    tables = [
        *side_tables(near, (), dialect, ()),
        f"t AS ({placed_rows(near, (), ())})",
        "k AS (SELECT unit AS owner, count(*) AS m FROM t GROUP BY unit)",
        *_units(split, (), "", dialect),
    ]
    return with_tables(
        tables,
        f"SELECT {cut(dialect.total(beyond, most >= MOST_ROWS), dialect)} AS v0, "
        f"{cut(dialect.total(farther, False), dialect)} AS v1 FROM v WHERE j = 1",
    )


BoundedDigit = tuple[str, int, int, int]
"""A measure of which values beyond its bounds are looked for.

Args:
    name: of its digit, which reaches beyond the bounds.
    lower, upper: the bounds.
    near: the excess of a unit up to which it is near.
"""


def units_beyond_bounds(rows: PlacedRows, measures: Sequence[BoundedDigit], dialect: Dialect) -> str:
    """The statement of the units with values beyond bounds: one line, `v0`, `v1` ..

    Of each measure: units with values above the upper bound alone, near and far; below the lower one alone, near and
    far; beyond both, which no single row can be.

    **Privacy**: the excess of a unit follows from its own rows, and a unit is in one number of a measure or in none.
    """
    columns, numbers = [], list[str]()
    for i, (name, lower, upper, near) in enumerate(measures):
        above, below = f"{name} > {upper}", f"{name} < {lower}"
        far = f"CASE WHEN {above} THEN {name} - ({upper}) WHEN {below} THEN ({lower}) - {name} ELSE 0 END"
        far = far if rows.unit is None else cut(dialect.total(far, True), dialect)
        sides = [f"CASE WHEN {side} THEN 1 ELSE 0 END" for side in (above, below)]
        up, down = sides if rows.unit is None else [f"max({side})" for side in sides]
        columns.append(f"{far} AS f{i}, {up} AS u{i}, {down} AS d{i}")
        conditions = [
            f"u{i} = {1 - side} AND d{i} = {side} AND f{i} {distance} {near}"
            for side in (0, 1)
            for distance in ("<=", ">")
        ]
        numbers += [*conditions, *([] if rows.unit is None else [f"u{i} = 1 AND d{i} = 1"])]
    totals = [
        f"{cut(dialect.total(f'CASE WHEN {condition} THEN 1 ELSE 0 END', False), dialect)} AS v{k}"
        for k, condition in enumerate(numbers)
    ]
    grouped = "" if rows.unit is None else " GROUP BY unit"
    return with_tables(
        [*side_tables(rows, (), dialect), f"t AS ({placed_rows(rows, ())})"],
        f"SELECT {', '.join(totals)} FROM (SELECT {', '.join(columns)} FROM t{grouped}) AS k",
    )


def cut(total: str, dialect: Dialect) -> str:
    """SQL of a BIGINT: a sum of any size, cut at `LARGEST`; 0 where there is nothing to sum."""
    low, high = (f"CAST({end} AS {dialect.wide})" for end in (-LARGEST, LARGEST))
    return f"CAST(greatest(least(coalesce({total}, 0), {high}), {low}) AS BIGINT)"


def cell_numbers(rows: PlacedRows, groups: Sequence[StatisticGroup]) -> list[Packed]:
    """The cell of a row in each group, in row-major order."""
    named = {digit.name: digit for digit in rows.axes}
    return [
        Packed(f"c{k}", mixed_radix([named[axis] for axis in group.axes])) for k, group in enumerate(groups)
    ]


def _parts(below: PlacedRows | None, numbers: Sequence[Packed]) -> list[Packed]:
    """The numbers to which the tables on a unit's key add something."""
    paths = {side.path for side in below.sides} if below else set()
    return [number for number in numbers if any(digit.path in paths for digit, _ in number.digits)]


def _units(
    split: ByUnit, unit_numbers: Sequence[Packed], carried_columns: str, dialect: Dialect
) -> list[str]:
    """Tables from `k`, which has a line for each owner, up to `v`: n, and what the tables on the unit's key say.

    A row of a unit is a row of `t` and one of d rows found by the unit's key, d being 1 in most data: n = m d, and the
    j-th of them with the row of `t` at a place is number (place - 1) d + j.
    """
    below = split.below
    if below is None:
        return [f"v AS (SELECT owner, {carried_columns}m AS n, CAST(1 AS BIGINT) AS d, 1 AS j FROM k)"]
    names = [unit_number.name for unit_number in unit_numbers]
    window = "OVER (PARTITION BY unit"
    nth = f"row_number() {window} ORDER BY {', '.join(names) or 'unit'}) AS j, count(*) {window}) AS d"
    columns, join = [f"m * d AS n, d, j{''.join(f', {name}' for name in names)}"], "JOIN"
    if split.misses:
        paths = {side.path for side in below.sides}
        absent = [
            sum(p * (d.missing or 0) for d, p in unit_number.digits if d.path in paths)
            for unit_number in unit_numbers
        ]
        columns = ["m * coalesce(d, 1) AS n, coalesce(d, 1) AS d, coalesce(j, 1) AS j"]
        columns += [f"coalesce({name}, {value}) AS {name}" for name, value in zip(names, absent, strict=True)]
        join = "LEFT JOIN"
    return [
        *side_tables(below, unit_numbers, dialect),
        f"b AS (SELECT {', '.join(['unit AS theirs', *names, nth])} FROM ({placed_rows(below, unit_numbers)}) AS p)",
        f"v AS (SELECT owner, {carried_columns}{', '.join(columns)} FROM k {join} b ON k.owner = b.theirs)",
    ]


def counts(
    table: str,
    numbers: Sequence[Packed],
    groups: Sequence[StatisticGroup],
    weight: str,
    dialect: Dialect,
) -> str:
    """The sums of each group, from one table of rows that count.

    Args:
        table: its name.
        numbers, groups: what is summed, and by which of its columns.
        weight: the column of what a row counts for; empty where that is 1.
        dialect: of the engine.
    """
    width, parts = max(len(group.values) for group in groups), []
    if (
        dialect.materialised is None
    ):  # one pass: sets are told apart by GROUPING, and a group reads its own sums alone
        every = list(dict.fromkeys(value for group in groups for value in group.values))
        summed = ", ".join(f"{_sum(value, weight, dialect)} AS y{i}" for i, value in enumerate(every))
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
        inner = f"SELECT {marks}, {summed} FROM {table} GROUP BY GROUPING SETS ({sets})"
        return f"SELECT {', '.join(columns)} FROM ({inner}) AS g"
    for k, (number, group) in enumerate(zip(numbers, groups, strict=True)):
        sums = [_sum(value, weight, dialect) for value in group.values]
        sums += ["CAST(0 AS BIGINT)"] * (width - len(sums))
        listed = ", ".join(f"{each} AS v{i}" for i, each in enumerate(sums))
        parts.append(
            f"SELECT {k} AS view, CAST({number.name} AS BIGINT) AS cell, {listed} FROM {table} GROUP BY {number.name}"
        )
    return " UNION ALL ".join(parts)


def _sum(value: Value, weight: str, dialect: Dialect) -> str:
    """SQL of what a cell holds of a value: a BIGINT, cut."""
    if not value.measure and not weight:
        return "CAST(count(*) AS BIGINT)"
    if value.measure and value.mid is None and not weight:
        return f"CAST(count({value.measure}) AS BIGINT)"
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
