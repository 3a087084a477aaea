"""Seed 003's comparison on star joins: COUNT and SUM by NMSE, AVG by MRE, for its peers and for ours.

Every method answers with rows per box and value of the measure's bit; SUM = a_min rows_0 + a_max rows_1. Ours is a
collection: plan, simulated reports, estimates; its default answer is what SQL returns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from benchmarks.local import peers as local_peers
from benchmarks.local import star as local_star
from benchmarks.local.peers import HIGHEST, LOWEST
from benchmarks.local.simulated import simulate_tallies
from dpsql.client import Plan, read_plan
from dpsql.local.estimate import AxisTable, axis_table, table
from dpsql.local.mechanisms.truncation import theory_tau
from dpsql.local.parts import interactions
from dpsql.local.plan import build_plan
from dpsql.local.smooth import LARGEST, joint_table
from dpsql.local.tallies import RespondentRows, Tallies

ASKED = (0, 2, 3)
"""Axes that queries touch: one of the person's, two of the row's."""
TAUS = (1, 2, 3, 4)
ASKED_FOR_TAU = 10
"""One person in so many tells LPRR-JOIN-E how many rows they have."""
FEWEST = 0.01
"""AVG is asked of boxes with at least this share of the rows; a mean of nothing has no relative error."""
Box = tuple[slice, ...]


class Setting(NamedTuple):
    """One column of the star tables."""

    epsilon: float
    volume: float
    dimensions: int


class Star(NamedTuple):
    """Everybody's rows, and exact rows and sums over `ASKED`."""

    people: RespondentRows
    rows: np.ndarray
    sums: np.ndarray

    @property
    def leaves(self) -> int:
        """Leaves of every axis."""
        return self.rows.shape[0]

    @property
    def depth(self) -> int:
        """Levels of every axis's tree below the root."""
        return round(math.log(self.leaves, local_peers.BRANCHING))

    def queries(self, setting: Setting, count: int, seed: int) -> list[Box]:
        """Random boxes over the asked axes."""
        return local_star.queries(len(ASKED), setting.dimensions, setting.volume, count, seed, self.leaves)


def make_star(people: RespondentRows, leaves: int = local_star.LEAVES) -> Star:
    """Work out the exact answers of a population."""
    measure = people.measures[:, 0].astype(float)
    rows, sums = (local_star.truth(people, ASKED, weights, leaves) for weights in (None, measure))
    return Star(people, rows, sums)


def count_errors(star: Star, setting: Setting, count: int, seed: int) -> dict[str, float]:
    """COUNT NMSE of every method at one setting.

    Args:
        star: the population.
        setting: epsilon, volume and number of predicates.
        count: number of queries.
        seed: of queries and of noise.
    """
    boxes = star.queries(setting, count, seed)
    true = np.array([star.rows[box].sum() for box in boxes])
    found = answers(star, setting, boxes, False, seed)
    return {name: nmse(rows.sum(axis=1), true, star.rows.sum()) for name, rows in found.items()}


def measure_errors(star: Star, setting: Setting, count: int, seed: int) -> dict[str, tuple[float, float]]:
    """SUM NMSE and AVG MRE of every method at one setting, and of the middle of the measure for AVG."""
    boxes = star.queries(setting, count, seed)
    rows = np.array([star.rows[box].sum() for box in boxes])
    sums = np.array([star.sums[box].sum() for box in boxes])
    asked = rows >= FEWEST * star.rows.sum()
    averages = sums[asked] / rows[asked]
    errors = {}
    for name, found in answers(star, setting, boxes, True, seed).items():
        guesses = mean_of(found)[asked]
        error = float(np.mean(np.abs(guesses - averages) / averages))
        errors[name] = nmse(found @ [LOWEST, HIGHEST], sums, star.sums.sum()), error
    middle = float(np.mean(np.abs((LOWEST + HIGHEST) / 2 - averages) / averages))
    return {**errors, "the middle, nobody asked": (math.nan, middle)}


def nmse(found: np.ndarray, true: np.ndarray, total: float) -> float:
    """Mean squared error in units of the whole, squared."""
    return float(np.mean(((found - true) / total) ** 2))


def mean_of(found: np.ndarray) -> np.ndarray:
    """AVG from rows per bit, kept between the measure's bounds; the middle where no row is estimated."""
    rows = found.sum(axis=1)
    ratio = np.divide(found @ [LOWEST, HIGHEST], rows, out=np.full(len(rows), np.nan), where=rows > 0)
    return np.where(rows > 0, np.clip(ratio, LOWEST, HIGHEST), (LOWEST + HIGHEST) / 2)


def answers(
    star: Star, setting: Setting, boxes: Sequence[Box], measured: bool, seed: int
) -> dict[str, np.ndarray]:
    """Estimated rows of every method, shape (boxes, 1) or (boxes, 2)."""
    rng, people, epsilon = np.random.default_rng(seed), star.people, setting.epsilon
    total, full = float(star.rows.sum()), [_five(box, star.leaves) for box in boxes]
    one = local_peers.slots(people, 1, rng, depth=star.depth)
    found: dict[str, np.ndarray] = {}
    for name, complement in (("HIO-JOIN", False), ("HIO-JOIN-RDC", True)):
        shares = [
            local_peers.services_join(one, (local_star.OWN_AXES,), box, epsilon, complement, rng, measured)
            for box in full
        ]
        found[name] = np.array(shares) * total
    even = local_peers.even_shares(local_star.AXES, star.depth)
    found["HIO, client join"] = local_peers.client_join(one, full, even, epsilon, rng, measured) * total
    answer = setting.volume**setting.dimensions
    for name in ("LPRR-JOIN-T", "LPRR-JOIN-E"):
        tau, spoken = chosen_tau(star, epsilon, answer, name, rng)
        found[name] = lprr(star, full, epsilon, tau, rng, measured, spoken)
    return found | ours(star, boxes, epsilon, measured, seed)


