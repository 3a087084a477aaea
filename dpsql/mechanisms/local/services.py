"""Several services that cannot join on the device: each gets its own report, joined by a pseudonymous id afterwards.

Each service spends its part of epsilon. A conjunction over services is estimated by multiplying, row by row, what each
report says about its own predicate. The product's variance multiplies too: 10^3 to 10^7 times that of a client
join, so this is for services that truly share nothing but an id. K services make a product of K factors.

A person has exactly one item, so the scores of all items of one report should add up to 1. `item_scores` takes what
they are off evenly away from every item: still unbiased, margins of joined tables agree, and an answer of most items
is no noisier than its complement, which is what the decomposition by complement (RDC) is for.

| here        | there                  | unit |
|-------------|------------------------|------|
| `score`     | (1[y in g] - q)/(p - q)| one report's unbiased indicator |
| `volume`    | cells of the predicate | number of items in the set |
| `item_noise`| v, about q(1 - q)/(p - q)^2 | variance of a score given the item |
**Source**: docs/method/local.md, "Services that cannot join".
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


def item_scores(oracle: Oracle, support: NDArray[np.bool_]) -> FloatArray:
    """Unbiased indicators of every item at once, adding up to 1 for each report.

    Args:
        oracle: GRR, OUE or OLH.
        support: which items each report supports, shape (people, domain).

    Returns:
        Scores, shape (people, domain).

    Example:
        >>> tool = Oracle("OUE", 2, 3 << 20)
        >>> item_scores(tool, np.array([[True, False], [True, True]])).tolist()
        [[2.5, -1.5], [0.5, 0.5]]
    """
    raw = (support - oracle.q) / (oracle.p - oracle.q)
    return np.asarray(raw + (1 - raw.sum(axis=1, keepdims=True)) / oracle.domain)


def item_noise(oracle: Oracle) -> float:
    """Factor v of the scores' covariance given the items, v (I - J/D) with J all ones, for items spread evenly.

    Example:
        >>> round(item_noise(Oracle("OUE", 20, 3 << 20)), 3)
        3.05
    """
    gap = oracle.p - oracle.q
    if oracle.name == "GRR":
        return (1 / gap**2 - 1) / oracle.domain
    own = oracle.p * (1 - oracle.p) - oracle.q * (1 - oracle.q)
    return (oracle.q * (1 - oracle.q) + own / oracle.domain) / gap**2


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
