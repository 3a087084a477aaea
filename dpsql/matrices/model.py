"""Interfaces of variance models of one axis and of readings of a view, and what follows from ranges alone.

Three models stand here, by the covariance of the leaves themselves: independent, dense, or of groups of cells.
Independent leaves of equal variance need one number. Any covariance of about a thousand leaves at most is kept dense,
as that of prefix sums. Cells that share the noisy sum of their group evenly, as data-dependent mechanisms leave them,
are read through their group: an answer reads of each group the mean of its mask over the group's cells, and what the
groups' sums are uncertain by is another model, over groups in place of leaves. Bias (cells of one group that differ)
is not in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from dpsql.tree import FloatArray, IntArray, Workload

Columns = Mapping[str, npt.NDArray[np.generic]]
"""A variance table: flat arrays of equal length, by name."""
Masks = Sequence[FloatArray]
"""Leaf coverages, one array (g, n_i) for each axis."""
Components = Mapping[tuple[int, ...], float]
"""Axis positions of every independent part -> its variance factor."""


PERHAPS = 2.0**-20
"""Coverage of a leaf up to which it is not known whether any of it is taken."""


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


class Covariance(NamedTuple):
    """Covariances of answers by what they come from, each of shape (g,); the parts add up.

    Args:
        noise: the noise of the release, what the channel of a reported attribute adds included.
        spread: groups whose people own more or less than others (`max_ids: auto`).
        tail: rows of the few who own most, likewise.
        channel: the part of the noise that the channel adds.
        within_leaf: how rows may lie inside of leaves that were measured as wholes (`blocks`).
    """

    noise: FloatArray
    spread: FloatArray | float = 0.0
    tail: FloatArray | float = 0.0
    channel: FloatArray | float = 0.0
    within_leaf: FloatArray | float = 0.0


@dataclass(frozen=True, eq=False)
class Shared:
    """Covariance of two statistics.

    Args:
        between: covariances of the first one's answers under masks with the second one's under others.
    """

    between: Callable[[Masks, Masks], Covariance]

    def covariance(self, masks: Masks, other: Masks | None = None) -> Covariance:
        """Covariances under `masks` of the first and `other` of the second one; the same masks without it."""
        return self.between(masks, masks if other is None else other)


UNKNOWN = Shared(lambda masks, _: Covariance(np.full(len(masks[0]) if masks else 1, np.nan)))
"""Of two statistics that err together in a way that nothing bounds: standard errors over both are NULL."""


class Reading:
    """Reading of a stored statistic; masks are leaf coverages, one array (g, n_i) for each axis of its view.

    By default its answers are sums over nodes of the axes' look-up trees.
    """

    pieces: tuple[Any, ...]
    components: Components

    @property
    def listed(self) -> Mapping[int, int]:
        """Positions of axes whose stored numbers do not add up, with how many there are; one is picked for each answer.

        Numbers along the other axes are nodes of the axis's look-up tree.
        """
        return {}

    def takes(self, boxes: Iterable[Masks]) -> bool:
        """True if the answers under some boxes of masks, added up, are sums of what is stored."""
        return True

    def stored(self, masks: Masks) -> Masks:
        """Masks under which what is stored adds up to the answers, each made of the same axis's mask alone.

        On a `listed` axis they pick stored numbers.
        """
        return masks

    def covariance(self, masks: Masks, other: Masks | None = None) -> Covariance:
        """Covariances of the answers under `masks` with those under `other`, in squared stored units.

        Without `other` they are variances, never below 0. By default those of the one model, times its factor.
        """
        (model,), (factor,) = self.pieces, self.components.values()
        covariance = factor * model.covariance(masks, other)
        return Covariance(np.maximum(covariance, 0.0) if other is None else covariance)

    def matrix(self, masks: Masks) -> FloatArray:
        """Covariances of all combinations of the rows of `masks`, one row of each, in row-major order: (m, m)."""
        combined = crossed(masks)
        # what lies inside leaves too: who pools several releases weighs them by all that they err by
        covariances = (
            self.covariance([np.broadcast_to(mask[i], mask.shape) for mask in combined], combined)
            for i in range(prod(map(len, masks)))
        )
        return np.array([covariance.noise + covariance.within_leaf for covariance in covariances])

    def columns(self) -> tuple[Columns, ...]:
        """The variance tables that a release holds for it, in the order of the statistic's `models`."""
        return tuple(piece.columns() for piece in self.pieces)


