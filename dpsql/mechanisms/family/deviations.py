"""Deviations that are drawn with noise: how far each may be off, averaged over how much all of them vary.

Groups of one axis, or halves of one level, deviate from the whole by amounts whose variance is in proportion to a known
size. That variance is not known: with one to five degrees of freedom the deviations tell little of it. So each variance
of a public list has the weight that all deviations give it, and what is said of a deviation is the mixture.

| here | there | unit |
|---|---|---|
| `seen`, `noise` | x with the variances V of its noise | measure unit, squared |
| `size` | what variances are in proportion to; h is that over its mean | - |
| `largest` | top: the largest variance of a typical deviation | squared measure unit |
| `value`, `variance` | d, v: mean and variance of what is behind x | measure unit, squared |

**Privacy**: functions of released values alone.
**Source**: docs/method/user_level.md, "Differences".
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpsql.tree import FloatArray

VARIANCES = np.array([0.0, *(2.0**-j for j in range(8, -1, -1))])
"""Variances that are thought possible, over the largest one; each as likely before anything is drawn."""

TINY = 1e-12
"""Least variance of noise, over the largest one: without noise a deviation is what was drawn."""


class ShrunkDeviations(NamedTuple):
    """What is behind noisy deviations.

    Args:
        value: d, shape (k,).
        variance: v, shape (k,).
    """

    value: FloatArray
    variance: FloatArray


def shrink(seen: FloatArray, size: FloatArray, noise: FloatArray, largest: float) -> ShrunkDeviations:
    """The mean and variance of deviations under all variances that they may have.

    Args:
        seen: x, shape (k,).
        size: at least 0, shape (k,).
        noise: V, shape (k,).
        largest: top.

    >>> shrink(np.array([3.0, -3.0]), np.ones(2), np.zeros(2), 9.0).value.round(6).tolist()
    [3.0, -3.0]
    """
    mean = float(size.mean()) if size.size else 0.0
    if mean <= 0 or largest <= 0:
        return ShrunkDeviations(np.zeros_like(seen), np.zeros_like(seen))
    prior = largest * VARIANCES[:, None] * (size / mean)
    floor = np.maximum(noise, TINY * largest)
    total = prior + floor
    score = -0.5 * (np.log(total) + seen**2 / total).sum(axis=1)
    weights = np.exp(score - score.max())
    weights /= weights.sum()
    keep = prior / total
    part = weights @ keep
    variance = part * floor + weights @ (keep - part) ** 2 * seen**2
    return ShrunkDeviations(part * seen, variance)
