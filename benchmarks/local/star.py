"""The star join of seed 003's experiments: five predicate axes, several rows a person, one report each.

Generated: Gaussian copula with correlation .3, every axis normal (mean m/2, deviation m/4) cut to its m
= 25 leaves, two axes belong to the person and three to the row; 1 to 10 rows a person, 2.21 on average;
tau = 1, and rows that tau cuts are taken to resemble the others: `row_factor`.
NMSE as in seed 003, eq. (30), MRE as in eq. (31).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from fractions import Fraction
from statistics import NormalDist

import numpy as np

from benchmarks.figures import Figures
from benchmarks.local.simulated import simulate_tallies
from dpsql.client import Plan, read_plan
from dpsql.local.estimate import AxisTable, axis_table, model_of, table
from dpsql.local.parts import interactions
from dpsql.local.plan import CollectionDesign, PlannedAxis, PlannedMeasure, build_plan
from dpsql.local.smooth import joint_table
from dpsql.local.tallies import RespondentRows, Tallies
from dpsql.local.totals import row_scale
from dpsql.matrices.kronecker import AxisSplit, ProductReading
from dpsql.matrices.leaves import PrefixVariance

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
) -> tuple[Plan, Tallies]:
    """A plan and everybody's tallies."""
    plan = read_plan(build_plan(design(epsilon, measure, people.count, leaves)))
    return plan, simulate_tallies(plan, people, np.random.default_rng(seed))


def row_factor(plan: Plan, tallies: Tallies, known: Mapping[int, AxisTable]) -> float:
    """Rows per unit of share if the rows that tau cuts resemble the others, as they do in this star."""
    scale = row_scale(plan, tallies, known)
    return scale.factor if scale.clipped is None else scale.factor / (1 - scale.clipped.value)


def truth(
    people: RespondentRows, axes: tuple[int, ...], weights: np.ndarray | None = None, leaves: int = LEAVES
) -> np.ndarray:
    """Exact rows (or summed weights) per leaf combination."""
    bins = [np.arange(leaves + 1)] * len(axes)
    return np.histogramdd(people.leaves[:, list(axes)], bins=bins, weights=weights)[0]


def counts(figures: Figures, runs: int) -> None:
    """COUNT NMSE at epsilon 1, volume .3, one to three predicates."""
    errors: dict[int, list[float]] = {1: [], 2: [], 3: []}
    for run in range(runs):
        people = star(PEOPLE, np.random.default_rng(run))
        plan, tallies = collect(1.0, False, people, 100 + run)
        known = {a: axis_table(plan, tallies, a) for a in range(AXES)}
        factor = row_factor(plan, tallies, known)
        for axes in itertools.combinations(range(AXES), 3):
            exact = truth(people, axes)
            rows = joint_table(plan, tallies, axes, None, 1.0).shares * factor
            for dimensions in errors:
                for box in queries(3, dimensions, 0.3, 40, run):
                    errors[dimensions].append(((rows[box].sum() - exact[box].sum()) / exact.sum()) ** 2)
    for dimensions, bound in ((1, 8e-5), (2, 5e-5), (3, 2e-5)):
        name = f"star join COUNT NMSE, {dimensions} predicates"
        figures.at_most(
            "star join COUNT NMSE by its bound", float(np.mean(errors[dimensions])) / bound, 1, name
        )


def averages(figures: Figures, runs: int) -> None:
    """AVG MRE with one predicate of volume .15."""
    for epsilon, bound in ((1.0, 0.11), (2.0, 0.035), (4.0, 0.013)):
        errors = []
        for run in range(runs):
            people = star(PEOPLE, np.random.default_rng(run))
            plan, tallies = collect(epsilon, True, people, 200 + run)
            for axis in range(AXES):
                rows, sums = (
                    truth(people, (axis,)),
                    truth(people, (axis,), people.measures[:, 0].astype(float)),
                )
                bits = joint_table(plan, tallies, (axis,), 0, 1.0).shares
                for (box,) in queries(1, 1, 0.15, 20, run):
                    share = bits[box, 1].sum() / bits[box].sum()
                    exact = sums[box].sum() / rows[box].sum()
                    errors.append(abs(1 + share * (LEAVES - 1) - exact) / exact)
        figures.at_most(
            "star join AVG MRE by its bound", float(np.mean(errors)) / bound, 1, f"epsilon {epsilon:g}"
        )


def coverage(figures: Figures, runs: int) -> None:
    """Share of 95% intervals that hold the answer on slots: COUNT, SUM and AVG of ranges and boxes."""
    for epsilon in (1.0, 3.0, 5.0):
        hits: dict[str, list[bool]] = {"COUNT": [], "SUM": [], "AVG": [], "COUNT of boxes": []}
        for run in range(runs):
            people = star(100_000, np.random.default_rng(1000 + run))
            at = people.first[:-1]
            one = RespondentRows(np.arange(people.count + 1), people.leaves[at], people.measures[at])
            plan, tallies = collect(epsilon, True, one, 300 + run)
            known = {a: axis_table(plan, tallies, a) for a in (0, 3)}
            _cover_ranges(hits, one, known, run)
            _cover_boxes(hits, one, plan, tallies, known, run)
        for name, found in hits.items():
            label, share = f"95% intervals of {name}, epsilon {epsilon:g}", float(np.mean(found))
            figures.within("star join, coverage", share, 0.93, 0.97, label)


def _cover_ranges(
    hits: dict[str, list[bool]], people: RespondentRows, known: dict[int, AxisTable], run: int
) -> None:
    centred = (people.measures[:, 0] - 13) / 12
    for axis, held in known.items():
        rows = truth(people, (axis,)) / people.count
        sums = truth(people, (axis,), centred) / people.count
        for (box,) in queries(1, 1, 0.3, 5, run):
            mask = np.zeros(LEAVES)
            mask[box] = 1
            count, total = mask @ held.counts.shares, mask @ held.signed[0].shares
            count_variance = mask @ held.counts.covariance @ mask
            sum_variance = mask @ held.signed[0].covariance @ mask
            hits["COUNT"].append(bool(abs(count - mask @ rows) < 1.96 * math.sqrt(count_variance)))
            hits["SUM"].append(bool(abs(total - mask @ sums) < 1.96 * math.sqrt(sum_variance)))
            ratio, exact = total / count, mask @ sums / (mask @ rows)
            spread = math.sqrt(sum_variance + ratio**2 * count_variance) / count
            hits["AVG"].append(bool(abs(ratio - exact) < 1.96 * spread))


def _cover_boxes(
    hits: dict[str, list[bool]],
    people: RespondentRows,
    plan: Plan,
    tallies: Tallies,
    known: dict[int, AxisTable],
    run: int,
) -> None:
    axes = (0, 3)
    held = table(axes, known, interactions(plan, tallies, [axes], known))
    models = tuple(AxisSplit(PrefixVariance(model_of(known[a].counts))) for a in axes)
    exact = truth(people, axes) / people.count
    for box in queries(2, 2, 0.3, 20, run):
        masks = [np.zeros((1, LEAVES)) for _ in axes]
        for mask, cut in zip(masks, box, strict=True):
            mask[0, cut] = 1
        variance = float(ProductReading(models, dict(held.strengths)).covariance(masks).noise[0])
        hits["COUNT of boxes"].append(
            bool(abs(held.values[box].sum() - exact[box].sum()) < 1.96 * math.sqrt(variance))
        )