def crossed(masks: Masks) -> list[FloatArray]:
    """All combinations of rows of masks, one of each, in row-major order."""
    grids = np.meshgrid(*(np.arange(len(mask)) for mask in masks), indexing="ij")
    return [mask[grid.ravel()] for mask, grid in zip(masks, grids, strict=True)]


def outer_products(masks: Masks) -> FloatArray:
    """Outer products of rows of masks, shape (g, cells)."""
    products = np.ones((len(masks[0]) if masks else 1, 1))
    for mask in masks:
        products = (products[:, :, None] * mask[:, None, :]).reshape(len(mask), -1)
    return products


MOST_ARRAYS = 16
"""Arrays of one table."""


def table(*arrays: npt.ArrayLike) -> dict[str, npt.NDArray[np.generic]]:
    """Arrays of one dimension or more as the lines (part, place, value) of one table.

    Part k is array k: its entries in C order from place 0, and the length of axis d at place -1 - d.

    >>> {name: column.tolist() for name, column in table([[5, 6]]).items()}
    {'part': [0, 0, 0, 0], 'place': [0, 1, -1, -2], 'value': [5.0, 6.0, 1.0, 2.0]}
    """
    numbers = [np.asarray(array) for array in arrays]
    places = [np.append(np.arange(each.size), -1 - np.arange(each.ndim)) for each in numbers]
    return {
        "part": np.repeat(np.arange(len(numbers)), [len(place) for place in places]),
        "place": np.concatenate(places),
        "value": np.concatenate([np.append(each.ravel(), each.shape) for each in numbers]).astype(np.float64),
    }


def arrays_of(columns: Columns) -> list[FloatArray]:
    """The arrays that `table` was given; lines may come in any order.

    Raises:
        ValueError: lines that it writes of no arrays.
    """
    part, place = (columns[name].astype(np.int64) for name in ("part", "place"))
    order = np.lexsort((place, part))
    part, place, value = part[order], place[order], columns["value"].astype(np.float64)[order]
    first = np.searchsorted(part, np.arange(MOST_ARRAYS + 1))
    arrays = []
    for begin, end in pairwise(first[: int(part[-1]) + 2]):
        ndim = int(np.count_nonzero(place[begin:end] < 0))
        if not ndim or not np.array_equal(place[begin:end], np.arange(-ndim, end - begin - ndim)):
            raise ValueError("a variance table has lines of no array")
        shape = value[begin : begin + ndim][::-1].astype(np.int64)
        arrays.append(value[begin + ndim : end].reshape(shape))
    if sum(array.size + array.ndim for array in arrays) != len(part):
        raise ValueError("a variance table has lines of no array")
    return arrays


def upper(matrix: FloatArray) -> FloatArray:
    """The entries of a symmetric matrix on its diagonal and above, row by row."""
    return matrix[np.triu_indices(len(matrix))]


def symmetric(values: FloatArray, n: int) -> FloatArray:
    """The matrix of n rows that `upper` was given.

    Raises:
        ValueError: it has another number of rows.
    """
    if len(values) != n * (n + 1) // 2:
        raise ValueError("covariances are not those of as many numbers")
    matrix, places = np.zeros((n, n)), np.triu_indices(n)
    matrix[places] = matrix.T[places] = values
    return matrix


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


CHUNK = 1 << 22
"""Entries of masks at once."""

TABLE = 4096
"""Leaves up to which ranges are looked up in a table of all pairs of prefixes, and masks are as quick as ranges."""

LONG_AXIS = 1 << 17
"""Ranges at once."""

MOST_STEPS = 64
"""Steps of a mask whose pairs are looked up as ranges: 2,016 take a tenth of the time of one mask of 2^20 leaves."""


