"""Rendering of answers: table, vertical, csv, json, jsonl, markdown, and HTML for notebooks.

Tables for people put the margin beside the value, `12 345 ± 62` or `7 366 -1 058/+1 605`, and mark what should be read
with care; formats for programs give every aggregate columns beside it for its standard error, its interval and what of
it cutting a bin may add, so nothing has to be parsed out of a string. Where rows must stay as they were asked, as on
the wire, `margin_lines` says it in a line for each column.

Labels may come from anybody: no text of any format holds a character that commands a terminal. JSON escapes it and
stays exact; the others show its code. A margin is written so that its text gives the ends of the interval back to its
last digit.
"""

from __future__ import annotations

import csv
import datetime
import decimal
import html
import io
import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import duckdb

from dpsql.errors import UNSEEN, InterfaceError, NotSupportedError, QueryTimeout, visible
from dpsql.extras import extra
from dpsql.release.request import check, paced, requested, size_of

NUMBERS = (int, float, decimal.Decimal)
MARGIN = re.compile(r" (?=± |-(?:[\d. ]+|∞)/\+)")
"""Where the margin of a number's text begins."""


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


def margins(value: Any, low: float | None, high: float | None) -> tuple[float | None, float | None]:
    """Distances of the interval's ends below and above a value; None where it is open."""
    below = None if low is None else float(value) - float(low)
    return below, None if high is None else float(high) - float(value)


def interval_text(value: Any, low: float | None, high: float | None) -> str:
    """A number with its margin, both to the same decimal place; both sides where they differ.

    Args:
        value: the number.
        low, high: ends of its interval, None where open.

    >>> interval_text(12345.0, 12283.0, 12407.0), interval_text(7366.0, 6308.0, 8971.0)
    ('12 345 ± 62', '7 366 -1 058/+1 605')
    >>> interval_text(3000.0, 3000.0 - 1.7e-5, 3000.0 + 1.7e-5), interval_text(40.0, 12.0, None)
    ('3 000 ± 0', '40 -28/+∞')
    """
    sides = margins(value, low, high)
    known = [side for side in sides if side is not None]
    if not known:
        return f"{number(value)} ± ∞"
    largest = max(map(abs, known))
    places = _places(float(value), largest)
    below, above = ("∞" if side is None else f"{side:,.{places}f}".replace(",", " ") for side in sides)
    shown = f"{float(value):,.{places}f}".replace(",", " ")
    if min(known) < 0:  # an interval beside its number
        return f"{shown} ({number(low, largest)} to {number(high, largest)})"
    return f"{shown} ± {below}" if below == above else f"{shown} -{below}/+{above}"


def split_margin(text: str) -> tuple[str, str]:
    """A number's text and that of its margin, which is empty where it has none.

    >>> split_margin("12 345 ± 62 ~30"), split_margin("-3 -1 058/+1 605"), split_margin("Oslo")
    (('12 345', '± 62 ~30'), ('-3', '-1 058/+1 605'), ('Oslo', ''))
    """
    parts = MARGIN.split(text, maxsplit=1)
    return (parts[0], parts[1]) if len(parts) == 2 else (text, "")


def span(values: list[float | None]) -> str:
    """The least and the most of some margins, to two digits.
    >>> span([3.14159, 62.4, 62.4]), span([5.0]), span([1.0, None])
    ('3.1 to 62', '5.0', '1.0 to ∞')
    """
    finite = sorted(value for value in values if value is not None)
    words = [number(value, value) for value in finite[:1] + finite[-1:]] + ["∞"] * (None in values)
    return " to ".join(dict.fromkeys((words[0], words[-1])))


def _places(value: float, margin: float | None) -> int:
    """Decimal places that show two digits of the margin (three of the value when it has none)."""
    size = margin if margin else abs(value) / 100
    # A margin that is as good as none, such as that of how many people reported, asks for no digits.
    if not size or not math.isfinite(size) or size < 1e-7 * abs(value):
        return 0
    return max(0, min(6, 1 - math.floor(math.log10(size))))


FORMATS = ("table", "csv", "json", "jsonl", "markdown")
STYLES = (*FORMATS, "vertical")
NUMERIC = ("INT", "DOUBLE", "FLOAT", "DECIMAL", "REAL")

MOST_ROWS = 10_000
"""Rows up to which margins are summed up for an interface that cannot show them."""

