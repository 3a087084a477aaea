"""Frequency oracles: what a tally of perturbed answers says about the share of each item, and how surely.

| here      | there          | unit |
|-----------|----------------|------|
| `own`     | W              | weight of the truth, against 2^20 of any other answer |
| `p`, `q`  | p, q           | probability that an item is supported by its owner, by anybody else |
| `support` | lambda         | q + f (p - q), expected share of reports that support an item |
| spread    | v(eps)         | 4 e^eps / (e^eps - 1)^2, variance of one OUE report at f = 0 |
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
OTHER = 1 << 20
LONGEST_OUE = 2048


@dataclass(frozen=True)
class Oracle:
    """One randomizer over `domain` items.

    Args:
        name: GRR, OUE, OLH or WAVE.
        domain: number of items (WAVE: leaves).
        own: integer weight of the truth.
        extra: OLH buckets, Square Wave reach, else 0.
    """

    name: str
    domain: int
    own: int
    extra: int = 0

    @property
    def exact(self) -> tuple[Fraction, Fraction]:
        """(p, q) as exact fractions."""
        if self.name == "GRR":
            total = self.own + (self.domain - 1) * OTHER
            return Fraction(self.own, total), Fraction(OTHER, total)
        if self.name == "OUE":
            return Fraction(1, 2), Fraction(OTHER, self.own + OTHER)
        return Fraction(self.own, self.own + (self.extra - 1) * OTHER), Fraction(1, self.extra)

    @property
    def p(self) -> float:
        """Probability that a report supports its owner's item."""
        return float(self.exact[0])

    @property
    def q(self) -> float:
        """Probability that a report supports somebody else's item."""
        return float(self.exact[1])


class Structure(NamedTuple):
    """A covariance (diag(diagonal) - tilt tilt') / n of the estimated shares of one oracle's items."""

    diagonal: FloatArray
    tilt: FloatArray


def choose_oracle(domain: int, own: int) -> Oracle:
    """Choose the oracle of least variance: GRR below 3 e^eps + 2 items, else OUE, past 2048 items OLH.

    Args:
        domain: number of items.
        own: integer weight of the truth.

    Returns:
        The oracle.

    Example:
        >>> [choose_oracle(d, 3 << 20).name for d in (10, 11, 3000)]
        ['GRR', 'OUE', 'OLH']
    """
    if domain * OTHER < 3 * own + 2 * OTHER:
        return Oracle("GRR", domain, own)
    if domain <= LONGEST_OUE:
        return Oracle("OUE", domain, own)
    return Oracle("OLH", domain, own, round(own / OTHER) + 1)


def spread(own: int) -> float:
    """v(eps) for the exact weights.

    Example:
        >>> spread(3 << 20)
        3.0
    """
    ratio = own / OTHER
    return 4 * ratio / (ratio - 1) ** 2


def estimate(oracle: Oracle, tally: FloatArray, reports: float) -> FloatArray:
    """Turn a tally into unbiased shares.

    Args:
        oracle: GRR, OUE or OLH.
        tally: reports that support each item, shape (domain,).
        reports: number of reports.

    Returns:
        Shares, shape (domain,); single ones may be negative.

    **Source**: docs/method/local.md, "Oracles".
    """
    return np.asarray((tally / reports - oracle.q) / (oracle.p - oracle.q))


def structure(oracle: Oracle, shares: FloatArray, fan: float | FloatArray = 1.0) -> Structure:
    """Exact covariance of the estimated shares, times the number of reports.

    Args:
        oracle: GRR, OUE or OLH.
        shares: true (or plugged-in) shares of cells.
        fan: how many items each cell adds up.

    Returns:
        Diagonal and tilt: GRR lambda/(p-q)^2 and lambda/(p-q); OUE, OLH lambda(1-lambda)/(p-q)^2 + f^2 and f.
    """
    gap = oracle.p - oracle.q
    if oracle.name == "GRR":
        support = fan * oracle.q + shares * gap
        return Structure(np.asarray(support / gap**2), np.asarray(support / gap))
    # lambda (1 - lambda) + f^2 gap^2 is linear in f, so cells of several items add up without knowing each one
    diagonal = fan * oracle.q * (1 - oracle.q) / gap**2 + shares * (1 - 2 * oracle.q) / gap
    return Structure(np.asarray(diagonal), shares)


def variance(oracle: Oracle, shares: FloatArray, reports: float) -> FloatArray:
    """Exact variance lambda (1 - lambda) / (n (p - q)^2) of each estimated share."""
    gap = oracle.p - oracle.q
    support = oracle.q + shares * gap
    return np.asarray(support * (1 - support) / (reports * gap**2))


def covariance(oracle: Oracle, shares: FloatArray, reports: float) -> FloatArray:
    """Exact covariance matrix of the estimated shares, shape (domain, domain)."""
    parts = structure(oracle, shares)
    return np.asarray((np.diag(parts.diagonal) - np.outer(parts.tilt, parts.tilt)) / reports)


def influence(oracle: Oracle) -> float:
    """Most counts that one hostile report can add to one item's estimate: (1 - q) / (p - q).

    Example:
        >>> round(influence(Oracle("GRR", 10, 3 << 20)), 3)
        5.5
    """
    p, q = oracle.exact
    return float((1 - q) / (p - q))


def wave_reach(leaves: int, epsilon: float) -> int:
    """Half-width of Square Wave's near bins that keeps most information about a smooth histogram.

    Args:
        leaves: number of leaves m.
        epsilon: privacy of one report.

    Returns:
        floor(m (eps e^eps - e^eps + 1) / (2 e^eps (e^eps - 1 - eps))).
    """
    grown = math.exp(epsilon)
    return math.floor(leaves * (epsilon * grown - grown + 1) / (2 * grown * (grown - 1 - epsilon)))


def wave_matrix(oracle: Oracle) -> FloatArray:
    """Probability of each bin given each leaf, shape (m + 2 reach, m)."""
    near = 2 * oracle.extra + 1
    total = near * oracle.own + (oracle.domain - 1) * OTHER
    matrix = np.full((oracle.domain + 2 * oracle.extra, oracle.domain), OTHER / total)
    for leaf in range(oracle.domain):
        matrix[leaf : leaf + near, leaf] = oracle.own / total
    return matrix
