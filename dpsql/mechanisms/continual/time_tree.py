"""Strategies of time, and the plainest: blocks of batches that are measured when they close, leaves drawn ahead.

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

**A strategy of time** says what each batch publishes, and how exact totals, ranges and days then are. One `Emission` is
one noisy number per cell: the exact sum over the batches [lo, hi), weighted where the strategy weighs them, plus signed
*noise nodes*. A noise node is one draw per cell. It spends a share of what the statistic may spend, of epsilon under
Laplace noise and of mu^2 under Gaussian noise. Positions are prefix lengths: before batch b (0-based) b batches have
arrived, after it b + 1.

| here                    | unit                                                                              |
|-------------------------|-----------------------------------------------------------------------------------|
| share                   | part of the statistic's spend, exact                                              |
| variance of a strategy  | noise of variance 1 on a node that spends all, times `variance_at_unit_budget`    |
| errors of candidates    | variance per unit count at epsilon 1 or mu^2 1: `error_at_unit_budget` times that |

**Privacy**: over any batch, sum over the noise nodes of share * |weight|^norm <= 1, where the weight is what the node's
exact sum counts a row of that batch with. So a row of one batch pays at most the statistic's spend, however long the
stream runs; batches past `horizon`, for which nothing is left, are refused.
**Questions.** Strategies are compared by what is asked of the stream. A kind of question has a name, a weight, its
mean variance under a strategy, and what rows made for it need to know of it: about the least mean variance that
Gaussian noise allows, and its spectrum, which says how much each frequency of the batches counts in its answers.

**What a weight means.** Under Laplace noise it multiplies the mean variance. Under Gaussian noise it multiplies the
mean variance over the least one, so that questions asked alike lose alike: totals of a year err by 7, a day by 1.
Windows alone say nothing about slow frequencies, and rows made for them alone leave totals unanswerable (14,000 times
a day's variance); so then a tenth of the weight goes to all kinds alike.

The spectrum S is low / N for totals, 2 low / N for ranges and sin^2(k theta / 2) / sin^2(theta / 2) / (N - k + 1) for
windows of k.

| here | there | unit |
|---|---|---|
| `low` | 1 / (u + (g / N)^2), u = 4 sin^2(theta / 2) | sums of all batches, cut off below g / N |
| `least` | best_q, within 3% of solved optima while windows are below N / 10 | variance at mu^2 1 |
| `units` | b of exact participation | batches that a privacy unit may be in |

**Source**: docs/method/views.md, "Blocks of batches", "Trees drawn ahead", "The split theorem", "Choosing a
time strategy" and "Spectral rows".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import pairwise, product
from math import log, pi
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpsql.matrices import AxisVariance, mean_variance
from dpsql.matrices.model import IdentityVariance
from dpsql.matrices.strategy import AxisBudget, LevelShares, axis_budgets
from dpsql.matrices.tree import LevelVariance, TreeVariance, blue
from dpsql.mechanisms.axis import joint_tree
from dpsql.mechanisms.axis.joint_tree import TOTAL
from dpsql.mechanisms.distribution import GAUSSIAN, LAPLACE, NoiseDistribution
from dpsql.mechanisms.offers import FEWEST_LEAVES, Candidate, Choice, JointCells, Offer, Refusal
from dpsql.tree import FloatArray, IntArray, Tree, breadth_first

UNIT = 1 << 30
"""Integer budget of a whole path where shares are not already integers."""


class NodeRead(NamedTuple):
    """One noise node that an emission reads.

    Attributes:
        node: its number within the strategy; a number names one draw per cell, for ever.
        sign: +1 or -1.
        share: what the node spends, of the statistic's spend.
        until: the first prefix length that no longer reads it.
    """

    node: int
    sign: int
    share: Fraction
    until: int


@dataclass(frozen=True)
class Emission:
    """One noisy sum.

    Attributes:
        level: size class of the node, 0 the finest.
        lo, hi: batches [lo, hi) that the exact sum covers.
        reads: the noise nodes added.
        weights: int64[hi - lo] factors of the batches, or None for a plain sum.
    """

    level: int
    lo: int
    hi: int
    reads: tuple[NodeRead, ...]
    weights: IntArray | None = None


def own_node(
    node: int, level: int, lo: int, hi: int, share: Fraction, weights: IntArray | None = None
) -> Emission:
    """The sum over the batches [lo, hi), hi the newest, with noise of its own that nothing reads again."""
    return Emission(level, lo, hi, (NodeRead(node, 1, share, hi + 1),), weights)


@dataclass(frozen=True, eq=False)
class TimeStrategy:
    """Strategy of time, frozen when a stream is made; made of public facts alone.

    Args:
        kind: name of its constructor in the closed registry.
        stored: the arguments of that constructor but for the law, integers that floating point chose.
        name: strategy in words.
        law: the noise that its shares are for.
        shares: the least and the greatest share that a noise node spends.
        released: emissions of a batch (0-based, before the horizon), finest level first; at least one.
        needed: the prefix lengths whose exact sums later emissions need, after so many batches.
        estimate: (batches, published) -> best linear unbiased estimates of the batches, float64[batches, ..], from
            (rows, ..) noisy sums in order of publication; further axes may follow the first, and hold best estimates
            inside each node. Another number of rows than so many batches publish is a ValueError.
        variance: variance model of the estimates of so many batches.
        price: price of a unit in so many batches, relative to one batch: a proven bound, at least 1.
        horizon: batches that there is budget for; None: without end.
        ahead: noise of all batches drawn before the first; None where each batch draws its nodes.
    """

    kind: str
    stored: Mapping[str, Any]
    name: str
    law: NoiseDistribution
    shares: tuple[Fraction, Fraction]
    released: Callable[[int], tuple[Emission, ...]]
    needed: Callable[[int], tuple[int, ...]]
    estimate: Callable[[int, NDArray[np.generic]], FloatArray]
    variance: Callable[[int], AxisVariance]
    price: Callable[[int], Fraction]
    horizon: int | None = None
    ahead: AxisBudget | None = None

    def emissions(self, batch: int) -> tuple[Emission, ...]:
        """Emissions of a batch.

        Raises:
            ValueError: the batch is at its horizon or past it, or before the first.
        """
        if batch < 0 or (self.horizon is not None and batch >= self.horizon):
            raise ValueError(f"{self.name} has no budget left for batch {batch}")
        return self.released(batch)

    def frozen(self) -> dict[str, Any]:
        """Plain values of JSON that hold the whole strategy but for its law, for appends and audits."""
        return {name: np.asarray(value).tolist() for name, value in self.stored.items()}


def in_one_node(law: NoiseDistribution) -> Callable[[int], Fraction]:
    """Price of batches all of whose rows may meet in one node.

    Under Laplace noise the number of batches. Under Gaussian noise its square; where rows cannot meet, less does.
    """
    return lambda batches: Fraction(batches**law.norm)


def exponent(law: NoiseDistribution) -> float:
    """The split theorem's exponent for shares of the law's spend: 1/3 of epsilon, 1/2 of mu^2."""
    return law.norm / (law.norm + 2)


def share_variance(law: NoiseDistribution, shares: FloatArray) -> FloatArray:
    """Noise variance of nodes with these shares, against a node that spends all: share^-2 (Laplace), share^-1.

    >>> from dpsql.mechanisms.distribution import GAUSSIAN, LAPLACE
    >>> share_variance(LAPLACE, np.array([1, 0.5])).tolist(), share_variance(GAUSSIAN, np.array([0.5])).tolist()
    ([1.0, 4.0], [2.0])
    """
    return np.asarray(np.asarray(shares, dtype=np.float64) ** (-2 / law.norm))


def check_rows(published: NDArray[np.generic], wanted: int) -> FloatArray:
    """Published numbers as floats.

    Raises:
        ValueError: there are more or fewer of them than so many batches publish.
    """
    if len(published) != wanted:
        raise ValueError(f"so many batches publish {wanted} rows, not {len(published)}")
    return np.asarray(published, dtype=np.float64)


FLOOR = 0.1
"""The part of the weight that all kinds share where no total and no range is asked."""

TOTALS: Mapping[str, tuple[int, float]] = {"running": (1, 0.757), "prefix": (1, 0.757), "range": (2, 0.284)}
"""Totals and ranges: their free ends, and the constant of the least variance, ends (log N / pi + constant)^2."""


class TimeQuestion(NamedTuple):
    """A kind of question and how often it is asked.

    Args:
        name: as the catalog calls it: running, prefix, range, or a window as its number of batches.
        weight: against the others; 0 where it is answered without being asked for.
    """

    name: str
    weight: float

    @property
    def slow(self) -> bool:
        """True if it sums many batches, so that rows made for it answer everything else as well."""
        return self.name in TOTALS

    @property
    def length(self) -> int:
        """Batches of a window."""
        return int(self.name)

    def mean_variance(self, model: AxisVariance) -> float:
        """Mean variance of its answers over a model of the batches, at unit noise.

        Raises:
            ValueError: a window that does not fit.
        """
        if self.name == "range":
            return mean_variance(model)
        if self.name == "running" and isinstance(model, TreeVariance):
            # asked while blocks are open, which later measure their batches once more; other estimates never change
            return float(model.running_totals().mean())
        if self.slow:
            return float(model.ranges(0, np.arange(1, model.n + 1)).mean())
        if not 1 <= self.length <= model.n:
            raise ValueError("a window must hold at least one batch and fit into the horizon")
        first = np.arange(model.n - self.length + 1)
        return float(model.ranges(first, first + self.length).mean())

    def least(self, batches: int) -> float:
        """About the least mean variance under Gaussian noise, at mu^2 1; a batch alone is measured alone: 1."""
        if self.slow:
            ends, constant = TOTALS[self.name]
            return ends * (log(batches) / pi + constant) ** 2
        return (0.4053 * log(self.length) + 0.9894) ** 2 if self.length > 1 else 1.0

    def spectrum(self, theta: FloatArray, low: FloatArray, batches: int) -> FloatArray:
        """Weight of each frequency in its answers."""
        if self.slow:
            return TOTALS[self.name][0] * low / batches
        wave, most = np.sin(theta / 2), np.full(theta.size, float(self.length))
        ratio = np.divide(np.sin(self.length * theta / 2), wave, out=most, where=wave != 0)
        return np.asarray(ratio**2 / (batches - self.length + 1))

    def design_weight(self, units: int) -> int:
        """Factor on its weight when rows are designed for units in several batches.

        Rows of one batch stay nearer to it, and a unit's batches meet less: best of a grid of powers.
        """
        return 1 if self.slow or self.length > 1 else units**2


def question_of(name: str, weight: float) -> TimeQuestion:
    """A kind of question by its catalog name; a number of batches is a window of them.

    Raises:
        ValueError: no question is called that.

    >>> question_of("range", 1).name, question_of("7", 2).length
    ('range', 7)
    """
    question = TimeQuestion(name, weight)
    if not question.slow:
        int(name)
    return question


@dataclass(frozen=True)
class StreamProblem:
    """Requirements on a strategy of time.

    Args:
        law: the noise.
        batches: how many are planned for, at least 1.
        workload: the questions, at least one of a weight above 0.
        units: batches that a privacy unit may be in.
        ends: whether no batch comes after those planned for.
        bits: how much integer weights may enlarge exact sums; see `docs/privacy/streams.md`, "Whole numbers".
        joint: what is drawn, where all batches may be drawn together; None where each batch draws its nodes.
    """

    law: NoiseDistribution
    batches: int
    workload: tuple[TimeQuestion, ...]
    units: int = 1
    ends: bool = False
    bits: int = 28
    joint: JointCells | None = None

    @property
    def outlives(self) -> bool:
        """True if a strategy must go on past the batches planned for.

        Under Laplace noise the best have an end and the others err by a third more, so it need not.
        """
        return self.law == GAUSSIAN and not self.ends

    def weights(self) -> tuple[float, ...]:
        """Weights of the mean variances of the questions, in sum 1."""
        weights = np.array([query.weight for query in self.workload]) / sum(
            query.weight for query in self.workload
        )
        if self.law == GAUSSIAN:
            if not any(query.weight and query.slow for query in self.workload):
                weights = (1 - FLOOR) * weights + FLOOR / weights.size
            weights = weights / [query.least(self.batches) for query in self.workload]
        return tuple((weights / weights.sum()).tolist())

    def candidate(self, strategy: TimeStrategy) -> TimeCandidate:
        """A strategy with its weighted mean squared error over the questions.

        Where units may be in several batches, against a strategy in which all their rows meet in one node.
        """
        model, pairs = strategy.variance(self.batches), zip(self.weights(), self.workload, strict=True)
        mean = sum(weight * query.mean_variance(model) for weight, query in pairs if weight)
        dearer = float(strategy.price(self.units)) ** float(2 / self.law.norm) / self.units**2
        return Candidate(strategy, self.law.error_at_unit_budget * mean * dearer, strategy.name)


TimeCandidate = Candidate[TimeStrategy]
TimeOffer = Offer[TimeStrategy]
TimeChoice = Choice[TimeStrategy]

Make = Callable[[StreamProblem], TimeStrategy]

Choose = Callable[[StreamProblem], TimeChoice]
"""A word of the catalog: its strategy for a question."""


def only(make: Make) -> Choose:
    """A word that stands for one strategy."""

    def choose(question: StreamProblem) -> TimeChoice:
        strategy, error, name = question.candidate(make(question))
        return TimeChoice(strategy, name, error)

    return choose


DENSE = 4096
"""Batches up to which `auto` takes strategies of which each batch meets all those before it."""


def dense_offer(question: StreamProblem, name: str, make: Make) -> TimeOffer | Refusal:
    """A strategy with an end, unless there are too many batches or more may come."""
    if question.outlives:
        return Refusal(name, f"it ends after {question.batches} batches", "write `ends: true`")
    if question.batches > DENSE:
        return too_long(name)
    return TimeOffer(name, 0.0, lambda: question.candidate(make(question)))


def too_long(name: str) -> Refusal:
    """Of strategies of which each batch meets all those before it."""
    return Refusal(name, f"it stores a number for each pair of batches, {DENSE} at most")


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


NAMED: Mapping[str, Choose] = {
    "tree": only(lambda question: _best(question, (ALONE, *_grid(question.batches))).strategy)
}


def offers(question: StreamProblem) -> Iterator[TimeOffer | Refusal]:
    """Batches alone, the blocks that err least, and the best tree that is drawn ahead."""
    yield TimeOffer("each batch on its own", 0.0, partial(_best, question, (ALONE,)))
    shapes = tuple(_grid(question.batches))
    if shapes:
        yield TimeOffer("blocks of batches", 0.0, partial(_best, question, shapes))
    else:
        yield Refusal("blocks of batches", f"{question.batches} batches are too few for blocks")
    yield from _ahead(question)
