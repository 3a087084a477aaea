"""Trees over time: blocks of batches that are measured when they close, and trees whose leaves are drawn ahead.

**Blocks.** Every batch is measured on its own, and every block of batches once more when it closes. The top level is a
chain of blocks without end, so a row pays its path once however long the stream runs, and nothing refuses at
a horizon. Estimates are best linear unbiased (BLUE): inside a closed block the day measurements and the
block measurement correct each other; days of an open block stand alone until it closes. Closed nodes never
reopen. Without blocks each batch stands alone.

With w the precision of a closed block, S the variance of its total as its parts know it, and alpha the covariance of
each batch with that total, C = diag(v) - sum over closed blocks of w / (1 + w S) alpha alpha'.

Errors are those of the tree of all closed nodes (`matrices.tree`) but for running totals, which are asked while blocks
are open and lack their measurement.

| here    | meaning                                                       | unit                        |
|---------|---------------------------------------------------------------|-----------------------------|
| spans   | batches per node, level by level, finest first; 1 is the day  | batches                     |
| budgets | integer share of each level                                   | of sum(budgets)             |

**Leaves drawn ahead**, all batches together before the first one arrives, for streams with an end. Batch t publishes
x_t + z_t and nothing else; totals and ranges are sums of batches. The size of z counts the sums of all nodes of a
uniform tree, so a range errs by a few nodes' noise though no node is measured (`noise.knorm`). An estimate of a batch
never changes: there is nothing to reconcile.

**Privacy**: a row lies in one node of each level, so it pays sum(budgets) / sum(budgets) = 1. Drawn ahead it lies in
one leaf and below one node of each level: docs/privacy/streams.md, "Noise drawn ahead".
**Source**: docs/method/views.md, "Blocks of batches" and "Trees drawn ahead".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from itertools import pairwise, product
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpsql.matrices import AxisVariance
from dpsql.matrices.model import IdentityVariance
from dpsql.matrices.strategy import LevelShares, axis_budgets
from dpsql.matrices.tree import LevelVariance, TreeVariance, blue
from dpsql.mechanisms.axis import joint_tree
from dpsql.mechanisms.axis.joint_tree import TOTAL
from dpsql.mechanisms.continual.time_strategy import (
    DENSE,
    Choose,
    Emission,
    StreamProblem,
    TimeCandidate,
    TimeOffer,
    TimeStrategy,
    check_rows,
    in_one_node,
    only,
    own_node,
    share_variance,
    too_long,
)
from dpsql.mechanisms.distribution import LAPLACE, NoiseDistribution
from dpsql.mechanisms.offers import FEWEST_LEAVES, Refusal
from dpsql.tree import FloatArray, IntArray, Tree, breadth_first


def tree_strategy(
    law: NoiseDistribution, spans: Sequence[int] = (1,), budgets: Sequence[int] = (1,)
) -> TimeStrategy:
    """Node sizes that are measured, with the budget of each level.

    Args:
        law: the noise.
        spans: batches per node of each level, finest first; each divides the next. Single batches alone: (1,).
        budgets: integer share of each level, >= 1; a row spends all of them, so their sum is the whole
            budget.

    Raises:
        ValueError: spans that do not nest, or levels without a budget.

    >>> from dpsql.mechanisms.distribution import GAUSSIAN, LAPLACE
    >>> tree = tree_strategy(LAPLACE, (1, 4), (6, 4))
    >>> [(e.level, e.lo, e.hi, str(e.reads[0].share)) for e in tree.emissions(3)]
    [(0, 3, 4, '3/5'), (1, 0, 4, '2/5')]
    >>> str(tree_strategy(GAUSSIAN, (1, 4), (6, 4)).price(6))
    '58/5'
    """
    if not spans or spans[0] != 1 or len(spans) != len(budgets):
        raise ValueError("spans start with 1 and every level needs its budget")
    if any(b % a or b <= a for a, b in pairwise(spans)):
        raise ValueError("each span must be a multiple of the one below")
    if min(budgets) < 1:
        raise ValueError("every level needs a budget of at least 1")
    shares = [Fraction(budget, sum(budgets)) for budget in budgets]
    level_variance = share_variance(law, np.array(shares, np.float64))  # of one node of each level

    def released(batch: int) -> tuple[Emission, ...]:
        length = batch + 1
        # node numbers interleave the levels, so they never clash
        return tuple(
            own_node((length // span - 1) * len(spans) + level, level, length - span, length, shares[level])
            for level, span in enumerate(spans)
            if length % span == 0
        )

    def needed(batches: int) -> tuple[int, ...]:
        return tuple(sorted({batches // span * span for span in spans}))

    def price(batches: int) -> Fraction:
        # at each level the dearest way to be in so many batches is to fill blocks
        paid = (
            budget * (batches // span * span**law.norm + (batches % span) ** law.norm)
            for span, budget in zip(spans, budgets, strict=True)
        )
        return Fraction(sum(paid), sum(budgets))

    def estimate(batches: int, published: NDArray[np.generic]) -> FloatArray:
        # least squares along the tree of closed nodes
        noisy = check_rows(published, sum(batches // span for span in spans))
        tree, number, weight = closed_nodes(spans, 1 / level_variance, batches)
        flat = noisy.reshape(len(noisy), -1)
        return blue(tree, weight, flat[number])[tree.leaves].reshape(batches, *noisy.shape[1:])

    def variance(batches: int) -> AxisVariance:
        if len(spans) == 1 or batches < spans[1]:
            return IdentityVariance(batches, float(level_variance[0]))
        tree, _, weight = closed_nodes(spans, 1 / level_variance, batches)
        return TreeVariance(tree, weight)

    blocks = f"batches and blocks of {', '.join(map(str, spans[1:]))}, budgets {':'.join(map(str, budgets))}"
    return TimeStrategy(
        "tree", {"spans": spans, "budgets": budgets}, blocks if len(spans) > 1 else "each batch on its own",
        law, (min(shares), max(shares)), released, needed, estimate, variance, price,
    )  # fmt: skip


def closed_nodes(
    sizes: Sequence[int], precision: FloatArray, batches: int
) -> tuple[Tree, IntArray, FloatArray]:
    """The closed nodes once so many batches have arrived, under a root that may be none of them.

    Args:
        sizes: batches per node of each level, finest first.
        precision: of a node of each level, at unit noise.
        batches: how many have arrived.

    Returns:
        The tree; the place of each node among the published numbers, and its precision at unit noise, both of
        shape (size,). A root that was not measured has precision 0, and any place.
    """
    spans = np.array(sizes, np.int64)
    last, level = np.nonzero(np.arange(1, batches + 1)[:, None] % spans == 0)  # in order of publication
    number = np.lexsort((last, -level))  # parents before children
    hi, level = last[number] + 1, level[number]
    lo = hi - spans[level]
    closed = batches // spans
    first = np.cumsum(closed[::-1])[::-1] - closed  # place of each level's first node
    above = np.minimum(level + 1, len(spans) - 1)
    covered = (level < above) & (hi <= (closed * spans)[above])
    parent = np.where(covered, first[above] + lo // spans[above], -1)
    weight = precision[level]
    if batches in sizes:  # a closed node covers all batches; the others are below it
        parent[1:] = np.maximum(parent[1:], 0)
    else:
        lo, hi, parent = np.append(0, lo), np.append(batches, hi), np.append(-1, parent + 1)
        number, weight = np.append(0, number), np.append(0.0, weight)
    tree, place = breadth_first(lo, hi, parent)
    order = np.argsort(place)
    return tree, number[order], weight[order]


Shape: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
"""Batches per node of each level, and the budgets of the levels."""

ALONE: Shape = ((1,), (1,))


def _grid(batches: int) -> Iterator[Shape]:
    """Spans and budgets on a coarse grid: neighbours on it differ by a few percent of error."""
    if 8 <= batches <= 5_000:
        for span, share in product((4, 7, 14, 20, 24, 28, 40, 60), (3, 4, 5, 6, 7, 8)):
            if 2 * span <= batches:
                yield (1, span), (share, 10 - share)
    if 60 <= batches <= 60_000:
        shares = ((4, 3, 3), (5, 3, 2), (3, 3, 4), (6, 2, 2))
        for span, above, budgets in product((7, 11, 14, 20, 28), (4, 8, 12), shares):
            if 2 * span * above <= batches:
                yield (1, span, span * above), budgets
    if batches > 60:
        depths = (3,) if batches <= 5_000 else (4, 5) if batches > 60_000 else (4,)
        for depth, span, finest_budget in product(depths, (8, 12, 16), (3, 4, 6)):
            if 2 * span ** (depth - 1) <= batches:
                yield tuple(span**level for level in range(depth)), (finest_budget,) + (3,) * (depth - 1)


def _best(question: StreamProblem, shapes: Iterable[Shape]) -> TimeCandidate:
    trees = (question.candidate(tree_strategy(question.law, *shape)) for shape in shapes)
    return min(trees, key=lambda candidate: (candidate.error, candidate.name))


def _tree(question: StreamProblem) -> TimeStrategy:
    return _best(question, (ALONE, *_grid(question.batches))).strategy


AHEAD = "tree drawn ahead"


def joint_time_strategy(
    law: NoiseDistribution, horizon: int, arities: Sequence[int], shares: Sequence[int]
) -> TimeStrategy:
    """Batches drawn together.

    Args:
        law: the noise, Laplace.
        horizon: batches; leaves of the tree beyond it are drawn and dropped.
        arities, shares: of the levels, the root's first.

    Raises:
        ValueError: other noise.
        InternalError: levels that spend more than the whole, or fewer leaves than batches.
    """
    if law != LAPLACE:
        raise ValueError("a tree is drawn ahead under Laplace noise alone")
    drawn = joint_tree.joint_strategy(horizon, arities, shares)
    levels, share = LevelShares(tuple(arities), tuple(shares)), Fraction(shares[-1], TOTAL)
    return TimeStrategy(
        "joint_tree", {"horizon": horizon, **levels._asdict()}, f"{AHEAD}, {'x'.join(map(str, arities))}", law,
        (share, share), lambda batch: (own_node(batch, 0, batch, batch + 1, share),), lambda batches: (batches,),
        lambda batches, published: check_rows(published, batches), partial(joint_tree.tree_variance, levels),
        in_one_node(law), horizon, axis_budgets([drawn])[0],
    )  # fmt: skip


def joint_levels(question: StreamProblem) -> LevelShares:
    """The shares and the shape of least error over the questions asked."""
    weighted = [(w, q) for w, q in zip(question.weights(), question.workload, strict=True) if w]

    def objective(model: LevelVariance) -> float:
        return sum(weight * query.mean_variance(model) for weight, query in weighted)

    slow = sum(weight for weight, query in weighted if query.slow)
    return joint_tree.TreeSearch(question.batches, objective, slow / 2).best()


def _ahead(question: StreamProblem) -> Iterator[TimeOffer | Refusal]:
    """The best tree, for pure streams with an end whose other axes are measured leaf by leaf."""
    cells = question.joint
    if cells is None or question.law != LAPLACE or question.batches < FEWEST_LEAVES:
        return
    if question.batches > DENSE:
        yield too_long(AHEAD)
    elif cells.room < 2 * question.batches * TOTAL / joint_tree.LEAF_SHARE:
        yield Refusal(AHEAD, "needs a larger share, or narrower bounds: sums of noise would not fit 64 bits")
    else:
        levels = joint_levels(question)
        if joint_tree.tree_draws(levels, cells.numbers) * cells.trees > joint_tree.LIMITS[cells.numbers]:
            yield Refusal(AHEAD, "needs too many draws here")
        else:
            strategy = joint_time_strategy(question.law, question.batches, *levels)
            yield TimeOffer(AHEAD, 0.0, lambda: question.candidate(strategy))


NAMED: Mapping[str, Choose] = {"tree": only(_tree)}


def offers(question: StreamProblem) -> Iterator[TimeOffer | Refusal]:
    """Batches alone, the blocks that err least, and the best tree that is drawn ahead."""
    yield TimeOffer("each batch on its own", 0.0, partial(_best, question, (ALONE,)))
    shapes = tuple(_grid(question.batches))
    if shapes:
        yield TimeOffer("blocks of batches", 0.0, partial(_best, question, shapes))
    else:
        yield Refusal("blocks of batches", f"{question.batches} batches are too few for blocks")
    yield from _ahead(question)
