"""Budgets as integers over a common denominator, and the integer check that nothing is overspent.

A row r of a strategy gets s_r units: the noise on the integer H_r x is discrete Laplace of rate s_r / t.
Adding or removing one count in cell l changes row r by H_rl, so the release is
(max_l sum_r |H_rl| s_r / t)-DP: the largest *path sum* must not exceed the cap. A measure with
sensitivity M multiplies t, not s.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from dpsql.errors import InternalError, PrivacyError

IntArray: TypeAlias = npt.NDArray[np.int64]

DENOMINATOR = 1 << 30
HEADROOM = 512  # the samplers' headroom: a draw exceeds 512 scales with probability below 10^-222
_COARSEST = 1 << 12  # below it one unit is more than 0.02 % of epsilon 1 and splits become coarse
_SAFE = 1 << 62  # sums checked against it cannot have wrapped around in int64


class Rows(NamedTuple):
    """The rows of one axis of a strategy: row r covers the cells [start_r, stop_r).

    Attributes:
        start: int64[p], first cell of each row.
        stop: int64[p], one past the last.
        cells: n, the number of cells on the axis.
        offset: int64[p + 1] into `entry`, or None if every entry is 1.
        entry: int64[nnz], the rows' integer entries one after the other, or None.
    """

    start: IntArray
    stop: IntArray
    cells: int
    offset: IntArray | None = None
    entry: IntArray | None = None


def cap_units(epsilon: Fraction, denominator: int = DENOMINATOR) -> int:
    """Epsilon in whole units, rounded down.

    Args:
        epsilon: what may be spent.
        denominator: units per epsilon 1.

    Returns:
        floor(epsilon * denominator), at least 1.

    Raises:
        PrivacyError: epsilon is less than one unit.

    >>> cap_units(Fraction(1, 10))
    107374182
    """
    cap = epsilon.numerator * denominator // epsilon.denominator
    if cap < 1:
        raise PrivacyError(
            f"epsilon is below one unit, 1/{denominator}", hint="give a larger epsilon or share"
        )
    return cap


def scaled_denominator(sensitivity: int, measure: str = "a measure") -> int:
    """The units per epsilon 1 for a measure that one row may change by up to `sensitivity`.

    Args:
        sensitivity: M >= 1 in stored integer units, weights included.
        measure: its name, for the error.

    Returns:
        t: the largest power of two <= 2^30 with 512 t M < 2^63. The sampler's denominator is t M.

    Raises:
        InternalError: M < 1.
        PrivacyError: t would be below 2^12; says what to change.

    >>> scaled_denominator(1) == 2**30, scaled_denominator(25_000 << 20) == 2**19
    (True, True)
    """
    if sensitivity < 1:
        raise InternalError(
            f"{measure} has no sensitivity", hint="a published measure must be able to change"
        )
    largest = ((1 << 63) - 1) // (HEADROOM * sensitivity)
    denominator = min(DENOMINATOR, 1 << (largest.bit_length() - 1) if largest else 0)
    if denominator < _COARSEST:
        raise PrivacyError(
            f"the bounds of {measure} are too wide for 64-bit integers at its scale",
            hint="narrow lower and upper, lower its scale, or lower max_ids",
        )
    return denominator


def combine(cap: int, budgets: Sequence[tuple[IntArray, int]]) -> IntArray:
    """Units of every combination of rows, one row per axis.

    Args:
        cap: units that the whole view may spend.
        budgets: per axis the rows' relative integer budgets b (int64[p_i]) and their largest path sum B.

    Returns:
        int64[p_1, ..., p_d]: s = floor(... floor(floor(cap b_1 / B_1) b_2 / B_2) ...); 0 = not measured.

    Raises:
        InternalError: a negative budget, or one above its total.

    **Privacy**: the largest path sum of the product strategy is at most `cap`: along each axis, flooring
    only lowers, and the exact path sum of b_i / B_i is at most 1.

    >>> combine(1000, [(np.array([1, 2]), 3), (np.array([1, 1]), 2)]).tolist()
    [[166, 166], [333, 333]]
    """
    units = np.asarray(cap, dtype=np.int64)
    for relative, total in budgets:
        part = np.asarray(relative, dtype=np.int64)
        if part.size and (int(part.min()) < 0 or int(part.max()) > total):
            raise InternalError("an axis budget is outside 0 to its total", hint="check the axis strategy")
        units = _times_ratio(units[..., np.newaxis], part, total, cap)
    return units


def largest_path_sum(units: IntArray, axes: Sequence[Rows]) -> int:
    """The most that one count can change the measurements, weighted by their units.

    Args:
        units: int64[p_1, ..., p_d], s per combination of rows.
        axes: the rows of each axis.

    Returns:
        max over cells of sum over combinations of |H_1| ... |H_d| s.

    Raises:
        InternalError: shapes disagree, a negative unit, or sums that int64 might not hold.
    """
    if units.shape != tuple(rows.start.size for rows in axes):
        raise InternalError("units and rows have different shapes", hint="check the strategy")
    if units.size == 0:
        return 0
    largest = [1 if rows.entry is None else int(np.abs(rows.entry).max(initial=0)) for rows in axes]
    bound = float(units.sum(dtype=np.float64)) * float(np.prod(largest, dtype=np.float64))
    if int(units.min()) < 0 or bound >= _SAFE:
        raise InternalError("path sums do not fit 64-bit integers", hint="lower epsilon or the view's cells")
    sums = units
    for axis, rows in enumerate(axes):
        spread = _spread(np.moveaxis(sums, axis, 0).reshape(rows.start.size, -1), rows)
        others = sums.shape[:axis] + sums.shape[axis + 1 :]
        sums = np.moveaxis(spread.reshape(rows.cells, *others), 0, axis)
    return int(sums.max(initial=0))


def assert_path_sums(units: IntArray, axes: Sequence[Rows], cap: int) -> None:
    """Refuse to measure if any path spends more than the cap.

    Args:
        units: int64[p_1, ..., p_d], s per combination of rows.
        axes: the rows of each axis.
        cap: units that the whole view may spend.

    Raises:
        InternalError: the largest path sum exceeds the cap, or cannot be computed in int64.

    **Privacy**: this is the proof of a view's epsilon, in integers, run on every publish.
    """
    largest = largest_path_sum(units, axes)
    if largest > cap:
        raise InternalError(f"a path spends {largest} units of {cap}", hint="nothing was measured")


def _times_ratio(value: IntArray, part: IntArray, total: int, cap: int) -> IntArray:
    """floor(value * part / total) with 0 <= part <= total, without leaving int64."""
    if cap * total < 1 << 63:
        return value * part // total
    if total * total >= 1 << 63:  # value = quotient * total + rest, and rest * part < total^2
        raise InternalError("an axis budget total is above 2^31", hint="scale the axis budgets down")
    quotient, rest = np.divmod(value, total)
    return quotient * part + rest * part // total


def _spread(sums: IntArray, rows: Rows) -> IntArray:
    """|H|' sums along the first axis: int64[p, rest] to int64[n, rest]."""
    out = np.zeros((rows.cells + 1, sums.shape[1]), dtype=np.int64)
    if rows.offset is None or rows.entry is None:
        np.add.at(out, rows.start, sums)
        np.subtract.at(out, rows.stop, sums)
        return np.cumsum(out[:-1], axis=0)
    length = np.diff(rows.offset)
    if not np.array_equal(length, rows.stop - rows.start):
        raise InternalError("rows and their entries have different lengths", hint="check the strategy")
    row = np.repeat(np.arange(length.size), length)
    cell = np.arange(rows.entry.size) - np.repeat(rows.offset[:-1] - rows.start, length)
    for column in range(sums.shape[1]):  # one column at a time: nnz x rest would not fit memory
        np.add.at(out[:, column], cell, np.abs(rows.entry) * sums[row, column])
    return out[:-1]
