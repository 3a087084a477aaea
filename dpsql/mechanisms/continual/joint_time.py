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

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsql.matrices.strategy import AxisBudget, LevelShares
from dpsql.matrices.tree import LevelVariance
from dpsql.mechanisms.axis.joint_tree import LEAF_SHARE, LIMITS, TOTAL, TreeSearch, tree_draws, tree_variance
from dpsql.mechanisms.axis.strategy import FEWEST_LEAVES
from dpsql.mechanisms.continual.time_strategy import (
    DENSE,
    Emission,
    Frozen,
    Kinds,
    NamedTimeStrategy,
    NodeRead,
    SettledEstimates,
    StreamProblem,
    TimeOffer,
    check_rows,
    refuse_past,
    too_long,
)
from dpsql.mechanisms.distribution import LAPLACE, NoiseDistribution
from dpsql.mechanisms.offers import Refusal
from dpsql.tree import FloatArray

NAME = "tree drawn ahead"


@dataclass(frozen=True)
class JointTimeStrategy(SettledEstimates):
    """Batches drawn together. See `TimeStrategy` for what its methods answer.

    Args:
        law: the noise, Laplace.
        horizon: batches; leaves of the tree beyond it are drawn and dropped.
        levels: arities and shares.
    """

    kind: ClassVar[str] = "joint_tree"
    law: NoiseDistribution
    horizon: int
    levels: LevelShares

    def __post_init__(self) -> None:
        """Refuse levels that spend more than the whole, or fewer leaves than batches."""
        if self.law != LAPLACE or not self.levels.fits(self.horizon, TOTAL):
            raise ValueError(
                "the shares of a tree drawn ahead add up to more than the whole, or do not fit its levels and batches"
            )

    @property
    def name(self) -> str:
        return f"{NAME}, {'x'.join(str(arity) for arity in self.levels.arities)}"

    @property
    def ahead(self) -> AxisBudget:
        """Noise by which all batches are drawn at once."""
        return AxisBudget(np.full(self.horizon, self.levels.shares[-1], np.int64), TOTAL, self.levels)

    @property
    def share(self) -> Fraction:
        """Of the leaves' level."""
        return Fraction(self.levels.shares[-1], TOTAL)

    def emissions(self, batch: int) -> tuple[Emission, ...]:
        refuse_past(self, batch)
        return (Emission(0, batch, batch + 1, (NodeRead(batch, 1, self.share, batch + 2),)),)

    def needed(self, batches: int) -> tuple[int, ...]:
        return (batches,)

    def shares(self) -> tuple[Fraction, Fraction]:
        return self.share, self.share

    def estimate(self, batches: int, published: NDArray[np.generic]) -> FloatArray:
        """The published numbers themselves."""
        return check_rows(published, batches)

    def variance(self, batches: int) -> LevelVariance:
        """Of the first batches of the whole tree."""
        return tree_variance(self.levels, batches)

    def frozen(self) -> dict[str, Any]:
        arities, shares = self.levels
        return {"horizon": self.horizon, "arities": list(arities), "shares": list(shares)}


def joint_time(question: StreamProblem) -> JointTimeStrategy:
    """The shares and the shape of least error over the questions asked."""
    weighted = [(w, q) for w, q in zip(question.weights(), question.workload, strict=True) if w]

    def objective(model: LevelVariance) -> float:
        return sum(weight * query.mean_variance(model) for weight, query in weighted)

    slow = sum(weight for weight, query in weighted if query.slow)
    levels = TreeSearch(question.batches, objective, slow / 2).best()
    return JointTimeStrategy(question.law, question.batches, levels)


def _thawed(law: NoiseDistribution, frozen: Frozen) -> JointTimeStrategy:
    arities, shares = tuple(map(int, frozen["arities"])), tuple(map(int, frozen["shares"]))
    return JointTimeStrategy(law, int(frozen["horizon"]), LevelShares(arities, shares))


NAMED: Mapping[str, NamedTimeStrategy] = {}
KINDS: Kinds = {JointTimeStrategy.kind: _thawed}


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
        strategy = joint_time(question)
        if tree_draws(strategy.levels, cells.numbers) * cells.trees > LIMITS[cells.numbers]:
            yield Refusal(NAME, "needs too many draws here")
        else:
            yield TimeOffer(NAME, 0.0, lambda: question.candidate(strategy))
