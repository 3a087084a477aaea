"""What one factor leaves out of groups: noisy differences, shrunk, and how far groups then still are off.

Views with a low bound are scaled by one factor. Groups whose people own more rows than others stay off. So each view
is published a second time, as what the factor leaves out of it, clipped (`whitened`). These differences are near 0,
so they can be shrunk: a group is moved as far as groups are seen to vary beyond their noise. What shrinking loses is
known too, and goes into intervals.

Neighbours on an ordered axis are off the same way: rows at popular prices meet others of their customer, who gets a
lower weight for it. In a single group that is lost in noise, in half of an axis it is not. So what groups leave of an
ordered axis is halved, its halves again, and the halvings of each level are shrunk by what that level shows.

| here | there | unit |
|---|---|---|
| `difference` | x_g: a group's difference less its part of the whole's | measure unit |
| `Line.take` | t_k: the left half's part of what groups leave, less its share of the node's | measure unit |
| `Deviations.energy` | mean square of x, or of t on one level, less the noise V | squared measure unit |
| `Correction.value`, `variance`, `halved` | d_g (dy_g), v_g, v_k | (squared) measure unit |
| `Deviations.prior` | h: f (1 - f), of a node f_k b (1 - b), over its mean: the large may be off by more | 1 |
| `fitted` | leaf corrections with given margins, in proportion to the rows | measure unit |
| `interaction` | i2: how far cells are off beyond their groups; counted, not corrected | squared measure unit |

**Privacy**: functions of released values alone.
**Source**: docs/method/user_level.md, "Differences".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, sqrt
from typing import NamedTuple

import numpy as np

from dpsql.tree import FloatArray, Halves, IntArray, halves


class Caution(NamedTuple):
    """How noise in the energy is dealt with, in its standard errors.

    Args:
        doubted: what it must pass before anything is moved.
        allowed: what intervals add to it.
    """

    doubted: float
    allowed: float


GROUPS = Caution(1.5, 0.6)
"""Of single groups, and of what cells differ by."""

LEVELS = Caution(4.0, 0.25)
"""Of one level of halvings. An axis has many levels, and coarse ones have few halvings: at 3, noise moved light halves
of Black Friday's categories far enough to be seen. Levels add up, so each allows for less."""

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
class Groups:
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


def groups_of(rows: FloatArray, rows_sd: float, *, ordered: bool) -> Groups:
    """Groups with their parts of all rows.

    Args:
        rows: c_g, shape (n,).
        rows_sd: standard error of one of them.
        ordered: whether neighbours are alike.
    """
    part = parts_of(rows)
    return Groups(part, rows, rows_sd, line_of(part) if ordered else None)


def parts_of(rows: FloatArray) -> FloatArray:
    """Parts of the whole, noise below 0 cut; even where nothing is left."""
    positive = np.maximum(rows, 0.0)
    total = float(positive.sum())
    return positive / total if total > 0 else np.full(rows.shape, 1.0 / rows.size)


class Noise(NamedTuple):
    """What is known of a difference before it is read.

    Args:
        variance: of its noise.
        unmeasured: how far off all rows would be taken to be if no difference was drawn, in the measure's unit.
    """

    variance: RangeVariance
    unmeasured: float


