"""Fields of the calendar, such as the hour of a time, however SQL writes them.

| written | field |
|---|---|
| `EXTRACT(HOUR FROM t)`, `hour(t)`, `date_part('hour', t)` | hour, 0 to 23 |
| `EXTRACT(DOW FROM t)`, `dayofweek(t)`, `weekday(t)` | dow, 0 to 6 from Sunday on |
| `EXTRACT(ISODOW FROM t)`, `isodow(t)` | isodow, 1 to 7 from Monday on |
| month, quarter, day, week, doy, minute | as they count |

**Privacy**: text and the calendar alone. What a field may be holds for every row there can be, so nobody confirms it.
"""

from __future__ import annotations

from typing import NamedTuple

from sqlglot import exp

from dpsql.row_expressions.expression import Node, column_name

RANGES = {
    "minute": (0, 59), "hour": (0, 23), "dow": (0, 6), "isodow": (1, 7), "day": (1, 31), "doy": (1, 366),
    "week": (1, 53), "month": (1, 12), "quarter": (1, 4),
}  # fmt: skip
"""What each field may be."""
OF_TIMES = ("minute", "hour")
"""Fields that days do not have."""

_WORDS = {
    "dayofweek": "dow",
    "weekday": "dow",
    "dayofyear": "doy",
    "dayofmonth": "day",
    "mon": "month",
    "hours": "hour",
}
_CALLS = {
    exp.Hour: "hour", exp.Minute: "minute", exp.DayOfWeek: "dow", exp.DayOfWeekIso: "isodow", exp.Day: "day",
    exp.DayOfMonth: "day", exp.DayOfYear: "doy", exp.Week: "week", exp.WeekOfYear: "week", exp.Month: "month",
    exp.Quarter: "quarter",
}  # fmt: skip


class CalendarField(NamedTuple):
    """A field of a column.

    Args:
        name: which one.
        table: what stands before the column's dot, or nothing.
        column: the column.
    """

    name: str
    table: str
    column: str


def calendar_field(node: Node) -> CalendarField | None:
    """The field of a column that an expression is; None for every other one.

    >>> from dpsql.row_expressions.expression import parse_one
    >>> calendar_field(parse_one("EXTRACT(dow FROM s.sold_at)")), calendar_field(parse_one("hour(sold_at) + 1"))
    (CalendarField(name='dow', table='s', column='sold_at'), None)
    """
    name, source = _called(node)
    name = _WORDS.get(name, name)
    column = column_name(source) if source is not None else None
    return CalendarField(name, *column) if name in RANGES and column is not None else None


def instant(text: str) -> str:
    """SQL for the time that a text says, in UTC whatever its zone is, as long as the session's zone is UTC.

    Args:
        text: SQL of a text. DuckDB's cast to TIMESTAMP would drop the zone, so that 10:00+02:00 became ten o'clock.
    """
    return f"TRY_CAST(TRY_CAST({text} AS TIMESTAMP WITH TIME ZONE) AS TIMESTAMP)"


def _called(node: Node) -> tuple[str, Node | None]:
    """The field's name as it is written, and what it is of."""
    if isinstance(node, exp.Extract):
        return node.name.lower(), node.expression
    if isinstance(node, exp.Anonymous):
        arguments, name = node.expressions, node.name.lower()
        if name in ("date_part", "datepart") and len(arguments) == 2 and arguments[0].is_string:
            return arguments[0].name.lower(), arguments[1]
        return name, arguments[0] if name == "weekday" and len(arguments) == 1 else None
    alone = not any(value for key, value in node.args.items() if key != "this")
    name = next((name for kind, name in _CALLS.items() if type(node) is kind), "")
    return name, node.this if name and alone else None
