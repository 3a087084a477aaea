"""Columns as axes and measures: bounds rounded outwards, cuts that people would choose, categories in their order.

Ids, codes with many values and free text are left out, with a word why. A number is a measure in tables that are
counted, unless its name says that it is a code, a grade or a part of a date. Texts stand in their own order where they
have one: ranges with numbers in them, grades, months, schools. Ranges of neighbours are then few nodes of a tree, and a
chart reads from left to right.

**Privacy**: what comes from private rows carries `confirm: true`. Bounds are rounded outwards, so that they seldom
repeat one person's value; they are for the curator to replace by what holds for every possible row.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import NamedTuple

from dpsql.catalog.base import alike_but_for_blanks
from dpsql.catalog.checks import may_be_named
from dpsql.curator.design.axes import quoted
from dpsql.curator.draft import profile
from dpsql.curator.draft.links import GRADES, NAMES, TEXTS, is_name, words
from dpsql.errors import NotSupportedError, ProgrammingError
from dpsql.row_expressions import identifier
from dpsql.row_expressions.expression import (
    COMPARISONS,
    OF_TIMES,
    RANGES,
    CalendarField,
    ColumnComparison,
    calendar_field,
    column_comparison,
)
from dpsql.sql.dialects import native
from dpsql.sql.parse import DEFAULT_DIALECT, parse
from dpsql.sql.spellings import normal

_NUMBER = re.compile(r"\d+(?:\.\d+)?")

SCALES = (
    ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"),
    ("mon", "tue", "wed", "thu", "fri", "sat", "sun"),
    ("first", "second", "third", "fourth"),
    ("low", "medium|middle|moderate", "high", "critical"),
    ("tiny|xs", "small|sm", "medium|md", "large|lg", "huge|xl"),
    ("normal|basic|standard", "bronze", "silver", "gold", "platinum", "diamond"),
    ("never", "rarely|seldom", "sometimes|occasionally", "often|frequently", "always"),
    ("very poor|terrible|very bad", "poor|bad", "fair|average", "good", "very good", "excellent"),
    ("strongly disagree", "disagree", "neutral|neither", "agree", "strongly agree"),
    ("very dissatisfied", "dissatisfied", "neutral", "satisfied", "very satisfied"),
    ("none|no school", "preschool", "1st-4th|primary|elementary", "5th-6th", "7th-8th", "9th", "10th", "11th",
     "12th|partial high|some high", "high school|hs-grad", "partial college|some college|some-college", "assoc",
     "bachelor", "graduate degree|master", "prof-school", "doctor|phd"),
    ("child|minor", "young|youth", "adult", "senior|elderly"),
    ("morning", "noon", "afternoon", "evening", "night"),
)  # fmt: skip
"""What the steps of a scale begin with or hold, from its low end to its high one; `|` parts words of one step."""


def in_order(values: Sequence[str]) -> tuple[str, ...]:
    """Values in their own order, or as they came where nothing is known of one.

    Args:
        values: different texts, in alphabetical order.

    >>> in_order(("$10K - $30K", "$110K - $130K", "$30K - $50K", "$150K +"))
    ('$10K - $30K', '$30K - $50K', '$110K - $130K', '$150K +')
    >>> in_order(("Bronze", "Golden", "Normal", "Silver")), in_order(("Bikes", "Cars"))
    (('Normal', 'Bronze', 'Silver', 'Golden'), ('Bikes', 'Cars'))
    """
    numbers = [_by_number(value) for value in values]
    if all(number is not None for number in numbers):
        return tuple(sorted(values, key=lambda value: _by_number(value) or (0.0,)))
    for scale in SCALES:
        places = {value: _place(value, scale) for value in values}
        if len({p for p in places.values() if p is not None}) > 1 and None not in places.values():
            return tuple(sorted(values, key=lambda value: (places[value] or 0, value)))
    return tuple(values)


def _by_number(value: str) -> tuple[float, ...] | None:
    """The numbers of a range, `<=50K` before `>50K`; None for texts that merely hold one."""
    letters = re.sub(r"[^A-Za-z]", "", value)
    numbers = _NUMBER.findall(value.replace(",", ""))
    begins = re.match(r"\s*[$<>=+~-]*\s*\d|under|over|less|more", value, re.IGNORECASE)
    if not numbers or len(letters) > 10 or not begins:
        return None
    low = re.match(r"\s*(<|under|less)", value, re.IGNORECASE) is not None
    return (float(numbers[0]), -1.0 if low else 0.0, *map(float, numbers[1:]))


def _place(value: str, scale: Sequence[str]) -> int | None:
    """The step that a value names by its longest word, or None."""
    text = value.lower().strip()
    named = ((len(w), i) for i, step in enumerate(scale) for w in step.split("|") if text.startswith(w))
    return max(named, default=(0, None))[1]


MOST_LEAVES = 150
"""Leaves of an ordered axis that has no cuts; beyond, cuts of a round width make about a third of it."""

NATURAL = {
    "month": (1, 12), "day": (1, 31), "hour": (0, 23), "minute": (0, 59), "second": (0, 59), "weekday": (0, 6),
    "quarter": (1, 4), "week": (1, 53), "age": (0, 120), "percent": (0, 100),
}  # fmt: skip
"""Bounds that follow from what a column is called, whatever its rows hold."""


def natural_bounds(name: str, low: Decimal, high: Decimal) -> tuple[int, int] | None:
    """Bounds that follow from a column's name, where values lie within them.

    >>> natural_bounds("age", Decimal(17), Decimal(90)), natural_bounds("age", Decimal(17), Decimal(900))
    ((0, 120), None)
    """
    bounds = next((ends for word, ends in NATURAL.items() if word in words(name)), None)
    return bounds if bounds is not None and bounds[0] <= low <= high <= bounds[1] else None


MONTHS_FROM, YEARS_FROM = 800, 6000
"""Days that a date column spans from which its leaves are months, and years."""


@dataclass(frozen=True)
class Domain:
    """A column of the draft.

    Args:
        name: the column.
        keys: what stands in its braces.
        leaves: of an axis over it; 0 where it makes none.
        measure: whether it may be summed.
    """

    name: str
    keys: tuple[str, ...]
    leaves: int = 0
    measure: bool = False

    @property
    def line(self) -> str:
        """As the catalog writes it."""
        return f"{quoted(self.name)}: {{{', '.join(self.keys)}}}"


class LeftOut(NamedTuple):
    """Reason why a column is neither axis nor measure.

    Args:
        why: in words; empty where it is one.
        by_rows: whether the rows at hand decided it, and not the column's name or declared type.
    """

    why: str
    by_rows: bool = False


TAKEN, ITS_NAME = LeftOut(""), LeftOut("its name")
FREE_TEXT, AN_ID, EMPTY, TOO_LARGE = (
    LeftOut(why, by_rows=True) for why in ("free text", "an id", "empty", "its numbers are too large")
)
RARE = LeftOut("no value that 50 people have: list what your rules allow", by_rows=True)
BLANKS = LeftOut("texts that differ in blanks alone, or contain NUL: trim it in `derive`", by_rows=True)


def left_out(column: profile.ColumnFacts, *, of_people: bool = False) -> LeftOut:
    """Reason why a column is left out; names of people are no axis however few there are."""
    named, is_text = words(column.name), column.nature is profile.TEXT
    wanted = column.named and (not is_text or bool(column.values))
    if not may_be_named(column.name):
        return ITS_NAME
    if of_people and is_text and is_name(named) and not wanted:
        return LeftOut("a name")
    if column.nature is None:
        return LeftOut("its type")
    if column.distinct == 0:
        return EMPTY
    if is_text and named & TEXTS and not wanted:
        return LeftOut("an id" if _is_id(named) else "free text")
    if is_text and not column.values:
        return RARE if column.rare else AN_ID if _is_id(named) else FREE_TEXT
    if is_text and (alike_but_for_blanks(column.values) or any("\0" in value for value in column.values)):
        return BLANKS
    # years, teams and airports are asked by
    is_code = wanted or column.repeats or 1 < len(column.values) <= 20
    if _is_id(named) and not is_code:
        return AN_ID
    return TOO_LARGE if _DOMAINS[column.nature](column) is None else TAKEN


def _is_id(named: frozenset[str]) -> bool:
    """True if a name's words say that it names things: order_id, orderkey, postcode."""
    return bool(named & NAMES) or any(word.endswith(("key", "number", "code")) for word in named)


