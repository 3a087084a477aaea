"""The star join of seed 003's experiments: five predicate axes, several rows a person, one report each.

Generated: Gaussian copula with correlation .3, every axis normal (mean m/2, deviation m/4) cut to its m
= 25 leaves, two axes belong to the person and three to the row; 1 to 10 rows a person, 2.21 on average;
tau = 1.
"""

from __future__ import annotations

import math
from fractions import Fraction
from statistics import NormalDist

import numpy as np

from benchmarks.local.planes import box_table
from benchmarks.local.simulated import simulate_tallies
from dpsql.client import Plan, read_plan
from dpsql.local.estimate import AxisTable
from dpsql.local.plan import CollectionDesign, PlannedAxis, PlannedMeasure, build_plan
from dpsql.local.tallies import CountedCollection, RespondentRows

LEAVES, AXES, OWN_AXES, RHO = 25, 5, 2, 0.3
PEOPLE = 1_000_000


def design(epsilon: float, measure: bool, people: int = PEOPLE, leaves: int = LEAVES) -> CollectionDesign:
    """The collection: trees, all pairs, and a share for row counts."""
    return CollectionDesign(
        "star", Fraction(str(epsilon)), people,
        tuple(PlannedAxis(f"a{i}", leaves, leaves) for i in range(AXES)),
        measures=(PlannedMeasure("amount", 1, LEAVES),) if measure else (),
        together=(tuple(range(AXES)),), tau=1, rows_floor=1, rows_cap=10, row_weighting="none",
        row_share=Fraction(15, 100), wave_share=Fraction(0),
    )  # fmt: skip


def star(people: int, rng: np.random.Generator, leaves: int = LEAVES) -> RespondentRows:
    """Everybody's rows; the measure is a sixth normal attribute of the row, 1 to 25."""
    rows = row_counts(people, rng)
    first = np.concatenate([[0], np.cumsum(rows)])
    person = np.repeat(np.arange(people), rows)
    common = rng.standard_normal((people, 1))
    own = math.sqrt(RHO) * common + math.sqrt(1 - RHO) * rng.standard_normal((people, OWN_AXES))
    fresh = rng.standard_normal((first[-1], AXES - OWN_AXES + 1))
    row = math.sqrt(RHO) * common[person] + math.sqrt(1 - RHO) * fresh
    values = np.hstack([own[person], row])
    axes = np.searchsorted(_cuts(leaves), values[:, :AXES])
    return RespondentRows(first, axes, np.searchsorted(_cuts(LEAVES), values[:, AXES:]) + 1)


def row_counts(people: int, rng: np.random.Generator) -> np.ndarray:
    """Rows of each person: 1 to 10, 2.21 on average."""
    chances = 0.5455 ** np.arange(10)
    return rng.choice(np.arange(1, 11), size=people, p=chances / chances.sum())


def _cuts(leaves: int) -> np.ndarray:
    """Cuts of a standard normal that give every axis its cut-off normal histogram."""
    at = np.arange(leaves + 1)
    held = np.array([NormalDist(leaves / 2, leaves / 4).cdf(float(x)) for x in at])
    share = (held - held[0]) / (held[-1] - held[0])
    return np.array([NormalDist().inv_cdf(float(s)) for s in share[1:-1]])


def queries(
    axes: int, dimensions: int, volume: float, count: int, seed: int, leaves: int = LEAVES
) -> list[tuple[slice, ...]]:
    """Random boxes over a set of axes with `dimensions` predicates."""
    rng = np.random.default_rng(seed)
    width = round(volume * leaves)
    found = []
    for _ in range(count):
        box = [slice(0, leaves)] * axes
        for axis in rng.permutation(axes)[:dimensions]:
            low = int(rng.integers(0, leaves - width + 1))
            box[axis] = slice(low, low + width)
        found.append(tuple(box))
    return found


def collect(
    epsilon: float, measure: bool, people: RespondentRows, seed: int, leaves: int = LEAVES
) -> tuple[Plan, CountedCollection]:
    """A plan and everybody's tallies."""
    plan = read_plan(build_plan(design(epsilon, measure, people.count, leaves)))
    return plan, simulate_tallies(plan, people, np.random.default_rng(seed))


def truth(
    people: RespondentRows, axes: tuple[int, ...], weights: np.ndarray | None = None, leaves: int = LEAVES
) -> np.ndarray:
    """Exact rows (or summed weights) per leaf combination."""
    bins = [np.arange(leaves + 1)] * len(axes)
    return np.histogramdd(people.leaves[:, list(axes)], bins=bins, weights=weights)[0]


def _cover_boxes(
    hits: dict[str, list[bool]],
    people: RespondentRows,
    plan: Plan,
    collection: CountedCollection,
    known: dict[int, AxisTable],
    run: int,
) -> None:
    axes = (0, 3)
    values, reading = box_table(collection, known, axes)
    exact = truth(people, axes) / people.count
    for box in queries(2, 2, 0.3, 20, run):
        masks = [np.zeros((1, LEAVES)) for _ in axes]
        for mask, cut in zip(masks, box, strict=True):
            mask[0, cut] = 1
        error = 1.96 * math.sqrt(float(reading.covariance(masks).noise[0]))
        hits["COUNT of boxes"].append(bool(abs(values[box].sum() - exact[box].sum()) < error))
