"""How an answer is shown: table, vertical, csv, json, jsonl, markdown, HTML and pictures for notebooks.

Tables for people put the margin beside the value, `12 345 ± 62`, and mark what should be read with care;
formats for programs give every aggregate columns beside it for its standard error, its interval and what cutting
a bin may add, so nothing has to be parsed out of a string. Where rows must stay as they were asked, as on the wire,
`margin_lines` says it in a line for each column.

Labels may come from anybody: no text of any format holds a character that commands a terminal. JSON escapes it and
stays exact; the others show its code.

Pictures are bars with error bars, histogram steps, a heat map for two axes. matplotlib is an extra
(`pip install dpsql[plot]`) and is loaded when a picture is drawn.
"""

from __future__ import annotations

import csv
import datetime
import decimal
import html
import io
import json
import math
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from dpsql.answer.drowned import GREY, drowned
from dpsql.errors import UNSEEN, InterfaceError, visible
from dpsql.extras import extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dpsql.answer.result import Grid, Result


FORMATS = ("table", "csv", "json", "jsonl", "markdown")
STYLES = (*FORMATS, "vertical")
NUMERIC = ("INT", "DOUBLE", "FLOAT", "DECIMAL", "REAL")

MOST_ROWS = 10_000
"""Rows up to which margins are summed up for a door that cannot show them."""

MOST_SHOWN, LEVEL = 100, 0.95
"""Rows, and level of the margins, that `print` and notebooks show."""

MIDNIGHT = datetime.time()
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
    if style in FOR_PEOPLE:
        cells = list(_cells(result, level)) if errors else [[number(v) for v in row] for row in _days(result)]
        lines = FOR_PEOPLE[style](result, cells)
        below = [*(_legend(cells) if errors else []), *_without(result), *result.notes]
        return "\n".join(map(visible, [*lines, *below]))
    names, records = result.with_errors(level) if errors else (result.columns, result.rows)
    return FOR_PROGRAMS[style](names, records)


def notes_beside(result: Result, style: str) -> tuple[str, ...]:
    """The notes that a format for programs has no place for; for standard error."""
    return () if style in FOR_PEOPLE else result.notes


class Shown(NamedTuple):
    """The first rows of an answer as people read them.

    Args:
        cells: text of each cell, `12 345 ± 62` where it has an error.
        below: how many rows are not shown, what marks mean, and what a reader should know.
    """

    cells: list[list[str]]
    below: list[str]


def shown(result: Result, level: float = LEVEL, most: int = MOST_SHOWN) -> Shown:
    """The first rows as text, with margins and marks.

    Args:
        result: the answer.
        level: of the margins.
        most: rows that are shown.
    """
    cells = list(islice(_cells(result, level), most))
    left = len(result.rows) - len(cells)
    more = [f"{left} more rows"] if left else []
    return Shown(cells, [*more, *_legend(cells), *_without(result), *result.notes])


def text_table(result: Result) -> str:
    """What `print` shows: a table of the first rows."""
    cells, below = shown(result)
    return "\n".join(map(visible, [*_table(result, cells), *below]))


def html_table(result: Result) -> str:
    """The same for notebooks, with margins in small print and groups that drown in noise in grey."""
    cells, below = shown(result)
    head = "".join(f"<th>{html.escape(name)}</th>" for name in result.columns)
    grey = ("", " style='opacity:.5'")
    pairs = zip(cells, drowned(result, GREY), strict=False)
    body = "".join(f"<tr{grey[lost]}>{''.join(map(_html_cell, row))}</tr>" for row, lost in pairs)
    notes = "".join(f"<p><small>{html.escape(line)}</small></p>" for line in below)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"


def _html_cell(cell: str) -> str:
    value, sign, margin = html.escape(cell).partition(" ± ")
    return f"<td>{value} <small>± {margin}</small></td>" if sign else f"<td>{value}</td>"


def _without(result: Result) -> list[str]:
    """A line for each noisy column that has no error."""
    return [f"{name} has no error: {why}" for name, why in result.undefined.items()]


