"""What every variance model of one axis can do, and what follows from ranges alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dpsql.errors import InternalError
from dpsql.tree import FloatArray, Workload


class AxisVariance(Protocol):
    """Variance of linear queries along one axis, for noise of unit strength.

    Unit strength: a row of budget b out of `total` carries noise of variance (total/b)^2. Laplace noise
    at epsilon multiplies by 2/epsilon^2, Gaussian noise by sigma^2.
    """

    @property
    def kind(self) -> str:
        """Name that `from_columns` knows the model by."""

    @property
    def n(self) -> int:
        """Number of leaves."""

    def ranges(self, lo: npt.ArrayLike, hi: npt.ArrayLike) -> FloatArray:
        """Variance of the sum over each half-open range, shape (q,); 0 where lo == hi."""

    def quadratic(self, masks: npt.ArrayLike) -> FloatArray:
        """u' C u for each row u of masks, shape (g, n) -> (g,)."""

    def columns(self) -> dict[str, npt.NDArray[np.generic]]:
        """Flat arrays of equal length that hold the whole model; what a release file stores."""


def from_columns(kind: str, n: int, columns: Mapping[str, npt.NDArray[np.generic]]) -> AxisVariance:
    """The model that `columns()` was read from.

    Args:
        kind: the model's `kind`.
        n: number of leaves.
        columns: the arrays that `columns()` gave.

    Raises:
        InternalError: for a kind that no model has.
    """
    from dpsql.variance import grouped, identity, intervals, prefix, sine, tree

    if kind.startswith(grouped.GROUPED):
        return grouped.from_columns(kind, n, columns)
    makers: dict[str, Callable[[int, Mapping[str, npt.NDArray[np.generic]]], AxisVariance]] = {
        "identity": identity.from_columns, "tree": tree.from_columns, "intervals": intervals.from_columns,
        "prefix": prefix.from_columns, "sine": sine.from_columns,
    }  # fmt: skip
    if kind not in makers:
        raise InternalError(f"no variance model is called {kind!r}", hint="use the version that wrote it")
    return makers[kind](n, columns)


def covariance(
    model: AxisVariance, i: npt.ArrayLike, j: npt.ArrayLike, k: npt.ArrayLike, m: npt.ArrayLike
) -> FloatArray:
    """Covariance of the answers on [i, j) and [k, m), by polarisation of the range variance.

    With V(a, b) = V(b, a) and V(a, a) = 0, prefix sums S give Var(S_b - S_a) = V(a, b), hence
    2 Cov = V(i, m) + V(j, k) - V(i, k) - V(j, m): a model needs ranges alone.

    Args:
        model: the axis.
        i, j: bounds of the first ranges, shape (q,).
        k, m: bounds of the second ranges, shape (q,).

    Returns:
        Covariances for noise of unit strength, shape (q,).
    """

    def between(a: npt.ArrayLike, b: npt.ArrayLike) -> FloatArray:
        return model.ranges(np.minimum(a, b), np.maximum(a, b))

    return 0.5 * (between(i, m) + between(j, k) - between(i, k) - between(j, m))


def mean_variance(model: AxisVariance, workload: Workload | None = None, whole: float = 0.0) -> float:
    """Mean variance over the declared ranges, for noise of unit strength.

    Args:
        model: the axis.
        workload: the ranges asked; None means all n(n+1)/2 ranges, equally often.
        whole: the part of the questions that asks for the total instead, in [0, 1].

    Returns:
        The mean; twice it is the expected squared error of Laplace noise at epsilon 1.

    **Source** docs/method/axis.md, "Budgets for the error after least squares": (n + 1) sum_i V(0, i) - t' C t.
    """
    n = model.n
    if workload is not None:
        weight = np.asarray(workload.weight, np.float64)
        mean = float(weight @ model.ranges(workload.lo, workload.hi) / weight.sum())
    else:
        mean = _all_ranges(model)
    return mean if whole == 0 else (1 - whole) * mean + whole * float(model.ranges(0, n)[0])


def _all_ranges(model: AxisVariance) -> float:
    """The mean over all ranges, from prefixes and one quadratic form."""
    n = model.n
    prefixes = float(np.sum(model.ranges(0, np.arange(1, n + 1))))
    overlap = float(model.quadratic(np.arange(n, 0, -1.0)[None])[0])
    return ((n + 1) * prefixes - overlap) / (n * (n + 1) / 2)
