"""What `dpsql plan --units --rows` says of a star, beside what its releases then show.

Compared is the typical relative standard error (noise and scale) of each class of questions: the median over
questions, then over views.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from benchmarks.userlevel.questions import answers, questions
from benchmarks.userlevel.releases import Star
from dpsql.publishing.userlevel.guess import Guess, crowds
from dpsql.publishing.userlevel.predict import by_kind, predict_classes

KINDS = {
    "total": "total", "one-way group": "group", "one range": "one range", "ranges joined": "joined", "month": "month"
}  # fmt: skip
"""Classes of the plan by those of the questions."""


def shown(
    star: Star, price: str, month: str, releases: int, *, months: bool = True
) -> dict[tuple[str, str], float]:
    """The typical relative standard error that releases show, by (class, aggregate).

    Args:
        star, price, month, releases: as of `measure`.
        months: whether the plan knows months as months; else they are groups like others.
    """
    found: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for seed in range(1, releases + 1):
        release = star.release(seed)
        for asked in questions(star.truth, price, month):
            for name, answer in answers(release, asked, star.measure).items():
                for kind, error, value in zip(asked.kinds, answer.stderr, answer.value, strict=True):
                    once = (kind, asked.view) != (("group", month) if months else ("month", month))
                    if np.isfinite(value) and once:
                        found[kind, asked.view, name].append(float(error / abs(value)))
    views: dict[tuple[str, str], list[float]] = defaultdict(list)
    for (kind, _, name), errors in found.items():
        views[kind, name].append(float(np.median(errors)))
    return {key: float(np.median(each)) for key, each in views.items()}


def predicted(star: Star, price: str, guess: Guess) -> dict[tuple[str, str], float]:
    """What the plan says of the same classes; of single ranges, those of prices."""
    classes = tuple(
        c
        for c in predict_classes(star.plan, guess, crowds(star.plan.catalog, star.raw, star.plan))
        if c.of == star.of and (c.kind != "one range" or c.view == price)
    )
    found = {}
    for (_, kind, measure), (error, mean) in by_kind(classes).items():
        if kind in KINDS and measure in ("count", star.measure):
            found[KINDS[kind], "COUNT" if mean is None else "SUM"] = error
            if mean is not None:
                found[KINDS[kind], "AVG"] = mean
    return found


def over_shown(
    star: Star, price: str, month: str, guess: Guess, releases: int
) -> dict[tuple[str, str], float]:
    """What the plan says over what releases show, by (class, aggregate)."""
    told = predicted(star, price, guess)
    found = shown(star, price, month, releases, months=("month", "COUNT") in told)
    return {key: told[key] / found[key] for key in told if key in found}
