"""Seed 001's comparison on one axis: mean squared error of all ranges, for its peers and for ours."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from benchmarks.baselines.local_haar import haar
from benchmarks.local import axis as local_axis
from benchmarks.local.simulated import one_row_each, simulate_tallies
from benchmarks.local.simulated import tally as tally_of
from dpsql.client import read_plan
from dpsql.client.plan import largest_weight
from dpsql.local.estimate import axis_table
from dpsql.local.mechanisms.blue import ViewReports, cell_design, range_workload
from dpsql.local.mechanisms.truncation import even_edges, granularity, level_edges
from dpsql.local.oracles import choose_oracle
from dpsql.local.oracles.oracle import estimate
from dpsql.local.plan import CollectionDesign, PlannedAxis, build_plan
from dpsql.local.smooth import smooth_axis


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
        tally = tally_of(oracle, (design @ rng.multinomial(part, shares)).astype(np.int64), rng)
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
    seen = estimate(oracle, tally_of(oracle, histogram, rng).astype(float), float(people))
    group = ViewReports(design, seen, float(people), oracle)
    return np.asarray((group.design / group.design.sum(axis=1, keepdims=True)).T @ group.shares)


def ours(shares: np.ndarray, people: int, epsilon: str, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """A collection of one axis: its default answer (unbiased) and its non-negative one (the log-smooth stack)."""
    design = CollectionDesign(
        "line", Fraction(epsilon), people, (PlannedAxis("a", shares.size, shares.size),), branching=4,
        rows_floor=1,
    )  # fmt: skip
    plan = read_plan(build_plan(design))
    drawn = np.repeat(np.arange(shares.size), rng.multinomial(people, shares))
    tallies = simulate_tallies(plan, one_row_each(drawn[:, None]), rng)
    return {
        "ours, default answer": axis_table(plan, tallies, 0).counts.shares,
        "ours, non-negative": smooth_axis(plan, tallies, 0).shares,
    }


AXIS_METHODS: dict[str, Callable[[np.ndarray, int, str, np.random.Generator], np.ndarray]] = {
    "DHT": haar,
    "flat (CALM on one axis)": flat,
    "grid (HDG on one axis)": uniform_grid,
    "hierarchy + NNLS": local_axis.nonnegative_hierarchy,
    "AHEAD, right weights": local_axis.adaptive,
}


def axis_errors(shares: np.ndarray, people: int, epsilon: str, runs: int, seed: int) -> dict[str, float]:
    """Mean squared error over all ranges of every one-axis method."""
    rng, workload = np.random.default_rng(seed), range_workload(shares.size)
    ranges = shares.size * (shares.size + 1) / 2
    found: dict[str, float] = {"HIO": 0.0}
    for _ in range(runs):
        found["HIO"] += float((interval_hierarchy(shares, people, epsilon, rng) ** 2).sum() / ranges / runs)
        drawn = {name: method(shares, people, epsilon, rng) for name, method in AXIS_METHODS.items()}
        for name, held in (drawn | ours(shares, people, epsilon, rng)).items():
            found[name] = found.get(name, 0.0) + float((held - shares) @ workload @ (held - shares)) / runs
    return found
