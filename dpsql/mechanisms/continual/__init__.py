"""Streams: strategies that answer while batches keep arriving, and the choice between them.

`strategy: auto` is the least of what they offer. The list is closed: a strategy without its proof in
docs/privacy/streams.md has no place in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dpsql.errors import InternalError
from dpsql.mechanisms.continual import prefixes, spectral, time_tree
from dpsql.mechanisms.continual.time_tree import Choose, StreamProblem, TimeChoice, TimeStrategy
from dpsql.mechanisms.distribution import NoiseDistribution
from dpsql.mechanisms.offers import Mechanism, least

MECHANISMS: tuple[Mechanism[Choose, StreamProblem, TimeStrategy], ...] = (time_tree, prefixes, spectral)

STRATEGIES: dict[str, Callable[..., TimeStrategy]] = {
    "tree": time_tree.tree_strategy, "fda": prefixes.fda_strategy, "prefix": prefixes.subtraction_strategy,
    "spectral": spectral.spectral_strategy, "endless": spectral.spectral_strategy,
    "joint_tree": time_tree.joint_time_strategy,
}  # fmt: skip
"""Constructors by the kind of what they make, which stores their arguments."""

ALIKE = frozenset({"fda"})
"""Words of strategies that measure the same whatever is asked."""


def choose(question: StreamProblem) -> TimeChoice:
    """The strategy of least mean squared error over the questions asked.

    **Privacy**: depends on public facts alone, so it costs nothing.
    **Source**: docs/method/views.md, "Choosing a time strategy".

    >>> from dpsql.mechanisms.distribution import GAUSSIAN, LAPLACE
    >>> from dpsql.mechanisms.continual.time_tree import question_of
    >>> asked = (question_of("running", 1),)
    >>> choose(StreamProblem(LAPLACE, 365, asked)).name, choose(StreamProblem(GAUSSIAN, 365, asked)).name
    ('prefix over 365 batches', 'spectral over the last 1460 batches')
    """
    return least(offer for mechanism in MECHANISMS for offer in mechanism.offers(question))


def words() -> Mapping[str, Choose]:
    """The catalog's words, `auto` first."""
    by_word = {word: named for mechanism in MECHANISMS for word, named in mechanism.NAMED.items()}
    return {"auto": choose, **by_word}


def thaw(kind: str, law: NoiseDistribution, frozen: Mapping[str, Any]) -> TimeStrategy:
    """The strategy that was stored.

    Args:
        kind: the strategy's `kind`.
        law: its noise.
        frozen: what its `frozen` gave.

    Raises:
        InternalError: no strategy is called that.
        TypeError, ValueError: it is damaged.
    """
    if kind not in STRATEGIES:
        raise InternalError(f"no strategy of time is called {kind!r}", hint="use the version that wrote it")
    return STRATEGIES[kind](law, **frozen)
