"""A result as text: table, vertical, csv, json, jsonl or markdown.

Tables for people put the margin beside the value, `12 345 ± 62`, and mark what should be read with care;
formats for programs give every aggregate columns beside it for its standard error, its interval and what cutting
a bin may add, so nothing has to be parsed out of a string. Where rows must stay as they were asked, as on the wire,
`margin_lines` says it in a line for each column.
"""

from __future__ import annotations

import csv
import datetime
import decimal
import io
import json
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpsql.answer import Result

FORMATS = ("table", "csv", "json", "jsonl", "markdown")
STYLES = (*FORMATS, "vertical")
NUMERIC = ("INT", "DOUBLE", "FLOAT", "DECIMAL", "REAL")

MOST_ROWS = 10_000
"""Rows up to which margins are summed up for a door that cannot show them."""

WEAK, CUT = "?", "~"
LEGEND = {
    WEAK: "? below twice its standard error",
    CUT: "~ a bin was cut: interpolating it may add so much error",
}


def render(result: Result, style: str, level: float, *, errors: bool = True) -> str:
    """The result as text.

    Args:
        result: the answer.
        style: one of STYLES.
        level: confidence level of the margins and intervals.
        errors: whether margins, marks and the columns of errors are shown.
    """
    if style in ("table", "markdown", "vertical"):
        cells = list(_cells(result, level)) if errors else [[number(v) for v in row] for row in result.rows]
        layout = {"table": _table, "markdown": _markdown, "vertical": _vertical}[style]
        return "\n".join([*layout(result, cells), *(_legend(cells) if errors else []), *result.notes])
    names, records = result.with_errors(level) if errors else (result.columns, result.rows)
    if style == "csv":
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([["" if v is None else plain(v) for v in record] for record in records])
        return out.getvalue().rstrip("\n")
    objects = [dict(zip(names, map(plain, record), strict=True)) for record in records]
    if style == "jsonl":
        return "\n".join(json.dumps(item, ensure_ascii=False) for item in objects)
    return json.dumps(objects, indent=2, ensure_ascii=False)


