"""Another way to find keys at one budget: a weighted Gaussian threshold, in one round.

Rebuilt in numpy with normal noise: it says how many keys would be shown.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

IntArray = npt.NDArray[np.int64]


def plain(person: IntArray, key: IntArray, spend: tuple[Fraction, Fraction], cap: int, seed: int) -> int:
    """Keys shown by one round: a person of d keys gives each 1 / sqrt d, and d new keys pass with chance delta.

    Args:
        person, key: pairs, each once.
        spend: mu^2 and delta.
        cap: keys of a person that weigh.
        seed: of the noise.
    """
    rng = np.random.default_rng(seed)
    order = np.lexsort((rng.random(len(person)), person))
    person, key = person[order], key[order]
    keep = np.arange(len(person)) - np.searchsorted(person, person) < cap
    person, key = person[keep], key[keep]
    sums = np.bincount(key, 1 / np.sqrt(np.bincount(person)[person]))
    sigma, held = 1 / math.sqrt(spend[0]), np.arange(1, cap + 1)
    threshold = float(np.max(1 / np.sqrt(held) - sigma * ndtri(float(spend[1]) / held)))
    return int(np.sum(sums[sums > 0] + rng.normal(0, sigma, int(np.sum(sums > 0))) >= threshold))
