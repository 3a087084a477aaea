"""What an anonymous shuffler adds: reports in random order hide a person among the others' answers.

Each other report is, with probability e^-eps, drawn without looking at its owner's value, and then looks
like the victim's true or false answer with even odds. The bound counts these clones numerically; no
closed form is used (the one in circulation holds for a restricted class only).

| here     | there | unit |
|----------|-------|------|
| clones   | C     | Bin(n - 1, e^-eps) |
| first    | A     | Bin(C, 1/2), plus the victim with probability e^eps / (e^eps + 1) |
**Source**: docs/method/local.md, "Shuffling"; Feldman, McMillan and Talwar (2021).
**Privacy**: holds for neighbours that replace one person's value, one randomizer for all with the view
drawn inside it, one round, and n honest distinct people; a linkable token, timing or metadata voids it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpsql.mechanisms.oracles.oracle import FloatArray

BLOCKS = 400
REACH = 9.0


class CloneBlock(NamedTuple):
    """Clone counts in one block: probability, least count, survival of Bin(count, 1/2) from `low`."""

    mass: float
    clones: int
    low: int
    survival: FloatArray


def log_factorial(values: FloatArray) -> FloatArray:
    """log x! by Stirling's series with three corrections; exact sums below 16."""
    small = np.cumsum(np.log(np.maximum(np.arange(16.0), 1.0)))
    x = np.maximum(values, 16.0)
    series = (
        x * np.log(x) - x + 0.5 * np.log(2 * np.pi * x) + 1 / (12 * x) - 1 / (360 * x**3) + 1 / (1260 * x**5)
    )
    return np.where(values < 16, small[np.minimum(values, 15).astype(np.int64)], series)


def _binomial(trials: int, chance: float, at: FloatArray) -> FloatArray:
    logs = log_factorial(np.array([float(trials)])) - log_factorial(at) - log_factorial(trials - at)
    return np.asarray(np.exp(logs + at * math.log(chance) + (trials - at) * math.log1p(-chance)))


def _window(trials: int, chance: float) -> FloatArray:
    middle, width = trials * chance, REACH * math.sqrt(trials * chance * (1 - chance)) + 10
    return np.arange(
        max(0, math.floor(middle - width)), min(trials, math.ceil(middle + width)) + 1, dtype=np.float64
    )


def _blocks(people: int, epsilon: float) -> tuple[list[CloneBlock], float]:
    chance = math.exp(-epsilon)
    at = _window(people - 1, chance)
    mass = _binomial(people - 1, chance, at)
    blocks = []
    for indices in np.array_split(np.arange(at.size), min(BLOCKS, at.size)):
        clones = int(at[indices[0]])  # fewest clones of the block: least noise, so an upper bound
        inner = _window(clones, 0.5)
        survival = np.append(np.cumsum(_binomial(clones, 0.5, inner)[::-1])[::-1], 0.0)
        blocks.append(CloneBlock(float(mass[indices].sum()), clones, int(inner[0]), survival))
    return blocks, max(0.0, 1.0 - float(mass.sum()))


def _delta(blocks: list[CloneBlock], missed: float, local: float, central: float) -> float:
    """Upper bound of the hockey-stick divergence at `central`."""
    truth, grown = math.exp(local) / (math.exp(local) + 1), math.exp(central)
    total = missed
    for block in blocks:
        # a first answers are likelier under the true value by at least e^central from this count on
        top = (block.clones + 1) * (grown * truth - (1 - truth))
        threshold = math.ceil(top / ((2 * truth - 1) * (1 + grown)) - 1e-12)
        above, from_one = _tail(block, threshold), _tail(block, threshold - 1)
        gain = truth * from_one + (1 - truth) * above - grown * ((1 - truth) * from_one + truth * above)
        total += block.mass * max(0.0, gain)
    return total


def _tail(block: CloneBlock, least: int) -> float:
    """P(Bin(clones, 1/2) >= least)."""
    return float(block.survival[min(max(least - block.low, 0), block.survival.size - 1)])


def shuffled_epsilon(people: int, epsilon: float, delta: float) -> float:
    """Least epsilon with (epsilon, delta)-DP of the shuffled reports, found by bisection.

    Args:
        people: honest distinct people whose reports were shuffled together.
        epsilon: local privacy of one report.
        delta: allowed failure probability.

    Returns:
        The central epsilon, never above the local one.

    Example:
        >>> round(shuffled_epsilon(10_000, 1.0, 1e-6), 3)
        0.053
    """
    blocks, missed = _blocks(people, epsilon)
    low, high = 0.0, epsilon
    if _delta(blocks, missed, epsilon, high) > delta:
        return epsilon
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if _delta(blocks, missed, epsilon, middle) <= delta else (middle, high)
    return high
