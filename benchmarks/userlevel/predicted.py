"""Errors of a made-up table over those that releases of a star show; `forecasts` compares what is printed.

Both are asked the same questions. Compared is `DP_STDERR` over the answer, the median over the questions of a class,
then over releases. Stated of a star are its units and rows, the middle and the most, and the mean of its measure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from benchmarks.userlevel.questions import Questions, answers
from benchmarks.userlevel.releases import Release, Star
from benchmarks.userlevel.simulator import People
from dpsql.contributions.rehearsal import Guess, crowds, make_up
from dpsql.curator.rehearsal import SEEDS

Cell = tuple[str, str]
"""A class of questions and an aggregate."""


def rounded(number: float) -> float:
    """Two digits of a number."""
    return float(f"{number:.2g}")


def stated(star: Star) -> Guess:
    """What a curator says of a star: about what is true."""
    people = People(star)
    units, rows = int(rounded(people.number)), int(rounded(len(people.unit)))
    scale = next(s.bounds.scale for s in star.plan.row_statistics(star.of).values() if s.bounds is not None)
    mean = rounded(float(people.value.mean()) * 10.0**-scale)
    typical = rounded(float(np.median(people.owned)))
    most = max(rounded(float(people.owned.max())), rows / units)
    return Guess(units, max(rows, units), typical, most, means={star.measure: mean})


def typical_errors(star: Star, asked: Sequence[Questions], some: Iterable[Release]) -> dict[Cell, float]:
    """The typical error over the answer by (class, aggregate); infinite where most ends are open."""
    medians: dict[Cell, list[float]] = defaultdict(list)
    for release in some:
        errors: dict[Cell, list[float]] = defaultdict(list)
        for each in asked:
            for name, answer in answers(release, each, star.measure).items():
                for kind, error, value in zip(each.kinds, answer.stderr, answer.value, strict=True):
                    if np.isfinite(value) and value:
                        errors[kind, name].append(float(error / abs(value)))
        for cell, own in errors.items():
            medians[cell].append(float(np.median(own)))
    return {cell: float(np.median(own)) for cell, own in medians.items()}


def rehearsals(star: Star, guess: Guess, seeds: int = SEEDS) -> Iterable[Release]:
    """What the plan makes up."""
    known = crowds(star.plan.catalog, star.raw, star.plan)
    for seed in range(1, seeds + 1):
        yield star.told(make_up(star.plan, star.of, guess, known, seed).drawn)


def over_shown(
    star: Star, asked: Sequence[Questions], guess: Guess, some: Iterable[Release]
) -> dict[Cell, float]:
    """What the plan says over what releases show, by (class, aggregate); 1 where both have no upper end."""
    told, shown = typical_errors(star, asked, rehearsals(star, guess)), typical_errors(star, asked, some)
    return {
        cell: 1.0 if np.isinf(told[cell]) and np.isinf(shown[cell]) else told[cell] / shown[cell]
        for cell in shown
        if cell in told
    }
