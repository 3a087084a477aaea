"""What `strategy: auto` picks against all that ships, and the variance of simulated streams against its prediction.

A cell is a number of batches, a law, and a kind of question; the catalog says `workload: {<question>: 1}`. 400 streams
are drawn with a second axis of 16 independent cells each, with the noise that releases use. Their squared errors are
divided by what the strategy predicts and averaged over many positions of the stream: all prefixes, 2,000 ranges, or
running totals asked at 24 batches. One position of 400 streams alone would err by 7%; the average errs by about 1%.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dpsql.catalog import load_catalog
from dpsql.mechanisms.axis.strategy import JointCells
from dpsql.mechanisms.continual import MECHANISMS, choose
from dpsql.mechanisms.continual.time_strategy import Emission, TimeStrategy
from dpsql.mechanisms.distribution import GAUSSIAN, LAPLACE, NoiseDistribution
from dpsql.mechanisms.integer_rows import AxisBudget
from dpsql.mechanisms.offers import Refusal
from dpsql.noise import ExactNoise, os_entropy
from dpsql.streams.append import StreamStatistic
from dpsql.streams.plan import chosen
from dpsql.tree import FloatArray, IntArray
from tests.stream_shop import CATALOG
from tests.time_forms import asking

BATCHES = (60, 365, 1023)
QUESTIONS = ("prefix", "range", "running")
LAWS: tuple[NoiseDistribution, ...] = (LAPLACE, GAUSSIAN)
STREAMS, CELLS = 400, 16
AHEAD = JointCells(1, 1, 1 << 28)
"""One count of a stream that ends: its noise is drawn ahead for the whole horizon where that errs less."""
SPEND = Fraction(1, 8)
UNITS = 10
"""Batches in which a unit of the catalog may be."""


class Figure(NamedTuple):
    """A name, what was measured, and what it must not pass."""

    name: str
    value: float
    bound: float


def picked(batches: int, law: NoiseDistribution, question: str) -> TimeStrategy:
    """What `strategy: auto` picks for a catalog that asks a kind of question."""
    stream = f"horizon: {batches}, ends: true, workload: {{{question}: 1}}"
    text = CATALOG.replace("horizon: 365", stream).replace("2025-12-31", "2028-12-31")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "shop.yaml"
        file.write_text(text.replace("EPSILON", "1").replace("DELTA", "1e-9" if law.norm > 1 else "0"))
        return chosen(load_catalog(file), law).strategy


def shipped(batches: int, law: NoiseDistribution, question: str) -> Iterator[TimeStrategy]:
    """The best that each mechanism has for a question, for the catalog's units."""
    for mechanism in MECHANISMS:
        for offer in mechanism.offers(asking(law, batches, question, units=UNITS)):
            if not isinstance(offer, Refusal):
                yield offer.make().strategy


def error(strategy: TimeStrategy, batches: int, law: NoiseDistribution, question: str) -> float:
    """Mean variance at epsilon 1 or mu^2 1, times what a unit in all of its batches pays against one in one node."""
    return asking(law, batches, question, units=UNITS).candidate(strategy).error


def choice_figures() -> Iterator[Figure]:
    """The pick's error over the least of all that ship, for a stream that ends."""
    for law in LAWS:
        for batches in BATCHES:
            for question in QUESTIONS:
                least = min(error(each, batches, law, question) for each in shipped(batches, law, question))
                own = error(picked(batches, law, question), batches, law, question)
                yield Figure(
                    f"{law.name}, N = {batches}, asked {question}: auto / least shipped", own / least, 1.0
                )


def choice_table() -> Iterator[str]:
    """What `auto` takes for a kind of question, and what the next best would err by."""
    yield from (
        "",
        "| noise | N | asked | `auto` takes | variance | next best | variance |",
        "|---|--:|---|---|--:|---|--:|",
    )
    for law in LAWS:
        for batches in BATCHES:
            for question in QUESTIONS:
                choice = choose(replace(asking(law, batches, question), joint=AHEAD))
                name, behind = choice.runners_up[0]
                yield (
                    f"| {law.name} | {batches:,} | {question} | {choice.name} | {choice.expected_error:.4g} | "
                    f"{name} | {behind:.4g} |"
                )


