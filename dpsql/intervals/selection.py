"""Intervals of rows that were chosen by their noise: the ten largest, or those above a threshold.

The largest of many noisy numbers are those that noise made large, and their intervals cover less often than their
level says: .22 instead of .95 of the largest of 60 equal groups. False-coverage-adjusted intervals (Benjamini and
Yekutieli) have the level 1 - (1 - level) r / m where r of m candidates are shown; then at most 1 - level of the
intervals shown are expected to miss, whatever the rule of choice.

| here | there | unit |
|---|---|---|
| `kept` | r, rows that a clause keeps | rows |
| `candidates` | m: rows whose interval of level 1 - .05 r / k reaches the r-th largest value, or the threshold | rows |
| k | all rows that the clause chooses from | rows |
| `share` | r / m, of several clauses the product | 1 |

Rows whose intervals lie far below were never candidates: they count as little as rows that are not there. They are
known by intervals of the level that all k rows would need. Those of 95% are too short: a largest value that is large by
its noise would leave fewest candidates just when it needs the widest interval (of 60 equal groups the largest is then
covered in .87 under Gaussian and .77 under Laplace noise; with the level above in .95). Where no one value chooses, all
rows are candidates.

**Privacy**: post-processing of released numbers.
**Source**: docs/method/views.md, "Rows chosen by noise".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dpsql.intervals.errorfunctions import DEFAULT_LEVEL
from dpsql.intervals.estimated import Interval
from dpsql.planner.axis_query import FloatArray, IntArray
from dpsql.planner.notes import Note
from dpsql.sql.selection import Limit, PickQuery

MOST_ASKED = 2048
"""Candidates whose intervals are worked out: a second or two."""
UNKNOWN = "chosen by noisy values: the candidates could not be counted, intervals are not widened and cover less often"


class NoisySelection(NamedTuple):
    """Rows selected by noisy values.

    Args:
        kept, candidates: rows, of the clause with the most candidates.
        share: factor on 1 - level.
        known: whether every clause's candidates could be counted.
    """

    kept: int
    candidates: int
    share: float = 1.0
    known: bool = True

    def level(self, level: float) -> float:
        """The level of an interval that covers so often among those shown."""
        return 1.0 - (1.0 - level) * self.share

    @property
    def notes(self) -> list[Note]:
        """Notes for the reader."""
        if not self.known:
            return [Note(UNKNOWN, flag=True)]
        if self.share == 1.0:
            return []
        return [
            Note(f"chosen by noisy values: intervals are widened for {self.candidates} candidates", flag=True)
        ]


NOTHING = NoisySelection(0, 0)
UNCOUNTED = NoisySelection(0, 0, known=False)


def together(choices: Sequence[NoisySelection]) -> NoisySelection:
    """Several clauses, one after the other."""
    share = float(np.prod([clause.share for clause in choices]))
    widest = max(choices, key=lambda clause: clause.candidates, default=NOTHING)
    return NoisySelection(widest.kept, widest.candidates, share, all(clause.known for clause in choices))


class Candidates(NamedTuple):
    """The candidates of a clause.

    Args:
        kept: whether the clause keeps each, shape (k,).
        value: their scores, NaN where one is NULL, shape (k,).
        intervals: of the scores of some of them, at a level; None where no one value chooses.
    """

    kept: npt.NDArray[np.bool_]
    value: FloatArray
    intervals: Callable[[IntArray, float], Interval] | None = None


def choice(query: PickQuery, found: Candidates) -> NoisySelection:
    """Number of rows that a clause keeps, and of its candidates.

    Args:
        query: the clause.
        found: its candidates.
    """
    shown = found.kept if query.limit is None else _ranks(query.limit, found.value)
    rows_kept = int(np.sum(shown))
    if not rows_kept or rows_kept == len(shown):
        return NoisySelection(rows_kept, rows_kept)
    candidates = len(shown)
    if found.intervals is not None:
        level = NoisySelection(rows_kept, candidates, rows_kept / candidates).level(DEFAULT_LEVEL)
        ends = _chosen_between(query, found.value[shown])
        candidates = rows_kept + _reaching(found, np.flatnonzero(~shown), ends, level)
    return NoisySelection(rows_kept, candidates, rows_kept / candidates)


def _chosen_between(query: PickQuery, shown: FloatArray) -> tuple[float, float]:
    """The values between which a clause shows rows."""
    values = shown[~np.isnan(shown)]
    if not query.ranked:
        return 0.0, np.inf
    if not len(values):  # NULLs alone are shown: any row may be chosen
        return -np.inf, np.inf
    offset = query.limit is not None and query.limit.offset
    return float(values.min()), float(values.max()) if offset else np.inf


def _ranks(limit: Limit, value: FloatArray) -> npt.NDArray[np.bool_]:
    """Rows that a LIMIT shows."""
    shown = np.zeros(len(value), bool)
    shown[np.argsort(-value, kind="stable")[limit.offset : limit.offset + limit.rows]] = True
    return shown


def _reaching(candidates: Candidates, rows: IntArray, ends: tuple[float, float], level: float) -> int:
    """Number of rows whose interval overlaps a given range.

    The nearest are asked, and if the last of them reaches, all are taken to do so. An end that is not defined may be
    anywhere.
    """
    assert candidates.intervals is not None
    value, (lowest, highest) = candidates.value[rows], ends
    apart = np.where(np.isnan(value), 0.0, np.maximum(lowest - value, value - highest))
    low, high = candidates.intervals(rows[np.argsort(apart, kind="stable")[:MOST_ASKED]], level)
    reaches = ~((high < lowest) | (low > highest))
    return len(rows) if len(rows) > len(reaches) and reaches[-1] else int(np.sum(reaches))