def number(value: Any, margin: float | None = None) -> str:
    """A number with thin grouping, rounded to what its margin supports.

    >>> number(12345.678, 62.4), number(0.123456, 0.01), number(None)
    ('12 346', '0.123', 'NULL')
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool) or not isinstance(value, int | float | decimal.Decimal):
        return visible(str(value))
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
    for r, row in enumerate(_days(result)):
        bounds = result.model_bound[r] if r < len(result.model_bound) else (None,) * len(row)
        yield [
            _cell(value, result.stderr_rows[r][c], low[r][c], high[r][c], bounds[c])
            for c, value in enumerate(row)
        ]


def _days(result: Result) -> Grid:
    """The rows; a column of times that are all midnight holds days: `DATE_TRUNC` of a DATE gives a TIMESTAMP."""
    days = {
        c
        for c, kind in enumerate(result.types)
        if kind == "TIMESTAMP" and all(row[c] is None or row[c].time() == MIDNIGHT for row in result.rows)
    }
    if not days:
        return result.rows
    return tuple(
        tuple(value.date() if c in days and value is not None else value for c, value in enumerate(row))
        for row in result.rows
    )


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


def _csv(names: Sequence[str], records: Grid) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(visible, names))
    writer.writerows([["" if v is None else _field(plain(v)) for v in record] for record in records])
    return out.getvalue().rstrip("\n")


def _field(value: Any) -> Any:
    """A field of CSV. What a spreadsheet would take for a formula stays as it is: no mark would be right everywhere."""
    return visible(value) if isinstance(value, str) else value


def _in_json(text: str) -> str:
    """JSON whose texts are escaped where they would command a terminal; it says the same, exactly."""
    return UNSEEN.sub(lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}", text)


def _objects(names: Sequence[str], records: Grid) -> list[dict[str, Any]]:
    return [dict(zip(names, map(plain, record), strict=True)) for record in records]


def _json(names: Sequence[str], records: Grid) -> str:
    return _in_json(json.dumps(_objects(names, records), indent=2, ensure_ascii=False))


def _jsonl(names: Sequence[str], records: Grid) -> str:
    return "\n".join(_in_json(json.dumps(item, ensure_ascii=False)) for item in _objects(names, records))


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
        if all(value == 0 for value in (*halves, *bounds)):
            continue  # a constant beside noisy columns
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


FOR_PEOPLE = {"table": _table, "markdown": _markdown, "vertical": _vertical}
FOR_PROGRAMS = {"csv": _csv, "json": _json, "jsonl": _jsonl}


NUMBERS = (int, float, decimal.Decimal)


def plot(result: Result, kind: str | None = None, *, level: float = 0.95, ax: Axes | None = None) -> Axes:
    """Draw an answer with its error bars.

    Args:
        result: one or two key columns, then at least one noisy column; the first of these is drawn.
        kind: `bar`, `step` or `heat`; by default `heat` for two keys, `step` for ordered keys, else `bar`.
        level: of the error bars.
        ax: where to draw; by default a new figure.

    Returns:
        The matplotlib axes.

    Raises:
        InterfaceError: the answer has no noisy column, too many keys, or an unknown kind was asked.
    """
    value = _first_noisy(result)
    chosen = kind or _fitting(result, value)
    if chosen not in KINDS:
        raise InterfaceError(f"there is no plot {chosen!r}", hint=f"one of {', '.join(KINDS)}")
    where = ax if ax is not None else extra("plot").subplots()[1]
    KINDS[chosen](result, value, where, level)
    where.set_title(result.columns[value])
    return where


def _first_noisy(result: Result) -> int:
    for i in range(len(result.columns)):
        if any(row[i] is not None for row in result.stderr_rows):
            return i
    raise InterfaceError("the answer has no noisy column", hint="select a COUNT, SUM or AVG")


def _fitting(result: Result, value: int) -> str:
    if value == 2:
        return "heat"
    if value > 2:
        raise InterfaceError(f"the answer has {value} key columns, a picture takes one or two")
    keys = [row[0] for row in result.rows if row[0] is not None]
    ordered = value == 1 and all(
        isinstance(key, (*NUMBERS, datetime.date)) and key is not True for key in keys
    )
    return "step" if ordered and len(keys) > 2 else "bar"


def _bar(result: Result, value: int, ax: Axes, level: float) -> None:
    bars = _one_key(result, value, ax, level)
    ax.bar(range(len(bars.heights)), bars.heights, yerr=[bars.below, bars.above], capsize=4)


def _step(result: Result, value: int, ax: Axes, level: float) -> None:
    bars = _one_key(result, value, ax, level)
    places = range(len(bars.heights))
    ax.step(places, bars.heights, where="mid")
    ax.errorbar(places, bars.heights, yerr=[bars.below, bars.above], fmt="none", capsize=2)


class Bars(NamedTuple):
    """Values and how far their intervals reach below and above."""

    heights: list[float]
    below: list[float]
    above: list[float]


def _one_key(result: Result, value: int, ax: Axes, level: float) -> Bars:
    """The bars of an answer, its keys written along the axis."""
    low, high = result.interval_rows(level)
    rows = [r for r, row in enumerate(result.rows) if row[value] is not None]
    heights = [float(result.rows[r][value]) for r in rows]
    below = [height - _or(low[r][value], height) for r, height in zip(rows, heights, strict=True)]
    above = [_or(high[r][value], height) - height for r, height in zip(rows, heights, strict=True)]
    places = list(range(len(rows)))
    names = ["all" if value == 0 else _name(result.rows[r][0]) for r in rows]
    shown = places[:: max(1, len(places) // 12)]
    ax.set_xticks(shown, [names[place] for place in shown], rotation=45 if len(places) > 6 else 0)
    ax.set_xlabel(result.columns[0] if value else "")
    return Bars(heights, below, above)


def _heat(result: Result, value: int, ax: Axes, level: float) -> None:
    across = list(dict.fromkeys(row[1] for row in result.rows))
    down = list(dict.fromkeys(row[0] for row in result.rows))
    grid = [[float("nan")] * len(across) for _ in down]
    for row in result.rows:
        if row[value] is not None:
            grid[down.index(row[0])][across.index(row[1])] = float(row[value])
    picture = ax.imshow(grid, aspect="auto")
    ax.set_xticks(range(len(across)), [_name(key) for key in across], rotation=45)
    ax.set_yticks(range(len(down)), [_name(key) for key in down])
    ax.set_xlabel(result.columns[1])
    ax.set_ylabel(result.columns[0])
    ax.figure.colorbar(picture, ax=ax)


def _or(value: float | None, other: float) -> float:
    return other if value is None else value


def _name(key: Any) -> str:
    return "NULL" if key is None else str(key)


KINDS = {"bar": _bar, "step": _step, "heat": _heat}
"""Every picture by its name."""