def keeping(column: profile.ColumnFacts) -> str:
    """The line that keeps a column which the draft leaves out, or what to write first where no line alone does."""
    if not may_be_named(column.name):
        return "rename the column: a name must not contain quotes, dots, brackets or commas"
    if column.distinct == 0:
        return "it is empty"
    if column.nature is None:
        return "cast it in `derive`, and declare what comes out"
    if column.nature is profile.TEXT and (not column.values or left_out(column) is BLANKS):
        if left_out(column) is BLANKS:
            return f'derive: {{{quoted(f"{column.name}_trimmed")}: "trim({column.name})"}}'
        if column.readings:
            return reading_lines(column)
        if column.rare:
            return "no line: write `categories` that your rules allow"
        return (
            f"{column.distinct:,} different values: group them in `derive`, or use the column in a question"
        )
    drafted = _DOMAINS[column.nature](column)
    return (
        "no line: write `lower` and `upper` that hold for every possible row" if drafted is None
        else replace(drafted, keys=(*drafted.keys, *["nullable: true"] * column.nullable, "confirm: true")).line
    )  # fmt: skip


def reading_lines(column: profile.ColumnFacts) -> str:
    """Lines that read a column as a day, a time or a number, for the curator to choose and to bound."""
    choices = []
    stored = "string" if column.nature is profile.TEXT else "int, lower: 19000101, upper: 21001231"
    for reading in column.readings:
        name = quoted(f"{re.sub('[^0-9A-Za-z_]+', '_', column.name).strip('_')}_{reading.ending}")
        derive = f"derive: {{{name}: {quoted(reading.expression)}}}"
        choices.append(
            f"{derive}, columns: {{{quoted(column.name)}: {{type: {stored}}}, {name}: {{{reading.declared}}}}}"
        )
    return "; or ".join(choices)


