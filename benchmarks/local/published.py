"""The published LPRR and its tau, as printed, for comparison. NOT PRIVATE: never run it on anybody's data.

The printed mechanism answers within the person's own path, so its support depends on the private value.
**Source**: seed 003, algorithm 2, theorems 2 and 11.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction


def path_nodes(value: int, leaves: int, branching: int) -> list[tuple[int, int]]:
    """(level, node) on the way from the root to the value, the leaf left out as printed."""
    depth = round(math.log(leaves, branching))
    return [(level, value // branching ** (depth - level)) for level in range(depth)]


def printed_distribution(
    values: tuple[int, ...], leaves: int, branching: int, odds: Fraction
) -> dict[tuple[tuple[int, int], ...], Fraction]:
    """Exact output distribution of the printed LPRR; `odds` stands for e^eps."""
    own = list(itertools.product(*(path_nodes(v, leaves, branching) for v in values)))
    total = odds + len(own) - 1
    held = dict.fromkeys(own, Fraction(0))
    for drawn in own:
        for answer in own:
            held[answer] += Fraction(1, len(own)) * (odds if answer == drawn else 1) / total
    return held


def printed_bias(people: int, epsilon: float, on_path: int) -> float:
    """Bias -(n - N_path) / (e^eps - 1) of the printed estimator; with nobody on the path, -n / (e^eps - 1)."""
    return -(people - on_path) / (math.exp(epsilon) - 1)


def printed_tau(axes: int, depth: int, people: int, failure: float, tables: int) -> float:
    """Theorem 11 as printed: a maximum of its own objective, with no epsilon in it."""
    return float(axes * depth ** (2 * axes) * math.log(1 / failure) * float(people) ** (1 - tables) / 4)
