"""Services that cannot join on a device, two and three: SC-JOIN, HIO-JOIN, RDC and the product, beside device joins.

Everybody of the star has one row here, of three axes: one of the person, two of the row. With two services the second
one holds both axes of the row, with three each holds one; every service has an equal part of epsilon. The product is
what `dpsql collect` computes: every service reports one combination of its axes' leaves, and scores add up to 1.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from benchmarks.baselines.local_split import split_join
from benchmarks.local import peers as local_peers
from benchmarks.local import star as local_star
from benchmarks.local.joins import Setting, nmse
from benchmarks.local.peers import DEPTH, Slots
from benchmarks.local.simulated import one_row_each, simulate_tallies
from dpsql.client.plan import largest_weight, read_plan
from dpsql.local.estimate import axis_table, table
from dpsql.local.oracles import choose_oracle
from dpsql.local.oracles.oracle import item_scores
from dpsql.local.parts import interactions
from dpsql.local.plan import CollectionDesign, PlannedAxis, build_plan
from dpsql.local.smooth import joint_table

AXES = (0, 2, 3)
"""Of the star: one of the person's, two of the row's."""
CUTS = {2: (1,), 3: (1, 2)}
"""Where the axes are cut into services."""
STEP = 20_000
Box = tuple[slice, ...]


def leaves_of(people: int, seed: int) -> np.ndarray:
    """Everybody's first row, shape (people, 3)."""
    star = local_star.star(people, np.random.default_rng(seed))
    return np.asarray(star.leaves[star.first[:-1]][:, list(AXES)])


def errors(leaves: np.ndarray, setting: Setting, count: int, seed: int) -> dict[str, float]:
    """COUNT NMSE of every method at one setting.

    Args:
        leaves: everybody's row.
        setting: epsilon, volume and number of predicates.
        count: number of queries.
        seed: of queries and of noise.
    """
    size, rng = local_star.LEAVES, np.random.default_rng(seed)
    boxes = local_star.queries(len(AXES), setting.dimensions, setting.volume, count, seed)
    exact = np.histogramdd(leaves, bins=[np.arange(size + 1)] * len(AXES))[0]
    true, people = np.array([exact[box].sum() for box in boxes]), len(leaves)
    ranges = [[(cut.start, cut.stop) for cut in box] for box in boxes]
    slots = Slots(leaves, np.zeros(people, np.int64), 0)
    found: dict[str, np.ndarray] = {}
    for services, cuts in CUTS.items():
        found[f"SC-JOIN, {services} services"] = people * split_join(
            leaves, cuts, ranges, setting.epsilon, np.random.default_rng([seed, services])
        )
        for name, complement in (("HIO-JOIN", False), ("HIO-JOIN-RDC", True)):
            found[f"{name}, {services} services"] = people * np.array([
                local_peers.services_join(slots, cuts, box, setting.epsilon, complement, rng)[0]
                for box in ranges
            ])  # fmt: skip
        found[f"product, {services} services"] = product(leaves, cuts, boxes, setting.epsilon, rng)
    for name, shares in (
        ("HIO, client join", local_peers.even_shares(len(AXES), DEPTH)),
        ("LPRR, client join", local_peers.shares_by_depth(len(AXES), DEPTH)),
    ):
        found[name] = people * local_peers.client_join(slots, ranges, shares, setting.epsilon, rng)[:, 0]
    found |= ours(leaves, boxes, setting.epsilon, seed)
    return {name: nmse(rows, true, float(people)) for name, rows in found.items()}


def product(
    leaves: np.ndarray, cuts: Sequence[int], boxes: Sequence[Box], epsilon: float, rng: np.random.Generator
) -> np.ndarray:
    """Rows of each box by the product of all services' scores, some people at a time."""
    size, bounds = local_star.LEAVES, [0, *cuts, leaves.shape[1]]
    own = largest_weight(Fraction(str(epsilon)) / (len(cuts) + 1))
    total = np.zeros(len(boxes))
    for start in range(0, len(leaves), STEP):
        some, inside = leaves[start : start + STEP], np.ones((len(leaves[start : start + STEP]), len(boxes)))
        for low, high in itertools.pairwise(bounds):
            shape = (size,) * (high - low)
            oracle = choose_oracle(size ** (high - low), own)
            items = np.ravel_multi_index(tuple(some[:, low:high].T), shape)
            support = oracle.supports(oracle.packed(oracle.payloads(items, rng)))
            inside *= item_scores(oracle, support) @ _masks(boxes, low, high, size).T
        total += inside.sum(axis=0)
    return total


def _masks(boxes: Sequence[Box], low: int, high: int, size: int) -> np.ndarray:
    """Items of one service inside each box, shape (boxes, items)."""
    held = np.zeros((len(boxes), *(size,) * (high - low)))
    for number, box in enumerate(boxes):
        held[(number, *box[low:high])] = 1.0
    return held.reshape(len(boxes), -1)


def ours(leaves: np.ndarray, boxes: Sequence[Box], epsilon: float, seed: int) -> dict[str, np.ndarray]:
    """Rows by an ordinary collection, joined on the device: the default answer and the joint fit."""
    size, people, every = local_star.LEAVES, len(leaves), tuple(range(len(AXES)))
    axes = tuple(PlannedAxis(f"a{i}", size, size) for i in every)
    plan = read_plan(
        build_plan(
            CollectionDesign("star", Fraction(str(epsilon)), people, axes, together=(every,), rows_floor=1)
        )
    )
    tallies = simulate_tallies(plan, one_row_each(leaves), np.random.default_rng(seed))
    known = {a: axis_table(plan, tallies, a) for a in every}
    sets = {tuple(a for a, cut in enumerate(box) if cut.stop - cut.start < size) for box in boxes}
    stored = table(every, known, interactions(plan, tallies, sets, known)).values
    fitted = joint_table(plan, tallies, every, None, 1.0).shares
    return {
        "ours, default answer": people * np.array([stored[box].sum() for box in boxes]),
        "ours, joint fit": people * np.array([fitted[box].sum() for box in boxes]),
    }
