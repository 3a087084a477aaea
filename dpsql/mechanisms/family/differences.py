"""What one factor leaves out of groups: noisy differences, shrunk, and how far groups then still are off.

Views with a low bound are scaled by one factor. Groups whose people own more rows than others stay off. So each view
is published a second time, as what the factor leaves out of it, clipped (`whitened`). These differences are near 0,
so they can be shrunk: a group is moved as far as groups are seen to vary beyond their noise.

Groups of one axis deviate from the whole by amounts whose variance is in proportion to a known size. That variance is
not known: with one to five degrees of freedom the deviations tell little of it. So each variance of a public list has
the weight that all deviations give it, and what is said of a deviation is the mixture.

Neighbours on an ordered axis are off the same way: rows at popular prices meet others of their customer, who gets a
lower weight for it. In a single group that is lost in noise, in half of an axis it is not. So an ordered axis is
halved, its halves again, and the halvings of each level are shrunk by what that level shows.

| here | there | unit |
|---|---|---|
| `difference` | x_g: a group's difference less its part of the whole's, for all that was left out | measure unit |
| `Line.take` | t_k: the left half's part of a node, less its share of the node's | measure unit |
| `DifferenceNoise.largest` | wide U: how far off all rows may be at most | measure unit |
| `Correction.value`, `variance`, `halved` | d_g (dy_g), v_g, v_k | (squared) measure unit |
| `fitted` | leaf corrections with given margins, in proportion to the rows | measure unit |
| `interaction` | i2: how far cells are off beyond their groups; counted, not corrected | squared measure unit |
| `seen`, `noise` of a deviation | x with the variances V of its noise | measure unit, squared |
| `size` | what variances are in proportion to; h is that over its mean | - |
| `largest` | top: the largest variance of a typical deviation | squared measure unit |

**Privacy**: functions of released values alone.
**Source**: docs/method/user_level.md, "Differences".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

import numpy as np

from dpsql.tree import FloatArray, Halves, IntArray, halves

VARIANCES = np.array([0.0, *(2.0**-j for j in range(8, -1, -1))])
"""Variances that are thought possible, over the largest one; each as likely before anything is drawn."""

TINY = 1e-12
"""Least variance of noise, over the largest one: without noise a deviation is what was drawn."""


class ShrunkDeviations(NamedTuple):
    """What is behind noisy deviations.

    Args:
        value: d, shape (k,).
        variance: v, shape (k,).
    """

    value: FloatArray
    variance: FloatArray


def shrink(seen: FloatArray, size: FloatArray, noise: FloatArray, largest: float) -> ShrunkDeviations:
    """The mean and variance of deviations under all variances that they may have.

    Args:
        seen: x, shape (k,).
        size: at least 0, shape (k,).
        noise: V, shape (k,).
        largest: top.

    >>> shrink(np.array([3.0, -3.0]), np.ones(2), np.zeros(2), 9.0).value.round(6).tolist()
    [3.0, -3.0]
    """
    mean = float(size.mean()) if size.size else 0.0
    if mean <= 0 or largest <= 0:
        return ShrunkDeviations(np.zeros_like(seen), np.zeros_like(seen))
    prior = largest * VARIANCES[:, None] * (size / mean)
    floor = np.maximum(noise, TINY * largest)
    total = prior + floor
    score = -0.5 * (np.log(total) + seen**2 / total).sum(axis=1)
    weights = np.exp(score - score.max())
    weights /= weights.sum()
    keep = prior / total
    part = weights @ keep
    variance = part * floor + weights @ (keep - part) ** 2 * seen**2
    return ShrunkDeviations(part * seen, variance)


DOUBT = 0.6
"""Standard errors that are added to what cells are seen to differ by."""

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
        variance: squared, of each group by itself, shape (n,).
        halved: squared, of the left half of each of `halves(n)`, 0 without order, shape (n - 1,).
    """

    value: FloatArray
    variance: FloatArray
    halved: FloatArray


@dataclass(frozen=True, eq=False)
class DifferenceAxis:
    """One axis of the low views.

    Args:
        part: f_g, shape (n,), adding to 1.
        rows: c_g, weighted rows of each group, shape (n,).
        rows_sd: standard error of one of them.
        line: their halvings, where neighbours are alike.
    """

    part: FloatArray
    rows: FloatArray
    rows_sd: float
    line: Line | None


RangeVariance = Callable[[IntArray, IntArray], FloatArray]
"""First groups and ends of ranges -> variances of the noise of their sums."""


