"""How many rows of one person may speak: tau, from its bias and the noise it brings.

A person with r rows fills min(r, tau) of tau slots, so COUNT loses sum (r - tau)+ rows and its noise
grows with tau.

| here         | there      | unit |
|--------------|------------|------|
| `row_shares` | P(r)       | share of people with r = 0, 1, .. rows |
| `noise`      | Var        | variance of one share's estimate when one report counts once |
| `cut`        | c          | 1 - E min(r, R) / E r, share of all rows beyond R |
**Source**: docs/method/local.md, "Truncation". The printed theorem 11 is a maximum of its own objective and has no
epsilon in it; the printed median aims at no error. Both are replaced by the least bias^2 + variance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from dpsql.errors import CatalogError
from dpsql.mechanisms.local.blue import normsub
from dpsql.mechanisms.oracles.oracle import FloatArray, Oracle, covariance, estimate


def lost_rows(row_shares: FloatArray) -> FloatArray:
    """Mean rows a person loses at tau = 0, 1, .., R: E (r - tau)+."""
    above = np.append(np.cumsum(row_shares[::-1])[::-1][1:], 0.0)
    return np.asarray(np.cumsum(above[::-1])[::-1])


def clipped_fraction(row_shares: FloatArray, tau: int) -> float:
    """Share of all rows that tau leaves out.

    Example:
        >>> clipped_fraction(np.array([0.0, 0.5, 0.0, 0.5]), 2)
        0.25
    """
    lost = lost_rows(row_shares)
    return float(lost[min(tau, lost.size - 1)] / lost[0])


class ValueWithError(NamedTuple):
    """A number and its standard error."""

    value: float
    error: float


def lost_by_histogram(oracle: Oracle, tally: FloatArray, reports: float, tau: int) -> ValueWithError:
    """Mean rows of a person beyond tau, E (r - tau)+, from people who report min(rows, R); unbiased.

    Args:
        oracle: of the reports, over 0 .. R.
        tally: reports that support each number of rows.
        reports: number of reports.
        tau: slots.
    """
    shares = estimate(oracle, tally, reports)
    beyond = np.maximum(np.arange(shares.size) - tau, 0).astype(np.float64)
    noise = float(beyond @ covariance(oracle, np.clip(shares, 0, 1), reports) @ beyond)
    return ValueWithError(float(beyond @ shares), float(np.sqrt(max(noise, 0.0))))


def clipped_share(lost: ValueWithError, kept: ValueWithError, together: float = 0.0) -> ValueWithError:
    """Share of all rows that tau leaves out: lost / (lost + kept), with the error that both bring.

    Args:
        lost: mean rows of a person beyond tau.
        kept: mean rows of a person within tau.
        together: their covariance.

    Returns:
        The share, at least 0, and its standard error by the delta method.

    Example:
        >>> share, error = clipped_share(ValueWithError(0.5, 0.1), ValueWithError(1.5, 0.0))
        >>> round(share, 3), round(error, 4)
        (0.25, 0.0375)
    """
    total = max(lost.value + kept.value, 1e-9)
    bends = kept.value**2 * lost.error**2 + lost.value**2 * kept.error**2
    bends -= 2 * kept.value * lost.value * together
    return ValueWithError(max(lost.value, 0.0) / total, float(np.sqrt(max(bends, 0.0))) / total**2)


def theory_tau(row_shares: FloatArray, noise: float, answer: float) -> int:
    """The tau of least bias^2 + variance for an answer that takes a share `answer` of the rows.

    Args:
        row_shares: public guess (T) or estimate (E) of the share of people with r = 0, 1, .. rows.
        noise: variance of the answer's share at tau = 1.
        answer: typical share of an answer.

    Returns:
        tau, at least 1.

    Example:
        >>> shares = np.array([0.0, 0.5, 0.3, 0.2])
        >>> theory_tau(shares, 1e-6, 0.3), theory_tau(shares, 1.0, 0.3)
        (3, 1)
    """
    lost = lost_rows(row_shares)
    taus = np.arange(1, lost.size)
    return int(taus[np.argmin((answer * lost[1:]) ** 2 + taus**2 * noise)])


def estimated_rows(oracle: Oracle, tally: FloatArray, reports: float) -> FloatArray:
    """Share of people with r = 0 .. R rows, from people who report min(rows, R) and then never again (E)."""
    return normsub(estimate(oracle, tally, reports))


TYPICAL = 0.15
"""By how much, as a share of all rows, cutting every row would move a typical answer: rows of people with many rows lie
elsewhere than others, in invented stars by .1 to .2 of the range."""


def bit_cap(row_shares: FloatArray, noise: float, answer: float) -> int:
    """The number of rows R at which a row's bit is certain: least (TYPICAL c)^2 + (R / E min(r, R))^2 noise.

    Args:
        row_shares: public guess or estimate of the share of people with r = 0, 1, .. rows.
        noise: variance of an answer's share at R = 1.
        answer: not asked; what cutting leaves out is not in proportion to it.

    Returns:
        R, at least 1.

    **Source**: docs/method/local.md, "One row and a bit".

    Example:
        >>> even = np.append(0.0, np.full(10, 0.1))
        >>> bit_cap(even, 1e-3, 0.3), bit_cap(even, 1e-5, 0.3)
        (7, 10)
    """
    lost = lost_rows(row_shares)
    caps, rows_within = np.arange(1, lost.size), np.maximum(lost[0] - lost[1:], 1e-12)
    cut = lost[1:] / max(float(lost[0]), 1e-12)
    return int(caps[np.argmin((TYPICAL * cut) ** 2 + (caps / rows_within) ** 2 * noise)])


Between = tuple[int, int]
"""Two numbers of rows: E min(r, second) - E min(r, first) is asked between them."""


@dataclass(frozen=True)
class SlotWeighting:
    """How a person with several rows is asked.

    Args:
        name: what catalogs and plans call it.
        asks: what grids ask, by name.
        waves: whether Square Wave may be asked.
        counted_again: part of the people who report numbers of rows after a first round that asked for these alone,
            from the declared part.
        counted: from tau, floor and cap of rows: between which numbers of rows people are asked how many they have,
            each with its part of those people.
        best: the tau of least error from shares of rows, an answer's variance at tau = 1, and its typical share.
    """

    name: str
    asks: str = "grid"
    waves: bool = True
    counted_again: Callable[[Fraction], Fraction] = lambda share: Fraction(0)
    counted: Callable[[int, int, int], dict[Between, int]] = lambda tau, floor, cap: {(floor, cap): 1}
    best: Callable[[FloatArray, float, float], int] = theory_tau


def _by_parts(tau: int, floor: int, cap: int) -> dict[Between, int]:
    """Whether there is a row, rows within tau, and rows beyond it: a bit between close numbers errs less."""
    bit_weights: dict[Between, int] = {(floor, tau): 2}
    if tau < cap:
        bit_weights[tau, cap] = 3
    if floor == 0:
        bit_weights[0, 1] = bit_weights.get((0, 1), 0) + 1
    return bit_weights


WEIGHTINGS = (
    SlotWeighting("none"),
    SlotWeighting("bit", "weighted", False, lambda share: share, counted=_by_parts, best=bit_cap),
)


def weighting_named(name: str) -> SlotWeighting:
    """The weighting that a catalog or plan names.

    Raises:
        CatalogError: none is called that.
    """
    for weighting in WEIGHTINGS:
        if weighting.name == name:
            return weighting
    raise CatalogError(f"no row_weighting is called `{name}`", hint="write bit or none")