def by_steps(model: AxisVariance, masks: FloatArray, edges: IntArray | None = None) -> FloatArray | None:
    """u' C u for masks of few steps, by ranges; None for others, and on an axis where a mask is as quick.

    With jumps d_j of u at the borders t_j, which add to 0, u' C u = -1/2 sum_ij d_i d_j V(t_i, t_j).

    Args:
        model: whose ranges take no time that grows with its leaves.
        masks: shape (g, n), or (g, runs).
        edges: of runs of leaves.
    """
    if edges is None and masks.shape[1] <= TABLE:
        return None
    jumps = np.diff(masks, axis=1, prepend=0.0, append=0.0)
    row, border = np.nonzero(jumps)
    steps = np.bincount(row, minlength=len(masks))
    if np.max(steps, initial=0) > MOST_STEPS:
        return None
    pairs = [
        np.stack(np.triu_indices(n, 1)) + first
        for n, first in zip(steps, np.cumsum(steps) - steps, strict=True)
    ]
    low, high = np.concatenate(pairs, axis=1) if pairs else np.zeros((2, 0), np.int64)
    at, jump = border if edges is None else edges[border], jumps[row, border]
    variances = model.ranges(at[low], at[high])
    return np.asarray(np.bincount(row[low], -jump[low] * jump[high] * variances, len(masks)), np.float64)


Edges = Sequence[IntArray | None]
"""For each axis of a view where runs of leaves begin, and its number of leaves; None where leaves stand alone."""


def by_leaf(mask: FloatArray, edges: IntArray | None) -> FloatArray:
    """A mask over runs of leaves as one over leaves."""
    return mask if edges is None else np.repeat(mask, np.diff(edges), axis=1)


