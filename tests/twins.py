"""What the engine runs in SQL for people with many rows, again in Python: the bins of an amount, norms, weights."""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt

import numpy as np
import numpy.typing as npt

from dpsql.contributions.statements import LARGEST_NORM, UNIT
from dpsql.tree import IntArray


def bin_of(amount: npt.ArrayLike, edges: tuple[int, ...]) -> IntArray:
    """The bin of each amount; the twin in numpy of the CASE that the engine runs.

    >>> bin_of([0, 1, 2, 3, 4, 5, 99], (1, 2, 4)).tolist()
    [0, 0, 1, 2, 2, 3, 3]
    """
    return np.searchsorted(np.asarray(edges), np.asarray(amount), side="left").astype(np.int64)


def row_square(value: int, shift: int) -> int:
    """A squared row value in units of 2^shift, rounded up.

    >>> row_square(-3, 0), row_square(3, 2), row_square(0, 2)
    (9, 3, 0)
    """
    return -(-(value * value) >> shift)


def weight_of(norm: int, clip: int) -> int:
    """The largest weight W <= UNIT with W^2 norm <= UNIT^2 clip.

    Args:
        norm: 2^p nu^2 of one person.
        clip: 2^p K^2.

    >>> weight_of(4, 1) == UNIT // 2, weight_of(1, 2) == UNIT, weight_of(0, 1)
    (True, True, 0)
    """
    if norm == 0 or norm >= LARGEST_NORM:
        return 0
    return min(UNIT, isqrt(UNIT**2 * clip // norm))


def pure_weight(rows: int, reach: Sequence[int], tau: int, bounds: Sequence[int]) -> int:
    """The pure twin: the largest W <= UNIT with W n <= UNIT tau and W sum |y| <= UNIT T for each measure.

    Args:
        rows: n_u.
        reach: sum |y| of each measure.
        tau: most weighted rows.
        bounds: T of each measure.

    >>> pure_weight(4, [100], 2, [25]) == UNIT // 4
    True
    """
    limits = [UNIT * tau // rows] if rows > 0 else []
    limits += [UNIT * bound // total for total, bound in zip(reach, bounds, strict=True) if total > 0]
    return min([UNIT, *limits])