@dataclass(frozen=True, eq=False)
class Line:
    """The halvings of an ordered axis.

    Args:
        part: f_g, shape (n,).
        nodes: what is halved.
        share: b, the left half's part of a node's rows; a half where it has none.
    """

    part: FloatArray
    nodes: Halves
    share: FloatArray

    @property
    def size(self) -> FloatArray:
        """f_k b (1 - b)."""
        left, right = self.nodes.sums(self.part)
        found: FloatArray = (left + right) * self.share * (1 - self.share)
        return found

    def take(self, x: FloatArray) -> FloatArray:
        """t_k = (1 - b) x_left - b x_right."""
        left, right = self.nodes.sums(x)
        found: FloatArray = (1 - self.share) * left - self.share * right
        return found

    def give(self, t: FloatArray) -> FloatArray:
        """t is dealt to the groups of the left half, and taken from the right one's, in proportion to their rows."""
        found: FloatArray = self.part * self.nodes.steps(t, self.part)
        return found

    def noise(self, variance: RangeVariance) -> FloatArray:
        """The variance of t_k; halves covary as their sum's variance says."""
        lo, mid, hi, b = self.nodes.lo, self.nodes.mid, self.nodes.hi, self.share
        left, right, whole = variance(lo, mid), variance(mid, hi), variance(lo, hi)
        found: FloatArray = (1 - b) ** 2 * left + b**2 * right - b * (1 - b) * (whole - left - right)
        return found


def line_of(part: FloatArray) -> Line:
    """The halvings of an axis of which each group has a part."""
    nodes = halves(part.size)
    left, right = nodes.sums(part)
    share = np.divide(left, left + right, out=np.full(left.shape, 0.5), where=left + right > 0)
    return Line(part, nodes, share)


def groups_of(rows: FloatArray, rows_sd: float, *, ordered: bool) -> DifferenceAxis:
    """Groups with their parts of all rows.

    Args:
        rows: c_g, shape (n,).
        rows_sd: standard error of one of them.
        ordered: whether neighbours are alike.
    """
    part = parts_of(rows)
    return DifferenceAxis(part, rows, rows_sd, line_of(part) if ordered else None)


def parts_of(rows: FloatArray) -> FloatArray:
    """Parts of the whole, noise below 0 cut; even where nothing is left."""
    positive = np.maximum(rows, 0.0)
    total = float(positive.sum())
    return positive / total if total > 0 else np.full(rows.shape, 1.0 / rows.size)


class DifferenceNoise(NamedTuple):
    """What is known of a difference before it is read.

    Args:
        variance: of its noise.
        largest: how far off all rows may be at most, in the measure's unit.
    """

    variance: RangeVariance
    largest: float


def corrected(
    groups: DifferenceAxis, difference: FloatArray, noise: DifferenceNoise, towards: FloatArray | None = None
) -> Correction:
    """How groups are moved.

    Args:
        groups: the axis.
        difference: x_g, shape (n,).
        noise: of the difference.
        towards: what it is shrunk to: 0 for counts, for sums what counts carry along, else averages would run to mid.
    """
    base = np.zeros_like(difference) if towards is None else towards
    deviation = difference - base
    if groups.line is None:
        moved, variance = _alone(groups.part, deviation, noise)
        halved = np.zeros(len(difference) - 1)
    else:
        moved, halved = _along(groups.line, deviation, noise)
        variance = np.zeros(len(difference))
    moved = base + moved
    return Correction(moved - groups.part * moved.sum(), variance, halved)


def _alone(part: FloatArray, deviation: FloatArray, noise: DifferenceNoise) -> tuple[FloatArray, FloatArray]:
    """Groups without order: all of them vary alike."""
    place, size = np.arange(part.size), part * (1 - part)
    largest = noise.largest**2 * float((size**2).mean())
    return shrink(deviation, size, noise.variance(place, place + 1), largest)


def _along(line: Line, deviation: FloatArray, noise: DifferenceNoise) -> tuple[FloatArray, FloatArray]:
    """What neighbours are off by together, level by level, and how far they may still be."""
    halvings, size, own = line.take(deviation), line.size, line.noise(noise.variance)
    kept, variance = np.zeros_like(halvings), np.zeros_like(halvings)
    for level in range(int(line.nodes.level.max(initial=-1)) + 1):
        here = np.flatnonzero((line.nodes.level == level) & (size > 0))
        largest = noise.largest**2 * float((size[here] ** 2).mean()) if here.size else 0.0
        kept[here], variance[here] = shrink(halvings[here], size[here], own[here], largest)
    return line.give(kept), variance


def carried(
    groups: DifferenceAxis, counts: Correction, centred: FloatArray, scale: tuple[float, float], mid: float
) -> FloatArray:
    """z_g: what a group's sums differ by if its averages stay as they are.

    Args:
        groups: the axis.
        counts: how its counts are moved.
        centred: y_g, the low views' centred sums, shape (n,).
        scale: R_N and R_S.
        mid: the measure's centre.
    """
    of_rows, of_sums = scale
    seen = groups.rows >= SEEN * groups.rows_sd
    own = np.divide(counts.value, of_rows * groups.rows, out=np.zeros_like(centred), where=seen)
    own = np.clip(own, LEAST_CARRIED, MOST_CARRIED) * of_sums * centred
    found: FloatArray = own + (of_sums / of_rows - 1) * mid * counts.value
    return found


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
    found: float = max(0.0, float((left**2).sum()) / free - noise) + DOUBT * noise * sqrt(2 / free)
    return found