def range_variances(model: AxisVariance, lo: npt.ArrayLike, hi: npt.ArrayLike) -> FloatArray:
    """Variance of each half-open range by its mask, shape (q,)."""
    lo, hi = np.broadcast_arrays(*(np.atleast_1d(np.asarray(end, np.int64)) for end in (lo, hi)))
    leaf, step = np.arange(model.n), max(1, CHUNK // model.n)
    variances = [
        model.quadratic((leaf >= lo[a : a + step, None]) & (leaf < hi[a : a + step, None]))
        for a in range(0, len(lo), step)
    ]
    return np.concatenate(variances) if variances else np.zeros(0)


def mean_variance(model: AxisVariance, workload: Workload | None = None, whole: float = 0.0) -> float:
    """Mean variance over the declared ranges, for noise of unit strength.

    Args:
        model: the axis.
        workload: the ranges asked; None means all n(n+1)/2 ranges, equally often.
        whole: the part of the questions that asks for the total instead, in [0, 1].

    Returns:
        The mean; twice it is the expected squared error of Laplace noise at epsilon 1.

    **Source** docs/method/views.md, "Budgets for the error after least squares": (n + 1) sum_i V(0, i) - t' C t.
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
    ends = np.arange(1, n + 1)  # models take many numbers a range: 2^17 ranges at once are some 50 MB
    prefixes = sum(float(np.sum(model.ranges(0, ends[a : a + LONG_AXIS]))) for a in range(0, n, LONG_AXIS))
    overlap = float(model.quadratic(np.arange(n, 0, -1.0)[None])[0])
    return ((n + 1) * prefixes - overlap) / (n * (n + 1) / 2)


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

    def blue(self, y: FloatArray) -> FloatArray:
        """Estimates from each leaf's own row of unit noise, (n, m) -> (n, m)."""
        return np.asarray(y * np.sqrt(self.leaf), np.float64)

    def columns(self) -> dict[str, npt.NDArray[np.generic]]:
        """One line: the variance of a leaf."""
        return {"leaf": np.array([self.leaf])}


def identity_from_columns(n: int, columns: Columns) -> IdentityVariance:
    """The model that `columns` were read from."""
    return IdentityVariance(n, float(columns["leaf"].astype(np.float64)[0]))


@dataclass(frozen=True, eq=False)
class PrefixVariance:
    """Any covariance of the leaves.

    Args:
        leaves: covariance of the leaf estimates for noise of unit strength, symmetric, shape (n, n).
        rows: what they were estimated from, rows of unit noise, shape (p, n); None of a stored model.

    >>> PrefixVariance(np.eye(3)).ranges([0, 1], [3, 2]).tolist()
    [3.0, 1.0]
    """

    leaves: FloatArray
    rows: FloatArray | None = None
    kind: ClassVar[str] = "prefix"

    @property
    def n(self) -> int:
        return len(self.leaves)

    @cached_property
    def prefix(self) -> FloatArray:
        """Covariance of the prefix sums, shape (n + 1, n + 1)."""
        out = np.zeros((self.n + 1, self.n + 1))
        out[1:, 1:] = np.cumsum(np.cumsum(self.leaves, axis=0), axis=1)
        return out

    def ranges(self, lo: npt.ArrayLike, hi: npt.ArrayLike) -> FloatArray:
        """Variance of each half-open range, shape (q,)."""
        lo, hi = np.atleast_1d(np.asarray(lo, np.int64)), np.atleast_1d(np.asarray(hi, np.int64))
        variance: FloatArray = self.prefix[lo, lo] + self.prefix[hi, hi] - 2 * self.prefix[lo, hi]
        return variance

    def quadratic(self, masks: npt.ArrayLike) -> FloatArray:
        """u' C u for each row of masks, shape (g, n) -> (g,)."""
        u = np.asarray(masks, np.float64)
        variance: FloatArray = np.sum((u @ self.leaves) * u, axis=1)
        return variance

    def blue(self, y: FloatArray) -> FloatArray:
        """Estimates from the rows, by the normal equations: C R' y."""
        assert self.rows is not None
        return np.asarray(self.leaves @ (self.rows.T @ y), np.float64)

    def columns(self) -> dict[str, npt.NDArray[np.generic]]:
        """The upper triangle of the covariance."""
        return table(upper(self.leaves))


def dense_from_columns(n: int, columns: Columns) -> PrefixVariance:
    """The model that `columns` were read from."""
    (leaves,) = arrays_of(columns)
    return PrefixVariance(symmetric(leaves, n))


GROUPED = "grouped"
"""What the kind of a grouped model begins with; the kind of the model over groups follows."""


@dataclass(frozen=True, eq=False)
class GroupedVariance:
    """The variance model of cells in groups.

    Args:
        group: group of each cell, from 0 without gaps, shape (n,).
        inner: the model of the groups' sums.

    >>> model = GroupedVariance(np.array([0, 0, 1]), IdentityVariance(2, 4.0))
    >>> model.ranges([0, 0, 0], [1, 2, 3]).tolist()
    [1.0, 4.0, 8.0]
    """

    group: IntArray
    inner: AxisVariance

    @property
    def kind(self) -> str:
        """The kind, with that of the model over groups."""
        return f"{GROUPED} {self.inner.kind}"

    @property
    def n(self) -> int:
        return len(self.group)

    @cached_property
    def _order(self) -> IntArray:
        return np.argsort(self.group, kind="stable")

    @cached_property
    def _size(self) -> IntArray:
        return np.bincount(self.group)

    ranges = range_variances

    def quadratic(self, masks: npt.ArrayLike) -> FloatArray:
        """u' C u for each row of masks, shape (g, n) -> (g,)."""
        sorted_masks = np.asarray(masks, np.float64)[:, self._order]
        first = np.cumsum(self._size) - self._size
        return self.inner.quadratic(np.add.reduceat(sorted_masks, first, axis=1) / self._size)

    def columns(self) -> dict[str, npt.NDArray[np.generic]]:
        """The inner model's columns and `group`, the shorter ones filled up; `held` lines are the inner model's."""
        inner = self.inner.columns()
        lines = len(next(iter(inner.values())))
        rows = max(lines, self.n)
        filled = {name: np.resize(values, rows) for name, values in inner.items()}
        group = np.concatenate([self.group, np.full(rows - self.n, -1)])
        return {"group": group, "held": np.full(rows, lines), **filled}


def grouped_from_columns(
    n: int, columns: Columns, inner: Callable[[int, Columns], AxisVariance]
) -> GroupedVariance:
    """The model that `columns` were read from, in the order they were written.

    Args:
        n: number of leaves.
        columns: the arrays that `columns()` gave.
        inner: reads the model over groups.
    """
    group = columns["group"].astype(np.int64)[:n]
    lines = int(columns["held"].astype(np.int64)[0])
    inner_columns = {
        name: values[:lines] for name, values in columns.items() if name not in ("group", "held")
    }
    return GroupedVariance(group, inner(int(group.max()) + 1, inner_columns))