def corrected_counts(groups: Groups, difference: FloatArray, noise: Noise) -> Correction:
    """How counts of groups are moved.

    Args:
        groups: the axis.
        difference: x_g, shape (n,).
        noise: of the difference.
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


def corrected_sums(groups: Groups, difference: FloatArray, towards: FloatArray, noise: Noise) -> Correction:
    """How centred sums of groups are moved: shrunk to what counts carry along, else averages would run to mid."""
    return _shrunk(groups, difference, towards, noise)


@dataclass(frozen=True, eq=False)
class Deviations:
    """Deviations that are shrunk alike.

    Args:
        seen: with their noise, shape (k,).
        size: what their variance is taken to be in proportion to, shape (k,).
        noise: variances V, shape (k,).
        free: how many of them do not follow from the others.
    """

    seen: FloatArray
    size: FloatArray
    noise: FloatArray
    free: int

    @property
    def prior(self) -> FloatArray:
        """h."""
        mean = float(self.size.mean())
        return self.size / mean if mean > 0 else np.zeros_like(self.size)

    @property
    def energy(self) -> float:
        """How much they vary beyond their noise, about 0 where they do not."""
        return float(self.seen @ self.seen) / self.free - float(self.noise.mean())

    @property
    def doubt(self) -> float:
        """The energy's standard error where there is noise alone."""
        return sqrt(2 * float((self.noise**2).mean()) / self.free)

    def above(self, doubted: float) -> FloatArray:
        """The part of their variance that is above so many standard errors."""
        return max(0.0, self.energy - doubted * self.doubt) * self.prior

    def shrunk(self, caution: Caution, most: FloatArray | float = inf) -> tuple[FloatArray, FloatArray]:
        """The part of each that is kept, and how far off, squared, the rest may be.

        Args:
            caution: with the energy.
            most: how far off each would be taken to be, squared, if it was not measured; more only where it shows.
        """
        if self.free < 1:
            return np.zeros_like(self.seen), np.zeros_like(self.seen)
        between = self.above(caution.doubted)
        keep = np.divide(between, between + self.noise, out=np.ones_like(between), where=self.noise > 0)
        off = self.above(0.0) + caution.allowed * self.doubt * self.prior
        return keep, (1 - keep) ** 2 * np.maximum(np.minimum(off, most), self.above(GROUPS.doubted))


def _shrunk(groups: Groups, difference: FloatArray, towards: FloatArray, noise: Noise) -> Correction:
    n, part, left = len(difference), groups.part, difference - towards
    place = np.arange(n)
    single = np.full(n, noise.variance(place, place + 1).mean())
    keep, rest = Deviations(left, part * (1 - part), single, n - 1).shrunk(GROUPS)
    moved, halved = towards + keep * left, np.zeros(n - 1)
    if groups.line is not None:  # halvings tell of all that groups leave
        more, halved = _along(groups.line, (1 - keep) * left, 1 - keep, noise)
        moved, rest = moved + more, np.zeros(n)
    return Correction(moved - part * moved.sum(), rest + keep**2 * single, halved)


def _along(line: Line, left: FloatArray, lost: FloatArray, noise: Noise) -> tuple[FloatArray, FloatArray]:
    """What neighbours are off by together, level by level, and how far they may still be.

    Args:
        line: the axis.
        left: what single groups leave.
        lost: the part of each that is left.
        noise: of the difference.
    """
    seen, size, own = line.take(left), line.size, line.noise(noise.variance) * _mean_square(line, lost)
    kept, variance = np.zeros_like(seen), np.zeros_like(seen)
    for level in range(int(line.nodes.level.max(initial=-1)) + 1):
        here = np.flatnonzero((line.nodes.level == level) & (size > 0))
        most = (noise.unmeasured * size[here]) ** 2
        keep, rest = Deviations(seen[here], size[here], own[here], here.size).shrunk(LEVELS, most)
        kept[here], variance[here] = keep * seen[here], rest + keep**2 * own[here]
    return line.give(kept), variance


def _mean_square(line: Line, lost: FloatArray) -> FloatArray:
    """The part of a halving's noise that is left: of its groups, each weighed as t weighs it."""
    weights = ((1 - line.share) ** 2, line.share**2)
    some, whole = (
        sum(w * half for w, half in zip(weights, line.nodes.sums(x), strict=True))
        for x in (lost**2, np.ones_like(lost))
    )
    return np.asarray(some / whole, np.float64)


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
    found: float = max(0.0, float((left**2).sum()) / free - noise) + GROUPS.allowed * noise * sqrt(2 / free)
    return found
