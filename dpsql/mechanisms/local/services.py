"""Several services that cannot join on the device: each gets its own report, joined by a pseudonymous id afterwards.

Each service spends its part of epsilon. A conjunction over services is estimated by multiplying, row by row, what each
report says about its own predicate. The product's variance multiplies too: 10^3 to 10^7 times that of a client
join, so this is for services that truly share nothing but an id.

| here        | there                  | unit |
|-------------|------------------------|------|
| `score`     | (1[y in g] - q)/(p - q)| one report's unbiased indicator |
| `volume`    | cells of the predicate | number of items in the set |
**Source**: seed 003, theorem 6, replaced; HIO-JOIN's cover and its decomposition by complement (RDC).
**Privacy**: sequential composition; the services' epsilons add up to the person's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsql.mechanisms.local.oracles import FloatArray, Oracle


class Joined(NamedTuple):
    """An estimate of a joined share, and its plug-in standard error."""

    share: float
    error: float


def grr_scores(oracle: Oracle, reports: NDArray[np.int64], chosen: NDArray[np.bool_]) -> FloatArray:
    """Unbiased indicator of "the true item is chosen", per report.

    Args:
        oracle: a GRR oracle.
        reports: reported items, shape (people,).
        chosen: which items the predicate holds, shape (domain,).

    Returns:
        Scores, shape (people,); their mean given the true item is 0 or 1.

    Example:
        >>> tool = Oracle("GRR", 2, 3 << 20)
        >>> grr_scores(tool, np.array([0, 1]), np.array([True, False])).tolist()
        [1.5, -0.5]
    """
    volume = int(chosen.sum())
    return np.asarray((chosen[reports] - volume * oracle.q) / (oracle.p - oracle.q))


def joined_share(scores: Sequence[FloatArray]) -> Joined:
    """Share of people whom every service's predicate holds: the mean product of scores.

    Args:
        scores: one array per service, the same people in the same order.

    Returns:
        The estimate and its standard error.
    """
    product = np.prod(np.stack(list(scores)), axis=0)
    return Joined(float(product.mean()), float(product.std(ddof=1) / np.sqrt(product.size)))


def complemented(chosen: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], float, float]:
    """The smaller of a set and its complement, with (offset, sign): share = offset + sign * share(smaller).

    Fewer items carry less noise; this is the decomposition by complement.
    """
    if 2 * int(chosen.sum()) <= chosen.size:
        return chosen, 0.0, 1.0
    return ~chosen, 1.0, -1.0


def noise_ratio(oracles: Sequence[Oracle], joint: Oracle, volumes: Sequence[int]) -> float:
    """How many times noisier the product is than one report joined on the device; planners warn above 10.

    Args:
        oracles: each service's oracle, with its part of epsilon.
        joint: the oracle of a client join with all of epsilon.
        volumes: items of each service's predicate.

    Returns:
        Ratio of variances for an empty answer.
    """
    variance = 1.0
    for oracle, volume in zip(oracles, volumes, strict=True):
        held = volume * oracle.q
        variance *= held * (1 - held) / (oracle.p - oracle.q) ** 2
    held = min(float(np.prod(volumes)) * joint.q, 0.5)
    return variance / (held * (1 - held) / (joint.p - joint.q) ** 2)
