"""Forecast for tables with `max_ids: auto`: statements and typical questions asked of rehearsals.

A rehearsal is the shipped recipe run on a made-up table and asked in SQL like a release. Every number is the median
over `SEEDS` of them. How much each guess matters is told by one rehearsal with half of it and one with twice of it,
against one with the same seed.

**Privacy**: public facts and guesses alone; nothing private is opened and nothing is spent.
**Source**: docs/method/user_level.md, "Expecting before spending".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf, isinf
from typing import NamedTuple

import numpy as np

from dpsql.catalog import Catalog
from dpsql.catalog.base import nearest
from dpsql.contributions.guess import Crowds, Guess
from dpsql.contributions.rehearsal import chosen_tables
from dpsql.curator.classes import ClassForecast, ask_classes, typical_of
from dpsql.curator.dry_release import Priced, Rehearsal, dry_answerer, rehearse
from dpsql.errors import Error, InterfaceError
from dpsql.executor.predict import PredictedColumn, predict

SEEDS = 5
"""Rehearsals that a number is the median of."""

Prediction = tuple[PredictedColumn, ...] | str
"""A statement's noisy columns, or why it is refused."""


@dataclass(frozen=True)
class UnderpoweredTable:
    """A table, or a measure of it, with too few people for the noise: its intervals have a lower end alone.

    Args:
        of: the table.
        measures: sums of which are meant; empty where its rows are.
    """

    of: str
    measures: tuple[str, ...]


@dataclass(frozen=True)
class GuessSensitivity:
    """Sensitivity of a forecast to a guess.

    Args:
        guess: its name, as of `Guess`.
        stated: whether it was stated; supposed otherwise.
        less, more: what typical errors are multiplied by where the truth is half of it or twice of it (`alike`: 0 or
            1); None where intervals then have no upper end.
    """

    guess: str
    stated: bool
    less: float | None
    more: float | None

    @property
    def size(self) -> float:
        """The larger of the two changes."""
        return max(inf if x is None else abs(float(np.log(x))) for x in (self.less, self.more))


class Foresight(NamedTuple):
    """Forecast by rehearsals.

    Args:
        predictions: of the statements, in their order, for columns of tables with `max_ids: auto`.
        classes: relative errors of typical questions.
        blind: what drowns in the noise.
        weights: guesses, the one that matters most first.
        stands_for: the most units that one made-up unit stands for; above 1 tables were sampled.
    """

    predictions: tuple[Prediction, ...] = ()
    classes: tuple[ClassForecast, ...] = ()
    blind: tuple[UnderpoweredTable, ...] = ()
    weights: tuple[GuessSensitivity, ...] = ()
    stands_for: int = 1


Rehearsed = tuple[Rehearsal, tuple[Prediction, ...], tuple[ClassForecast, ...]]
"""A rehearsal, and what it answers: statements and classes of questions."""
Ask = Callable[[Sequence[str], Guess, int], Rehearsed]
"""Rehearses a release: (statements, guess, seed)."""


def _rehearsed(
    priced: Priced, catalog: Catalog, crowds: Crowds, workload: Sequence[str], guess: Guess, seed: int
) -> Rehearsed:
    plan = priced.plan
    rehearsal = rehearse(plan, guess, crowds, seed)
    with dry_answerer(priced, catalog, guess, rehearsal) as answerer:
        views = {s.view: rehearsal.stands_for.get(s.of, 1) for s in plan.statistics}
        predictions: list[Prediction] = []
        for sql in workload:
            try:
                predictions.append(_grown(predict(answerer, sql), views))
            except Error as error:
                predictions.append(str(error))
        classes = tuple(ask_classes(plan, crowds, answerer.release, rehearsal))
    return rehearsal, tuple(predictions), classes


def foresee(
    priced: Priced, catalog: Catalog, crowds: Crowds, workload: Sequence[str], guess: Guess
) -> Foresight:
    """Rehearse a release and ask it.

    Args:
        priced: the planned release.
        catalog: as it was written.
        crowds: how crowded the leaves of axes are expected to be.
        workload: statements.
        guess: what is publicly known about its tables with `max_ids: auto`.

    Raises:
        InterfaceError: a mean is stated of what is no measure of these tables, or lies outside its bounds.
    """
    plan, ask = priced.plan, partial(_rehearsed, priced, catalog, crowds)
    known = [s.measure.name for s in plan.statistics if s.bounds is not None]
    for name in guess.means:
        if name not in known:
            raise InterfaceError(f"mean of {name}: no such measure", hint=nearest(name, tuple(known)))
    if not chosen_tables(plan):
        return Foresight()
    asked = (ask(workload, guess, seed) for seed in range(1, SEEDS + 1))
    rehearsals, predictions, classes = zip(*asked, strict=True)
    return Foresight(
        tuple(_typical(of_statement) for of_statement in zip(*predictions, strict=True)),
        typical_of(classes),
        tuple(_blind(rehearsals)),
        _weights(ask, guess, classes[0]),
        max(rehearsals[0].stands_for.values()),
    )


