"""Seed 003's comparison on the star join and seed 001's on one axis, as tables of measured errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from benchmarks import local_axis, local_peers, local_star
from dpsql.client.plan import largest_weight
from dpsql.collecting.content import row_scale
from dpsql.collecting.estimate import axis_table
from dpsql.collecting.simulate import People
from dpsql.collecting.smooth import joint_table
from dpsql.mechanisms.local.blue import Group, cell_design, range_workload
from dpsql.mechanisms.local.grids import even_edges, granularity
from dpsql.mechanisms.local.lprr import level_edges
from dpsql.mechanisms.local.oracles import choose_oracle, estimate
from dpsql.mechanisms.local.simulate import histogram_tally
from dpsql.mechanisms.local.truncation import theory_tau

ASKED = (0, 2, 3)
"""Axes that queries touch: one of the person's, two of the row's."""
SERVICE = local_star.OWN_AXES
METHODS = ("HIO-JOIN", "HIO-JOIN-RDC", "HIO, client join", "LPRR-JOIN-T", "LPRR-JOIN-E", "ours")


class Setting(NamedTuple):
    """One column of the star tables."""

    epsilon: float
    volume: float
    dimensions: int


class Star(NamedTuple):
    """Everybody's rows and the exact answers over `ASKED`."""

    people: People
    exact: np.ndarray


def make_star(size: int, seed: int) -> Star:
    """Draw a population."""
    people = local_star.star(size, np.random.default_rng(seed))
    return Star(people, local_star.truth(people, ASKED))


def star_errors(star: Star, setting: Setting, count: int, seed: int) -> dict[str, float]:
    """COUNT NMSE of every method at one setting.

    Args:
        star: the population.
        setting: epsilon, volume and number of predicates.
        count: number of queries.
        seed: of queries and of noise.
    """
    rng, people = np.random.default_rng(seed), star.people
    boxes = local_star.queries(len(ASKED), setting.dimensions, setting.volume, count, seed)
    total = float(star.exact.sum())
    true = np.array([star.exact[box].sum() for box in boxes])
    full = [_five(box) for box in boxes]
    one, _ = local_peers.slots(people, np.arange(people.count), 1, rng)
    found: dict[str, np.ndarray] = {}
    for name, complement in (("HIO-JOIN", False), ("HIO-JOIN-RDC", True)):
        shares = [local_peers.services_join(one, SERVICE, b, setting.epsilon, complement, rng) for b in full]
        found[name] = np.array(shares) * total
    even = local_peers.even_shares(local_star.AXES)
    shares = local_peers.client_join(one, 0, people.count, full, even, setting.epsilon, rng)
    found["HIO, client join"] = np.array(shares) * total
    answer = setting.volume**setting.dimensions
    for name in ("LPRR-JOIN-T", "LPRR-JOIN-E"):
        found[name] = lprr(
            people, full, setting.epsilon, chosen_tau(people, setting.epsilon, answer, name, rng), rng
        )
    plan, tallies = local_star.collect(setting.epsilon, False, people, seed)
    known = {a: axis_table(plan, tallies, a) for a in range(local_star.AXES)}
    table = joint_table(plan, tallies, ASKED, None, 1.0).shares * row_scale(plan, tallies, known).factor
    found["ours"] = np.array([table[box].sum() for box in boxes])
    return {name: float(np.mean(((values - true) / total) ** 2)) for name, values in found.items()}


def _five(box: tuple[slice, ...]) -> list[tuple[int, int]]:
    """A box over the asked axes as ranges of all five."""
    ranges = [(0, local_star.LEAVES)] * local_star.AXES
    for axis, cut in zip(ASKED, box, strict=True):
        ranges[axis] = (cut.start, cut.stop)
    return ranges


