"""Exact integer noise: the discrete Laplace and the discrete Gaussian, vectorised, no float in the law.

Read in this order: `source` (what a mechanism is given, and entropy), `discrete` (how a uniform integer becomes an
exact e^(-u/t), and a draw), `knorm`. Only this package touches the operating system's entropy.

>>> import numpy as np
>>> noise = ExactNoise(os_entropy())
>>> noise.laplace(np.array([1, 2, 3]), 8).shape, noise.insecure
((3,), False)
"""

from dpsql.noise.discrete import HEADROOM, Entropy, discrete_gaussian, discrete_laplace, laplace_variance
from dpsql.noise.knorm import MOST_DRAWN, TreeNoise, expected_tries
from dpsql.noise.source import (
    ExactNoise,
    KeyNames,
    LeafNoise,
    Noise,
    ZeroNoise,
    insecure_test_entropy,
    noised,
    os_entropy,
)

__all__ = [
    "HEADROOM",
    "MOST_DRAWN",
    "Entropy",
    "ExactNoise",
    "KeyNames",
    "LeafNoise",
    "Noise",
    "TreeNoise",
    "ZeroNoise",
    "discrete_gaussian",
    "discrete_laplace",
    "expected_tries",
    "insecure_test_entropy",
    "laplace_variance",
    "noised",
    "os_entropy",
]
