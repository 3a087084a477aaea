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

**Source** docs/method/views.md, "Residual rows"; Xiao, He, Zhang and Kifer (2023).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from dpsql.errors import InterfaceError
from dpsql.mechanisms.axis.gram import workload_gram
from dpsql.mechanisms.axis.residual_axis import ResidualAxis
from dpsql.tree import FloatArray, Workload

Subset = tuple[int, ...]


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
