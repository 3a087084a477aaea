"""How much of an answer is interpolated, and the refusal where it is more than half.

| here | there | unit |
|---|---|---|
| taken | w_a: coverage of an axis's bins by a group, added up | bins |
| whole | of it, what lies in bins that are taken entirely | bins |
| share | 1 - sum over boxes of prod whole / sum over boxes of prod taken | 1 |

NULL, MISSING and OTHER are no stretch of an axis and are never cut: they weigh something only where a group takes
nothing else, lest a predicate that also takes NULL hides that its bins are cut. A share is a function of the statement
and of the catalog. Noise has no part in it, so a statement is answered or refused whatever the release says.

**Privacy**: public facts alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsql.answer.block import Block, Condition, Expression, Term, in_words
from dpsql.answer.leafsets import NEAR, FloatArray, bounds_of, masks, quoted, special_leaves
from dpsql.answer.plan import Plan
from dpsql.answer.run import run
from dpsql.errors import PartialBinError
from dpsql.release import Release

LIMIT = 0.5 + NEAR
"""Part of an answer that may be interpolated unless more is asked for; weights are sums of floats."""
EDGES = 6
"""Edges that a refusal lists."""


@dataclass(frozen=True)
class Excess:
    """A group of which more than half is interpolated.

    Args:
        share: the part of it that lies in cut bins.
        axis: position of the axis with the largest part.
        group: number of the group on each axis.
    """

    share: float
    axis: int
    group: tuple[int, ...]


def excess(
    plan: Plan, terms: Sequence[Term], release: Release, along: Expression | None = None
) -> Excess | None:
    """The first group of which more than half is interpolated, in any term.

    Args:
        plan: the plan.
        terms: what it answers.
        release: an open release.
        along: a group expression over which groups are added up: the column of a quantile.

    Returns:
        The group, or None.
    """
    if not any(cells.cut for cells in plan.cells):
        return None
    rows = [_rows(plan, axis, along) for axis in range(len(plan.cells))]
    for condition in dict.fromkeys(term.condition for term in terms):
        axes = [_taken(plan, axis, condition, rows[axis], release) for axis in range(len(plan.cells))]
        share = _combined(axes)
        if share.max(initial=0.0) > LIMIT:
            group = tuple(int(i) for i in np.unravel_index(np.argmax(share > LIMIT), share.shape))
            cut = [sum(t[g] - w[g] for t, w in boxes) for boxes, g in zip(axes, group, strict=True)]
            first = [int(np.argmax(row == g)) for row, g in zip(rows, group, strict=True)]
            return Excess(float(share[group]), int(np.argmax(cut)), tuple(first))
    return None


def _rows(plan: Plan, axis: int, along: Expression | None) -> np.ndarray:
    """For each group of an axis the number of what it is added up to."""
    groups, cells = plan.questions[axis].groups, plan.cells[axis]
    if along is None or along not in groups:
        return np.arange(len(cells.keys))
    place = groups.index(along)
    numbers: dict[tuple[Any, ...], int] = {}
    kept = [(*key[:place], *key[place + 1 :]) for key in cells.keys]
    return np.array([numbers.setdefault(key, len(numbers)) for key in kept], np.int64)


def _taken(
    plan: Plan, axis: int, condition: Condition, rows: np.ndarray, release: Release
) -> list[tuple[FloatArray, FloatArray]]:
    """(taken, whole) of an axis for each box of a condition, shape (groups,)."""
    cells = plan.cells[axis]
    special = list(special_leaves(release.axes[plan.questions[axis].axis]))
    found, known = [], dict[Any, tuple[FloatArray, FloatArray]]()
    for box in plan.boxes_of(condition):
        if box[axis] not in known:
            known[box[axis]] = _weighed(_merged(masks(cells, box[axis]), rows), special)
        found.append(known[box[axis]])
    return found


def _merged(mask: FloatArray, rows: np.ndarray) -> FloatArray:
    """Masks of groups that are added up."""
    merged = np.zeros((int(rows.max(initial=-1)) + 1, mask.shape[1]))
    np.add.at(merged, rows, mask)
    return np.where(merged > 1 - NEAR, 1.0, merged)


def _weighed(mask: FloatArray, special: Sequence[int]) -> tuple[FloatArray, FloatArray]:
    aside = mask[:, special].sum(axis=1)
    mask = mask.copy()
    mask[:, special] = 0.0
    taken, whole = mask.sum(axis=1), np.where(mask < 1.0, 0.0, mask).sum(axis=1)
    return np.where(taken > 0, taken, aside), np.where(taken > 0, whole, aside)


def _combined(axes: Sequence[Sequence[tuple[FloatArray, FloatArray]]]) -> FloatArray:
    """Share of every group that lies in cut bins, shape of the plan's groups."""
    taken: FloatArray = np.zeros(())
    whole: FloatArray = np.zeros(())
    for box in zip(*axes, strict=True):
        products = [np.ones(()), np.ones(())]
        for parts in box:
            products = [
                np.multiply.outer(product, part) for product, part in zip(products, parts, strict=True)
            ]
        taken, whole = taken + products[0], whole + products[1]
    return np.asarray(1.0 - np.divide(whole, taken, out=np.ones_like(taken), where=taken > 0))


