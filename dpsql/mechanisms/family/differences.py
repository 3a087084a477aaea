"""What one factor leaves out of groups: noisy differences, shrunk, and how far groups then still are off.

Views with a low bound are scaled by one factor. Groups whose people own more rows than others stay off. So each view
is published a second time, as what the factor leaves out of it, clipped (`whitened`). These differences are near 0,
so they can be shrunk: a group is moved as far as groups are seen to vary beyond their noise. What shrinking loses is
known too, and goes into intervals.

| here | there | unit |
|---|---|---|
| `deviation` | x_g: a group's difference less its part of the whole's | measure unit |
| `energy` | mean square of x less the noise V | squared measure unit |
| `Correction.value`, `variance` | d_g (dy_g), v_g | (squared) measure unit |
| `prior` | h_g = f_g (1 - f_g) / mean: large groups may be off by more | 1 |
| `fitted` | leaf corrections with given margins, in proportion to the rows | measure unit |
| `interaction` | i2: how far cells are off beyond their groups; counted, not corrected | squared measure unit |

**Privacy**: functions of released values alone.
**Source**: docs/method/user_level.md, "Differences".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from dpsql.tree import FloatArray

DOUBTED = 1.5
"""Standard errors of the energy that it must pass before anything is moved."""

ALLOWED = 0.6
"""Standard errors of the energy that intervals add to it."""

PASSES = 6
"""Rounds of alternate fitting; margins agree to a millionth after six on every star looked at."""

FLOOR = 0.001
"""Part of all rows that is dealt evenly over cells before corrections are, so that empty cells may take some."""

SEEN = 3.0
"""Noise SDs from which a group's own factor carries its sums along."""

LEAST_CARRIED, MOST_CARRIED = -0.8, 2.0
"""How far a group's own factor may carry its sums."""


@dataclass(frozen=True, eq=False)
class Correction:
    """How groups of one axis are moved, and how far they may still be off.

    Args:
        value: what is added to each group; adds to 0, shape (n,).
        variance: squared, shape (n,).
    """

    value: FloatArray
    variance: FloatArray


@dataclass(frozen=True, eq=False)
class Groups:
    """One axis of the low views.

    Args:
        part: f_g, shape (n,), adding to 1.
        rows: c_g, weighted rows of each group, shape (n,).
        rows_sd: standard error of one of them.
    """

    part: FloatArray
    rows: FloatArray
    rows_sd: float

    @property
    def prior(self) -> FloatArray:
        """h_g."""
        size = self.part * (1 - self.part)
        mean = float(size.mean())
        return size / mean if mean > 0 else np.zeros_like(size)


def groups_of(rows: FloatArray, rows_sd: float) -> Groups:
    """Groups with their parts of all rows."""
    return Groups(parts_of(rows), rows, rows_sd)


def parts_of(rows: FloatArray) -> FloatArray:
    """Parts of the whole, noise below 0 cut; even where nothing is left."""
    positive = np.maximum(rows, 0.0)
    total = float(positive.sum())
    return positive / total if total > 0 else np.full(rows.shape, 1.0 / rows.size)


def corrected_counts(groups: Groups, difference: FloatArray, noise: float) -> Correction:
    """How counts of groups are moved.

    Args:
        groups: the axis.
        difference: x_g, shape (n,).
        noise: V, variance of its noise in one group.
    """
    return _shrunk(groups, difference, np.zeros_like(difference), noise)


@dataclass(frozen=True)
class SumScale:
    """What carries a measure's sums along with counts: R_N, R_S, and its centre."""

    rows: float
    sums: float
    mid: float


def carried(groups: Groups, counts: Correction, centred: FloatArray, scale: SumScale) -> FloatArray:
    """z_g: what a group's sums differ by if its averages stay as they are.

    Args:
        groups: the axis.
        counts: how its counts are moved.
        centred: y_g, the low views' centred sums, shape (n,).
        scale: the measure's.
    """
    seen = groups.rows >= SEEN * groups.rows_sd
    own = np.divide(counts.value, scale.rows * groups.rows, out=np.zeros_like(centred), where=seen)
    own = np.clip(own, LEAST_CARRIED, MOST_CARRIED) * scale.sums * centred
    found: FloatArray = own + (scale.sums / scale.rows - 1) * scale.mid * counts.value
    return found


def corrected_sums(groups: Groups, difference: FloatArray, towards: FloatArray, noise: float) -> Correction:
    """How centred sums of groups are moved: shrunk to what counts carry along, else averages would run to mid."""
    return _shrunk(groups, difference, towards, noise)


def _shrunk(groups: Groups, difference: FloatArray, towards: FloatArray, noise: float) -> Correction:
    n = len(difference)
    if n < 2:
        return Correction(np.zeros(n), np.zeros(n))
    left = difference - towards
    doubt = noise * sqrt(2 / (n - 1))
    energy = float(left @ left) / (n - 1) - noise
    between = max(0.0, energy - DOUBTED * doubt)
    prior = groups.prior
    keep = between * prior / (between * prior + noise) if noise > 0 else np.ones(n)
    moved = towards + keep * left
    moved = moved - groups.part * moved.sum()
    variance = (1 - keep) ** 2 * prior * (max(0.0, energy) + ALLOWED * doubt) + keep**2 * noise
    return Correction(moved, variance)


def fitted(rows: FloatArray, margins: Sequence[FloatArray]) -> FloatArray:
    """Corrections of cells whose sums along each axis are given, in proportion to the rows of a cell.

    Args:
        rows: weighted rows of each cell, shape (n_1, .., n_d).
        margins: what each group of each axis is moved by; each adds to 0.

    >>> fitted(np.array([[30.0, 10.0], [10.0, 10.0]]), [np.array([4.0, -4.0]), np.zeros(2)]).sum(axis=1).round(3)
    array([ 4., -4.])
    """
    weight = parts_of(rows) + FLOOR / rows.size
    found = np.zeros_like(weight)
    if len(margins) == 1:
        return margins[0].copy()
    for _ in range(PASSES):
        for axis, wanted in enumerate(margins):
            others = tuple(i for i in range(weight.ndim) if i != axis)
            missing = wanted - found.sum(axis=others)
            shape = [-1 if i == axis else 1 for i in range(weight.ndim)]
            found = found + weight * (missing / weight.sum(axis=others)).reshape(shape)
    return found


def interaction(rest: FloatArray, noise: float) -> float:
    """Mean square of what cells differ by beyond what their groups explain, with its own doubt added.

    Args:
        rest: differences of cells less their corrections, shape (n_1, .., n_d).
        noise: variance of the noise of one cell.
    """
    free = rest.size - 1 - sum(n - 1 for n in rest.shape)
    if rest.ndim < 2 or free < 1:
        return 0.0
    mean = rest.mean()
    left = rest - mean
    for axis in range(rest.ndim):
        others = tuple(i for i in range(rest.ndim) if i != axis)
        left = left - (rest.mean(axis=others, keepdims=True) - mean)
    found: float = max(0.0, float((left**2).sum()) / free - noise) + ALLOWED * noise * sqrt(2 / free)
    return found
