"""Channel of an attribute that only devices know: one item drawn by public weights, and its inversion.

| here | there | unit |
|---|---|---|
| `law` | K: chance of each item given each leaf, columns add to 1 | 1 |
| `scores` | s = (K' D^-1 K)^-1 K' D^-1, D = diag(K 1/m): s K = 1, columns of s add to 1 | 1 |
| level | a partition of the leaves, with a randomizer of its own | |
| own, OTHER | W, S: integer weights of likely and other items of a level | 1 |

A level is drawn by weights that do not see the leaf. `tree` has levels of m / b^j nodes, shares proportional to their
depth; `grr` and `design` have one level of all leaves.

**Privacy**: max over items and leaves of law[y, a] / law[y, a'] is W / S <= e^epsilon, for one level and so for all.
**Source**: docs/method/local.md, "The channel".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from hashlib import sha256
from typing import NamedTuple

import numpy as np

from dpsql.client.oracles import OTHER, points, space_of
from dpsql.client.plan import largest_weight
from dpsql.local.oracles.oracle import FloatArray, IntArray

GRR, DESIGN = "GRR", "DESIGN"
PRIMES = (2, 3, 5, 7, 11, 13)
BRANCHING = (3, 4, 5)


class Level(NamedTuple):
    """One level.

    Args:
        edges: boundaries of its nodes, from 0 to the number of leaves.
        oracle, extra: its randomizer, and the prime of a design; 0 for randomised response.
        share: integer weight in the draw of the level.
    """

    edges: tuple[int, ...]
    oracle: str
    extra: int = 0
    share: int = 1

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.edges) - 1

    def weights(self, own: int) -> IntArray:
        """Integer weight of each item for each node, shape (items, nodes); columns have one sum."""
        if not self.extra:
            return np.where(np.eye(self.nodes, dtype=bool), own, OTHER).astype(np.int64)
        space = space_of(self.nodes, self.extra)
        space_points = np.array(list(points(space)), np.int64)
        return np.where((space_points @ space_points[: self.nodes].T) % self.extra == 0, own, OTHER).astype(
            np.int64
        )


@dataclass(frozen=True)
class Channel:
    """Channel from leaves to items.

    Args:
        levels: over the same leaves.
        own: integer weight of a likely item.
    """

    levels: tuple[Level, ...]
    own: int

    @property
    def leaves(self) -> int:
        return self.levels[0].edges[-1]

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The first item of each level, and the number of all items."""
        sizes = [len(level.weights(self.own)) for level in self.levels]
        return tuple(np.cumsum([0, *sizes]).tolist())

    @property
    def items(self) -> int:
        """Items of all levels together."""
        return self.starts[-1]

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(f"{level.oracle} of {level.nodes}" for level in self.levels)

    @property
    def fingerprint(self) -> str:
        """The same for two channels that turn leaves into items alike."""
        content = [
            self.own,
            *([*level.edges, level.oracle, level.extra, level.share] for level in self.levels),
        ]
        return sha256(repr(content).encode()).hexdigest()

    @cached_property
    def law(self) -> FloatArray:
        """K, shape (items, leaves)."""
        shares = sum(level.share for level in self.levels)
        level_laws = []
        for level in self.levels:
            weights = level.weights(self.own)
            node = np.repeat(np.arange(level.nodes), np.diff(level.edges))
            level_laws.append(level.share / shares * (weights / weights[:, :1].sum())[:, node])
        return np.concatenate(level_laws)

    @cached_property
    def scores(self) -> FloatArray:
        """s, shape (leaves, items): unbiased whatever the truth."""
        inverse = self.law.T / self.law.mean(axis=1)
        return np.asarray(np.linalg.solve(inverse @ self.law, inverse))

    def cost(self, masks: FloatArray) -> float:
        """Mean variance of a row's score over masks of leaves, for people spread evenly.

        Args:
            masks: shape (questions, leaves).
        """
        g = masks @ self.scores
        return float(np.mean(g**2 @ self.law - (g @ self.law) ** 2))


def questions(leaves: int, ordered: bool) -> FloatArray:
    """Questions that a channel is chosen for: all ranges of an ordered attribute, all single values of another."""
    if not ordered:
        return np.eye(leaves)
    low, high = np.triu_indices(leaves + 1, 1)
    at = np.arange(leaves)
    return ((at >= low[:, None]) & (at < high[:, None])).astype(np.float64)


def channels(leaves: int, ordered: bool, own: int, word: str) -> Iterator[Channel]:
    """Every channel that a catalog's word allows.

    Args:
        leaves: of the attribute.
        ordered: whether ranges are asked.
        own: integer weight of a likely item.
        word: `auto`, `grr`, `design` or `tree`.
    """
    flat = tuple(range(leaves + 1))
    if word in ("auto", "grr"):
        yield Channel((Level(flat, GRR),), own)
    if word in ("auto", "design"):
        yield from (Channel((level,), own) for level in _designs(flat))
    if word == "tree" or (word == "auto" and ordered):
        yield from (_tree(leaves, branching, own) for branching in BRANCHING if leaves > branching)


def _designs(edges: tuple[int, ...]) -> Iterator[Level]:
    nodes = len(edges) - 1
    for q in PRIMES:
        if nodes > 2 and space_of(nodes, q).blocks <= max(4 * nodes, 13):
            yield Level(edges, DESIGN, q)


def _tree(leaves: int, branching: int, likely_weight: int) -> Channel:
    """Levels of about leaves / branching^j nodes without the root, each with its own best randomizer."""
    sizes = [leaves]
    while sizes[-1] > branching:
        sizes.append(-(-sizes[-1] // branching))
    levels = []
    for depth, nodes in enumerate(reversed(sizes), 1):
        edges = tuple(np.unique(np.linspace(0, leaves, nodes + 1).round().astype(int)).tolist())
        offers = [Level(edges, GRR), *_designs(edges)]
        flat = [level._replace(edges=tuple(range(level.nodes + 1))) for level in offers]
        costs = [Channel((level,), likely_weight).cost(np.eye(level.nodes)) for level in flat]
        levels.append(offers[int(np.argmin(costs))]._replace(share=depth))
    return Channel(tuple(levels), likely_weight)


def choose_channel(leaves: int, ordered: bool, own: int, word: str = "auto") -> Channel:
    """The channel with the least mean variance of a row's score.

    Args:
        leaves, ordered, own, word: as of `channels`.
    """
    queries = questions(leaves, ordered)
    offers: Sequence[Channel] = list(channels(leaves, ordered, own, word))
    return min(offers, key=lambda channel: (channel.cost(queries), channel.items))


def channel_of(leaves: int, ordered: bool, epsilon: Fraction, word: str) -> Channel:
    """Channel of a reported column: a function of the catalog alone.

    Args:
        leaves, ordered, word: as of `channels`.
        epsilon: of one report.
    """
    return choose_channel(leaves, ordered, largest_weight(epsilon), word)
