"""Many views at once under zCDP: every set of axes measured once, free of what its subsets tell already.

Views over {a, b}, {b, c} and {a, c} would each measure the axis b and the total again. The residual design
takes a family of sets of axes closed downwards and measures for each set S only what is new in it: on the axes
in S rows that add to zero over the axis, on all others the total. Measurements of different sets tell of
orthogonal parts of the histogram, so the best linear unbiased estimate is in closed form, and so is every
variance.

| here | there | unit |
|---|---|---|
| `gram` | X_i = R_i' R_i, X_i 1 = 0, diagonal at most 1 | n x n |
| `spread` | q' X_i^+ q: what set S with i in S adds to a query q on axis i | 1 |
| `share` | (\\|q\\| / n)^2: what a set without i adds | 1 |
| `variance` | sigma_S^2, of the noise on the rows of S | 1 at rho = 1/2 |

An answer with leaf masks q_i on the axes in A (all other axes whole) has the variance

    sum over S in A of sigma_S^2  prod_{i in S} q_i' X_i^+ q_i  prod_{i in A - S} (|q_i| / n_i)^2 .

Rows of S have column norms of at most 1, so set S costs 1 / (2 sigma_S^2) of rho. Minimising sum_S value_S
sigma_S^2 under a given rho gives sigma_S^2 proportional to value_S^(-1/2).

**Source** central.md section 3; Xiao, He, Zhang and Kifer (2023), residual planner, for the orthogonal parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from dpsql.errors import InterfaceError
from dpsql.mechanisms.central.gaussian import DENSE_LEAVES, workload_gram
from dpsql.tree import FloatArray, Workload

Subset = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class ResidualAxis:
    """What is measured on one axis: its total, and rows that add to zero.

    Args:
        gram: X, positive semidefinite, X 1 = 0, diagonal at most 1, shape (n, n).

    **Privacy** One record moves the zero-sum rows by at most 1 in L2, as the diagonal says, and the total by 1.
    """

    gram: FloatArray

    def __post_init__(self) -> None:
        """Refuse rows that are more sensitive than declared, or that tell of the total."""
        if np.max(np.diag(self.gram), initial=0.0) > 1 + 1e-12 or np.abs(self.gram.sum(axis=0)).max() > 1e-6:
            raise InterfaceError("residual rows need a diagonal of at most 1 and columns that add to zero")

    @property
    def n(self) -> int:
        """Number of leaves."""
        return len(self.gram)

    @cached_property
    def inverse(self) -> FloatArray:
        """X^+, shape (n, n): covariance of the leaves' deviations from their mean, for unit noise."""
        return np.asarray(np.linalg.pinv(self.gram, rcond=1e-12, hermitian=True), np.float64)

    @cached_property
    def rows(self) -> FloatArray:
        """R = X^(1/2), shape (n, n): one choice of rows with this Gram matrix."""
        values, vectors = np.linalg.eigh(self.gram)
        return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T, np.float64)

    def spread(self, masks: FloatArray) -> FloatArray:
        """q' X^+ q of each row of masks, shape (g, n) -> (g,)."""
        return np.asarray(np.sum((masks @ self.inverse) * masks, axis=1), np.float64)

    def share(self, masks: FloatArray) -> FloatArray:
        """(|q| / n)^2 of each row of masks, shape (g, n) -> (g,)."""
        return np.asarray((masks.sum(axis=1) / self.n) ** 2, np.float64)


def residual_axis(
    n: int, workload: Workload | None = None, gap: float = 3e-4, steps: int = 40
) -> ResidualAxis:
    """The zero-sum rows with the least mean of q' X^+ q over the declared ranges.

    The fixed point of `gaussian.optimal_gram` on the space of vectors that add to zero: for leaf prices v the
    best Y = W^(-1/2) (W^(1/2) G W^(1/2))^(1/2) W^(-1/2), with W and G the prices and the workload there.

    Args:
        n: number of leaves, 2 to `DENSE_LEAVES`.
        workload: the ranges asked; None means all ranges.
        gap: stop when the cost is within this fraction of a lower bound.
        steps: most rounds.

    Raises:
        InterfaceError: for an axis that is too short or too long.
    """
    if not 2 <= n <= DENSE_LEAVES:
        raise InterfaceError(
            f"residual rows need 2 to {DENSE_LEAVES} leaves, not {n}", hint="cut the axis wider"
        )
    basis = zero_sum_basis(n)
    asked = basis.T @ workload_gram(n, workload) @ basis
    price, x = np.ones(n), np.eye(n)
    for _ in range(steps):
        side, inverse = _roots(basis.T @ (price[:, None] * basis))
        root = _roots(side @ asked @ side)[0]
        x = basis @ inverse @ root @ inverse @ basis.T
        flat = np.diag(x)
        if flat.max() * price.sum() <= (1 + gap) * np.trace(root):
            break
        price = price * flat**2
    return ResidualAxis(np.asarray(x / np.diag(x).max(), np.float64))


