"""Tents: overlapping triangular rows at a few widths, plus an identity with what is left of each column.

Inside the axis the hats of one level add up to 1, so a level is a smooth partition of the leaves. Hats
catch long ranges with fewer border effects than tree nodes: 467 against 586 (best tree) at 65,536 leaves.

    share rule   half-width h_l = c n^(l / (L + 1)) for levels l = 1 (fine) .. L (coarse); going from coarse
                 to fine, a hat takes the share 1 / (l + 1) of what is left at its peak.
    graded       all ranges seldom end near the borders of the axis: the gaps between the peaks of the
                 coarsest level, and its shares, fall towards them as (4x(1 - x))^0.15 at x of the axis.

Rows are floor(`total` row), and each leaf takes `total` less what its column holds. The longest declared range stands
for n.

Columns add up to exactly `total`, in integers, whatever the rounding. Least squares over an identity and interval
rows takes time linear in the leaves (`matrices.intervals`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from dpsql.errors import CatalogError, InterfaceError
from dpsql.matrices.intervals import IntervalVariance, interval_rows
from dpsql.matrices.strategy import SparseRows, Strategy
from dpsql.mechanisms.axis.tree import LONG, LONG_LOG, TENT_LEAVES
from dpsql.mechanisms.distribution import LAPLACE
from dpsql.mechanisms.offers import (
    FEWEST_LEAVES,
    AxisCandidate,
    AxisChoice,
    AxisProblem,
    NamedAxisMechanism,
    Offer,
    Proposal,
    Refusal,
    Word,
    alone,
    best,
    candidate,
    least,
)
from dpsql.tree import FloatArray, IntArray


def interval_strategy(
    leaves: int,
    total: int,
    start: npt.ArrayLike,
    stop: npt.ArrayLike,
    offset: npt.ArrayLike,
    entry: npt.ArrayLike,
) -> Strategy:
    """An identity and interval rows of equal budgets, for Laplace noise: what a row weighs is in its entries.

    Args:
        leaves: n.
        total: bound of the column sums.
        start, stop, offset, entry: as of `SparseRows`; the leaves' own rows first, in order.

    Raises:
        InternalError: if a column adds up to more than `total`.
    """
    n, rows = leaves, SparseRows(leaves, *(np.asarray(x, np.int64) for x in (start, stop, offset, entry)))
    weight = rows.entry / total
    solver = IntervalVariance(*interval_rows(weight[:n], rows.start[n:], rows.stop[n:], weight[n:]))
    arrays = {"start": rows.start, "stop": rows.stop, "offset": rows.offset, "entry": rows.entry}
    stored = {"leaves": n, "total": total, **arrays}
    return Strategy("intervals", stored, rows, np.ones(rows.number, np.int64), total, LAPLACE.norm, solver)


WIDTHS = (1.25, 1.2, 1.3)  # c of the share rule: within 1% of each other, the best depends on n

LEVELS = (560, 11_000, 200_000)
"""Longest ranges from which one level more is worth its budget."""

GRADE = 0.15  # from 128 leaves on worth 0.3% to 1.5%; the best power differs by 0.05 between sizes
_FINE_STEPS = 4096  # where the gaps of graded peaks are added up


def half_widths(reach: int, levels: int, width: float) -> tuple[int, ...]:
    """Half-widths of the share rule, fine to coarse; fewer where levels coincide or do not fit.

    Args:
        reach: the longest range asked, n for all ranges.
        levels: number of levels wanted, L.
        width: c, about 1.25.

    >>> half_widths(4096, 2, 1.25)
    (20, 320)
    """
    wanted = [round(width * reach ** (level / (levels + 1))) for level in range(1, levels + 1)]
    return tuple(h for h in sorted(set(wanted)) if h >= 2 and 2 * h - 1 <= reach)


def level_starts(n: int, h: int) -> IntArray:
    """First leaves of the full hats of half-width h, centred on the axis, shape (hats,)."""
    count = (n - (2 * h - 1)) // h + 1
    offset = (n - (2 * h - 1) - (count - 1) * h) // 2
    return offset + h * np.arange(count)


def hat(h: int) -> FloatArray:
    """Entries 1 - |t - (h - 1)| / h for t = 0..2h - 2."""
    return 1 - np.abs(np.arange(2 * h - 1) - (h - 1)) / h


def tents(
    n: int,
    widths: Sequence[int],
    total: int | None = None,
    *,
    root: float = 0.0,
    left: float = 0.0,
    graded: bool = False,
) -> Strategy:
    """Hats of the given half-widths with the shares of the rule, and the identity with the rest.

    Args:
        n: number of leaves.
        widths: half-widths, fine to coarse, each at least 2 with 2h - 1 <= n.
        total: the integer that stands for the whole budget; None picks a power of two that keeps the
            rounding of rows under 0.2% of the error.
        root: share of a row of ones, for axes whose total is asked often.
        left: share, of what the root leaves, of a half-hat that falls from leaf 0 to 0 over two coarse
            half-widths, for axes that are mostly asked for prefixes.
        graded: whether the coarsest hats are narrower and lighter towards the borders, for all ranges.

    Returns:
        The strategy: n rows of one leaf, then the others.

    Raises:
        InterfaceError: for a hat that does not fit, or shares outside of [0, 1).

    **Privacy** A leaf's column adds up to exactly `total`, which is checked.
    """
    if any(h < 2 or 2 * h - 1 > n for h in widths) or any(a >= b for a, b in pairwise(widths)):
        raise InterfaceError(f"tents of half-widths {tuple(widths)} do not fit an axis of {n} leaves")
    if not 0 <= root < 1 or not 0 <= left < 1:
        raise InterfaceError("shares of a strategy lie in [0, 1)")
    total = total or 1 << (max(256, 8 * max(widths, default=1)) - 1).bit_length()
    starts, rows = _real_rows(n, widths, root, left, graded)
    return _with_identity(n, starts, [np.floor(total * row + 1e-9).astype(np.int64) for row in rows], total)


def _real_rows(
    n: int, widths: Sequence[int], root: float, half_hat_share: float, graded: bool
) -> tuple[IntArray, list[FloatArray]]:
    """First leaves of all rows, and the rows in blocks of equal length, before rounding."""
    remainder = np.ones(n)
    starts, rows = [np.zeros(0, np.int64)], []
    reach = min(n, 2 * max(widths, default=1))
    for share, row in ((root, np.ones(n)), ((1 - root) * half_hat_share, 1 - np.arange(reach) / reach)):
        if share > 0:
            starts.append(np.zeros(1, np.int64))
            rows.append(share * row[None])
            remainder[: len(row)] -= share * row
    for level in range(len(widths), 0, -1):
        h = widths[level - 1]
        if graded and level == len(widths):
            start, hats = graded_hats(n, h)
            blocks = [((1 - root) / (level + 1) * row)[None] for row in hats]
        else:
            start = level_starts(n, h)
            blocks = [remainder[start + h - 1, None] / (level + 1) * hat(h)]
        starts.append(start)
        rows += blocks
        _take(remainder, start, blocks)
    return np.concatenate(starts), rows


def _take(remainder: FloatArray, start: IntArray, blocks: list[FloatArray]) -> None:
    """Subtract the rows of one level from what is left of the columns."""
    firsts = np.split(start, np.cumsum([len(block) for block in blocks])[:-1])
    for first, block in zip(firsts, blocks, strict=True):
        np.subtract.at(remainder, first[:, None] + np.arange(block.shape[1]), block)


def graded_hats(n: int, h: int) -> tuple[IntArray, list[FloatArray]]:
    """Hats whose gaps and heights fall towards the borders, about h apart, over the whole axis.

    Args:
        n: number of leaves.
        h: half-width that even hats would have.

    Returns:
        First leaves, shape (hats,), and entries of at most 1, one array a hat.
    """
    x = (np.arange(_FINE_STEPS) + 0.5) / _FINE_STEPS
    passed = np.concatenate([[0.0], np.cumsum((4 * x * (1 - x)) ** -GRADE)])
    gaps = max(2, round((n + 1) / h))
    place = np.interp(np.linspace(0, passed[-1], gaps + 1), passed, np.linspace(0, 1, _FINE_STEPS + 1))
    knots = np.unique(np.rint(place * (n + 1)).astype(np.int64)) - 1  # the ends are leaves -1 and n
    rows = []
    for left, peak, right in zip(knots, knots[1:], knots[2:], strict=False):
        leaf, at = np.arange(left + 1, right), (peak + 1) / (n + 1)
        slopes = np.minimum((leaf - left) / (peak - left), (right - leaf) / (right - peak))
        rows.append((4 * at * (1 - at)) ** GRADE * slopes)
    return knots[:-2] + 1, rows


def _with_identity(n: int, start: IntArray, rows: list[IntArray], total: int) -> Strategy:
    """Give each leaf what the rows leave of its column; `rows` are blocks of equally long rows."""
    entries = np.concatenate([np.zeros(0, np.int64), *(block.ravel() for block in rows)])
    length = np.repeat([block.shape[1] for block in rows], [len(block) for block in rows]).astype(np.int64)
    cell = np.arange(len(entries)) + np.repeat(start - (np.cumsum(length) - length), length)
    leaf = np.arange(n)
    column = np.zeros(n, np.int64)
    np.add.at(column, cell, entries)
    return interval_strategy(
        n, total, np.append(leaf, start), np.append(leaf + 1, start + length),
        np.concatenate([np.arange(n + 1), n + np.cumsum(length)]), np.concatenate([total - column, entries]),
    )  # fmt: skip


_ROOT_SHARES = (0.1, 0.15, 0.2, 0.25, 0.3, 0.35)


def named(question: AxisProblem, word: Word) -> AxisChoice:
    """Graded tents of the rule's widths for all ranges; what errs least of all tents where ranges are declared."""
    if question.leaves > TENT_LEAVES:
        raise CatalogError(
            f"`mechanism: tents` takes axes of {TENT_LEAVES} leaves at most, not {question.leaves}",
            hint="write `mechanism: auto`",
        )
    answers = list(offers(question)) if question.workload is not None else []
    if any(not isinstance(answer, Refusal) for answer in answers):
        return least(answers)
    levels = 1 + sum(question.leaves >= limit for limit in LEVELS)
    widths = half_widths(question.leaves, levels, WIDTHS[0])
    words = f"graded tents of half-width {', '.join(map(str, widths))}"
    return alone(tents(question.leaves, widths, graded=True), words, question)


