"""Another way to find keys at one budget: plain weighted thresholds, in one round.

Rebuilt in numpy with rounded normal noise: it says how many keys would be shown.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from dpsql.budget import gaussian_sigma2
from dpsql.budget.threshold import SQUARED_SENSITIVITY, key_threshold, key_weight

IntArray = npt.NDArray[np.int64]


def plain(person: IntArray, key: IntArray, spend: tuple[Fraction, Fraction], cap: int, seed: int) -> int:
    """Keys shown by one round of the weighted Gaussian threshold.

    Args:
        person, key: pairs, each once.
        spend: mu^2 and delta.
        cap: keys of a person that weigh.
        seed: of the noise.
    """
    rng = np.random.default_rng(seed)
    person, key, held = _capped(person, key, cap, rng)
    weights = np.array([0.0, *(key_weight(keys) for keys in range(1, cap + 1))])
    sums = np.bincount(key, weights[held], int(key.max()) + 1)
    return _passed(sums, spend, cap, rng)


def _capped(
    person: IntArray, key: IntArray, cap: int, rng: np.random.Generator
) -> tuple[IntArray, IntArray, IntArray]:
    """At most so many keys of a person, any of them, and how many count."""
    order = np.lexsort((rng.random(len(person)), person))
    person, key = person[order], key[order]
    keep = np.arange(len(person)) - np.searchsorted(person, person) < cap
    person, key = person[keep], key[keep]
    return person, key, np.bincount(person)[person]


def _passed(
    sums: npt.NDArray[np.float64], spend: tuple[Fraction, Fraction], cap: int, rng: np.random.Generator
) -> int:
    sigma2 = gaussian_sigma2(spend[0], SQUARED_SENSITIVITY)
    weighed = sums[sums > 0]
    noisy = weighed + np.rint(rng.normal(0, math.sqrt(sigma2), len(weighed)))
    return int(np.sum(noisy >= key_threshold(sigma2, spend[1], cap)))
