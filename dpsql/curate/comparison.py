"""Two designs side by side, in questions: the interval of each answer under both, and which is narrower.

**Privacy**: a function of two plans, which are functions of catalogs, statements and public facts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dpsql.answer.predict import HALF, PredictedColumn
from dpsql.curate.forecast import PlanReport, QueryForecast
from dpsql.errors import InterfaceError

ALIKE = 1.05
"""Intervals within this factor of each other are alike."""


class ComparedColumn(NamedTuple):
    """An output column of a question under two designs.

    Args:
        question: its number, from 1 on.
        sql: the question.
        name: the column; empty where neither design answers.
        halves: half of the 95% interval under each, None where it depends on the answer or there is no answer.
        refusals: why there is no answer under each, or None.
    """

    question: int
    sql: str
    name: str
    halves: tuple[float | None, float | None]
    refusals: tuple[str | None, str | None]

    @property
    def narrower(self) -> int | None:
        """0 or 1: the design with the narrower interval, or the only one that answers; None where they are alike."""
        first, second = self.refusals
        if (first is None) != (second is None):
            return 0 if first is None else 1
        low, high = self.halves
        if low is None or high is None or max(low, high) <= ALIKE * min(low, high):
            return None
        return 0 if low < high else 1

    def words(self, names: tuple[str, str]) -> str:
        """Who is narrower, for people.

        Args:
            names: of the designs.
        """
        if all(self.refusals):
            return "neither answers"
        if self.narrower is None:
            return "alike" if None not in self.halves else "depends on the answer"
        if any(self.refusals):
            return f"{names[self.narrower]} alone answers"
        low, high = sorted(half for half in self.halves if half is not None)
        return (
            f"{names[self.narrower]}, {high / low:.3g} times" if low else f"{names[self.narrower]} is exact"
        )


def compare_plans(first: PlanReport, second: PlanReport) -> tuple[ComparedColumn, ...]:
    """Every noisy column of every question.

    Args:
        first, second: plans of two catalogs for the same statements.

    Raises:
        InterfaceError: there are no statements.
    """
    if not first.queries:
        raise InterfaceError("designs are compared in questions", hint="add --workload and a file of SQL")
    pairs = zip(first.queries, second.queries, strict=True)
    return tuple(column for number, pair in enumerate(pairs, 1) for column in _columns(number, *pair))


def _columns(number: int, first: QueryForecast, second: QueryForecast) -> Iterator[ComparedColumn]:
    refusals = (first.refusal, second.refusal)
    here = {column.name: column for column in first.columns}
    there = {column.name: column for column in second.columns}
    for name in dict.fromkeys((*here, *there)) or ("",):
        halves = (_half(here.get(name), first), _half(there.get(name), second))
        yield ComparedColumn(number, " ".join(first.sql.split()), name, halves, refusals)


def _half(column: PredictedColumn | None, query: QueryForecast) -> float | None:
    """Half of the interval; 0 where the catalog alone answers."""
    if column is None:
        return 0.0 if query.refusal is None else None
    return None if column.median is None else column.median * HALF


def comparison_lines(compared: Sequence[ComparedColumn], names: tuple[str, str]) -> list[str]:
    """One table for people.

    Args:
        compared: what was compared.
        names: of the designs.
    """
    rows = [(*(f"± {name}" for name in names), "narrower", "question")]
    last = 0
    for column in compared:
        shown = (_shown(half, why) for half, why in zip(column.halves, column.refusals, strict=True))
        asked = column.sql if column.question != last else ""
        label = f"{column.question}. {asked}".rstrip() if asked else ""
        what = f"{label}  [{column.name}]" if column.name else label
        rows.append((*shown, column.words(names), what.strip()))
        last = column.question
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    lines = [
        f"{row[0]:>{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:<{widths[2]}}  {row[3]}".rstrip()
        for row in rows
    ]
    return [*lines, *_sums(compared, names)]


def _shown(half: float | None, refusal: str | None) -> str:
    return "no answer" if refusal is not None else "?" if half is None else f"{half:.4g}"


def _sums(compared: Sequence[ComparedColumn], names: tuple[str, str]) -> Iterator[str]:
    """How many columns each design wins, and why a question has no answer."""
    wins = [sum(column.narrower == side for column in compared) for side in (0, 1)]
    alike = len(compared) - sum(wins)
    won = f"{names[0]} {wins[0]}, {names[1]} {wins[1]}"
    yield f"narrower: {won}; {alike} alike or unknown (±: half of a 95% interval)"
    for column in {column.question: column for column in compared}.values():
        for name, refusal in zip(names, column.refusals, strict=True):
            if refusal is not None:
                yield f"{column.question} under {name}: {refusal}"
