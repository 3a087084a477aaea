"""OpenDP's Gaussian threshold on a star's keys; run by the interpreter of its own environment.

python with_opendp.py counts.npz rho delta cap

A person gives at most `cap` keys one row each; the threshold is the least one whose delta is within the given.
"""

from __future__ import annotations

import sys
from math import isqrt, sqrt

import numpy as np


def main(file: str, rho: float, delta: float, cap: int) -> int:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    arrays = np.load(file)
    counts = dict(zip(arrays["key"].tolist(), arrays["count"].tolist(), strict=True))
    domain = dp.map_domain(dp.atom_domain(T=int), dp.atom_domain(T=int))
    metric, scale = dp.l02inf_distance(dp.absolute_distance(T=int)), sqrt(cap / (2 * rho)) * (1 + 1e-9)
    moved = (cap, isqrt(cap), 1)  # a square

    def with_threshold(threshold: int):  # type: ignore[no-untyped-def]
        return dp.m.make_gaussian_threshold(domain, metric, scale=scale, threshold=threshold)

    low, high = 1, int(100 * scale) + 10
    while low < high:
        middle = (low + high) // 2
        spent, chance = with_threshold(middle).map(moved)
        low, high = (low, middle) if spent <= rho and chance <= delta else (middle + 1, high)
    return len(with_threshold(low)(counts))


if __name__ == "__main__":
    print(main(sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])))
