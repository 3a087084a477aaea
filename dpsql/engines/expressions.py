"""From a raw value to a leaf or a bounded integer, by the declared type of its column, in any engine's words.

A value is compared with typed literals, and what is computed from it is computed once. Every value has a leaf or is
dropped by a rule that looks at it alone; no value can make an expression fail. Types that have no such form (text that
holds numbers, times of less than a microsecond) are read by casts that give NULL where they fail; an engine without
such casts refuses them from its schema.

| column | on an axis | as a measure |
|---|---|---|
| whole numbers, decimals of the scale or coarser | in 64-bit units | clamped by comparison, then in units |
| finer decimals, floats | the floor of x 10^scale + 0.5 | clamped, then the same |
| dates, times | against literals; equal steps by one division | - |
| text, booleans | CASE over the categories | - |

NaN and infinities are tested for by name: in SQL least(greatest(NaN, 0), 10) is 10. `NA` and the other texts that stand
for no value (`ABSENT`) have the leaf of NULL where a number, a time or a boolean is declared; any other text that is
none has the leaf OTHER.

**Privacy**: deterministic and total functions of one row.
**Source**: docs/method/rows.md, "Leaves and keys", "Measures are integers before they are added".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from itertools import pairwise
from math import inf, nextafter
from typing import NamedTuple

from dpsql.axis.model import Axis, CategoryRule, KeyListRule, KeyRule, OrderedRule, leaf_sql, search
from dpsql.catalog.base import GRAIN_MICROSECONDS, LARGEST_UNITS
from dpsql.catalog.columns import Column
from dpsql.engines.dialect import Dialect, day
from dpsql.engines.values import BITS, FLOATS, decimal_digits, type_word
from dpsql.errors import InternalError, SourceError
from dpsql.row_expressions.expression import instant

EXACT_DIGITS = 9
"""Decimal places kept of text before rounding; the catalog allows no finer scale."""

NARROW_DIGITS = 18
"""Digits of a decimal that is computed with as it is."""

LARGEST_FLOAT = 1 << 51
"""Where floats still tell halves apart, so that the floor of x + 0.5 is the nearest integer."""

SEARCHED = 32
"""Leaves of a time axis up to which comparing beats counting days or microseconds."""

FEW = 3
"""Leaves below which comparing is cheaper than taking a date apart."""

INSTANTS = ("TIMESTAMP", "TIMESTAMP WITH TIME ZONE")
_DAY = GRAIN_MICROSECONDS["day"]


class Ends(NamedTuple):
    """Clamping bounds of a measure: integers of 10^-scale, both inclusive."""

    lower: int
    upper: int
    scale: int


def leaf(axis: Axis, value: str, kind: str | None, dialect: Dialect) -> str:
    """SQL of the leaf of a raw value.

    Args:
        axis: an axis over one column; a public dimension at a grain is looked up by key instead.
        value: SQL of the raw value; a column, since it is named several times.
        kind: its type in DuckDB's words; None where nobody knows it.
        dialect: of the engine.

    Returns:
        A whole number: a leaf, or NULL where the row is left out by the catalog's rule.

    Raises:
        SourceError: the engine cannot read a column of that type as the catalog declares it.
        InternalError: the axis is a public dimension at a grain.

    **Privacy**: deterministic and total; no raw value can make it fail.
    """
    rule = axis.rule
    if isinstance(rule, KeyRule | KeyListRule):
        raise InternalError(f"axis {axis.name}: leaves are found by key", hint="join its keys")
    if isinstance(rule, CategoryRule):
        expression, declared = _category(axis, rule, value, kind, dialect), "text"
    else:
        expression, declared = _ordered(axis, rule, value, kind, dialect), rule.type
    if expression is not None:
        return expression
    if dialect.reads_any:
        return leaf_sql(axis, value)
    raise SourceError(
        f"axis {axis.name}: {_told(kind)} cannot be read there as {declared}",
        hint="give the column its type in a view of the database, and name the view",
    )


def _told(kind: str | None) -> str:
    return "a derived column" if kind is None else f"a column of type {type_word(kind)}"


def measure(value: str, bounds: Ends, kind: str | None, dialect: Dialect) -> str:
    """SQL for the clamped integer of a raw value, NULL where it is NULL or NaN.

    Args:
        value: SQL of the raw value; a column, since it is named several times.
        bounds: what it is clamped to.
        kind: its type in DuckDB's words; None where nobody knows it.
        dialect: of the engine.

    Returns:
        A BIGINT expression within the bounds.

    Raises:
        SourceError: the engine cannot read a column of that type as a number.
    """
    low, high, nan = bounds.lower, bounds.upper, ""
    if kind in FLOATS:
        lowest, highest = (_float(end / 10**bounds.scale, dialect) for end in (low, high))
        nan, units = f" OR {dialect.is_nan(value)}", _float_units(value, bounds.scale, dialect)
        if max(abs(low), abs(high)) >= LARGEST_FLOAT:
            units = f"least(greatest({units}, {low}), {high})"
    else:
        lowest, highest = (_decimal(Decimal(end).scaleb(-bounds.scale), dialect) for end in (low, high))
        units = _exact_units(value, kind, bounds.scale, dialect) or ""
    if BITS.get(kind or "") and units:
        clamped = f"least(greatest({value if bounds.scale == 0 else units}, {low}), {high})"
        return f"CASE WHEN {value} IS NOT NULL THEN CAST({clamped} AS BIGINT) END"
    if not units and dialect.reads_any:
        return _any_measure(value, bounds)
    if not units:
        raise SourceError(
            f"{value}: {_told(kind)} cannot be read there as a number",
            hint="give the column its type in a view of the database, and name the view",
        )
    return (
        f"CASE WHEN {value} IS NULL{nan} THEN NULL WHEN {value} <= {lowest} THEN {low} "
        f"WHEN {value} >= {highest} THEN {high} ELSE {units} END"
    )


def _any_measure(value: str, bounds: Ends) -> str:
    """The same of a value of any type, by casts that give NULL where they fail."""
    scale = 10**bounds.scale
    low, high = f"{bounds.lower} / {scale}::DOUBLE", f"{bounds.upper} / {scale}::DOUBLE"
    near = f"TRY_CAST({value} AS DOUBLE)"
    exact = f"TRY_CAST({value} AS DECIMAL(38, {EXACT_DIGITS}))"
    is_float = f"typeof({value}) IN ('DOUBLE', 'FLOAT')"
    # A float is rounded after scaling in floating point, since 4.35 is 4.3499.. in binary; others are exact.
    from_float = f"CAST(floor({near} * {scale} + 0.5) AS BIGINT)"
    from_exact = f"CAST(floor({exact} * {scale} + 0.5) AS BIGINT)"
    return (
        f"CASE WHEN {near} IS NULL OR isnan({near}) THEN NULL "
        f"WHEN {near} <= {low} THEN {bounds.lower} WHEN {near} >= {high} THEN {bounds.upper} "
        f"WHEN {is_float} THEN {from_float} ELSE {from_exact} END"
    )


def _float(value: float, dialect: Dialect) -> str:
    return f"CAST('{value!r}' AS {dialect.double})"


def _decimal(value: Decimal, dialect: Dialect) -> str:
    digits = f"{value:f}"
    return dialect.decimal(digits) if "." in digits else digits


def _float_units(value: str, scale: int, dialect: Dialect) -> str:
    return dialect.nearest(f"{value} * {_float(float(10**scale), dialect)}")


def _exact_units(value: str, kind: str | None, scale: int, dialect: Dialect) -> str | None:
    """A whole number or a decimal in units of 10^-scale; None where its type leaves room to overflow."""
    shift, digits = 10**scale, decimal_digits(kind)
    bits = BITS.get(kind or "")
    if bits and (scale == 0 or bits + shift.bit_length() < 63):
        return f"CAST({value} AS BIGINT)" + (f" * {shift}" if scale else "")
    if digits is None or digits.whole + scale > NARROW_DIGITS:
        return None
    scaled = f"{value} * {shift}" if scale else value
    return f"CAST({scaled} AS BIGINT)" if digits.places <= scale else dialect.nearest(scaled)


def _category(axis: Axis, rule: CategoryRule, value: str, kind: str | None, dialect: Dialect) -> str | None:
    """The leaf of a text or a boolean."""
    absent, other_leaf = _or_null(absent_leaf(axis)), _or_null(axis.other_leaf)
    if rule.boolean and kind == "BOOLEAN":
        return f"CASE WHEN {value} IS NULL THEN {absent} WHEN {value} THEN 1 ELSE 0 END"
    if rule.boolean or not (kind == "VARCHAR" or dialect.reads_any):
        return None
    expression = dialect.position(value, rule.values)
    if axis.other_leaf is not None:
        expression = f"coalesce({expression}, {other_leaf})"
    return (
        expression
        if absent == other_leaf
        else f"CASE WHEN {value} IS NULL THEN {absent} ELSE {expression} END"
    )


def _ordered(axis: Axis, rule: OrderedRule, value: str, kind: str | None, dialect: Dialect) -> str | None:
    """The leaf of a number or a time: out of the domain, or found by one division or by comparisons."""
    raw = _raw_scale(rule, kind, dialect)
    if raw is None:
        return None
    starts, end = [int(start) for start in rule.starts], int(rule.upper) + 1
    months = _months(rule, [*starts, end - 1]) if kind in ("DATE", "TIMESTAMP") else None
    if months is not None:
        expression = _equal(dialect.months(value), months[:-1], months[-1] + 1, dialect)
    elif _width(starts, end) is None or (raw.slow and len(starts) <= SEARCHED):
        expression = search(value, [raw.least(start) for start in starts], 0, len(starts))
    else:
        expression = _equal(raw.units(value), starts, end, dialect)
    other_leaf = _or_null(axis.other_leaf)
    return (
        f"CASE WHEN {value} IS NULL THEN {_or_null(absent_leaf(axis))} "
        # NOT <: NaN, which some engines sort above all numbers, is below no bound in any of them
        f"WHEN {value} < {raw.least(starts[0])} OR NOT {value} < {raw.least(end)} THEN {other_leaf} "
        f"ELSE {expression} END"
    )


def _width(starts: Sequence[int], end: int) -> int | None:
    """The width of all leaves but the last, if it is one."""
    widths = {next_start - start for start, next_start in pairwise(starts)} or {end - starts[0]}
    return widths.pop() if len(widths) == 1 else None


def _equal(units: str, starts: Sequence[int], end: int, dialect: Dialect) -> str:
    """The leaf of a value within the domain, where leaves are equally wide."""
    width = _width(starts, end) or 1
    counted = f"({units})" if starts[0] == 0 else f"({units} - ({starts[0]}))"
    counted = counted if width == 1 else dialect.quotient(counted, str(width))
    return f"least({counted}, {len(starts) - 1})" if starts[-1] + width < end else counted


def _months(rule: OrderedRule, units: Sequence[int]) -> list[int] | None:
    """Months since year 0 of the leaves' beginnings and of the last value, if leaves are equally many months."""
    grain = _DAY if rule.type == "date" else GRAIN_MICROSECONDS[rule.grain]
    days = [day(unit * grain // _DAY) for unit in units]
    whole_months = all(unit * grain % _DAY == 0 for unit in units[:-1]) and all(
        date.day == 1 for date in days[:-1]
    )
    months = [date.year * 12 + date.month - 1 for date in days]
    return months if whole_months and len(units) > FEW and _width(months[:-1], months[-1] + 1) else None


class RawScale(NamedTuple):
    """Scale of a type's values on an axis's units.

    Args:
        least: the literal of the least value that has so many units, or more.
        units: SQL of the units of a value within the domain.
        slow: whether the units are dear.
    """

    least: Callable[[int], str]
    units: Callable[[str], str]
    slow: bool = False


def _raw_scale(rule: OrderedRule, kind: str | None, dialect: Dialect) -> RawScale | None:
    """The scale of a type, or None where there is none for it."""
    if rule.type in ("int", "decimal"):
        return _numbers(rule.scale, kind, dialect)
    step = _DAY if rule.type == "date" else GRAIN_MICROSECONDS[rule.grain]
    if int(rule.upper) + 1 >= no_literal(step):
        return None
    if kind == "DATE":
        per = _DAY // step

        def days(value: str) -> str:
            return dialect.days(value) if per == 1 else f"{dialect.days(value)} * {per}"

        return RawScale(lambda units: dialect.date(-(-units // per)), days, slow=True)
    if kind in INSTANTS:

        def steps(value: str) -> str:
            # instants before 1970 are negative; so many microseconds later none is, and quotients are floors
            shift = -(-EARLIEST // step)
            return f"({dialect.quotient(f'{dialect.microseconds(value)} + {shift * step}', str(step))} - {shift})"

        return RawScale(lambda units: dialect.instant(units * step, str(kind)), steps, slow=True)
    return None


EARLIEST = 62_135_596_800 * 10**6
"""Microseconds from year 1 to 1970."""


def no_literal(step: int) -> int:
    """The first unit whose beginning has no literal: the year 10000.

    >>> no_literal(86400 * 10**6)
    2932897
    """
    return 253_402_300_800 * 10**6 // step


def _numbers(scale: int, kind: str | None, dialect: Dialect) -> RawScale | None:
    """Numbers on an axis of 10^-scale."""
    shift = 10**scale
    if kind in FLOATS:
        return RawScale(
            lambda units: _float(least_float(units, shift), dialect),
            lambda value: _float_units(value, scale, dialect),
        )
    if kind is None or _exact_units("x", kind, scale, dialect) is None:
        return None
    digits = decimal_digits(kind)

    def least(units: int) -> str:
        if digits is None:
            return str(-(-units // shift))
        if digits.places <= scale:
            return _decimal(Decimal(units).scaleb(-scale), dialect)
        return _decimal(Decimal(2 * units - 1).scaleb(-scale) / 2, dialect)

    return RawScale(least, lambda value: str(_exact_units(value, kind, scale, dialect)))


def least_float(units: int, shift: int) -> float:
    """The least float x with floor(x shift + 0.5) >= units, as floats are multiplied and added.

    >>> least_float(3, 1), least_float(1, 1)
    (2.5, 0.49999999999999994)
    """
    x = (units - 0.5) / shift
    while x * shift + 0.5 >= units:
        x = nextafter(x, -inf)
    while x * shift + 0.5 < units:
        x = nextafter(x, inf)
    return x


LAST_DAY = no_literal(_DAY) - 1
FIRST_DAY = -(EARLIEST // _DAY)


def exact_units(value: str, column: Column, kind: str | None, dialect: Dialect) -> str:
    """SQL of a value as its column declares it, before any bound: what rows are summed, ordered and compared by.

    Args:
        value: SQL of the raw value; a column, since it is named several times.
        column: what the catalog declares.
        kind: its type in DuckDB's words; None where nobody knows it.
        dialect: of the engine.

    Returns:
        Units of numbers and times, 0 or 1 of booleans, texts compared by bytes; NULL where the value is none of the
        type, or needs more than 60 bits.

    Raises:
        SourceError: the engine cannot read a column of that type as the catalog declares it.
    """
    if column.type == "string":
        if kind != "VARCHAR" and not dialect.reads_any:
            raise _unread(kind, column.type)
        return dialect.text(value)
    if column.type == "bool":
        if kind != "BOOLEAN" and not dialect.reads_any:
            raise _unread(kind, column.type)
        test = value if kind == "BOOLEAN" else f"TRY_CAST({value} AS BOOLEAN)"
        return f"CASE WHEN {test} THEN 1 WHEN NOT {test} THEN 0 END"
    if column.type in ("int", "decimal"):
        digits = decimal_digits(kind)
        if (
            digits
            and digits.places <= column.digits
            and digits.whole - digits.places + column.digits <= NARROW_DIGITS
        ):
            # every value of the type fits; 18 digits times a constant would overflow 64 bits, and 38 digits cost five
            # times as much: whole and broken parts apart
            whole, shift = f"CAST(floor({value}) AS BIGINT)", 10**column.digits
            broken = dialect.remainder(
                f"CAST({dialect.fraction(value)} * {shift} AS BIGINT) + {shift}", str(shift)
            )
            return (
                f"({whole} * {shift} + {broken})" if digits.places else f"(CAST({value} AS BIGINT) * {shift})"
            )
        if column.digits == 0 and BITS.get(kind or ""):
            within = f"{value} > {-LARGEST_UNITS} AND {value} < {LARGEST_UNITS}"
            return f"CASE WHEN {within} THEN CAST({value} AS BIGINT) END"
        number = measure(value, Ends(-LARGEST_UNITS, LARGEST_UNITS, column.digits), kind, dialect)
        return f"nullif(nullif({number}, {LARGEST_UNITS}), {-LARGEST_UNITS})"
    return _time_units(value, column, kind, dialect)


def _time_units(value: str, column: Column, kind: str | None, dialect: Dialect) -> str:
    """Days, or steps of the grain, since 1970; NULL outside of the years 1 to 9999."""
    step = _DAY if column.type == "date" else GRAIN_MICROSECONDS[column.grain]
    if kind == "DATE":
        within = f"{value} >= {dialect.date(FIRST_DAY)} AND {value} <= {dialect.date(LAST_DAY)}"
        return f"CASE WHEN {within} THEN {dialect.days(value)} * {_DAY // step} END"
    if kind not in INSTANTS:
        if not dialect.reads_any:
            raise _unread(kind, column.type)
        value, kind = instant(value), "TIMESTAMP"
    first, last = (dialect.instant(days * _DAY, str(kind)) for days in (FIRST_DAY, LAST_DAY))
    # instants before 1970 are negative; so many steps later none is, and quotients are floors
    shift = -(-EARLIEST // step)
    steps = f"{dialect.quotient(f'{dialect.microseconds(value)} + {shift * step}', str(step))} - {shift}"
    return f"CASE WHEN {value} >= {first} AND {value} < {last} THEN {steps} END"


def _unread(kind: str | None, declared: str) -> SourceError:
    return SourceError(
        f"{_told(kind)} cannot be read there as {declared}",
        hint="give the column its type in a view of the database, and name the view",
    )


def absent_leaf(axis: Axis) -> int | None:
    """Leaf of NULL: its own if declared nullable, else out of the domain like any other bad value."""
    return axis.null_leaf if axis.null_leaf is not None else axis.other_leaf


def _or_null(number: int | None) -> str:
    return "NULL" if number is None else str(number)
