"""The entropy sources: the operating system's, and a marked, repeatable one for tests."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpsql.noise.coins import Entropy


def os_entropy() -> Entropy:
    """The operating system's cryptographic source, the only one fit for a release."""
    return os.urandom


@dataclass(frozen=True)
class _TestEntropy:
    generator: np.random.Generator
    insecure: ClassVar[bool] = True

    def __call__(self, size: int) -> bytes:
        return self.generator.bytes(size)


def insecure_test_entropy(seed: int) -> Entropy:
    """A repeatable source for tests, marked `insecure = True`.

    Args:
        seed: any non-negative integer; the same seed gives the same draws.

    Returns:
        An entropy source whose draws anybody can repeat.

    **Privacy**: none. A release made with it is stamped `insecure_entropy`.
    """
    return _TestEntropy(np.random.Generator(np.random.PCG64(seed)))
