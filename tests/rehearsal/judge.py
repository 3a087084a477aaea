"""Printed answers and intervals compared with the truth: one verdict a question, column and kind of failure.

| verdict | meaning | fails |
|---|---|---|
| `exact-wrong` | no noise is claimed, and the number differs by more than 1e-6 | yes |
| `no-reason` | a number without an interval and without `undefined` or a gap's reason | yes |
| `cell` | one cell outside of its interval in so many releases that chance is below 1e-3 over all cells | yes |
| `zero-width` | noise is claimed, and half of the interval is below 1e-6 of a number that is not exact | yes |
| `impossible` | an interval of a share that leaves [0, 1] | yes |
| `claim` | a number in a note that the rows contradict | yes |
| `missing` | a group of DuckDB's that no release shows | yes |
| `ghost` | a group that DuckDB lacks, above 0 by its interval in every release | yes |
| `crash` | the answer is an exception that is none of dpsql's own | yes |
| `cover` | fewer than 90% of all intervals hold the truth | no |
| `wide` | the median half-width is above six median errors | no |
| `told` | a `cell` whose misses, and they alone, stand under a flag | no |
| `refused` | the statement is refused by some releases and answered by others | no |
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import duckdb
import numpy as np
from scipy.stats import binom

from dpsql.results.result import Result
from tests.rehearsal.questions import Question

FAILS = frozenset(
    {"exact-wrong", "no-reason", "cell", "zero-width", "impossible", "claim", "missing", "ghost", "crash"}
)
LEVEL, CHANCE, FLOAT = 0.95, 1e-3, 1e-6
Key = tuple[Hashable, ...]


@dataclass(frozen=True)
class Verdict:
    """What is said of one column of one question.

    Args:
        kind, sql, column: the question and its column.
        verdict: of the table above; `ok` without a failure.
        cover: share of intervals that hold the truth; None without intervals.
        intervals: how many.
        half, error, truth: medians over cells and releases.
        cells: the worst three: key, truth, and each release's number and ends.
        notes: under the first answer.
    """

    kind: str
    sql: str
    column: str
    verdict: str
    cover: float | None = None
    intervals: int = 0
    half: float | None = None
    error: float | None = None
    truth: float | None = None
    cells: tuple[Any, ...] = ()
    notes: tuple[str, ...] = ()


class CellAnswer(NamedTuple):
    """One release's number for a cell: value, ends, and whether noise is claimed."""

    value: float | None
    low: float | None
    high: float | None
    noisy: bool
    stderr: float | None
    release: int
    reason: bool = True

    def holds(self, truth: float) -> bool:
        """Whether the interval holds the truth, up to the rounding of floats."""
        room = FLOAT * max(1.0, abs(truth))
        return not (
            (self.low is not None and truth < self.low - room)
            or (self.high is not None and truth > self.high + room)
        )


@dataclass
class _Column:
    """All cells of one value column."""

    letter: str
    cells: dict[Key, list[CellAnswer]] = field(default_factory=lambda: defaultdict(list))