MOST_SHOWN, LEVEL = 100, 0.95
"""Rows, and level of the margins, that `print` and notebooks show."""

FIELD = 20
"""Bytes of a field of CSV, its comma included."""

MARKUP = re.compile(r"[\\`|*\[\]<&@]|(?<=\w):(?=//)|(?<=www)\.", re.IGNORECASE)
LITERAL = {"<": "&lt;", "&": "&amp;", "@": "&#64;", ":": "&#58;", ".": "&#46;"}
"""What Markdown would take for markup, or for an address to link to; characters that are not here get a backslash."""
MIDNIGHT = datetime.time()
WEAK, FEW, CUT = "?", "*", "~"
LEGEND = {
    WEAK: "? = too noisy to tell from zero",
    FEW: "* = perhaps of fewer people than are shown",
    CUT: "~ = the part of the margin that interpolating a cut bin may add",
}


Grid = tuple[tuple[Any, ...], ...]
"""Values of an answer's cells, row by row."""
MARKED = 0.5
"""Standard errors over a number from which it is marked `?`: its interval then is at least .98 of it on each side, and
every number whose half interval reaches its size is marked."""


class Renderable(Protocol):
    """Interface of a result to the renderers; `Result` documents each member."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the select list."""

    @property
    def types(self) -> tuple[str, ...]:
        """Their DuckDB types."""

    @property
    def rows(self) -> Grid:
        """The values."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the reader."""

    @property
    def flags(self) -> tuple[str, ...]:
        """Those of the notes without which its numbers would be misread."""

    @property
    def noisy(self) -> tuple[int, ...]:
        """Positions of columns with noise."""

    @property
    def noise_rows(self) -> Grid:
        """Standard errors of the noise alone."""

    @property
    def model_bound(self) -> Grid:
        """The most that cutting a bin may add, a part of the interval."""

    @property
    def marked(self) -> tuple[tuple[bool, ...], ...]:
        """Cells to be read with care."""

    @property
    def few(self) -> Grid:
        """Marks of the rule of small numbers."""

    @property
    def undefined(self) -> Mapping[str, str]:
        """Columns without an error, and why."""

    def interval_rows(self, level: float) -> tuple[Grid, Grid]:
        """Both ends of every interval."""

    def unreliable(self, relative: float) -> tuple[tuple[bool, ...], ...]:
        """Cells with at least this relative error."""

    def with_errors(self, level: float) -> tuple[tuple[str, ...], Grid]:
        """Names and rows, each noisy column followed by its errors."""

    def gaps(self, level: float) -> Mapping[str, str]:
        """Columns with rows that have no interval, and why."""

    def head(self, most: int) -> Renderable:
        """The first rows alone."""


def suppressed(result: Renderable, min_relative_error: float) -> tuple[bool, ...]:
    """Flag rows suppressed as noise: some noisy number is smaller than so many standard errors.

    Only answers that name their groups, by a column without noise, have any.

    Args:
        result: the answer.
        min_relative_error: standard error over value from which a number counts as noise, above 0.

    Raises:
        InterfaceError: another number.
    """
    if not 0.0 < min_relative_error < math.inf:
        raise InterfaceError("min_relative_error is a number above 0", hint="for instance 0.5")
    if len(result.noisy) in (0, len(result.columns)):
        return (False,) * len(result.rows)
    rows = zip(result.rows, result.noise_rows, result.unreliable(min_relative_error), strict=True)
    return tuple(
        any(noise[c] is not None for c in result.noisy)
        and all(row[c] is None or weak[c] for c in result.noisy)
        for row, noise, weak in rows
    )


def render(
    result: Renderable, style: str, level: float, *, errors: bool = True, known: set[str] | None = None
) -> str:
    """The result as text.

    Args:
        result: the answer.
        style: one of STYLES.
        level: confidence level of the margins and intervals.
        errors: whether margins, marks and the columns of errors are shown.
        known: lines below tables that a session has shown, which are left out, and to which these are added; None
            for all lines.
    """
    with requested():
        if style in FOR_PEOPLE:
            texts = _cells(result, level) if errors else ([number(v) for v in row] for row in _days(result))
            cells = list(paced(texts, size_of))
            lines = FOR_PEOPLE[style](result, cells)
            below = [*(_legend(cells, _gaps(result, level)) if errors else []), *_without(result)]
            below = [*below, *result.notes] if known is None else short_lines(result, below, known)
            return "\n".join(map(visible, paced([*lines, *below], _characters)))
        names, records = result.with_errors(level) if errors else (result.columns, result.rows)
        return FOR_PROGRAMS[style](names, records)


