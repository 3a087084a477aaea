"""Texts in conditions that no leaf of an axis lists: an answer of 0 with the spelling that was probably meant.

`region = 'Scotlnd'` is 0 by the catalog, without noise, and looks like an answer about Scotland.

**Privacy**: functions of the statement and of public axis tables. Columns with keys that were found are left to
`unshown`: their lists are no declared domains.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches

from dpsql.executor.run import run
from dpsql.planner.leaf_values import AxisQuery
from dpsql.planner.notes import Note
from dpsql.planner.plan import ViewPlan
from dpsql.planner.terms import Expression
from dpsql.release import Release
from dpsql.release.format import ColumnMeta
from dpsql.row_expressions import identifier

_TEXT = re.compile(r"'((?:[^']|'')*)'")
LIKENESS = 0.6
"""Least ratio of `difflib` at which two spellings are taken for one value: `Scotlnd` and `Scotland` have .93, two of
the fifty states rarely more than .55."""
MOST_TEXTS = 4
"""Absent texts that are named; the note counts the others."""


def absent_value_notes(plan: ViewPlan, release: Release) -> list[Note]:
    """Flags for texts that a plan's conditions compare a column with and that the column's axis does not list.

    Args:
        plan: a plan over the asked axes.
        release: its release.

    Returns:
        One flag for each condition with such a text.
    """
    found = [note for question in plan.questions for note in _of_axis(question, release)]
    return list(dict.fromkeys(found))


def _of_axis(question: AxisQuery, release: Release) -> Iterator[Note]:
    axis, names = release.axes[question.axis], dict(question.columns)
    columns = {column.name: column for column in axis.columns if column.type == "VARCHAR"}
    for predicate in (*question.filters, *question.classes):
        numbers = predicate.expression.columns & names.keys()
        if not axis.atomic or predicate.negated or len(predicate.expression.columns) != 1 or not numbers:
            continue
        column = columns.get(names[min(numbers)])
        if column is None or release.meta.key_list(column.table, column.column) is not None:
            continue
        yield from _of_condition(predicate.expression, column, question.axis, release)


def _of_condition(expression: Expression, column: ColumnMeta, axis: int, release: Release) -> Iterator[Note]:
    words = expression.words()
    texts = [text.replace("''", "'") for text in _TEXT.findall(words)]
    if not texts or not (expression.choices or " LIKE " in words.upper()):
        return
    sql = f"SELECT DISTINCT {identifier(column.name)} FROM axis_{axis} WHERE kind = 0 ORDER BY ALL"
    listed = release.kept(sql, lambda: [str(row[0]) for row in run(release, sql).rows])
    name = f"{column.table}.{column.column}"
    if expression.choices:
        absent = [text for text in dict.fromkeys(texts) if text not in listed]
        if absent:
            more = f" and {len(absent) - MOST_TEXTS} more" if len(absent) > MOST_TEXTS else ""
            described = ", ".join(_with_nearest(text, listed) for text in absent[:MOST_TEXTS])
            yield Note(
                f"the catalog lists no value {described}{more} for {name}; such rows count as 0", flag=True
            )
        return
    values = (
        f"SELECT {identifier(column.name)} AS dp_c{min(expression.columns)} FROM axis_{axis} WHERE kind = 0"
    )
    met = f"SELECT COUNT(*) FROM ({values}) WHERE {expression.sql}"
    if not release.kept(met, lambda: run(release, met).rows[0][0]):
        yield Note(f"the catalog lists no value of {name} with {words}; such rows count as 0", flag=True)


def _with_nearest(text: str, listed: list[str]) -> str:
    """The text in quotes, with the listed value of the nearest spelling."""
    folded = {value.casefold(): value for value in reversed(listed)}
    near = folded.get(text.casefold()) or next(iter(get_close_matches(text, listed, 1, LIKENESS)), None)
    return f"'{text}'" if near is None else f"'{text}' (nearest: '{near}')"
