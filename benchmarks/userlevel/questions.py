"""The questions that user-level releases are judged by, and how far answers are off.

| class | question |
|---|---|
| total | everything |
| group | each group of each one-way view, but tiers |
| range | 40 uniform ranges of each ordered one-way view, but tiers |
| joined | 40 random rectangles on each two-way view; where an axis has no order, single groups of it |
| tier | each group of an axis that follows a person's number of rows |
| tier range | 40 uniform ranges of such an axis, where it is ordered |

Only answers whose true share is 1% or more are asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from benchmarks.userlevel.releases import Release
from benchmarks.userlevel.stars import Views
from dpsql.curator.rehearsal import BoxAnswer, ViewBoxes, box_answers

FloatArray = npt.NDArray[np.float64]
Truth = Mapping[str, tuple[FloatArray, FloatArray]]

CLASSES = ("total", "group", "range", "joined", "tier", "tier range")
AGGREGATES = ("COUNT", "SUM", "AVG")
RANGES = 40
SMALLEST = 0.01


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


def questions(
    truth: Truth, views: Views, ordered: Mapping[str, Sequence[bool]], seed: int = 20251121
) -> list[Questions]:
    """All questions of a star, view by view.

    Args:
        truth: its exact views.
        views: what is asked of which.
        ordered: of each view, which of its axes are.
        seed: of the random ranges.
    """
    rng = np.random.default_rng(seed)
    asked: dict[str, list[tuple[str, tuple[FloatArray, ...]]]] = {view: [] for view in truth}
    for kind, names in (("group", views.groups), ("tier", views.tiers)):
        for view in names:
            asked[view] += [(kind, (mask,)) for mask in np.eye(truth[view][0].size)]
    for kind, names in (("range", views.ranges), ("tier range", views.ordered)):
        for view in names:
            asked[view] += [(kind, (random_range(rng, truth[view][0].size),)) for _ in range(RANGES)]
    for view in views.pairs:
        sides = list(zip(truth[view][0].shape, ordered[view], strict=True))
        for _ in range(RANGES):
            masks = tuple(random_range(rng, n) if line else np.eye(n)[rng.integers(n)] for n, line in sides)
            asked[view].append(("joined", masks))
    whole = views.groups[0]
    asked[whole].append(("total", (np.ones(truth[whole][0].size),)))
    return list(seen(truth, asked))


def seen(
    truth: Truth, asked: Mapping[str, list[tuple[str, tuple[FloatArray, ...]]]], smallest: float = SMALLEST
) -> Iterator[Questions]:
    """Questions by view whose true share is so much or more."""
    for view, pairs in asked.items():
        if not pairs:
            continue
        rows, sums = truth[view]
        masks = tuple(np.array([own[i] for _, own in pairs]) for i in range(rows.ndim))
        kept = read(rows, masks) >= smallest * rows.sum()
        masks = tuple(mask[kept] for mask in masks)
        count, total = read(rows, masks), read(sums, masks)
        kinds = tuple(kind for (kind, _), keep in zip(pairs, kept, strict=True) if keep)
        yield Questions(view, kinds, masks, {"COUNT": count, "SUM": total, "AVG": total / count})


def random_range(rng: np.random.Generator, n: int) -> FloatArray:
    """A range of leaves, all ranges equally likely."""
    low, high = np.sort(rng.choice(n + 1, 2, replace=False))
    leaf = np.arange(n)
    return ((leaf >= low) & (leaf < high)).astype(np.float64)


def answers(release: Release, asked: Questions, measure: str) -> dict[str, BoxAnswer]:
    """COUNT, SUM and AVG of one release, by the functions that SQL's errors are made of; sums in stored units."""
    leaves = dict(enumerate(release.leaves))
    return box_answers(cast(Any, release), ViewBoxes(release.view(asked.view), asked.masks), leaves, measure)
