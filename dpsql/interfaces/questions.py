"""Questions that a release answers well, made from its public catalog, each with how far its numbers may be off.

| here | meaning |
|---|---|
| total | COUNT(*), SUM or AVG of one counted table: the release's headline numbers |
| grouping | a column of an axis with at most `MOST_GROUPS` values, or its bins or months |
| error | relative: standard error over published value, the median over an answer's rows |

Standard errors are predicted by the release's variance model; the values beside them are published. A question that
cuts a bin, or that no view answers, is left out.

**Privacy**: post-processing; asks the open releases as everybody may.
"""

from __future__ import annotations

import logging
import math
import re
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from dpsql.errors import Error
from dpsql.executor.run import run
from dpsql.federation.session import OpenReleases
from dpsql.interfaces.python.describe import TableInfo, asked_name, describe, widest
from dpsql.release import ColumnMeta, Release
from dpsql.release.request import check, requested
from dpsql.results.render import NUMBERS
from dpsql.results.result import Result
from dpsql.row_expressions import identifier

WELL = 0.1
"""A question is answered well up to this relative error."""
MOST_GROUPS, MOST_PAIRS = 40, 60
MOST_TRIED, MOST_OF_A_GROUPING = 48, 2
SECONDS = 10.0
"""For all candidates together."""
LOG = logging.getLogger(__name__)
FAULTS = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What a mistake of ours raises: one example is left out, and the page or report has all others."""
PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
PARTS_OF_TIME = {"month": 31, "quarter": 92, "year": 366}
STEPS = (1, 2, 5)


class ExampleQuestion(NamedTuple):
    """A question in words and in SQL; `topic` is what it groups by."""

    words: str
    sql: str
    topic: str = ""


RatedQuestion = tuple[ExampleQuestion, Result, float]
"""A question, its answer, and its relative error."""


class GroupExpression(NamedTuple):
    """An expression to group by, its name in the answer, how many values it has, and itself in words."""

    sql: str
    name: str
    values: int
    words: str

    @property
    def selected(self) -> str:
        """As an item of a select list."""
        return self.sql if self.sql == self.name else f"{self.sql} AS {self.name}"


CountedTable = tuple[str, str, list[tuple[str, str]]]
"""A counted table: how a statement names it, its own name, and aggregates of its groups, in words and as items of a
select list: the count, then average and sum of each measure."""


def totals(releases: OpenReleases) -> list[RatedQuestion]:
    """The headline numbers: rows of every counted table, and sum and average of its measures, as far as answered."""
    return _rated(releases, headlines(releases))


def well_answered(releases: OpenReleases, most: int) -> list[RatedQuestion]:
    """Grouped questions whose relative error is at most `WELL`, the best first; no more than two by one grouping.

    Args:
        releases: who is asked.
        most: how many are wanted.
    """
    chosen, topics = list[RatedQuestion](), Counter[str]()
    for rated in sorted(_rated(releases, groupings(releases)[:MOST_TRIED]), key=lambda rated: rated[2]):
        question, _, error = rated
        topics[question.topic] += 1
        if error <= WELL and topics[question.topic] <= MOST_OF_A_GROUPING:
            chosen.append(rated)
    return chosen[:most]


def headlines(releases: OpenReleases) -> list[ExampleQuestion]:
    """Totals and averages of every counted table."""
    questions: list[ExampleQuestion] = []
    for release in releases.releases:
        for of in dict.fromkeys(s.of for s in release.statistics):
            source, _, (count, *others) = _counted(release, of, releases, describe(release))
            sums_first = [item for pair in zip(others[1::2], others[::2], strict=True) for item in pair]
            questions += [
                ExampleQuestion(words, f"SELECT {value} FROM {source}")
                for words, value in (count, *sums_first)
            ]
    return questions


def groupings(releases: OpenReleases, most: int = MOST_PAIRS) -> list[ExampleQuestion]:
    """The same by one column, or by two of one view that have at most so many groups together."""
    return [question for release in releases.releases for question in _grouped(release, releases, most)]


def _rated(releases: OpenReleases, questions: Iterable[ExampleQuestion]) -> list[RatedQuestion]:
    rated = []
    with requested() as request:
        until = time.monotonic() + SECONDS
        for question in dict.fromkeys(questions):
            try:
                with request.within(until - time.monotonic()):
                    answer = releases.query(question.sql)
                    error = _relative_error(answer)
            except Error:
                check()  # whoever waits may have left
                continue  # a candidate that these releases do not answer, or not in time, is no example
            except FAULTS as fault:
                LOG.warning("an example was left out (%s): %s", type(fault).__name__, question.sql)
                continue
            if error is not None:
                rated.append((question, answer, error))
    return rated


def _relative_error(answer: Result) -> float | None:
    """The median over rows; None where a bin is cut, or where no row has an error."""
    if not answer.rows or not answer.noisy:
        return None
    c = answer.noisy[-1]
    if any(row[c] != 0 for row in answer.model_bound):
        return None
    relative_errors = [
        math.inf if error[c] is None else error[c] / abs(float(row[c]))
        for row, noise, error in zip(answer.rows, answer.noise_rows, answer.stderr_rows, strict=True)
        if isinstance(row[c], NUMBERS) and row[c] and noise[c] is not None
    ]
    return statistics.median(relative_errors) if relative_errors else None


def _grouped(release: Release, releases: OpenReleases, most: int) -> Iterator[ExampleQuestion]:
    """One grouping after the other, then pairs of one view."""
    pairs = []
    seen: set[tuple[str, str]] = set()
    for counted, groupings in together(release, releases):
        pairs += [(counted, pair) for pair in combinations(groupings, 2)]
        for by in groupings:
            if (counted[1], by.sql) not in seen:
                seen.add((counted[1], by.sql))
                yield from _by(counted, (by,))
    for counted, pair in pairs:
        if math.prod(by.values for by in pair) <= most:
            yield from _by(counted, pair)


def together(
    release: Release, releases: OpenReleases
) -> Iterator[tuple[CountedTable, tuple[GroupExpression, ...]]]:
    """Compatible groupings: each counted table with the groupings of one of its views.

    Args:
        release: one of the open releases.
        releases: all of them, which decide how a table is named.
    """
    tables = describe(release)
    for of in dict.fromkeys(s.of for s in release.statistics):
        counted = _counted(release, of, releases, tables)
        for axes in dict.fromkeys(s.axes for s in release.statistics if s.of == of):
            groupings = (_grouping(release, axis, tables) for axis in axes)
            yield counted, tuple(grouping for grouping in groupings if grouping is not None)


def _by(counted: CountedTable, groupings: tuple[GroupExpression, ...]) -> Iterator[ExampleQuestion]:
    keys = ", ".join(by.selected for by in groupings)
    order = ", ".join(str(i) for i in range(1, len(groupings) + 1))
    words = " and ".join(by.words for by in groupings)
    source, rows, aggregates = counted
    for title, value in aggregates:
        sql = f"SELECT {keys}, {value}\nFROM {source}\nGROUP BY {order} ORDER BY {order}"
        yield ExampleQuestion(f"{title} by {words}", sql, f"{rows} {words}")


def _counted(
    release: Release, of: str, releases: OpenReleases, tables: tuple[TableInfo, ...]
) -> CountedTable:
    alike = len({opened.catalog.population for opened in releases.releases}) == 1
    prefix = "" if len(releases.releases) == 1 or alike else f"{_spelled(release.name)}."
    names = {s.measure for s in release.statistics if s.of == of}
    aggregates = [(f"count of {of}", "COUNT(*) AS n")]
    # of a measure that is a column, `table.column`, and counts nothing
    for measure in sorted({name.rpartition(".")[2] for name in names if "." in name and "(" not in name}):
        aggregates.append((f"average {measure}", f"AVG({_spelled(measure)}) AS average"))
        aggregates.append((f"sum of {measure}", f"SUM({_spelled(measure)}) AS total"))
    return prefix + _spelled(widest(tables, of).name), of, aggregates


def _grouping(release: Release, number: int, tables: tuple[TableInfo, ...]) -> GroupExpression | None:
    """The first column of an axis that has few values, or few bins; a key only where nothing else does."""
    axis = release.axes[number]
    keys = {(table.name, table.key) for table in tables}
    for column in sorted(axis.columns, key=lambda column: (column.table, column.column) in keys):
        name = identifier(column.name)
        picked = f"count(DISTINCT {name}), min({name}), max({name})"
        row = run(release, f"SELECT {picked} FROM axis_{number} WHERE kind = 0").rows[0]
        if row[1] is None or row[0] < 2:
            continue
        ends = f"SELECT min({name}), max({name}) FROM axis_{number} WHERE kind = 0 GROUP BY leaf"
        leaves = [(low, high) for low, high in run(release, ends).rows]
        asked = _spelled(asked_name(axis, column, tables))
        if grouping := _few(asked, column, int(row[0]), row[1], row[2], leaves):
            return grouping
    return None


def _few(
    name: str, column: ColumnMeta, values: int, low: Any, high: Any, leaves: Sequence[tuple[Any, Any]] = ()
) -> GroupExpression | None:
    """A grouping with at most `MOST_GROUPS` values that cuts no leaf of numbers.

    >>> column = ColumnMeta((), "t", "age", "age", "BIGINT")
    >>> _few("age", column, 72, 18, 89).sql, _few("age", column, 5, 1, 5).sql
    ('FLOOR(age / 2) * 2', 'age')
    >>> _few("age", column, 72, 18, 89, [(18, 19), (20, 24), (25, 29), (30, 39)]).sql
    'FLOOR(age / 10) * 10'
    """
    if column.type == "DATE" or column.type.startswith("TIMESTAMP"):
        days = (high - low).days + 1  # both are dates, or both timestamps
        for period, length in PARTS_OF_TIME.items():
            if days <= MOST_GROUPS * length:
                return GroupExpression(
                    f"DATE_TRUNC('{period}', {name})", period, -(-days // length), f"{period} of {name}"
                )
        return None
    text = column.type in ("VARCHAR", "BOOLEAN")
    if values <= MOST_GROUPS and (text or all(first == last for first, last in leaves)):
        return GroupExpression(name, name, values, name)
    if text:
        return None
    span = float(high) - float(low)
    steps = (s * 10**e for e in range(-6, 16) for s in STEPS if span / (s * 10**e) <= MOST_GROUPS)
    step = next((step for step in steps if span < step or _whole(leaves, step)), span)
    if span <= step:
        return None
    return GroupExpression(
        f"FLOOR({name} / {step}) * {step}", name, round(span / step) + 1, f"{name} in steps of {step}"
    )


def _whole(leaves: Sequence[tuple[Any, Any]], step: float) -> bool:
    """True if no leaf lies in two steps."""
    return all(float(first) // step == float(last) // step for first, last in leaves)


def _spelled(name: str) -> str:
    """A name as people write it: quoted only where it must be.

    >>> _spelled("age"), _spelled("Sold On")
    ('age', '"Sold On"')
    """
    return name if PLAIN.fullmatch(name) else identifier(name)