def zero_sum_basis(n: int) -> FloatArray:
    """An orthonormal basis of the vectors that add to zero, shape (n, n - 1)."""
    k = np.arange(1, n)
    lower = np.where(np.arange(n)[:, None] < k, 1.0, 0.0)
    lower[k, k - 1] = -k
    return np.asarray(lower / np.sqrt(k * (k + 1.0)), np.float64)


def _roots(s: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Square root of a positive definite matrix, and its inverse."""
    values, vectors = np.linalg.eigh(s)
    root = np.sqrt(np.maximum(values, values[-1] * 1e-15))
    return (vectors * root) @ vectors.T, (vectors / root) @ vectors.T


def closed_downwards(sets: Sequence[Subset]) -> tuple[Subset, ...]:
    """All subsets of the given sets, small ones first.

    >>> closed_downwards([(0, 2), (1,)])
    ((), (0,), (1,), (2,), (0, 2))
    """
    found = {
        part for each in sets for size in range(len(each) + 1) for part in combinations(sorted(each), size)
    }
    return tuple(sorted(found, key=lambda part: (len(part), part)))


@dataclass(frozen=True, eq=False)
class ResidualDesign:
    """Axes, sets and the noise of each set.

    Args:
        axes: one for each axis.
        variance: noise variance of the rows of each set, for a family closed downwards.
    """

    axes: tuple[ResidualAxis, ...]
    variance: Mapping[Subset, float]

    @property
    def rho(self) -> float:
        """What all sets cost together: the sum of 1 / (2 sigma_S^2)."""
        return sum(1 / (2 * each) for each in self.variance.values())

    def quadratic(self, masks: Mapping[int, FloatArray]) -> FloatArray:
        """Variance of the answers whose leaf masks are outer products.

        Args:
            masks: axis -> (g, n_i); axes that are not named are asked as a whole.

        Returns:
            Shape (g,).

        Raises:
            InterfaceError: the axes asked together are no declared set.
        """
        asked = tuple(sorted(masks))
        if asked not in self.variance:
            raise InterfaceError(f"the axes {asked} were not declared together", hint="declare the set")
        total = np.zeros(len(next(iter(masks.values()))) if masks else 1)
        spread = {i: self.axes[i].spread(mask) for i, mask in masks.items()}
        share = {i: self.axes[i].share(mask) for i, mask in masks.items()}
        for part in closed_downwards([asked]):
            term = np.full(len(total), self.variance[part])
            for i in asked:
                term = term * (spread[i] if i in part else share[i])
            total += term
        return total


def residual_design(
    axes: Sequence[ResidualAxis],
    asked: Mapping[Subset, float],
    rho: float,
    workloads: Mapping[int, Workload] | None = None,
) -> ResidualDesign:
    """Noise variances with the least mean error over declared conjunctions of ranges.

    Args:
        axes: what is measured on each axis.
        asked: set of axes -> how often it is asked for a range on each of them; any positive weights.
        rho: what all sets may cost together.
        workloads: the ranges asked of an axis, where they are not all ranges.

    Returns:
        The design; every subset of an asked set is in it.

    **Privacy** A function of public facts.
    """
    grams = [workload_gram(axis.n, (workloads or {}).get(i), uniform=0.0) for i, axis in enumerate(axes)]
    spread = [float(np.sum(g * axis.inverse)) for g, axis in zip(grams, axes, strict=True)]
    share = [float(np.sum(g)) / axis.n**2 for g, axis in zip(grams, axes, strict=True)]
    value = dict.fromkeys(closed_downwards(list(asked)), 0.0)
    whole = sum(asked.values())
    for each, weight in asked.items():
        for part in closed_downwards([each]):
            factors = [spread[i] if i in part else share[i] for i in each]
            value[part] += weight / whole * float(np.prod(factors))
    price = sum(np.sqrt(v) for v in value.values())
    return ResidualDesign(
        tuple(axes), {part: float(price / np.sqrt(v) / (2 * rho)) for part, v in value.items()}
    )


def expected_error(design: ResidualDesign, asked: Mapping[Subset, float]) -> float:
    """Mean variance over random ranges on the asked sets of axes, all ranges equally often."""
    spread = [float(np.sum(workload_gram(axis.n) * axis.inverse)) for axis in design.axes]
    share = [float(np.sum(workload_gram(axis.n))) / axis.n**2 for axis in design.axes]
    total = 0.0
    for each, weight in asked.items():
        for part in closed_downwards([each]):
            factors = [spread[i] if i in part else share[i] for i in each]
            total += weight * design.variance[part] * float(np.prod(factors))
    return total / sum(asked.values())
