"""Reports of one row and a bit say two things of one axis: where all rows lie, and where one row of each person lies.

They are alike if a person's rows have nothing to do with how many she has (rows missing at random). How far they are
apart says three things: whether that can be true (a test), how much rows beyond R may have moved the answers (the clip
bar), and how far the second, far less noisy, may be believed where the first is wanted (the shrunk mix).

| here    | there           | unit |
|---------|-----------------|------|
| `rows`  | x1 = p + e1     | shares of all rows, rows beyond R cut |
| `person`| x0 = p - d + e0 | shares of one uniform row a person |
| `cut`   | c = 1 - E min(r, R) / E r | share of rows beyond R |
| `tilt`  | d ~ N(0, s^2 G) | difference of the two laws |

With V the mean variance of a range, and b^2 the mean square of x1 - x0 over ranges, less its noise, plus half a
standard error of that:

    clip bar   variance times 1 + (k c / (1 - c))^2 b^2 / V,   k = 2.5, of the mix 3.5;   c with one standard error
    test       contrasts of x1 - x0 over five nodes, chi-squared; its p-value stands in the release
    mix        generalised least squares of x1 and x0, mean over s by likelihood
    G          M diag(w) K diag(w) M',  w = x0,  M = I - w 1',  K = 1 + 4 min(i, j) / m along an ordered axis, else I

The error of E min(r, R), which the bits themselves tell, moves all leaves along one line of their covariance.

All of it is post-processing.
**Source**: docs/method/local.md, "One row and a bit".
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpsql.local.mechanisms import blue
from dpsql.local.mechanisms.truncation import even_edges
from dpsql.local.oracles.oracle import FloatArray

NODES = 5
"""Coarse nodes of the test; four contrasts of them."""
STRENGTHS = (0.0, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Variances s^2 of the tilt that are weighed by likelihood; 0 is "missing at random", the last believes rows alone."""
LARGEST = 512
"""Most leaves of a shrunk mix, which solves for twice as many a dozen times."""
FLOOR = 1e-4
"""Least share of a leaf in the tilt's prior."""


SURE = 0.5
"""Standard errors of b^2 that are added to it, as noise may hide some: without them intervals of a heavy tail held 92%
of ranges, with one 99%, with half of one 98%."""


BEYOND, BEYOND_MIXED = 2.5, 3.5
"""How many times further from the rows kept the rows cut lie than all rows from one row a person: what the bars of the
unbiased answer and of the mix allow for. In four invented worlds it was 1.9 to 3.7. Where a million people buy the
cheaper the more they buy, 95% intervals of ranges held 94.4% with 2, 95.5% with 2.5; those of the mix, which is a third
less noisy, 93.1% with 2, 96.5% with 3.5."""


class TwoLaws(NamedTuple):
    """Both estimates of one axis's leaves, which one set of reports brought.

    Args:
        rows, person: shares, each adding up to 1.
        own, plain: their covariances.
        cross: covariance of rows (first) and person (second).
    """

    rows: FloatArray
    person: FloatArray
    own: FloatArray
    plain: FloatArray
    cross: FloatArray

    @property
    def apart(self) -> blue.ShareEstimate:
        """The difference of the two and its covariance."""
        return blue.ShareEstimate(self.rows - self.person, self.own + self.plain - self.cross - self.cross.T)


def clip_factor(laws: TwoLaws, covariance: FloatArray, cut: float, beyond: float) -> float:
    """Factor on variances for rows beyond R: an interval by plausibility, not a bound.

    What is left of cutting a share c of the rows is c times the difference of the rows cut and kept; that is taken to
    be some times (k) the difference b of all rows and one row a person, over 1 - c.

    Args:
        laws: both estimates.
        covariance: of the answers' leaves, to be multiplied.
        cut: c, at least 0 and below 1.
        beyond: k.

    Returns:
        1 + (k c / (1 - c))^2 b^2 / V, with V the mean variance of a range.
    """
    ranges, (shift, noise) = blue.range_workload(laws.rows.size), laws.apart
    seen, range_noise = (
        max(0.0, float(shift @ ranges @ shift) - float((noise * ranges).sum())),
        ranges @ noise,
    )
    apart = seen + SURE * math.sqrt(2 * float(np.sum(range_noise * range_noise.T)))
    mean = max(float((covariance * ranges).sum()), 1e-300)
    return 1 + (beyond * cut / (1 - cut)) ** 2 * apart / mean