NAMED: Mapping[str, NamedAxisMechanism] = {"tents": NamedAxisMechanism(named, (LAPLACE,))}


def offers(question: AxisProblem) -> Iterator[Proposal]:
    """Tents of the share rule; with a half-hat where most ranges begin at the first leaf."""
    name, half = "tents", "tents with a half-hat at the left border"
    if question.law != LAPLACE:
        yield Refusal(name, f"is for {LAPLACE.name} noise")
        return
    if question.leaves < FEWEST_LEAVES:
        yield Refusal(name, f"takes axes of {FEWEST_LEAVES} leaves or more")
        return
    if question.leaves > TENT_LEAVES:
        yield Refusal(name, f"takes axes of {TENT_LEAVES} leaves at most")
        return
    if not half_widths(question.reach, 1, WIDTHS[-1]):
        yield Refusal(name, "no tent fits ranges this short")
    else:
        yield Offer(name, 0.0, lambda: _search(question))
    work = question.workload
    prefixes = 0.0 if work is None else float(np.sum(work.weight[np.asarray(work.lo) == 0]))
    widths = _prefix_half_widths(question.reach)
    if widths and work is not None and prefixes > np.sum(work.weight) / 2:
        halves = [tents(question.leaves, (width,), left=0.6) for width in widths]
        yield Offer(half, 0.0, lambda: best(candidate(strategy, half, question) for strategy in halves))