def key_of(value: object) -> Hashable:
    """A key as both sides write it."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, datetime):
        return value.isoformat() if value.time().isoformat() != "00:00:00" else value.date().isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, (int, float, Decimal, np.number)):
        return float(value)
    return str(value)


def number_of(value: object) -> float | None:
    """A value as a number; None for NULL."""
    if value is None:
        return None
    if isinstance(value, datetime):
        return value.timestamp()
    if isinstance(value, date):
        return float(value.toordinal())
    return float(value)  # type: ignore[arg-type]


def truths(database: duckdb.DuckDBPyConnection, question: Question) -> dict[Key, tuple[float | None, ...]]:
    """The exact answer by key, of all groups."""
    rows = database.execute(question.truth or question.sql).fetchall()
    k = question.keys
    return {tuple(key_of(v) for v in row[:k]): tuple(number_of(v) for v in row[k:]) for row in rows}


def judge(
    question: Question, exact: dict[Key, tuple[float | None, ...]], results: Sequence[Result]
) -> Iterator[Verdict]:
    """Verdicts of one question.

    Args:
        question: the statement.
        exact: the truth.
        results: each release's answer.
    """
    exact = folded(exact, question, results)
    for c, letter in enumerate(question.values):
        column = _Column(letter)
        _collect(question, results, c, column)
        name = results[0].columns[question.keys + c]
        found = list(_column_verdicts(question, exact, c, column, results))
        shape = _shape(exact, c, column)
        for verdict, cells in found or [("ok", ())]:
            yield Verdict(question.kind, question.sql, name, verdict, *shape, tuple(cells), results[0].notes)


OTHER = "(other)"


def folded(
    exact: dict[Key, tuple[float | None, ...]], question: Question, results: Sequence[Result]
) -> dict[Key, tuple[float | None, ...]]:
    """The truth by the keys that answers can have: values that the catalog does not list are `(other)`, or NULL.

    This is `differences.OTHER`: groups that no answer shows are added to the group that the page names; an average of
    several groups has no case, and neither have people, who may be in several.
    """
    k = question.keys
    shown = {tuple(key_of(v) for v in row[:k]) for result in results for row in result.rows}
    if not k or question.truth:
        return exact
    values = [{key[i] for key in shown} for i in range(k)]
    merged: dict[Key, tuple[float | None, ...]] = {}
    for key, truth in exact.items():
        into = tuple(
            v if v in values[i] else OTHER if OTHER in values[i] else None for i, v in enumerate(key)
        )
        into = into if key not in shown and into in shown else key
        if into in merged:
            pairs = zip(merged[into], truth, question.values, strict=True)
            added = "DISTINCT" not in question.sql
            truth = tuple(
                (a or 0.0) + (b or 0.0) if letter in "ns" and added else math.nan for a, b, letter in pairs
            )
        merged[into] = truth
    return merged


def _collect(question: Question, results: Sequence[Result], c: int, column: _Column) -> None:
    """Fill the cells."""
    for number, result in enumerate(results):
        at, name = question.keys + c, result.columns[question.keys + c]
        low, high = result.interval_rows(LEVEL)
        noisy = at in result.noisy or name in result.undefined
        reason = name in result.undefined or name in result.gaps()
        for r, row in enumerate(result.rows):
            key = tuple(key_of(v) for v in row[: question.keys])
            value = number_of(row[at])
            column.cells[key].append(
                CellAnswer(
                    value, number_of(low[r][at]) if noisy else None, number_of(high[r][at]) if noisy else None,
                    noisy, number_of(result.stderr_rows[r][at]) if noisy else None, number, reason,
                )
            )  # fmt: skip


def _truth(exact: dict[Key, tuple[float | None, ...]], key: Key, c: int, letter: str) -> float | None:
    """A cell's truth: counts and sums over no row are 0, anything else has no case."""
    truth = exact[key][c] if key in exact else None
    # of several groups together, or of those that are not listed, some of which HAVING left out
    if (truth is not None and math.isnan(truth)) or (key not in exact and OTHER in key):
        return None
    return 0.0 if truth is None and letter in "ns" else truth


