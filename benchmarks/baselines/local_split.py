"""Baseline, several services, local: SC-JOIN, which splits epsilon over everything that a service could be asked.

Every service reports every attribute of its own at every level of the attribute's tree, by OLH, with an equal part of
its epsilon each. An attribute's score is the sum over the nodes that its range takes; scores of all attributes and
services are multiplied person by person. One row a person: seed 003 says that it answers one-to-one joins alone, so it
has no line in tables of people with several rows. It is not part of the package.

| here | there | unit |
|------|-------|------|
| parts | d h: attributes of one service times levels of a tree | 1 |
| score | sum over nodes of (support - q) / (p - q) | people |

Supports are drawn in law: under an ideal hash the nodes of a report that are not its own are in its bucket
independently, with probability q = 1/g.
**Source**: seed 003, section 1.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from benchmarks.local.peers import DEPTH, node_of, pieces
from dpsql.client.plan import largest_weight
from dpsql.local.oracles.aggregators import LocalHashingAggregator
from dpsql.local.oracles.oracle import OTHER, FloatArray, Oracle

Range = tuple[int, int]


def split_join(
    leaves: np.ndarray,
    cuts: Sequence[int],
    boxes: Sequence[Sequence[Range]],
    epsilon: float,
    rng: np.random.Generator,
    depth: int = DEPTH,
) -> FloatArray:
    """Estimated share of people in each box.

    Args:
        leaves: everybody's row, shape (people, axes), of 5^depth leaves an axis.
        cuts: where the axes are cut into services.
        boxes: a range per axis; an axis that is asked as a whole costs no noise here.
        epsilon: of all services together.
        rng: source of pseudo-random numbers.
        depth: levels of a tree below the root.

    Returns:
        Shape (boxes,).
    """
    bounds = [0, *cuts, leaves.shape[1]]
    oracles = [
        _oracle(Fraction(str(epsilon)) / (len(bounds) - 1) / (high - low) / depth)
        for low, high in itertools.pairwise(bounds)
        for _ in range(low, high)
    ]
    found = []
    for box in boxes:
        product = np.ones(len(leaves))
        for axis, (low, high) in enumerate(box):
            if high - low < 5**depth:
                product *= _score(oracles[axis], leaves[:, axis], (low, high), depth, rng)
        found.append(float(product.mean()))
    return np.array(found)


def _oracle(epsilon: Fraction) -> Oracle:
    own = largest_weight(epsilon)
    return LocalHashingAggregator(2, own, round(own / OTHER) + 1)


def _score(
    oracle: Oracle, leaves: np.ndarray, ends: Range, depth: int, rng: np.random.Generator
) -> FloatArray:
    """Each person's unbiased indicator of a range, from one report a level."""
    total = np.zeros(len(leaves))
    for piece in pieces(*ends, False, depth):
        held = np.isin(node_of(leaves, piece.level, depth), piece.nodes)
        near = rng.binomial(len(piece.nodes) - held, oracle.law.q) + (
            held & (rng.random(held.size) < oracle.law.p)
        )
        total += (near - len(piece.nodes) * oracle.law.q) / (oracle.law.p - oracle.law.q)
    return total