def _search(question: AxisProblem) -> AxisCandidate:
    """The best levels at the middle width, the best width, then extra rows."""
    tried: dict[tuple[tuple[int, ...], bool, float], float] = {}
    n, work, reach = question.leaves, question.workload, question.reach
    long = LONG if work is None else LONG_LOG

    def attempt(widths: tuple[int, ...], graded: bool, root: float) -> float:
        key = widths, graded, root
        if key not in tried:
            tried[key] = question.error(tents(n, widths, root=root, graded=graded))
        return tried[key]

    root = _ROOT_SHARES[2] if question.whole > 0 else 0.0
    grades = (False, True) if n <= long else (work is None,)
    likely = 1 + sum(reach >= limit for limit in LEVELS)
    middle = {
        count: _tent_widths(reach, count, WIDTHS[0], grades[0])
        for count in range(max(1, likely - 1), likely + 2)
    }
    levels = min(middle, key=lambda count: attempt(middle[count], grades[0], root))
    for graded in grades:
        width_choices = WIDTHS if work is None or n <= long else WIDTHS[:1]
        sets = [_tent_widths(reach, levels, width, graded) for width in width_choices]
        widths = min(sets, key=lambda candidate_widths: attempt(candidate_widths, graded, root))
        for share in () if question.whole == 0 else _ROOT_SHARES if n <= LONG else _ROOT_SHARES[:3]:
            attempt(widths, graded, share)
    widths, graded, share = min((key for key in tried if key[0]), key=lambda key: tried[key])
    name = f"{'graded ' if graded else ''}tents of half-width {', '.join(map(str, widths))}"
    # Made again: strategies of all that was tried would not fit memory on a long axis.
    strategy = tents(n, widths, root=share, graded=graded)
    return AxisCandidate(strategy, tried[widths, graded, share], name + (", root" if share else ""))


def _tent_widths(reach: int, levels: int, width: float, graded: bool) -> tuple[int, ...]:
    """Half-widths of the rule; under graded coarse hats the finer ones do better a little narrower."""
    coarse = half_widths(reach, levels, width)
    finer = half_widths(reach, levels, width - 0.1)
    return (*finer[:-1], coarse[-1]) if graded and len(finer) == len(coarse) > 1 else coarse


def _prefix_half_widths(reach: int) -> list[int]:
    """Half-widths of one level of tents for prefixes: the rule's times 1.2 to 2, which half-hats favour; none fits
    prefixes of one or two leaves."""
    widths = {min(round(c * reach**0.5), (reach + 1) // 2) for c in (1.25, 1.5, 1.75, 2.0)}
    return sorted(width for width in widths if width > 1)
