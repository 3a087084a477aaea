"""Texts that write days, times or numbers otherwise than ISO 8601 or with a point, and what `derive` reads them by.

A draft proposes none of these as types: `01/02/2023` is two days, `1,234` two numbers. It says which expressions read
all values of a column, and the curator writes the one that is right.

**Privacy**: sees raw rows. What comes out is for the curator, in a table that the draft marks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from dpsql.row_expressions import identifier, literal

DAYS = (
    "%d.%m.%Y", "%d.%m.%y", "%d/%m/%Y", "%m/%d/%Y", "%d/%m/%y", "%m/%d/%y", "%Y/%m/%d", "%d-%m-%Y", "%m-%d-%Y",
    "%b %d, %Y", "%d %b %Y",
)  # fmt: skip
CLOCKS = ("", " %H:%M", " %H:%M:%S")
FIELDS = {"%Y": "[0-9]{4}", "%y": "[0-9]{2}", "%b": "[A-Za-z]{3}"}
SYMBOLS = ("", "%", "€", "$", "£")
"""What may stand beside a number: one of them in all values of a column."""

CANDIDATE = "[A-Za-z]{0,3}[ €$£+-]*[0-9][0-9., :/€$£%-]*( [A-Z][a-z]{2} [0-9]{4}.*)?"
"""Texts that may be any of these: most columns hold others, and are counted no further."""
CODES = "[0-9]+"
"""Digits alone that are no number yet begin with 0: postcodes."""


class Reading(NamedTuple):
    """An expression that reads every value of a text column.

    Args:
        ending: of the derived column's name.
        expression: over the column.
        declared: keys of the derived column; bounds are the curator's.
    """

    ending: str
    expression: str
    declared: str


WrittenForm = tuple[str, Reading]
"""A way to write days, times or numbers: a test of a text and its reading, both in SQL over `{x}`."""


def _forms() -> tuple[WrittenForm, ...]:
    forms = []
    for day, clock in product(DAYS, CLOCKS):
        text = (day + clock).replace(".", "[.]")
        pattern = re.sub("%[A-Za-z]", lambda match: FIELDS.get(match[0], "[0-9]{1,2}"), text)
        called = literal(day + clock)
        ending, kind = ("time", "type: timestamp, grain: hour") if clock else ("day", "type: date")
        test = f"regexp_full_match({{x}}, {literal(pattern)}) AND try_strptime({{x}}, {called}) IS NOT NULL"
        read = Reading(ending, f"strptime({{x}}, {called})", f"{kind}, lower: .., upper: ..")
        forms.append((test, read))
    for symbol, (thousands, point) in product(SYMBOLS, ((".", ","), (",", "."))):
        bare = f"replace({{x}}, {literal(symbol)}, '')" if symbol else "{x}"
        there = f"contains({{x}}, {literal(symbol)}) AND " if symbol else ""
        number = f"[+-]?([0-9]{{1,3}}([{thousands}][0-9]{{3}})+|[0-9]+)([{point}][0-9]+)?"
        expression = f"replace({bare}, {literal(thousands)}, '')"
        expression = expression if point == "." else f"replace({expression}, ',', '.')"
        read = Reading("number", expression, "type: decimal, scale: 2, lower: .., upper: .., measure: true")
        forms.append((f"{there}regexp_full_match(trim({bare}), {literal(number)})", read))
    hour = Reading("hour", "CAST(left({x}, 2) AS INT)", "type: int, lower: 0, upper: 23")
    return (*forms, ("regexp_full_match({x}, '[0-2][0-9]:[0-9]{2}(:[0-9]{2})?')", hour))


FORMS = _forms()


def readings(
    fetch: Callable[[str], Sequence[Sequence[Any]]], relation: str, texts: Sequence[str], absent: str
) -> Mapping[str, tuple[Reading, ...]]:
    """Readings that fit all values of text columns.

    Args:
        fetch: the rows of a SELECT, in DuckDB's SQL.
        relation: what a FROM clause names.
        texts: its text columns.
        absent: SQL list of texts that stand for no value.

    Returns:
        Column -> expressions; of columns that one of them reads.
    """
    alike = ("TRUE", *(f"regexp_full_match({{x}}, {literal(pattern)})" for pattern in (CANDIDATE, CODES)))
    figures = [
        f"count(*) FILTER (WHERE {{x}} NOT IN {absent} AND {test})".replace("{x}", identifier(column))
        for column in texts for test in alike
    ]  # fmt: skip
    counts = list(fetch(f"SELECT {', '.join([*figures, '0'])} FROM {relation}")[0])
    columns = dict[str, tuple[Reading, ...]]()
    for i, name in enumerate(texts):
        values, candidates, codes = counts[3 * i : 3 * i + 3]
        if not values or candidates < values or codes == values:
            continue
        column = identifier(name)
        tests = ", ".join(f"bool_and({test})" for test, _ in FORMS).replace("{x}", column)
        fits = fetch(f"SELECT {tests} FROM {relation} WHERE {column} NOT IN {absent}")[0]
        readers = (read for (_, read), fit in zip(FORMS, fits, strict=True) if fit)
        columns[name] = tuple(r._replace(expression=r.expression.replace("{x}", column)) for r in readers)
    return columns
