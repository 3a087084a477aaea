"""Baseline, one axis, local: Haar coefficients by Hadamard randomised response (DHT), one level a person.

| here | there | unit |
|------|-------|------|
| level | j | blocks of m / 2^j leaves, halved; a person's block has one coefficient, +1 (left) or -1 (right) |
| row  | r | a row of the Hadamard matrix, drawn evenly; a person answers the sign of row x coefficients |
| said | b | the answer, true with probability e^eps / (e^eps + 1) |

Each coefficient's variance is (((e^eps + 1) / (e^eps - 1))^2 - x^2) / n_j; levels get equal numbers of people.
**Source**: seed 001, section 3.2. **Privacy**: randomised response on one bit is eps-local; the rows are public.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from dpsql.client.plan import largest_weight
from dpsql.local.oracles.oracle import OTHER, FloatArray


def hadamard(size: int) -> FloatArray:
    """Hadamard matrix of a power of two."""
    matrix = np.ones((1, 1))
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix


def coefficients(halves: np.ndarray, own: int, rng: np.random.Generator) -> FloatArray:
    """Estimated share of people in a block's left half minus that in its right half, per block.

    Args:
        halves: people per block and half, shape (blocks, 2); blocks are a power of two.
        own: integer weight of the true sign.
        rng: source of pseudo-random numbers.
    """
    blocks, keep = len(halves), own / (own + OTHER)
    signs = hadamard(blocks)
    drawn = rng.multinomial(halves, np.full(blocks, 1 / blocks))
    plus = np.where(signs[:, :, None] > 0, [1, 0], [0, 1])
    true_plus = (drawn.transpose(2, 0, 1) * plus).sum(axis=(1, 2))
    people = drawn.sum(axis=(0, 1))
    said_plus = rng.binomial(true_plus, keep) + rng.binomial(people - true_plus, 1 - keep)
    return np.asarray(signs.T @ (2 * said_plus - people) / (2 * keep - 1) / halves.sum())


def haar(shares: np.ndarray, people: int, epsilon: str, rng: np.random.Generator) -> FloatArray:
    """Leaf shares from the estimated coefficients; the number of leaves is a power of two."""
    own, levels = largest_weight(Fraction(epsilon)), shares.size.bit_length() - 1
    if shares.size != 1 << levels:
        raise ValueError("the Haar transform needs a power of two leaves")
    nodes = np.ones(1)
    for level in range(levels):
        histogram = rng.multinomial(people // levels, shares)
        difference = coefficients(histogram.reshape(1 << level, 2, -1).sum(axis=2), own, rng)
        nodes = np.stack([nodes + difference, nodes - difference], axis=1).ravel() / 2
    return nodes