def notes_beside(
    result: Renderable, style: str, level: float = LEVEL, known: set[str] | None = None
) -> tuple[str, ...]:
    """Notes for standard error, where a format for programs has no place for them.

    Args:
        result: the answer.
        style: the format.
        level: of its intervals.
        known: as for `render`.
    """
    if style in FOR_PEOPLE:
        return ()
    below = [*_without(result), *_gaps(result, level)]
    return (*below, *result.notes) if known is None else tuple(short_lines(result, below, known))


def shown(
    result: Renderable, level: float = LEVEL, most: int = MOST_SHOWN
) -> tuple[list[list[str]], list[str]]:
    """The first rows as text, with margins and marks.

    Args:
        result: the answer.
        level: of the margins.
        most: rows that are shown.

    Returns:
        Text of each cell, `12 345 ± 62` where it has an error; and lines below: how many rows are not shown, what marks
        mean, and what a reader should know.
    """
    with requested():
        first = result.head(most)
        cells = list(_cells(first, level))
        remaining = len(result.rows) - len(first.rows)
        row_note = [f"{remaining} more rows"] if remaining else []
        gaps = _gaps(first, level)
        return cells, [*row_note, *_legend(cells, gaps), *_without(first), *result.notes]


def text_table(result: Renderable) -> str:
    """Table of the first rows with short notes, as `print` shows a result."""
    cells, below = shown(result)
    lines = short_lines(result, below[: len(below) - len(result.notes)], set(), "Result.notes has")
    return "\n".join(map(visible, [*_table(result, cells), *lines]))


def short_lines(
    result: Renderable, below: Sequence[str], known: set[str], where: str = "\\notes has"
) -> list[str]:
    """Lines below a table that were not shown before: flags as they are, one line for all other notes.

    Args:
        result: the answer.
        below: other lines.
        known: lines that the session has shown; these are added.
        where: what has all notes, and a verb.
    """
    flags, notes = (
        [note for note in result.notes if (note in result.flags) == flag and note not in known]
        for flag in (True, False)
    )
    lines = [*(line for line in below if line not in known), *flags]
    known.update(lines, notes)
    more = f"; {where} {len(notes) - 1} more" if len(notes) > 1 else ""
    return [*lines, *(f"{note}{more}" for note in notes[:1])]


def html_table(result: Renderable) -> str:
    """The same for notebooks, with margins in small print and groups suppressed as noise in grey."""
    cells, below = shown(result)
    head = "".join(f"<th>{html.escape(name)}</th>" for name in result.columns)
    grey = ("", " style='opacity:.5'")
    pairs = zip(cells, suppressed(result.head(MOST_SHOWN), MARKED), strict=True)
    body = "".join(f"<tr{grey[lost]}>{''.join(map(_html_cell, row))}</tr>" for row, lost in pairs)
    details = [note for note in result.notes if note not in result.flags]
    lines = [line for line in below if line not in details]
    notes = "".join(f"<p><small>{html.escape(line)}</small></p>" for line in lines)
    if details:
        text = "".join(f"<p><small>{html.escape(line)}</small></p>" for line in details)
        notes += f"<details><summary><small>notes: {len(details)}</small></summary>{text}</details>"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"


def _html_cell(cell: str) -> str:
    value, margin = map(html.escape, split_margin(cell))
    return f"<td>{value} <small>{margin}</small></td>" if margin else f"<td>{value}</td>"


def _gaps(answer: Renderable, level: float) -> list[str]:
    """A line for each column of which some rows have no error, or an interval without ends."""
    return [f"{name} has no ± in some rows: {why}" for name, why in answer.gaps(level).items()]


def _without(answer: Renderable) -> list[str]:
    """A line for each noisy column that has no error."""
    return [f"{name} has no error: {why}" for name, why in answer.undefined.items()]