def domain_of(column: profile.ColumnFacts, *, counted: bool, of_people: bool = False) -> Domain | None:
    """A column of a private table, or None where it is left out.

    Args:
        column: what was read of it.
        counted: whether its table's rows are counted, so that its numbers may be summed.
        of_people: whether its table's rows are people.
    """
    if left_out(column, of_people=of_people).why:
        return None
    numeric = column.nature is not None and column.nature.counts
    measure = counted and numeric and column.distinct > 2 and not words(column.name) & (GRADES | NAMES)
    drafted = _DOMAINS[column.nature](column) if column.nature else None
    if drafted is not None and measure:
        drafted = _measured(column)
    if drafted is None:
        return None
    keys, leaves = list(drafted.keys), drafted.leaves
    keys += ["measure: true"] * measure + ["nullable: true"] * column.nullable
    keys += [] if column.nature is profile.TRUTH and not column.guessed else ["confirm: true"]
    return Domain(column.name, tuple(keys), leaves, measure)


def public_domain(column: profile.ColumnFacts) -> Domain | None:
    """A column of a public table: its values are read when they are needed, so its type is enough."""
    reason = left_out(column)
    unneeded = reason not in (TAKEN, TOO_LARGE) and not (
        column.nature is profile.TEXT and column.distinct > 1
    )
    if column.nature is None or unneeded:
        return None
    keys = [f"type: {column.nature.word}"] + [f"scale: {column.scale}"] * (column.nature is profile.DECIMAL)
    keys += ["grain: hour"] * (column.nature is profile.MOMENT)
    return Domain(column.name, tuple(keys), column.distinct)


def _text(column: profile.ColumnFacts) -> Domain | None:
    listed = ", ".join(map(quoted, in_order(column.values)))
    return Domain(column.name, ("type: string", f"categories: [{listed}]"), len(column.values))