def agreement_figures() -> Iterator[Figure]:
    """The worst cell of the measured over the predicted variance, less 1."""
    worst: dict[str, float] = {}
    for law in LAWS:
        for batches in BATCHES:
            kept: dict[str, Drawn] = {}
            for question in QUESTIONS:
                strategy = picked(batches, law, question)
                drawn = kept.setdefault(strategy.name, draw(strategy, batches))
                cell = f"{law.name}, N = {batches}, {question}: {strategy.name}"
                worst[cell] = abs(float(RATIOS[question](drawn).mean()) - 1)
    name, value = max(worst.items(), key=lambda each: each[1])
    yield Figure(
        f"variance of {STREAMS} streams / predicted - 1, worst of {len(worst)} cells ({name})", value, 0.05
    )


class Drawn(NamedTuple):
    """Simulated streams without rows: all that is published is noise.

    Args:
        strategy: what was drawn.
        batches: how many.
        sent: the emissions in order.
        noise: float64[emissions, STREAMS * CELLS], over the standard deviation of a node that spends all.
    """

    strategy: TimeStrategy
    batches: int
    sent: Sequence[Emission]
    noise: FloatArray


def draw(strategy: TimeStrategy, batches: int) -> Drawn:
    """Draw all noise nodes as an append does, each once."""
    width = STREAMS * CELLS
    statistic = StreamStatistic(strategy.law, (AxisBudget(np.ones(width, np.int64), 1),), SPEND, 1)
    source, exact = ExactNoise(os_entropy()), np.zeros(width, dtype=np.int64)
    sent = [emission for batch in range(batches) for emission in strategy.emissions(batch)]
    nodes: dict[int, IntArray] = {}
    rows = np.zeros((len(sent), width))
    for place, emission in enumerate(sent):
        for read in emission.reads:
            if read.node not in nodes:
                nodes[read.node] = statistic.noised(exact, read.share, source)
            rows[place] += read.sign * nodes[read.node]
    unit = max(statistic.variance_at_unit_budget(share) for share in strategy.shares())
    return Drawn(strategy, batches, sent, rows / unit**0.5)


def prefix_ratios(drawn: Drawn) -> FloatArray:
    """All prefixes, once all batches are there."""
    stop = np.arange(1, drawn.batches + 1)
    return ratios(drawn, np.zeros_like(stop), stop)


def range_ratios(drawn: Drawn) -> FloatArray:
    """Ranges at random."""
    lo, hi = np.sort(np.random.default_rng(7).integers(0, drawn.batches + 1, (2, 2000)), axis=0)
    return ratios(drawn, lo[lo < hi], hi[lo < hi])


def ratios(drawn: Drawn, lo: IntArray, hi: IntArray) -> FloatArray:
    """Measured over predicted variance of each range."""
    batch = drawn.strategy.estimate(drawn.batches, drawn.noise)
    prefix = np.concatenate([np.zeros((1, batch.shape[1])), np.cumsum(batch, axis=0)])
    measured = np.array([((prefix[b] - prefix[a]) ** 2).mean() for a, b in zip(lo, hi, strict=True)])
    return np.asarray(measured / drawn.strategy.variance(drawn.batches).ranges(lo, hi))


def running_ratios(drawn: Drawn) -> FloatArray:
    """Totals so far, each from what was public when its batch had arrived."""
    found = []
    for batches in np.unique(np.linspace(1, drawn.batches, 24).astype(int)).tolist():
        public = sum(emission.hi <= batches for emission in drawn.sent)
        total = drawn.strategy.estimate(batches, np.eye(public)).sum(axis=0) @ drawn.noise[:public]
        predicted = float(drawn.strategy.variance(batches).ranges(0, batches)[0])
        found.append(float((total**2).mean()) / predicted)
    return np.array(found)


RATIOS = {"prefix": prefix_ratios, "range": range_ratios, "running": running_ratios}
