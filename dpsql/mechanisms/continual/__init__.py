"""Streams: strategies that answer while batches keep arriving, and the choice between them.

`strategy: auto` is the least of what they offer. The list is closed: a strategy without its proof in
docs/privacy/streams.md has no place in it.
"""

from __future__ import annotations

from dpsql.errors import InternalError
from dpsql.mechanisms.continual import joint_time, prefixes, spectral, time_tree
from dpsql.mechanisms.continual.time_strategy import (
    Frozen,
    NamedTimeStrategy,
    StreamProblem,
    TimeChoice,
    TimeMechanism,
    TimeStrategy,
)
from dpsql.mechanisms.distribution import NoiseDistribution
from dpsql.mechanisms.offers import least

MECHANISMS: tuple[TimeMechanism, ...] = (time_tree, prefixes, spectral, joint_time)


def choose(question: StreamProblem) -> TimeChoice:
    """The strategy of least mean squared error over the questions asked.

    **Privacy**: depends on public facts alone, so it costs nothing.
    **Source**: docs/method/streams.md, "Choosing a time strategy".

    >>> from dpsql.mechanisms.distribution import GAUSSIAN, LAPLACE
    >>> from dpsql.mechanisms.continual.time_strategy import question_of
    >>> asked = (question_of("running", 1),)
    >>> choose(StreamProblem(LAPLACE, 365, asked)).name, choose(StreamProblem(GAUSSIAN, 365, asked)).name
    ('prefix over 365 batches', 'spectral over the last 1460 batches')
    """
    return least(offer for mechanism in MECHANISMS for offer in mechanism.offers(question))


def words() -> dict[str, NamedTimeStrategy]:
    """The catalog's words, `auto` first."""
    by_word = {word: named for mechanism in MECHANISMS for word, named in mechanism.NAMED.items()}
    return {"auto": NamedTimeStrategy(choose, tuned=True), **by_word}


def thaw(kind: str, law: NoiseDistribution, frozen: Frozen) -> TimeStrategy:
    """The strategy that was stored.

    Args:
        kind: what it calls itself.
        law: its noise.
        frozen: what its `frozen` gave.

    Raises:
        InternalError: no strategy is called that.
        KeyError, TypeError, ValueError: it is damaged.
    """
    kinds = {stored: builder for mechanism in MECHANISMS for stored, builder in mechanism.KINDS.items()}
    if kind not in kinds:
        raise InternalError(f"no strategy of time is called {kind!r}", hint="use the version that wrote it")
    return kinds[kind](law, frozen)