def _cells(answer: Renderable, level: float) -> Iterator[list[str]]:
    """Text of every cell, with margins and marks."""
    low, high = answer.interval_rows(level)
    for r, row in enumerate(_days(answer)):
        bounds = answer.model_bound[r] if r < len(answer.model_bound) else (None,) * len(row)
        noise, marked, few = answer.noise_rows[r], answer.marked[r], [mark or 0 for mark in answer.few[r]]
        yield [
            f"<{few[c]}" if few[c] > 0
            else _cell(value, (low[r][c], high[r][c]), bounds[c], noisy=noise[c] is not None, marked=marked[c])
            + (f" {FEW}" if few[c] < 0 else "")
            for c, value in enumerate(row)
        ]  # fmt: skip


def _days(answer: Renderable) -> Grid:
    """The rows; a column of times that are all midnight holds days: `DATE_TRUNC` of a DATE gives a TIMESTAMP. One of
    whole numbers without noise holds integers: `FLOOR(age / 10) * 10` is a DOUBLE."""
    rewritten: dict[int, Callable[[Any], Any]] = {}
    for c, kind in enumerate(answer.types):
        values = [row[c] for row in answer.rows if row[c] is not None]
        if kind == "TIMESTAMP" and all(value.time() == MIDNIGHT for value in values):
            rewritten[c] = lambda value: value.date()
        is_label = kind in ("DOUBLE", "FLOAT") and c not in answer.noisy
        if is_label and all(isinstance(value, float) and value.is_integer() for value in values):
            rewritten[c] = int
    if not rewritten:
        return answer.rows
    return tuple(
        tuple(rewritten[c](v) if c in rewritten and v is not None else v for c, v in enumerate(row))
        for row in answer.rows
    )


def _cell(value: Any, ends: tuple[Any, Any], cut: float | None, *, noisy: bool, marked: bool) -> str:
    """A number with its margin, and its marks: an interpolation bound to two digits, where one is not 0."""
    low, high = ends
    # a quantile of dates with its interval
    if not isinstance(value, NUMBERS) or not (noisy or low is not None):
        return number(value) + (
            f" ({number(low)} to {number(high)})" if low is not None and high is not None else ""
        )
    marks = WEAK if marked else ""
    if cut != 0:
        marks += f"{CUT}∞" if cut is None else f"{CUT}{number(cut, cut).replace(' ', '')}"
    return f"{interval_text(value, low, high)}{' ' if marks else ''}{marks}"


def _legend(cells: list[list[str]], gaps: Sequence[str]) -> list[str]:
    """One line for each mark that occurs, and what is said of rows without one."""
    used = {
        mark for row in cells for cell in row if split_margin(cell)[1] for mark in cell.rsplit(" ", 1)[-1]
    }
    return [*(text for mark, text in LEGEND.items() if mark in used), *gaps]


def _table(answer: Renderable, cells: list[list[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in [list(answer.columns), *cells]) for i in range(len(answer.columns))]
    right = [any(kind in column_type for kind in NUMERIC) for column_type in answer.types]
    padded = (
        [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)]
        for row in [list(answer.columns), *cells]
    )
    head, *lines = ("  ".join(row).rstrip() for row in padded)
    return [head, "  ".join("-" * width for width in widths), *lines]


def _markdown(answer: Renderable, cells: list[list[str]]) -> list[str]:
    lines = ["| " + " | ".join(map(_markdown_text, row)) + " |" for row in (answer.columns, *cells)]
    return [lines[0], "|" + "|".join("---" for _ in answer.columns) + "|", *lines[1:]]


def _markdown_text(text: str) -> str:
    """A text that renders as itself: labels may come from anybody, and none becomes a link, a picture or HTML.

    >>> print(_markdown_text("<b> [x](https://a.example) | a@b"))
    &lt;b> \\[x\\](https&#58;//a.example) \\| a&#64;b
    """
    return MARKUP.sub(lambda match: LITERAL.get(match[0], f"\\{match[0]}"), text)


def _vertical(answer: Renderable, cells: list[list[str]]) -> list[str]:
    width = max((len(name) for name in answer.columns), default=0)
    lines = []
    for r, row in enumerate(cells, 1):
        lines.append(f"-[ row {r} ]-")
        lines += [f"{name.ljust(width)}  {cell}" for name, cell in zip(answer.columns, row, strict=True)]
    return lines


def _csv(names: Sequence[str], records: Grid) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(_field, names))
    fields = (["" if v is None else _field(v) for v in record] for record in records)
    rows: Iterator[list[Any]] = paced(fields, lambda block: FIELD * sum(map(len, block)))
    writer.writerows(rows)
    return out.getvalue().rstrip("\n")


