"""The questions that user-level releases are judged by, and how far answers are off.

| class | question |
|---|---|
| total | everything |
| group | each group of each one-way view, months too |
| one range | 80 uniform ranges of prices |
| joined | 80 random rectangles on each two-way view |
| month | each month |

Only answers whose true share is 1% or more are asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from benchmarks.userlevel.releases import Release
from dpsql.answer.answered import Answered
from dpsql.answer.block import Linear, Noisy, Ratio, Term, one
from dpsql.answer.errorbars import Errors
from dpsql.answer.errorfunctions import HIGH, LOW, PARTS, STDERR
from dpsql.answer.estimated import Groups

FloatArray = npt.NDArray[np.float64]
Truth = Mapping[str, tuple[FloatArray, FloatArray]]

CLASSES = ("total", "group", "one range", "joined", "month")
AGGREGATES = ("COUNT", "SUM", "AVG")
RANGES = 80
SMALLEST = 0.01
SEEN = 3.0
"""Standard errors of a count from 0 below which its average is not judged."""


@dataclass(frozen=True, eq=False)
class Questions:
    """All questions on one view.

    Args:
        view: its name.
        kinds: the class of each.
        masks: leaf masks, one array (questions, n_i) for each axis.
        right: COUNT, SUM and AVG of each over all rows; sums in stored units.
    """

    view: str
    kinds: tuple[str, ...]
    masks: tuple[FloatArray, ...]
    right: dict[str, FloatArray]


def read(cells: FloatArray, masks: tuple[FloatArray, ...]) -> FloatArray:
    """The sums of the cells under each question's masks."""
    letters = "abcdefgh"[: len(masks)]
    names = ",".join([letters, *(f"z{letter}" for letter in letters)])
    return np.asarray(np.einsum(f"{names}->z", cells, *masks, optimize=True), np.float64)


def questions(truth: Truth, price: str, month: str, seed: int = 20251121) -> list[Questions]:
    """All questions of a star, view by view.

    Args:
        truth: its exact views.
        price, month: names of the one-way views of prices and months.
        seed: of the random ranges.
    """
    rng = np.random.default_rng(seed)
    asked: dict[str, list[tuple[str, tuple[FloatArray, ...]]]] = {view: [] for view in truth}
    for view, (rows, _) in truth.items():
        if rows.ndim == 1:
            kinds = ("group", "month") if view == month else ("group",)
            asked[view] += [(kind, (mask,)) for kind in kinds for mask in np.eye(rows.size)]
    asked[price] += [("one range", (_range(rng, truth[price][0].size),)) for _ in range(RANGES)]
    for view, (rows, _) in truth.items():
        if rows.ndim == 2:
            asked[view] += [("joined", tuple(_range(rng, n) for n in rows.shape)) for _ in range(RANGES)]
    asked[month].append(("total", (np.ones(truth[month][0].size),)))
    return list(_seen(truth, asked))


def _seen(truth: Truth, asked: Mapping[str, list[tuple[str, tuple[FloatArray, ...]]]]) -> Iterator[Questions]:
    for view, pairs in asked.items():
        rows, sums = truth[view]
        masks = tuple(np.array([own[i] for _, own in pairs]) for i in range(rows.ndim))
        kept = read(rows, masks) >= SMALLEST * rows.sum()
        masks = tuple(mask[kept] for mask in masks)
        count, total = read(rows, masks), read(sums, masks)
        kinds = tuple(kind for (kind, _), keep in zip(pairs, kept, strict=True) if keep)
        yield Questions(view, kinds, masks, {"COUNT": count, "SUM": total, "AVG": total / count})


def _range(rng: np.random.Generator, n: int) -> FloatArray:
    """A range of leaves, all ranges equally likely."""
    low, high = np.sort(rng.choice(n + 1, 2, replace=False))
    leaf = np.arange(n)
    return ((leaf >= low) & (leaf < high)).astype(np.float64)


@dataclass(frozen=True)
class Answer:
    """One aggregate of many questions: values, interval ends and standard errors; NaN where AVG is below noise."""

    value: FloatArray
    low: FloatArray
    high: FloatArray
    stderr: FloatArray
    parts: dict[str, FloatArray]


def answers(release: Release, asked: Questions, measure: str) -> dict[str, Answer]:
    """COUNT, SUM and AVG of one release, by the functions that SQL's errors are made of; sums in stored units."""
    view = release.view(asked.view)
    rows, sums = view.statistics["count"], view.statistics[measure]
    count = read(release.leaves[rows.id], asked.masks)
    total = read(release.leaves[sums.id], asked.masks) + sums.mid * count
    box = (0,) * len(asked.masks)
    plan = cast(Any, SimpleNamespace(view=view, boxes_for=lambda _: (box,), box_masks=lambda _: asked.masks))
    index = tuple(np.arange(len(count)) for _ in asked.masks)
    scale = 10.0**-sums.scale
    counted, summed = one(Term("count")), one(Term(measure))
    totals = {Term("count"): count, Term(measure): total * scale}
    plan.shape = (len(count),)
    lookup = cast(Any, SimpleNamespace(nodes=(len(count),)))
    answered = Answered(plan, totals, (lookup,), Errors(plan, cast(Any, release), index), {})
    forms: dict[str, Noisy] = {"COUNT": counted, "SUM": summed, "AVG": Ratio(summed, counted, mean=True)}
    return {
        name: _answer(form, answered, 1.0 if name == "COUNT" else 1 / scale) for name, form in forms.items()
    }


def _answer(form: Noisy, answered: Answered, scale: float) -> Answer:
    above, below = answered.parts(form)
    value = above if isinstance(form, Linear) else np.divide(above, below)
    low, high = (error.values(Groups(form, answered), 0.95) * scale for error in (LOW, HIGH))
    parts = {name: error.values(Groups(form, answered), 0.95) * scale for name, error in PARTS.items()}
    value = value * scale
    if not isinstance(form, Linear):
        noise = np.sqrt(np.maximum(answered.errors.variance(form.below), 1e-300))
        lost = np.abs(below) < SEEN * noise
        value, low, high = (np.where(lost, np.nan, each) for each in (value, low, high))
    return Answer(value, low, high, STDERR.values(Groups(form, answered), 0.95) * scale, parts)
