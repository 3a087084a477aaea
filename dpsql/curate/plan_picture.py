"""A plan as a picture: each question's expected interval beside its typical answer, as HTML without a script.

Where a typical answer is known, the bar is that answer and the whisker its 95% interval; elsewhere only the interval's
width is known, and widths of one plan are drawn on one logarithmic scale.

**Privacy**: a function of a plan, which is a function of the catalog, statements and public facts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from math import log10

from dpsql.answer.predict import HALF, PredictedColumn

WIDTH, HEIGHT, ANSWER = 240, 18, 0.5
"""Size of a picture in pixels, and how much of its width a typical answer takes."""


Forecast = tuple[str, str | None, Sequence[PredictedColumn]]
"""A question, why it has no answer, and its noisy columns."""


def plan_picture(queries: Sequence[Forecast]) -> str:
    """The questions of a plan as a table.

    Args:
        queries: what is expected of each.
    """
    if not queries:
        return "<p>No question was given: state a workload to see the interval of each answer.</p>"
    widths = [c.median for _, _, columns in queries for c in columns if c.median and c.relative is None]
    scale = (min(widths), max(widths)) if widths else (1.0, 1.0)
    body = "".join(row for number, query in enumerate(queries, 1) for row in _rows(number, query, scale))
    head = "".join(f"<th>{word}</th>" for word in ("", "question", "answer", "95% interval", ""))
    caption = (
        "Bars are typical answers, whiskers the 95% interval that will be printed around them; "
        "a bare whisker is the interval's width beside those of the other questions, on a logarithmic scale."
    )
    return f"<table><caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _rows(number: int, query: Forecast, scale: tuple[float, float]) -> Iterator[str]:
    text, refusal, columns = query
    sql = f"<td>{number}</td><td><code>{escape(' '.join(text.split()))}</code></td>"
    if refusal is not None:
        yield f'<tr>{sql}<td colspan="3">no answer: {escape(refusal)}</td></tr>'
    elif not columns:
        yield f'<tr>{sql}<td colspan="3">from the catalog, no noise</td></tr>'
    for place, column in enumerate(columns):
        cells = (_name(column), _words(column), _picture(column, scale))
        yield f"<tr>{sql if place == 0 else '<td></td><td></td>'}{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _name(column: PredictedColumn) -> str:
    groups = "" if column.groups == 1 else f" <small>of {column.groups} groups</small>"
    return f"{escape(column.name)}{groups}"


def _words(column: PredictedColumn) -> str:
    if column.median is None:
        waits = f"needs a guess of {column.wants_guess}" if column.wants_guess else "depends on the answer"
        return "no upper end" if column.open_groups else waits
    relative = (
        "" if column.relative is None else f" <small>{column.relative * HALF:.1%} of a typical answer</small>"
    )
    return f"± {column.median * HALF:.4g}{relative}"


def _picture(column: PredictedColumn, scale: tuple[float, float]) -> str:
    """An SVG in the colour of the text; a whisker that leaves it ends in an arrow."""
    if column.median is None:
        return ""
    middle, y = ANSWER * WIDTH, HEIGHT / 2
    if column.relative is not None:
        half = column.relative * HALF * middle
        bar = (
            f'<rect x="0" y="3" width="{middle:g}" height="{HEIGHT - 6}" fill="currentColor" opacity=".25"/>'
        )
        told = f"a typical answer, give or take {column.relative * HALF:.1%}"
    else:
        low, high = (log10(end) if end > 0 else 0.0 for end in scale)
        part = (log10(column.median) - low) / (high - low) if high > low and column.median > 0 else 1.0
        half, bar = (0.1 + 0.9 * part) * middle, ""
        told = f"an interval of plus and minus {column.median * HALF:.4g}"
    left, right = max(middle - half, 0), min(middle + half, WIDTH)
    ends = [f"M{left:.1f} {y - 4}v8"] * (middle - half >= 0) + [f"M{right:.1f} {y - 4}v8"] * (
        middle + half <= WIDTH
    )
    arrows = [f"M{WIDTH - 5} {y - 4}l5 4l-5 4", f"M5 {y - 4}l-5 4l5 4"] if middle + half > WIDTH else []
    path = " ".join([f"M{left:.1f} {y}H{right:.1f}", *ends, *arrows])
    line = f'<path d="{path}" stroke="currentColor" stroke-width="1.5" fill="none"/>'
    return (
        f'<svg role="img" aria-label="{told}" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}">'
        f"<title>{told}</title>{bar}{line}</svg>"
    )