def _five(box: Box, leaves: int) -> list[tuple[int, int]]:
    """A box over the asked axes as ranges of all five."""
    ranges = [(0, leaves)] * local_star.AXES
    for axis, cut in zip(ASKED, box, strict=True):
        ranges[axis] = (cut.start, cut.stop)
    return ranges


def chosen_tau(
    star: Star, epsilon: float, answer: float, name: str, rng: np.random.Generator
) -> tuple[int, int]:
    """tau, and how many people spoke for it: T knows the true shares of row counts, which flatters it."""
    people, grown, groups = star.people, math.exp(epsilon), (star.depth + 1) ** local_star.AXES
    noise = 10 * groups * 4 * grown / (grown - 1) ** 2 / people.count
    rows = people.first[1:] - people.first[:-1]
    if name == "LPRR-JOIN-T":
        return theory_tau(np.bincount(rows, minlength=11) / rows.size, noise, answer), 0
    spoken = people.count // ASKED_FOR_TAU
    return local_peers.estimated_tau(rows[:spoken], epsilon, noise, answer, rng), spoken


def lprr(
    star: Star,
    full: list[list[tuple[int, int]]],
    epsilon: float,
    tau: int,
    rng: np.random.Generator,
    measured: bool = False,
    spoken: int = 0,
) -> np.ndarray:
    """Corrected LPRR-JOIN: COUNT = people x tau x share."""
    held = local_peers.slots(star.people, tau, rng, spoken, star.depth)
    shares = local_peers.shares_by_depth(local_star.AXES, star.depth)
    found = local_peers.client_join(held, full, shares, epsilon, rng, measured)
    return found * star.people.count * tau


def ours(
    star: Star, boxes: Sequence[Box], epsilon: float, measured: bool, seed: int
) -> dict[str, np.ndarray]:
    """Rows by the default answer (the parts that a release stores) and by a joint fit.

    The joint fit is one of all asked axes, or of each box's own axes where the former has too many cells.
    """
    plan, tallies = local_star.collect(epsilon, measured, star.people, seed, star.leaves)
    known = {a: axis_table(plan, tallies, a) for a in range(local_star.AXES)}
    factor = local_star.row_factor(plan, tallies, known)
    own = [
        tuple(a for a, cut in zip(ASKED, box, strict=True) if cut.stop - cut.start < star.leaves)
        for box in boxes
    ]
    stored = _stored(plan, tallies, known, set(own), measured)
    sets = [ASKED] * len(boxes) if star.rows.size <= LARGEST else own
    bit = 0 if measured else None
    fits = {axes: joint_table(plan, tallies, axes, bit, 1.0).shares for axes in set(sets)}
    return {
        "ours, default answer": np.array([_box_rows(stored, ASKED, box) for box in boxes]) * factor,
        "ours, joint fit": factor
        * np.array([_box_rows(fits[axes], axes, box) for axes, box in zip(sets, boxes, strict=True)]),
    }


def _box_rows(held: np.ndarray, axes: Sequence[int], box: Box) -> np.ndarray:
    """Rows of a box, one entry per value of the bit, from a table over some of the asked axes."""
    cut = held[tuple(box[ASKED.index(axis)] for axis in axes)]
    return np.atleast_1d(cut.sum(axis=tuple(range(len(axes)))))


def _stored(
    plan: Plan,
    tallies: Tallies,
    known: dict[int, AxisTable],
    sets: set[tuple[int, ...]],
    measured: bool,
) -> np.ndarray:
    """The unbiased table over the asked axes, with the interactions that sets of axes need."""
    rows = table(ASKED, known, interactions(plan, tallies, sets, known)).values
    if not measured:
        return rows
    signed = table(ASKED, known, interactions(plan, tallies, sets, known, 0), 0).values
    return np.stack([rows - signed, rows + signed], axis=-1) / 2


def tau_errors(star: Star, setting: Setting, count: int, seed: int) -> dict[str, list[float]]:
    """COUNT NMSE at tau = 1, 2, 3, 4: LPRR-JOIN, and our joint fit, plain and scaled as if lost rows were alike."""
    rng = np.random.default_rng(seed)
    boxes = star.queries(setting, count, seed)
    total, true = float(star.rows.sum()), np.array([star.rows[box].sum() for box in boxes])
    full = [_five(box, star.leaves) for box in boxes]
    found = {
        "LPRR-JOIN": [lprr(star, full, setting.epsilon, tau, rng).sum(axis=1) for tau in TAUS],
    }
    for name, share in (("none", Fraction(0)), ("mar", Fraction(15, 100))):
        found[f"ours, {name}"] = [
            _at_tau(star.people, boxes, setting.epsilon, tau, share, seed) for tau in TAUS
        ]
    return {name: [nmse(rows, true, total) for rows in values] for name, values in found.items()}


def _at_tau(
    people: RespondentRows, boxes: Sequence[Box], epsilon: float, tau: int, share: Fraction, seed: int
) -> np.ndarray:
    """Rows by our joint fit at a declared tau; `share` of the people tell how many rows they have."""
    design = replace(local_star.design(epsilon, False, people.count), tau=tau, row_share=share)
    plan = read_plan(build_plan(design))
    tallies = simulate_tallies(plan, people, np.random.default_rng(seed))
    known = {a: axis_table(plan, tallies, a) for a in range(local_star.AXES)}
    filled = float(np.mean([held.filled for held in known.values()]))
    shares = joint_table(plan, tallies, ASKED, None, filled).shares
    factor = local_star.row_factor(plan, tallies, known) * filled
    return np.array([shares[box].sum() for box in boxes]) * factor
