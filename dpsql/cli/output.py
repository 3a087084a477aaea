"""A result as text: table, csv, json, jsonl or markdown.

Tables for people put the error beside the value, `12 345 ± 62`; formats for programs give every aggregate
its `_stderr` column beside it, so nothing has to be parsed out of a string.
"""

from __future__ import annotations

import csv
import datetime
import decimal
import io
import json
import math
from typing import Any, Protocol

FORMATS = ("table", "csv", "json", "jsonl", "markdown")


class ResultLike(Protocol):
    """What this module needs of `dpsql.answer.Result`."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the select list."""

    @property
    def rows(self) -> tuple[tuple[Any, ...], ...]:
        """Values."""

    @property
    def stderr_rows(self) -> tuple[tuple[float | None, ...], ...]:
        """Standard errors in the shape of rows; None where a value has none."""


def render(result: ResultLike, style: str, level: float) -> str:
    """The result as text.

    Args:
        result: the answer.
        style: one of FORMATS.
        level: confidence level of the margin shown in tables.
    """
    if style in ("table", "markdown"):
        return _table(result, level, markdown=style == "markdown")
    names, records = _records(result)
    if style == "csv":
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([["" if v is None else _plain(v) for v in record] for record in records])
        return out.getvalue().rstrip("\n")
    objects = [dict(zip(names, map(_plain, record), strict=True)) for record in records]
    if style == "jsonl":
        return "\n".join(json.dumps(item, ensure_ascii=False) for item in objects)
    return json.dumps(objects, indent=2, ensure_ascii=False)


def number(value: Any, error: float | None = None) -> str:
    """A number with thin grouping, rounded to what its error supports.

    >>> number(12345.678, 62.4)
    '12 346'
    >>> number(0.123456, 0.01)
    '0.123'
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool) or not isinstance(value, int | float | decimal.Decimal):
        return str(value)
    if error is None and isinstance(value, int):
        return str(value)
    places = _places(float(value), error)
    return f"{float(value):,.{places}f}".replace(",", " ")


def margin_text(value: Any, error: float, level: float) -> str:
    """`value ± margin`, the margin at the level.

    >>> margin_text(12345.0, 31.6, 0.95)
    '12 345 ± 62'
    """
    margin = error * _normal_quantile(level)
    places = _places(float(value), error)
    return f"{number(value, error)} ± {margin:,.{places}f}".replace(",", " ")


def _table(result: ResultLike, level: float, *, markdown: bool) -> str:
    cells = [
        [
            number(v) if e is None or v is None else margin_text(v, e, level)
            for v, e in zip(row, errors, strict=True)
        ]
        for row, errors in zip(result.rows, result.stderr_rows, strict=True)
    ]
    if markdown:
        head = [
            "| " + " | ".join(result.columns) + " |",
            "|" + "|".join("---" for _ in result.columns) + "|",
        ]
        return "\n".join([*head, *("| " + " | ".join(row) + " |" for row in cells)])
    widths = [max(len(r[i]) for r in [list(result.columns), *cells]) for i in range(len(result.columns))]
    numeric = [any(isinstance(row[i], int | float) for row in result.rows) for i in range(len(widths))]
    lines = [_line(list(result.columns), widths, numeric), "  ".join("-" * w for w in widths)]
    return "\n".join([*lines, *(_line(row, widths, numeric) for row in cells)])


def _line(cells: list[str], widths: list[int], right: list[bool]) -> str:
    padded = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, right, strict=True)]
    return "  ".join(padded).rstrip()


def _records(result: ResultLike) -> tuple[list[str], list[list[Any]]]:
    """Values interleaved with the standard errors of the columns that have any."""
    noisy = [any(e[i] is not None for e in result.stderr_rows) for i in range(len(result.columns))]
    names = [
        name
        for column, has in zip(result.columns, noisy, strict=True)
        for name in ([column, f"{column}_stderr"] if has else [column])
    ]
    records = [
        [x for v, e, has in zip(row, errors, noisy, strict=True) for x in ([v, e] if has else [v])]
        for row, errors in zip(result.rows, result.stderr_rows, strict=True)
    ]
    return names, records


def _plain(value: Any) -> Any:
    """A JSON value."""
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, datetime.date | datetime.datetime | datetime.time | datetime.timedelta):
        return str(value)
    return value


def _places(value: float, error: float | None) -> int:
    """Decimal places that show two digits of the error (three of the value when it has none)."""
    size = error if error else abs(value) / 100
    if not size or not math.isfinite(size):
        return 0
    return max(0, min(6, 1 - math.floor(math.log10(size))))


def _normal_quantile(level: float) -> float:
    from statistics import NormalDist

    return NormalDist().inv_cdf(0.5 + level / 2)
