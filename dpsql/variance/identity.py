"""Variance of ranges when every leaf has its own, independent noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dpsql.tree import FloatArray


@dataclass(frozen=True, eq=False)
class IdentityVariance:
    """Independent leaves of equal variance.

    Args:
        n: number of leaves.
        leaf: variance of one leaf for noise of unit strength.

    >>> IdentityVariance(4, 1.0).ranges([0, 1], [4, 1]).tolist()
    [4.0, 0.0]
    """

    n: int
    leaf: float
    kind: ClassVar[str] = "identity"

    def ranges(self, lo: npt.ArrayLike, hi: npt.ArrayLike) -> FloatArray:
        """Variance of each half-open range, shape (q,)."""
        return np.atleast_1d(self.leaf * (np.asarray(hi, np.float64) - np.asarray(lo, np.float64)))

    def quadratic(self, masks: npt.ArrayLike) -> FloatArray:
        """u' C u for each row of masks, shape (g, n) -> (g,)."""
        squares: FloatArray = np.sum(np.asarray(masks, np.float64) ** 2, axis=1)
        return self.leaf * squares

    def columns(self) -> dict[str, npt.NDArray[np.generic]]:
        """One line: the variance of a leaf."""
        return {"leaf": np.array([self.leaf])}


def from_columns(n: int, columns: Mapping[str, npt.NDArray[np.generic]]) -> IdentityVariance:
    """The model that `columns` were read from."""
    return IdentityVariance(n, float(columns["leaf"].astype(np.float64)[0]))