def _grown(columns: tuple[PredictedColumn, ...], views: Mapping[str, int]) -> tuple[PredictedColumn, ...]:
    """Columns of a sample of the units as of all of them: errors of counts and sums grow, those of ratios stay."""

    def times(error: float | None, column: PredictedColumn) -> float | None:
        return None if error is None else error * (1 if column.ratio else views.get(column.view, 1))

    return tuple(
        replace(c, least=times(c.least, c), median=times(c.median, c), most=times(c.most, c)) for c in columns
    )


def _typical(seeds: Sequence[Prediction]) -> Prediction:
    """The medians over rehearsals of one statement's columns."""
    told = [each for each in seeds if not isinstance(each, str)]
    if len(told) < len(seeds):
        return next(each for each in seeds if isinstance(each, str))
    return tuple(
        replace(
            each[0], least=_middle([c.least for c in each]), median=_middle([c.median for c in each]),
            most=_middle([c.most for c in each]), relative=_middle([c.relative for c in each]),
            open_groups=sorted(c.open_groups for c in each)[len(each) // 2],
        )
        for each in zip(*told, strict=True)
    )  # fmt: skip


def _middle(numbers: Sequence[float | None]) -> float | None:
    """The median, what has no end above all numbers; None where that is the median."""
    found = float(np.median([inf if x is None else x for x in numbers]))
    return None if isinf(found) else found


def _blind(rehearsals: Sequence[Rehearsal]) -> Iterator[UnderpoweredTable]:
    """Questions without an upper end in most rehearsals."""
    seen = [(of, name) for each in rehearsals for of, names in each.blind.items() for name in names]
    often = [pair for pair in dict.fromkeys(seen) if 2 * seen.count(pair) > len(rehearsals)]
    for of in dict.fromkeys(of for of, _ in often):
        names = tuple(name for table, name in often if table == of)
        yield UnderpoweredTable(of, () if "" in names else names)


def variants(guess: Guess) -> dict[str, tuple[Guess, Guess]]:
    """By name of a guess: the same with half and with twice of it, as far as a table may have it."""
    mean, most = guess.mean, guess.most or guess.rows
    fewer = None if guess.most is None else min(guess.most, max(1.0, guess.rows * 0.5))
    found = {
        "units and rows": (
            replace(guess, units=max(1, guess.units // 2), rows=max(1, guess.rows // 2), most=fewer),
            replace(guess, units=2 * guess.units, rows=2 * guess.rows),
        ),
        "typical": (
            replace(guess, typical=max(1.0, guess.median / 2)),
            replace(guess, typical=min(2 * guess.median, max(most, 1.0))),
        ),
    }
    if guess.most is not None:
        least = max(mean, guess.median)
        found["most"] = (
            replace(guess, most=max(guess.most / 2, least)),
            replace(guess, most=min(2 * guess.most, guess.rows)),
        )
    found["alike"] = replace(guess, alike=0.0), replace(guess, alike=1.0)
    return found


def _weights(ask: Ask, guess: Guess, classes: Sequence[ClassForecast]) -> tuple[GuessSensitivity, ...]:
    """Sensitivity to each guess, largest first."""
    stated = {"units and rows": True, "typical": guess.typical is not None, "most": True}
    found = [
        GuessSensitivity(name, stated.get(name, False), *(_change(ask, each, classes) for each in pair))
        for name, pair in variants(guess).items()
    ]
    return tuple(sorted(found, key=lambda weight: -weight.size))


def _change(ask: Ask, guess: Guess, classes: Sequence[ClassForecast]) -> float | None:
    """Factor on typical errors: the median over kinds of questions that had an end before."""
    _, _, other = ask((), guess, 1)
    pairs = [(a.error, b.error) for a, b in zip(classes, other, strict=True)]
    ratios = [inf if b is None else b / a for a, b in pairs if a and not isinf(a)]
    middle = float(np.median(ratios)) if ratios else 1.0
    return None if isinf(middle) else max(middle, 1e-3)
