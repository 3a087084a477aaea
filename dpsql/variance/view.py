"""The variance of answers on a whole view: what every form of it can do, and the form that is no sum of products.

Most views are measured axis by axis, and their variance is a sum of Kronecker terms (`kronecker`). A view whose axes
are measured together has one model of its own for all of its cells.

| here | there | unit |
|---|---|---|
| `model` | C at unit noise | 1 |
| `sigma2` | variance of a row at unit strength | (measure unit)^2 |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dpsql.errors import InternalError
from dpsql.tree import FloatArray
from dpsql.variance import plane
from dpsql.variance.plane import PlaneVariance


class ViewVariance(Protocol):
    """Variances and covariances of answers whose leaf coverages are outer products of one mask an axis."""

    def quadratic(self, masks: Sequence[FloatArray]) -> FloatArray:
        """Variances of the answers, shape (g,); masks are one array (g, n_i) for each axis, in the view's order."""

    def bilinear(self, left: Sequence[FloatArray], right: Sequence[FloatArray]) -> FloatArray:
        """Covariances of the answers of `left` with those of `right`, shape (g,)."""


@dataclass(frozen=True)
class JointVariance:
    """The variance of every answer on a view whose two axes were measured together.

    Args:
        model: the covariance of the view's cells at unit noise.
        sigma2: what it is multiplied by.
    """

    model: PlaneVariance
    sigma2: float

    def quadratic(self, masks: Sequence[FloatArray]) -> FloatArray:
        """Variances of the answers, as `ViewVariance` says; never below 0."""
        first, second = masks
        return np.maximum(self.sigma2 * self.model.quadratic(first, second), 0.0)

    def bilinear(self, left: Sequence[FloatArray], right: Sequence[FloatArray]) -> FloatArray:
        """Covariances of the answers, as `ViewVariance` says."""
        (a, b), (c, d) = left, right
        return self.sigma2 * self.model.bilinear((a, b), (c, d))


def joint_from_columns(kind: str, columns: Mapping[str, npt.NDArray[np.generic]]) -> PlaneVariance:
    """The joint model that `columns()` was read from.

    Args:
        kind: the model's `kind`.
        columns: the arrays that `columns()` gave.

    Raises:
        InternalError: for a kind that no joint model has.
    """
    if kind != PlaneVariance.kind:
        raise InternalError(
            f"no joint variance model is called {kind!r}", hint="use the version that wrote it"
        )
    return plane.from_columns(columns)