def chosen_tau(people: People, epsilon: float, answer: float, name: str, rng: np.random.Generator) -> int:
    """T knows the true shares of row counts, which flatters it; E spends a tenth of the people on them."""
    grown, groups = math.exp(epsilon), (local_peers.DEPTH + 1) ** local_star.AXES
    noise = 10 * groups * 4 * grown / (grown - 1) ** 2 / people.count
    rows = people.first[1:] - people.first[:-1]
    if name == "LPRR-JOIN-T":
        return theory_tau(np.bincount(rows, minlength=11) / rows.size, noise, answer)
    return local_peers.estimated_tau(rows[: rows.size // 10], epsilon, noise, answer, rng)


def lprr(
    people: People, full: list[list[tuple[int, int]]], epsilon: float, tau: int, rng: np.random.Generator
) -> np.ndarray:
    """Corrected LPRR-JOIN: COUNT = people x tau x share."""
    leaves, silent = local_peers.slots(people, np.arange(people.count), tau, rng)
    shares = local_peers.shares_by_depth(local_star.AXES)
    found = local_peers.client_join(leaves, silent, people.count, full, shares, epsilon, rng)
    return np.array(found) * people.count * tau


def tau_errors(star: Star, setting: Setting, count: int, seed: int) -> list[float]:
    """COUNT NMSE of LPRR-JOIN at tau = 1, 2, 3, 4."""
    rng = np.random.default_rng(seed)
    boxes = local_star.queries(len(ASKED), setting.dimensions, setting.volume, count, seed)
    total, true = float(star.exact.sum()), np.array([star.exact[box].sum() for box in boxes])
    full = [_five(box) for box in boxes]
    errors = [lprr(star.people, full, setting.epsilon, tau, rng) - true for tau in (1, 2, 3, 4)]
    return [float(np.mean((each / total) ** 2)) for each in errors]


def interval_hierarchy(shares: np.ndarray, people: int, epsilon: str, rng: np.random.Generator) -> np.ndarray:
    """HIO on one axis: levels drawn evenly, the root too; each range from its minimal cover, nothing made consistent.

    Returns:
        Error of every range, entry [i, j] for the half-open range [i, j).
    """
    own = largest_weight(Fraction(epsilon))
    levels = level_edges(shares.size, local_axis.BRANCHING)
    part = people // (len(levels) + 1)
    tables = []
    for edges in levels:
        design = cell_design(edges, shares.size)
        oracle = choose_oracle(len(design), own)
        tally = histogram_tally(oracle, (design @ rng.multinomial(part, shares)).astype(np.int64), rng)
        off = estimate(oracle, tally.astype(float), float(part)) - design @ shares
        tables.append((edges, np.concatenate([[0.0], np.cumsum(off)])))
    return _cover_errors(tables, shares.size)


def _cover_errors(tables: list[tuple[np.ndarray, np.ndarray]], leaves: int) -> np.ndarray:
    """Error of every range from its minimal cover, coarse nodes first."""
    out = np.zeros((leaves + 1, leaves + 1))
    for low in range(leaves):
        for high in range(low + 1, leaves + 1):
            inside, total = [(low, high)], 0.0
            for edges, sums in tables:
                rest = []
                for a, b in inside:
                    first, last = (
                        int(np.searchsorted(edges, a)),
                        int(np.searchsorted(edges, b, side="right")) - 1,
                    )
                    if first >= last:
                        rest.append((a, b))
                        continue
                    total += sums[last] - sums[first]
                    rest += [(a, int(edges[first])), (int(edges[last]), b)]
                inside = [(a, b) for a, b in rest if a < b]
            out[low, high] = total
    return out


def flat(shares: np.ndarray, people: int, epsilon: str, rng: np.random.Generator) -> np.ndarray:
    """Every leaf by one oracle: what marginal methods (CALM) send for a single axis."""
    return _grid(shares, people, epsilon, np.arange(shares.size + 1), rng)


def uniform_grid(shares: np.ndarray, people: int, epsilon: str, rng: np.random.Generator) -> np.ndarray:
    """HDG's grid on one axis, even inside cells."""
    return _grid(
        shares, people, epsilon, even_edges(shares.size, granularity(people, float(epsilon), 1).one), rng
    )


def _grid(
    shares: np.ndarray, people: int, epsilon: str, edges: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    design = cell_design(edges, shares.size)
    oracle = choose_oracle(len(design), largest_weight(Fraction(epsilon)))
    histogram = (design @ rng.multinomial(people, shares)).astype(np.int64)
    seen = estimate(oracle, histogram_tally(oracle, histogram, rng).astype(float), float(people))
    group = Group(design, seen, float(people), oracle)
    return np.asarray((group.design / group.design.sum(axis=1, keepdims=True)).T @ group.shares)


AXIS_METHODS: dict[str, Callable[[np.ndarray, int, str, np.random.Generator], np.ndarray]] = {
    "flat (CALM on one axis)": flat,
    "grid (HDG on one axis)": uniform_grid,
    "hierarchy + NNLS": local_axis.nonnegative_hierarchy,
    "AHEAD, right weights": local_axis.adaptive,
    "ours (stack)": local_axis.ours,
}


def axis_errors(shares: np.ndarray, people: int, epsilon: str, runs: int, seed: int) -> dict[str, float]:
    """Mean squared error over all ranges of every one-axis method."""
    rng, workload = np.random.default_rng(seed), range_workload(shares.size)
    ranges = shares.size * (shares.size + 1) / 2
    found = {"HIO": 0.0, **dict.fromkeys(AXIS_METHODS, 0.0)}
    for _ in range(runs):
        found["HIO"] += float((interval_hierarchy(shares, people, epsilon, rng) ** 2).sum() / ranges / runs)
        for name, method in AXIS_METHODS.items():
            off = method(shares, people, epsilon, rng) - shares
            found[name] += float(off @ workload @ off) / runs
    return found
