"""Fixed points of prices, in about half of the rounds that plain steps take (Anderson's mixing).

A round turns prices into what they should be multiplied by. Over the last rounds the logarithms of these factors are
nearly linear in those of the prices; the next prices are where the linear model has none left.

**Source** docs/method/axis.md, "Dense rows for Gaussian noise"; Walker and Ni (2011).
"""

from __future__ import annotations

import numpy as np

from dpsql.tree import FloatArray

MEMORY = 2
"""Earlier rounds that are looked at. 500 leaves, asked for their total half of the time: 9 rounds with 0, 5 with 2."""


class Mixing:
    """The prices of round after round.

    Args:
        price: where to begin, positive, shape (n,).

    >>> mixing = Mixing(np.array([1.0, 4.0]))
    >>> for _ in range(6):
    ...     mixing.times((9.0 / mixing.price) ** 0.5)
    >>> [round(float(each), 6) for each in mixing.price]
    [9.0, 9.0]
    """

    def __init__(self, price: FloatArray) -> None:
        self._at: list[FloatArray] = [np.log(price)]
        self._steps: list[FloatArray] = []

    @property
    def price(self) -> FloatArray:
        """The prices of this round, shape (n,)."""
        return np.exp(self._at[-1])

    def times(self, factor: FloatArray) -> None:
        """Go on: the prices should be multiplied by these factors, positive, shape (n,)."""
        step = np.log(factor)
        self._steps.append(step)
        ahead = self._at[-1] + step
        if len(self._steps) > 1:
            at = np.array([self._at[-1] - previous for previous in self._at[:-1]]).T
            bend = np.array([step - previous for previous in self._steps[:-1]]).T
            ahead = ahead - (at + bend) @ np.linalg.lstsq(bend, step, rcond=1e-6)[0]
        self._at = [*self._at[-MEMORY:], ahead]
        self._steps = self._steps[-MEMORY:]