def refuse_partial(
    plan: Plan, found: Excess, block: Block, release: Release, along: Expression | None = None
) -> PartialBinError:
    """The refusal: what cuts bins of which axis, how much that is, and the edges that are whole.

    Args:
        plan: the plan.
        found: a group of which more than half is interpolated.
        block: what is asked.
        release: an open release.
        along: a group expression that the analyst has not written.
    """
    question = plan.questions[found.axis]
    axis = release.axes[question.axis]
    culprit = next(_culprits(plan, found), None)
    words = in_words(culprit, block.columns) if culprit else "the statement"
    keys = [
        str(value)
        for asked, cells, g in zip(plan.questions, plan.cells, found.group, strict=True)
        for group, value in zip(asked.groups, cells.keys[g] if asked.groups else (), strict=True)
        if group != along
    ]
    where = f"of the group ({', '.join(keys)})" if keys else "of the answer"
    edges = _edges(plan, found, release)
    at = f", which begin at {edges}" if edges else ""
    error = PartialBinError(
        f"{words} cuts bins of {axis.name}: {found.share:.0%} {where} would be interpolated, more than half"[
            :400
        ],
        hint=f"take whole bins{at}; with `on_partial_bin: interpolate` in the catalog or the connection it is answered",
    )
    if culprit is not None:
        error.clause = "GROUP BY" if culprit in question.groups else "WHERE"
        error.position = culprit.span
    return error


def _culprits(plan: Plan, found: Excess) -> Iterator[Expression]:
    """Expressions over an axis: what WHERE cuts first, then what groups cut, then what FILTER cuts."""
    question, mask = plan.questions[found.axis], masks(plan.cells[found.axis], None)
    together = mask.sum(axis=0)
    if np.any((together > 0) & (together < 1 - NEAR)):
        yield from (predicate.expression for predicate in question.filters if predicate.expression.columns)
    if np.any((mask > 0) & (mask < 1)):
        yield from question.groups
    yield from (predicate.expression for predicate in question.classes)
    yield from question.groups


def _edges(plan: Plan, found: Excess, release: Release) -> str:
    """Where the bins that a group cuts, and those after them, begin; empty where bins have no order."""
    question = plan.questions[found.axis]
    axis = release.axes[question.axis]
    if not question.columns:
        return ""
    name = bounds_of(axis, question.columns[0][1])[0].name
    if next(column.type for column in axis.columns if column.name == name) == "VARCHAR":
        return ""
    starts: Mapping[int, Any] = dict(
        run(release, f"SELECT leaf, MIN({quoted(name)}) FROM axis_{question.axis} GROUP BY leaf").rows
    )
    cells, ordinary = plan.cells[found.axis], axis.leaves - len(special_leaves(axis))
    mine = (cells.group == found.group[found.axis]) & (cells.coverage < 1)
    cut = np.unique(cells.leaf[mine])
    wanted = sorted({int(leaf) for at in cut for leaf in (at, at + 1) if leaf < ordinary})
    shown = [str(starts[leaf]) for leaf in wanted if starts.get(leaf) is not None]
    return ", ".join(shown[:EDGES]) + (", .." if len(shown) > EDGES else "")
