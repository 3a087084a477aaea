"""The questions that user-level releases are judged by, and how far answers are off.

| class | question |
|---|---|
| total | everything |
| one-way group | each group of each one-way view |
| one range | 80 uniform ranges of prices |
| two ranges joined | 80 random rectangles on each two-way view |
| month | each month |

Only answers whose true share is 1% or more are asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.userlevel.releases import Numbers
from dpsql.answer.errorbars import fieller

FloatArray = npt.NDArray[np.float64]
Truth = Mapping[str, Numbers]

CLASSES = ("total", "one-way group", "one range", "two ranges joined", "month")
AGGREGATES = ("COUNT", "SUM", "AVG")
RANGES = 80
SMALLEST = 0.01
FAR, SEEN = 10.0, 3.0
"""Standard errors of a count from 0: delta method above 10, Fieller above 3, refused below."""
Z = 1.959963984540054


class Question(NamedTuple):
    """A question on one view: its class and one leaf mask for each axis."""

    kind: str
    view: str
    masks: tuple[FloatArray, ...]


class Answer(NamedTuple):
    """An answer and the ends of its interval; NaN where AVG is below noise."""

    value: float
    low: float
    high: float
    signal: float


def questions(truth: Truth, price: str, month: str, seed: int = 20251121) -> list[Question]:
    """All questions of a star.

    Args:
        truth: its exact views.
        price, month: names of the one-way views of prices and months.
        seed: of the random ranges.
    """
    rng = np.random.default_rng(seed)
    whole = float(truth[month].count.sum())
    asked = [*_groups(truth, month), *_ranges(truth, price, rng), *_rectangles(truth, rng)]
    asked.append(Question("total", month, (np.ones(truth[month].count.size),)))
    return [q for q in asked if read(truth[q.view].count, q.masks) >= SMALLEST * whole]


def _groups(truth: Truth, month: str) -> Iterator[Question]:
    for view, numbers in truth.items():
        if numbers.count.ndim == 1:
            for mask in np.eye(numbers.count.size):
                yield Question("one-way group", view, (mask,))
                if view == month:
                    yield Question("month", view, (mask,))


def _ranges(truth: Truth, price: str, rng: np.random.Generator) -> Iterator[Question]:
    for _ in range(RANGES):
        yield Question("one range", price, (_range(rng, truth[price].count.size),))


def _rectangles(truth: Truth, rng: np.random.Generator) -> Iterator[Question]:
    for view, numbers in truth.items():
        if numbers.count.ndim == 2:
            for _ in range(RANGES):
                masks = tuple(_range(rng, n) for n in numbers.count.shape)
                yield Question("two ranges joined", view, masks)


def _range(rng: np.random.Generator, n: int) -> FloatArray:
    """A range of leaves, all ranges equally likely."""
    low, high = np.sort(rng.choice(n + 1, 2, replace=False))
    leaf = np.arange(n)
    return ((leaf >= low) & (leaf < high)).astype(np.float64)


def read(cells: FloatArray, masks: tuple[FloatArray, ...]) -> float:
    """The sum of the cells under the masks."""
    for mask in masks:
        cells = np.tensordot(mask, cells, axes=(0, 0))
    return float(cells)


def exact(numbers: Numbers, masks: tuple[FloatArray, ...]) -> dict[str, float]:
    """COUNT, SUM and AVG without error bars."""
    count = read(numbers.count, masks)
    total = read(numbers.total, masks) + numbers.mid * count
    return {"COUNT": count, "SUM": total, "AVG": total / count if count > 0 else np.nan}


def answers(numbers: Numbers, masks: tuple[FloatArray, ...]) -> dict[str, Answer]:
    """COUNT, SUM and AVG of one release with the noise's 95% intervals."""
    assert numbers.variances is not None
    count, y = read(numbers.count, masks), read(numbers.total, masks)
    vc, vy = (float(v.covariance([m[None, :] for m in masks]).noise[0]) for v in numbers.variances)
    signal = count / vc**0.5
    total = y + numbers.mid * count
    found = {
        "COUNT": _normal(count, vc, signal),
        "SUM": _normal(total, vy + numbers.mid**2 * vc, signal),
    }
    if signal < SEEN:
        return found | {"AVG": Answer(np.nan, np.nan, np.nan, signal)}
    mean = numbers.mid + y / count
    if signal >= FAR:
        return found | {"AVG": _normal(mean, (vy + (mean - numbers.mid) ** 2 * vc) / count**2, signal)}
    one = np.ones(1)
    low, high = fieller(y * one, count * one, vy * one, 0 * one, vc * one, Z)
    return found | {"AVG": Answer(mean, numbers.mid + float(low[0]), numbers.mid + float(high[0]), signal)}


def _normal(value: float, variance: float, signal: float) -> Answer:
    half = Z * variance**0.5
    return Answer(value, value - half, value + half, signal)