def _field(value: Any) -> Any:
    """A field of CSV; a text that a spreadsheet would take for a formula gets a quote: keys are strangers'."""
    if not isinstance(value, str):
        return plain(value)
    return "'" * value.startswith(("=", "+", "-", "@")) + visible(value)


def _objects(names: Sequence[str], records: Grid, indent: int | None = None) -> Iterator[str]:
    """Each row as the text of a JSON object, escaped where it would command a terminal; it says the same, exactly."""
    for record in records:
        text = json.dumps(
            dict(zip(names, map(plain, record), strict=True)), indent=indent, ensure_ascii=False
        )
        yield UNSEEN.sub(lambda match: match[0] if match[0] == "\n" else f"\\u{ord(match[0]):04x}", text)


def _json(names: Sequence[str], records: Grid) -> str:
    rows = (text.replace("\n", "\n  ") for text in _objects(names, records, indent=2))
    lines = ",\n  ".join(paced(rows, _characters))
    return f"[\n  {lines}\n]" if lines else "[]"


def _characters(texts: Sequence[str]) -> int:
    """Bytes of texts, and of the one text that they become."""
    return 2 * sum(map(sys.getsizeof, texts))


def margin_lines(result: Renderable, level: float = 0.95) -> tuple[str, ...]:
    """Half-widths of an answer's intervals, one line for each noisy column, for interfaces whose rows hold no
    more.

    Args:
        result: the answer.
        level: of the margins.
    """
    if len(result.rows) > MOST_ROWS:
        return (f"more than {MOST_ROWS} rows: ask for DP_STDERR and DP_INTERVAL_LOW of their columns",)
    try:
        with requested() as request, request.giving_back(), request.within(request.seconds_left / 2):
            return tuple(_lines_of_margins(result, level))  # the rest of the time is for the rows
    except QueryTimeout:
        check()
        return ("margins take too long: ask for DP_STDERR of fewer rows",)
    except NotSupportedError as error:
        return (f"no margins: {error.reason}",)


def _lines_of_margins(answer: Renderable, level: float) -> Iterator[str]:
    low, high = answer.interval_rows(level) if answer.noisy else ((), ())
    for c in answer.noisy:
        if not all(isinstance(row[c], (*NUMBERS, type(None))) for row in answer.rows):
            continue  # quantiles of days and times
        has_error = [row[c] is not None for row in answer.noise_rows]
        ends = zip(answer.rows, low, high, has_error, strict=True)
        sides = [margins(row[c], a[c], b[c]) for row, a, b, has in ends if has]
        bounds = [row[c] for row, has in zip(answer.model_bound, has_error, strict=True) if has]
        if all(value == 0 for pair in sides for value in pair):
            continue  # a constant beside noisy columns
        cut = "" if all(bound == 0 for bound in bounds) else f", of which cut bins are {span(bounds)}"
        below, above = (span([pair[side] for pair in sides]) for side in (0, 1))
        margin = below if below == above else f"-{below}/+{above}"
        yield f"{answer.columns[c]}: margin {margin} at {100 * level:g}%{cut}"
    yield from (*_gaps(answer, level), *_without(answer))


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


FOR_PEOPLE = {"table": _table, "markdown": _markdown, "vertical": _vertical}
FOR_PROGRAMS: dict[str, Callable[[Sequence[str], Grid], str]] = {
    "csv": _csv, "json": _json, "jsonl": lambda names, records: "\n".join(paced(_objects(names, records), _characters)),
}  # fmt: skip


def arrow_types(types: Sequence[str]) -> list[Any]:
    """Arrow's types for DuckDB's."""
    with duckdb.connect() as database:
        nulls = ", ".join(f"CAST(NULL AS {kind}) AS c{i}" for i, kind in enumerate(types))
        return list(database.sql(f"SELECT {nulls}").to_arrow_table().schema.types)


def arrow_column(values: list[Any], kind: Any) -> Any:
    """An array of a type, or of what the values are where they do not fit it, such as a mean of whole numbers."""
    arrow = extra("arrow")
    # `array(values, kind)` would cut a fraction off without a word; a cast does not
    inferred = arrow.array(values)
    try:
        return inferred.cast(kind)
    except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError):
        return inferred