def missing_at_random(laws: TwoLaws) -> float:
    """p-value of "rows are missing at random": contrasts of the difference over a few coarse nodes, by chi-square.

    Example:
        >>> alike = np.full(4, 0.25)
        >>> noise = (np.eye(4) - 0.25) * 1e-4
        >>> missing_at_random(TwoLaws(alike, alike, noise, noise, 0 * noise))
        1.0
    """
    nodes = blue.cell_design(even_edges(laws.rows.size, NODES), laws.rows.size)[:-1]
    shift, noise = nodes @ laws.apart.shares, nodes @ laws.apart.covariance @ nodes.T
    return chi_square_tail(float(shift @ np.linalg.solve(noise, shift)), len(nodes))


def chi_square_tail(value: float, freedom: int) -> float:
    """Probability that a chi-square variable is larger.

    Example:
        >>> round(chi_square_tail(9.488, 4), 4), round(chi_square_tail(7.815, 3), 4)
        (0.05, 0.05)
    """
    half = max(value, 0.0) / 2
    tail = math.exp(-half) if freedom % 2 == 0 else math.erfc(math.sqrt(half))
    for done in range(2 - freedom % 2, freedom, 2):
        tail += half ** (done / 2) * math.exp(-half) / math.gamma(done / 2 + 1)
    return tail


def shrink(laws: TwoLaws, smooth: int) -> tuple[blue.ShareEstimate, float]:
    """Shares of rows from both estimates, the second trusted as far as the reports bear it out.

    Args:
        laws: both estimates.
        smooth: leading leaves along which the tilt is a path; all others tilt each for itself.

    Returns:
        The mean over the tilt's variances s^2 by likelihood, made non-negative in its own norm; its covariance is that
        within and between them. And the likelihood's share of "missing at random".
    """
    size = laws.rows.size
    free, prior = slice(0, size - 1), _tilt_prior(laws.person, smooth)
    joint_covariance = _proper(
        np.block([[laws.own[free, free], laws.cross[free, free]],
                  [laws.cross[free, free].T, laws.plain[free, free]]])
    )  # fmt: skip
    seen = np.concatenate([laws.rows[free], laws.person[free]])
    twice, apart = np.vstack([np.eye(size - 1)] * 2), np.hstack([np.eye(size - 1), -np.eye(size - 1)])
    shift, noise = laws.apart.shares[free], apart @ joint_covariance @ apart.T
    logs, means, spreads = [], [], []
    for strength in STRENGTHS:
        tilt = strength * prior[free, free]
        logs.append(_log_likelihood(shift, noise + tilt))
        tilted_covariance = joint_covariance.copy()
        tilted_covariance[size - 1 :, size - 1 :] += tilt
        solved = np.linalg.solve(tilted_covariance, np.column_stack([twice, seen]))
        spread = np.linalg.inv(twice.T @ solved[:, :-1])
        means.append(spread @ (twice.T @ solved[:, -1]))
        spreads.append(spread)
    weights = np.exp(np.array(logs) - max(logs))
    weights /= weights.sum()
    mean = weights @ np.array(means)
    inner = sum(
        w * (s + np.outer(m - mean, m - mean)) for w, m, s in zip(weights, means, spreads, strict=True)
    )
    lift = np.vstack([np.eye(size - 1), -np.ones(size - 1)])
    last = np.append(mean, 1 - mean.sum())
    covariance = np.asarray(lift @ inner @ lift.T)
    precision = blue.constrained_inverse(covariance)
    return blue.ShareEstimate(blue.simplex_fit(precision, precision @ last), covariance), float(weights[0])


def _proper(covariance: FloatArray) -> FloatArray:
    """A covariance that is estimated at noisy shares, which may have directions of negative variance: their size."""
    sizes, directions = np.linalg.eigh(covariance)
    least = 1e-10 * float(np.trace(covariance)) / len(covariance)
    return np.asarray((directions * np.maximum(np.abs(sizes), least)) @ directions.T)


def _tilt_prior(person: FloatArray, smooth: int) -> FloatArray:
    """M diag(w) K diag(w) M': what people of many rows hold differs in proportion to what is there, without a total."""
    size = person.size
    share = np.maximum(person, FLOOR)
    share = share / share.sum()
    path = np.minimum(np.arange(size)[:, None], np.arange(size)[None, :])
    kernel = np.eye(size)
    kernel[:smooth, :smooth] = 1 + 4 * path[:smooth, :smooth] / max(smooth, 1)
    centre = np.eye(size) - np.outer(share, np.ones(size))
    return np.asarray(centre @ (share[:, None] * kernel * share[None, :]) @ centre.T)


def _log_likelihood(shift: FloatArray, noise: FloatArray) -> float:
    """Of a normal variable, up to a constant."""
    root = np.linalg.cholesky((noise + noise.T) / 2)
    white = np.linalg.solve(root, shift)
    return -float(white @ white) / 2 - float(np.log(np.diag(root)).sum())
