"""A tree over all batches whose leaves are drawn together, before the first batch arrives; for streams with an end.

Batch t publishes x_t + z_t and nothing else; totals and ranges are sums of batches. The size of z counts the sums of
all nodes of a uniform tree, so a range errs by a few nodes' noise though no node is measured (`noise.knorm`).

| here | meaning |
|---|---|
| `levels` | arities of the tree, and the levels' shares of `TOTAL`, the root's first |
| `ahead` | the same for the law that draws: all batches up to the horizon at once |

An estimate of a batch never changes: there is nothing to reconcile.

**Privacy**: docs/privacy/streams.md, "Noise drawn ahead": a row lies in one leaf and below one node of each level.
**Source**: docs/method/streams.md, "Trees drawn ahead".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial

from dpsql.matrices.strategy import LevelShares, axis_budgets
from dpsql.matrices.tree import LevelVariance
from dpsql.mechanisms.axis.joint_tree import (
    LEAF_SHARE,
    LIMITS,
    TOTAL,
    TreeSearch,
    joint_strategy,
    tree_draws,
    tree_variance,
)
from dpsql.mechanisms.axis.strategy import FEWEST_LEAVES
from dpsql.mechanisms.continual.time_strategy import (
    DENSE,
    Choose,
    StreamProblem,
    TimeOffer,
    TimeStrategy,
    check_rows,
    in_one_node,
    own_node,
    too_long,
)
from dpsql.mechanisms.distribution import LAPLACE, NoiseDistribution
from dpsql.mechanisms.offers import Refusal

NAME = "tree drawn ahead"


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
    drawn = joint_strategy(horizon, arities, shares)
    levels, share = LevelShares(tuple(arities), tuple(shares)), Fraction(shares[-1], TOTAL)
    return TimeStrategy(
        "joint_tree", {"horizon": horizon, **levels._asdict()}, f"{NAME}, {'x'.join(map(str, arities))}", law,
        (share, share), lambda batch: (own_node(batch, 0, batch, batch + 1, share),), lambda batches: (batches,),
        lambda batches, published: check_rows(published, batches), partial(tree_variance, levels),
        in_one_node(law), horizon, axis_budgets([drawn])[0],
    )  # fmt: skip


def joint_levels(question: StreamProblem) -> LevelShares:
    """The shares and the shape of least error over the questions asked."""
    weighted = [(w, q) for w, q in zip(question.weights(), question.workload, strict=True) if w]

    def objective(model: LevelVariance) -> float:
        return sum(weight * query.mean_variance(model) for weight, query in weighted)

    slow = sum(weight for weight, query in weighted if query.slow)
    return TreeSearch(question.batches, objective, slow / 2).best()


NAMED: Mapping[str, Choose] = {}


def offers(question: StreamProblem) -> Iterator[TimeOffer | Refusal]:
    """The best tree, for pure streams with an end whose other axes are measured leaf by leaf."""
    cells = question.joint
    if cells is None or question.law != LAPLACE or question.batches < FEWEST_LEAVES:
        return
    if question.batches > DENSE:
        yield too_long(NAME)
    elif cells.room < 2 * question.batches * TOTAL / LEAF_SHARE:
        yield Refusal(NAME, "needs a larger share, or narrower bounds: sums of noise would not fit 64 bits")
    else:
        levels = joint_levels(question)
        if tree_draws(levels, cells.numbers) * cells.trees > LIMITS[cells.numbers]:
            yield Refusal(NAME, "needs too many draws here")
        else:
            strategy = joint_time_strategy(question.law, question.batches, *levels)
            yield TimeOffer(NAME, 0.0, lambda: question.candidate(strategy))