def _column_verdicts(
    question: Question,
    exact: dict[Key, tuple[float | None, ...]],
    c: int,
    column: _Column,
    results: Sequence[Result],
) -> Iterator[tuple[str, list[Any]]]:
    letter, most = column.letter, len(results)
    outside: dict[str, list[Any]] = defaultdict(list)
    least = _fewest_misses(most, len(column.cells))
    for key, answers in column.cells.items():
        # rows of unlisted values are one group to a condition on groups, and several to DuckDB
        truth = None if question.truth and OTHER in key else _truth(exact, key, c, letter)
        shown = [answer for answer in answers if answer.value is not None]
        if any(a.noisy and a.low is None and a.high is None and not a.reason for a in shown):
            outside["no-reason"].append(_worst(key, truth, shown))
        if letter == "p" and any(_impossible(answer) for answer in shown):
            outside["impossible"].append(_worst(key, truth, shown))
        if truth is None:
            continue
        missed = [answer for answer in shown if answer.noisy and not answer.holds(truth)]
        wrong = [
            a for a in shown if not a.noisy and abs((a.value or 0.0) - truth) > FLOAT * max(1.0, abs(truth))
        ]
        if wrong:
            outside["exact-wrong"].append(_worst(key, truth, wrong))
        if len(missed) >= least:
            ghost = letter == "n" and key not in exact and question.keys > 0
            told = _told(missed, results)
            outside["told" if told else "ghost" if ghost else "cell"].append(_worst(key, truth, missed))
        thin = [
            a for a in shown
            if a.low is not None and a.high is not None and a.value and (a.high - a.low) / 2 < FLOAT * abs(a.value)
            and abs(a.value - truth) > FLOAT * abs(truth)
        ]  # fmt: skip
        if thin:
            outside["zero-width"].append(_worst(key, truth, thin))
    if not question.truth:
        lost = [key for key in exact if key not in column.cells and exact[key][c] not in (None, 0.0)]
        if lost:
            outside["missing"] += [(key, exact[key][c], []) for key in lost]
    for verdict, cells in outside.items():
        cells.sort(key=lambda cell: -abs(cell[1] or 0.0))
        yield verdict, [f"{len(cells)} of {len(column.cells)}", *cells[:3]]
    cover, count, half, error, _ = _shape(exact, c, column)
    if cover is not None and cover < 0.9 and count >= 20 and "cell" not in outside:
        yield "cover", []
    if half is not None and error is not None and count >= 20 and half > 6 * error:
        yield "wide", []


def _impossible(answer: CellAnswer) -> bool:
    """Whether an interval of a share leaves [0, 1] by more than its number does: noisy counts may be negative."""
    low, high, value = answer.low, answer.high, answer.value or 0.0
    return (low is not None and low < min(0.0, value) - FLOAT) or (
        high is not None and high > max(1.0, value) + FLOAT
    )


def _fewest_misses(releases: int, cells: int) -> int:
    """So many misses of one cell are no chance: the binomial tail at .95, times the cells, below 1e-3; at most all."""
    return next(
        (k for k in range(1, releases + 1) if binom.sf(k - 1, releases, 1 - LEVEL) * cells < CHANCE), releases
    )


def _told(missed: Sequence[CellAnswer], results: Sequence[Result]) -> bool:
    """Whether some flag stands under at least half of the missing answers and under less than half of the others."""
    missing = {answer.release for answer in missed}
    others = [result for number, result in enumerate(results) if number not in missing]
    if not others:  # every release misses: what stands under every answer tells nothing
        return False
    flags = {flag for number in missing for flag in results[number].flags}
    return any(
        2 * sum(flag in results[number].flags for number in missing) >= len(missing)
        and 2 * sum(flag in result.flags for result in others) < len(others)
        for flag in flags
    )


def _worst(key: Key, truth: float | None, answers: Sequence[CellAnswer]) -> tuple[Any, ...]:
    return (key, truth, [(a.value, a.low, a.high) for a in answers[:4]])


def _shape(
    exact: dict[Key, tuple[float | None, ...]], c: int, column: _Column
) -> tuple[float | None, int, float | None, float | None, float | None]:
    """Coverage, number of intervals, and medians of half-widths, errors and truths."""
    held, halves, errors, sizes = [], [], [], []
    for key, answers in column.cells.items():
        truth = _truth(exact, key, c, column.letter)
        for answer in answers:
            if truth is None or answer.value is None or (answer.low is None and answer.high is None):
                continue
            held.append(answer.holds(truth))
            sizes.append(abs(truth))
            errors.append(abs(answer.value - truth))
            if answer.low is not None and answer.high is not None:
                halves.append((answer.high - answer.low) / 2)
    if not held:
        return None, 0, None, None, None
    return (
        float(np.mean(held)), len(held), _median(halves), _median(errors), _median(sizes),
    )  # fmt: skip


def _median(values: Sequence[float]) -> float | None:
    return float(np.median(values)) if values else None