def number(value: Any, margin: float | None = None) -> str:
    """A number with thin grouping, rounded to what its margin supports.

    >>> number(12345.678, 62.4), number(0.123456, 0.01), number(None)
    ('12 346', '0.123', 'NULL')
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool) or not isinstance(value, int | float | decimal.Decimal):
        return str(value)
    if margin is None and isinstance(value, int):
        return str(value)
    return f"{float(value):,.{_places(float(value), margin)}f}".replace(",", " ")


def margin_text(value: Any, margin: float) -> str:
    """`value ± margin`, both to the same decimal place.

    >>> margin_text(12345.0, 62.0), margin_text(735.87, 11.6)
    ('12 345 ± 62', '736 ± 12')
    >>> margin_text(3000.0, 1.7e-5)
    '3 000 ± 0'
    """
    places = _places(float(value), margin)
    return f"{number(value, margin)} ± {margin:,.{places}f}".replace(",", " ")


def _cells(result: Result, level: float) -> Iterator[list[str]]:
    """Text of every cell, with margins and marks."""
    low, high = result.interval_rows(level)
    for r, row in enumerate(result.rows):
        bounds = result.model_bound[r] if r < len(result.model_bound) else (None,) * len(row)
        yield [
            _cell(value, result.stderr_rows[r][c], low[r][c], high[r][c], bounds[c])
            for c, value in enumerate(row)
        ]


def _cell(value: Any, stderr: float | None, low: float | None, high: float | None, cut: float | None) -> str:
    if stderr is None or not isinstance(value, int | float | decimal.Decimal):
        return number(value)
    marks = (WEAK if abs(float(value)) < 2 * stderr else "") + _cut_mark(cut)
    if low is None or high is None:
        return f"{number(value)} ± ∞{' ' if marks else ''}{marks}"
    return f"{margin_text(value, (high - low) / 2)}{' ' if marks else ''}{marks}"


def _cut_mark(cut: float | None) -> str:
    """What cutting bins may add, to two digits; unbounded where nothing bounds it."""
    if cut == 0:
        return ""
    return f"{CUT}∞" if cut is None else f"{CUT}{cut:.{_places(cut, cut)}f}"


def _legend(cells: list[list[str]]) -> list[str]:
    """One line for each mark that occurs."""
    used = {word for row in cells for cell in row if " ± " in cell for word in cell.rsplit(" ", 1)[-1]}
    return [text for mark, text in LEGEND.items() if mark in used]


def _table(result: Result, cells: list[list[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in [list(result.columns), *cells]) for i in range(len(result.columns))]
    right = [any(kind in each for kind in NUMERIC) for each in result.types]
    head = [_line(list(result.columns), widths, right), "  ".join("-" * width for width in widths)]
    return [*head, *(_line(row, widths, right) for row in cells)]


def _markdown(result: Result, cells: list[list[str]]) -> list[str]:
    head = ["| " + " | ".join(result.columns) + " |", "|" + "|".join("---" for _ in result.columns) + "|"]
    return [*head, *("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells)]


def _vertical(result: Result, cells: list[list[str]]) -> list[str]:
    width = max((len(name) for name in result.columns), default=0)
    lines = []
    for r, row in enumerate(cells, 1):
        lines.append(f"-[ row {r} ]-")
        lines += [f"{name.ljust(width)}  {cell}" for name, cell in zip(result.columns, row, strict=True)]
    return lines


def _line(cells: list[str], widths: list[int], right: list[bool]) -> str:
    padded = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, right, strict=True)]
    return "  ".join(padded).rstrip()


def margin_lines(result: Result, level: float = 0.95) -> tuple[str, ...]:
    """How far the numbers of an answer may be off, a line for each noisy column; for doors whose rows hold no more.

    Args:
        result: the answer.
        level: of the margins.
    """
    if len(result.rows) > MOST_ROWS:
        return (f"more than {MOST_ROWS} rows: ask for DP_STDERR and DP_INTERVAL_LOW of their columns",)
    low, high = result.interval_rows(level) if result.noisy else ((), ())
    lines = []
    for c in result.noisy:
        known = [row[c] is not None for row in result.stderr_rows]
        halves = [
            None if a[c] is None or b[c] is None else (b[c] - a[c]) / 2
            for a, b, has in zip(low, high, known, strict=True)
            if has
        ]
        bounds = [row[c] for row, has in zip(result.model_bound, known, strict=True) if has]
        cut = "" if all(bound == 0 for bound in bounds) else f", and cut bins may add {_span(bounds)}"
        lines.append(f"{result.columns[c]}: margin {_span(halves)} at {100 * level:g}%{cut}")
    return tuple(lines)


def _span(values: list[float | None]) -> str:
    """The least and the most of some margins, to two digits.

    >>> _span([3.14159, 62.4, 62.4]), _span([5.0]), _span([1.0, None])
    ('3.1 to 62', '5.0', '1.0 to ∞')
    """
    known = sorted(value for value in values if value is not None)
    words = [number(value, value) for value in (known[:1] + known[-1:])] + ["∞"] * (len(known) < len(values))
    return " to ".join(dict.fromkeys((words[0], words[-1])))


def plain(value: Any) -> Any:
    """A value as JSON and csv take it.

    >>> plain(decimal.Decimal("1.5")), plain(datetime.date(2025, 1, 31))
    (1.5, '2025-01-31')
    """
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, datetime.date | datetime.datetime | datetime.time | datetime.timedelta):
        return str(value)
    return value


def _places(value: float, margin: float | None) -> int:
    """Decimal places that show two digits of the margin (three of the value when it has none)."""
    size = margin if margin else abs(value) / 100
    # A margin that is as good as none, such as that of how many people reported, asks for no digits.
    if not size or not math.isfinite(size) or size < 1e-7 * abs(value):
        return 0
    return max(0, min(6, 1 - math.floor(math.log10(size))))
