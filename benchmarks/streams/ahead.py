"""Streams drawn ahead against the method's table of a year: `python -m benchmarks.streams.ahead`.

Errors are exact, from public facts; observed ones are of the shipped sampler, and of whole joint rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from benchmarks.figures import Figures, main
from dpsql.matrices.strategy import AxisBudget
from dpsql.mechanisms.axis.joint_tree import TOTAL
from dpsql.mechanisms.continual import choose
from dpsql.mechanisms.continual.time_tree import StreamProblem, TimeStrategy, joint_time_strategy, question_of
from dpsql.mechanisms.distribution import LAPLACE, Laplace
from dpsql.mechanisms.offers import JointCells
from dpsql.noise import ExactNoise, os_entropy
from dpsql.streams.append import StreamNoise, StreamStatistic

YEAR, EPSILON, CELLS = 365, Fraction(1, 10), 1500
SETTINGS = {
    "one setting": ((0.069, 0.091, 0.151, 0.222, 0.468), (81.2, 81.9, 6.4, 23.0, 46.6)),
    "totals": ((0.041, 0.244, 0.196, 0.197, 0.322), (63.6, 85.1, 13.0, 40.7, 65.8)),
}
"""Shares of the levels of 4 x 4 x 5 x 5, the root's first; running totals, ranges, windows of 1, 7 and 30."""
ASKED = ("running", "range", "1", "7", "30")


def setting(shares: tuple[float, ...]) -> TimeStrategy:
    """The method's shares in whole parts."""
    whole = [round(share * TOTAL) for share in shares]
    whole[-1] += TOTAL - sum(whole)
    return joint_time_strategy(LAPLACE, YEAR, (4, 4, 5, 5), whole)


def statistic(law: Laplace, bound: int, spend: Fraction = EPSILON, cells: int = CELLS) -> StreamStatistic:
    """A number of a stream with cells."""
    return StreamStatistic(law, (AxisBudget(np.ones(cells, np.int64), 1),), spend, bound)


def question(joint: JointCells | None, *asked: str, ends: bool = True) -> StreamProblem:
    """A year's questions, each as often as the others."""
    return StreamProblem(LAPLACE, YEAR, tuple(question_of(name, 1) for name in asked), ends=ends, joint=joint)


def ahead_figures() -> Iterator[tuple[str, float, float]]:
    """Of the method's table, of what `auto` takes, and of what is drawn."""
    for name, (shares, table) in SETTINGS.items():
        strategy = setting(shares)
        unit = LAPLACE.variance_at_unit_budget([strategy.ahead], EPSILON, 1) * float(EPSILON) ** 2
        for asked, expected in zip(ASKED, table, strict=True):
            value = question_of(asked, 1).mean_variance(strategy.variance(YEAR))
            words = f"drawn ahead, N = 365 at epsilon .1, {name}, {asked} over the method"
            yield words, value * unit / expected, 1.02
    room = JointCells(1, 1, 1 << 28)
    for name, asked in (("all five", ASKED), ("totals", ASKED[:1]), ("ranges", ASKED[1:2])):
        taken, blocks = (choose(question(joint, *asked)) for joint in (room, None))
        ratio = taken.expected_error / blocks.expected_error
        yield f"auto with an end over auto without trees, {name}", ratio, 1
    yield from observed_figures()


def observed_figures() -> Iterator[tuple[str, float, float]]:
    """Squared errors of running totals and of ranges over the stated variances, and how far chance moves them."""
    strategy = setting(SETTINGS["one setting"][0])
    rng = np.random.default_rng(36)
    ends = np.sort(np.stack([rng.choice(YEAR + 1, 2, replace=False) for _ in range(40)]), axis=1).T
    for name, law, bounds, cells in (
        ("COUNT", Laplace(), (2,), CELLS),
        ("COUNT and SUM", Laplace(2, 900), (2, 900), 30),
    ):
        statistics = [statistic(law, bound, cells=cells) for bound in bounds]
        noise = StreamNoise(statistics, ExactNoise(os_entropy()))
        start = time.process_time()
        drawn = noise.ahead(tuple(range(len(bounds))), strategy.ahead)
        if len(bounds) == 1:
            milliseconds = 1e3 * (time.process_time() - start) / cells
            yield "drawn ahead, CPU milliseconds a cell of a year, COUNT", milliseconds, 20
        squares = []
        for number, one in zip(drawn, statistics, strict=True):
            sums = np.concatenate([np.zeros((1, cells), np.int64), np.cumsum(number, axis=0)])
            unit = one.law.variance_at_unit_budget((strategy.ahead, *one.axes), EPSILON, one.sensitivity)
            stated = unit * strategy.variance(YEAR).ranges(*ends)
            squares.append(np.mean((sums[ends[1]] - sums[ends[0]]) ** 2 / stated[:, None], axis=0))
        together = np.mean(squares, axis=0)
        error = float(np.std(together) / np.sqrt(cells))
        words = f"drawn ahead, squared errors over stated variance, {name}, standard errors of"
        yield f"{words} {together.mean():.3f} from 1", abs(float(together.mean()) - 1) / error, 3
    node = AxisBudget(np.ones(1, np.int64), 1)
    # charged as one line: each pays the half
    joint = Laplace(2, 900).variance_at_unit_budget([node], 2 * EPSILON / 2, 900)
    split = LAPLACE.variance_at_unit_budget([node], EPSILON / 2, 900)
    yield "a node's SUM by one draw over a split budget", joint / split, 0.51


def measure(figures: Figures) -> None:
    """Judge all of them."""
    for name, value, bound in ahead_figures():
        figures.at_most("streams drawn ahead, how far past the bound", value - bound, 0, name)


if __name__ == "__main__":
    main(measure)