def _number(column: profile.ColumnFacts) -> Domain | None:
    if column.low is None or column.high is None:
        return None
    low, high, unit = Decimal(column.low), Decimal(column.high), Decimal(1).scaleb(-column.scale)
    if not max(abs(low), abs(high)) < Decimal(10) ** 13:
        return None
    kind = ["type: int"] if column.nature is profile.WHOLE else ["type: decimal", f"scale: {column.scale}"]
    low, high = low.quantize(unit), high.quantize(unit)
    if (high - low) / unit <= MOST_LEAVES:
        ends = (f"lower: {low:f}", f"upper: {high:f}")
        return Domain(column.name, (*kind, *ends), int((high - low) / unit) + 1)
    if 0 <= low < high / 2:
        low = Decimal(0)
    width = max(unit, round_width((high - low) / (MOST_LEAVES // 3)))
    low, high = outward(low, width, ROUND_FLOOR), outward(high, width, ROUND_CEILING)
    cut = (f"lower: {low:f}", f"upper: {high:f}", f"cuts: {{width: {width:f}}}")
    return Domain(column.name, (*kind, *cut), int((high - low) / width))


def _measured(column: profile.ColumnFacts) -> Domain | None:
    """A number that may be summed: bounds of its name, else round ones beyond what nearly all rows hold.

    A sum counts a value beyond its bounds as the bound, so these leave room; cuts are those of the values at hand.
    """
    if column.inner is None or column.ends is None:
        return _number(column)
    unit = Decimal(1).scaleb(-column.scale)
    (minimum, maximum), (low, high) = (map(Decimal, ends) for ends in (column.ends, column.inner))
    kind = ["type: int"] if column.nature is profile.WHOLE else ["type: decimal", f"scale: {column.scale}"]
    natural = natural_bounds(column.name, minimum, maximum)
    ends = (-roomy(-low, -minimum), roomy(high, maximum)) if natural is None else tuple(map(Decimal, natural))
    if not max(map(abs, ends)) < Decimal(10) ** 13:
        return None
    span = high - min(low, Decimal(0))
    width = unit if span / unit <= MOST_LEAVES else max(unit, round_width(span / (MOST_LEAVES // 3)))
    if natural is None and width > unit:
        ends = outward(ends[0], width, ROUND_FLOOR), outward(ends[1], width, ROUND_CEILING)
    leaves = int((ends[1] - ends[0]) / width)
    cuts = [f"cuts: {{width: {width:f}}}"] if width > unit else []
    return Domain(column.name, (*kind, f"lower: {ends[0]:f}", f"upper: {ends[1]:f}", *cuts), leaves)


def roomy(value: Decimal, largest: Decimal) -> Decimal:
    """The next but one of 1, 2 and 5 times a power of ten from a value on, and never the largest value itself.

    Args:
        value: that nearly all rows do not exceed; 0 or less gives 0.
        largest: of all rows.

    >>> [int(roomy(Decimal(value), Decimal(most))) for value, most in ((120, 130), (120, 500), (100, 100), (-3, -1))]
    [500, 1000, 200, 0]
    """
    if value <= 0:
        return Decimal(0)
    bound = _above(round_width(value))
    return _above(bound) if bound == largest else bound


def round_width(value: Decimal) -> Decimal:
    """The first of 1, 2 and 5 times a power of ten from a value on."""
    power = Decimal(1).scaleb(value.adjusted())
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value)


def _above(bound: Decimal) -> Decimal:
    """The following number of that series."""
    return round_width(bound + Decimal(1).scaleb(bound.adjusted() - 6))


def outward(value: Decimal, width: Decimal, rounding: str) -> Decimal:
    """The multiple of a width below or above a value, by `ROUND_FLOOR` or `ROUND_CEILING`."""
    return (value / width).to_integral_value(rounding) * width


def _time(column: profile.ColumnFacts) -> Domain | None:
    """Whole months from the first to the last one; leaves of days, months or years."""
    if column.low is None or column.high is None:
        return None
    is_day = column.nature is profile.DAY
    kind, grain = (("type: date",), "day") if is_day else (("type: timestamp", "grain: hour"), "hour")
    first, last = (date.fromisoformat(end[:10]).replace(day=1) for end in (column.low, column.high))
    last = last.replace(day=monthrange(last.year, last.month)[1])
    days = (last - first).days + 1
    width = "day" if days < MONTHS_FROM else "month" if days < YEARS_FROM else "year"
    leaves = {"day": days, "month": days // 30, "year": days // 365}[width] + 1
    cuts = () if width == grain else (f"cuts: {{width: {width}}}",)
    return Domain(column.name, (*kind, f"lower: {first}", f"upper: {last}", *cuts), leaves)


DerivedQuery = CalendarField | ColumnComparison


def asked_expressions(statements: Iterable[str]) -> tuple[DerivedQuery, ...]:
    """Fields of the calendar and comparisons of two columns in statements; one that is no SQL has none, and is
    refused later."""
    asked = dict[DerivedQuery, None]()
    for text in statements:
        with suppress(ProgrammingError, NotSupportedError):
            tree = parse(text, "")
            for node in normal(native(tree, tree.meta.get("dialect", DEFAULT_DIALECT))).walk():
                if (query := calendar_field(node) or column_comparison(node)) is not None:
                    asked[query] = None
    return tuple(asked)


def derived_columns(
    table: profile.TableFacts, domains: Iterable[Domain], asked: Iterable[DerivedQuery]
) -> dict[str, Domain]:
    """Columns of what questions ask of a table's columns, by expression: fields of its times, whose values the calendar
    says, and the truth of comparisons, which has one axis of two leaves where two columns would have all their pairs.

    Args:
        table: what was read.
        domains: its columns that are drafted.
        asked: what the questions ask for.
    """
    drafted = {domain.name.lower() for domain in domains}
    columns = {column.name.lower(): column for column in table.columns if column.name.lower() in drafted}
    taken, derived = {column.name.lower() for column in table.columns}, dict[str, Domain]()
    for query in asked:
        names = [query.column] if isinstance(query, CalendarField) else [query[0], query[2]]
        operands = [columns[name.lower()] for name in names if name.lower() in columns]
        natures = [column.nature for column in operands if column.nature is not None]
        if len(natures) < len(names):
            continue
        if isinstance(query, CalendarField):
            if not natures[0].timed or (natures[0] is profile.DAY and query.name in OF_TIMES):
                continue
            name, (low, high) = f"{operands[0].name}_{query.name}", RANGES[query.name]
            expression = f"extract({query.name} FROM {identifier(operands[0].name)})"
            keys, leaves = ["type: int", f"lower: {low}", f"upper: {high}"], high - low + 1
        else:
            if (
                operands[0] is operands[1]
                or len({"time" if n.timed else n.counts or n.word for n in natures}) > 1
            ):
                continue
            left, right = (identifier(column.name) for column in operands)
            name = f"{operands[0].name}_{query[1].lower()}_{operands[1].name}"
            expression, keys, leaves = f"{left} {COMPARISONS[query[1]]} {right}", ["type: bool"], 2
        keys += ["nullable: true"] * any(column.nullable for column in operands)
        if name.lower() not in taken:
            taken.add(name.lower())
            derived[expression] = Domain(name, tuple(keys), leaves)
    return derived


_DOMAINS: Mapping[profile.Nature, Callable[[profile.ColumnFacts], Domain | None]] = {
    profile.WHOLE: _number, profile.DECIMAL: _number, profile.DAY: _time, profile.MOMENT: _time, profile.TEXT: _text,
    profile.TRUTH: lambda column: Domain(column.name, ("type: bool",), 2),
}  # fmt: skip


def reasons(columns: Iterable[profile.ColumnFacts], *, of_people: bool = False) -> str:
    """Columns that are left out, and why, as one line; nothing where none is."""
    columns_by_reason: dict[str, list[str]] = {}
    for column in columns:
        if why := left_out(column, of_people=of_people).why:
            columns_by_reason.setdefault(why, []).append(column.name)
    return "; ".join(f"{', '.join(names)} ({why})" for why, names in columns_by_reason.items())
