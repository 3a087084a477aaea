"""One axis: the log-smooth stack against hierarchy + NNLS and AHEAD, on synthetic histograms and on Adult columns.

A squared error over ranges is one draw of few coarse directions: over 6 runs a row's ratio is off by a third, and the
worst of 24 ratios by far more. Rows therefore print their standard errors, and Adult's take more runs.

Bars of non-negative answers are judged on large ranges: 5% of the people or more, without the whole, of 64 leaves and a
hundred thousand people. The parts k of the unbiased noise were chosen on the twelve DPBench sets; held back are Adult's
ages and days of FoodMart's sales (where `DPSQL_DATA` has them) and four generated shapes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction

import numpy as np

from benchmarks.central.datasets import DPBENCH, counted, data_root, dpbench, stars
from benchmarks.figures import Figures
from benchmarks.local.simulated import OneAxis, histogram_of_boxes, range_masks
from benchmarks.local.simulated import tally as tally_of
from dpsql.client.plan import largest_weight
from dpsql.local import ahead
from dpsql.local.mechanisms.blue import ViewReports, cell_design, range_workload, simplex_fit, system
from dpsql.local.mechanisms.priors import stack
from dpsql.local.mechanisms.truncation import level_edges
from dpsql.local.oracles import SquareWaveAggregator, choose_oracle, wave_matrix, wave_reach
from dpsql.local.oracles.oracle import estimate
from dpsql.local.smooth import outside

EPSILONS = ("0.5", "1", "2", "4")
BRANCHING = 4
RIVAL_RUNS = 4
Method = Callable[[np.ndarray, int, str, np.random.Generator], np.ndarray]
ADULT = {"age": (17, 90, 1), "hours_per_week": (1, 99, 1), "fnlwgt": (0, 1499999, 12000)}


def shapes(leaves: int) -> dict[str, np.ndarray]:
    """Histograms: a bell, two bells, a power law, a Laplace peak."""
    at = np.arange(leaves) + 0.5
    found = {
        "normal": np.exp(-((at - leaves / 2) ** 2) / (leaves / 4) ** 2 / 2),
        "mixture": 0.6 * np.exp(-((at - 60) ** 2) / 800) + 0.8 * np.exp(-((at - 190) ** 2) / 200),
        "power": 1 / (at + 5),
        "laplace": np.exp(-np.abs(at - leaves / 3) / (leaves / 12)),
    }
    return {name: x / x.sum() for name, x in found.items()}


def rounded(leaves: int) -> np.ndarray:
    """A bell whose multiples of five stand out, and one value that 45% of all people have."""
    at = np.arange(leaves)
    bell = np.exp(-((at - 0.47 * leaves) ** 2) / (0.33 * leaves) ** 2 * 2) * np.where(at % 5 == 0, 8.0, 1.0)
    return np.asarray(0.55 * bell / bell.sum() + 0.45 * (at == 2 * leaves // 5))


def tree_groups(shares: np.ndarray, people: int, own: int, rng: np.random.Generator) -> list[ViewReports]:
    """Reports spread evenly over the levels of a tree."""
    levels = level_edges(shares.size, BRANCHING)
    found = []
    for edges in levels:
        design = cell_design(edges, shares.size)
        oracle = choose_oracle(len(design), own)
        histogram = rng.multinomial(people // len(levels), shares)
        tally = tally_of(oracle, (design @ histogram).astype(np.int64), rng).astype(float)
        found.append(
            ViewReports(design, estimate(oracle, tally, histogram.sum()), float(histogram.sum()), oracle)
        )
    return found


def wave_group(
    shares: np.ndarray, people: int, own: int, epsilon: float, rng: np.random.Generator
) -> ViewReports:
    """Square Wave over the leaves."""
    oracle = SquareWaveAggregator(shares.size, own, wave_reach(shares.size, epsilon))
    tally = tally_of(oracle, np.append(rng.multinomial(people, shares), 0), rng)
    return ViewReports(wave_matrix(oracle), tally / people, float(people), oracle)


def ours(shares: np.ndarray, people: int, epsilon: str, rng: np.random.Generator) -> np.ndarray:
    """A quarter of the people send Square Wave, the others tree levels; stacked over four folds."""
    own, part = largest_weight(Fraction(epsilon)), people // 4

    def fold() -> list[ViewReports]:
        trees = tree_groups(shares, part * 3 // 4, own, rng)
        return [*trees, wave_group(shares, part // 4, own, float(epsilon), rng)]

    return stack([fold() for _ in range(4)], shares.size).shares


def nonnegative_hierarchy(
    shares: np.ndarray, people: int, epsilon: str, rng: np.random.Generator
) -> np.ndarray:
    """Tree levels and least squares over the simplex, weights plugged in once."""
    groups = tree_groups(shares, people, largest_weight(Fraction(epsilon)), rng)
    guess = np.full(shares.size, 1 / shares.size)
    for _ in range(2):
        guess = simplex_fit(*system(groups, guess, tilted=False))
    return guess


def adaptive(shares: np.ndarray, people: int, epsilon: str, rng: np.random.Generator) -> np.ndarray:
    """AHEAD with inverse-variance weights."""
    sizes = [shares.size]
    count = ahead.round_count(sizes)
    histograms = (rng.multinomial(people // count, shares) for _ in range(count))
    return adaptive_rounds(histograms, people, sizes, epsilon, rng)


def adaptive_rounds(
    histograms: Iterable[np.ndarray],
    people: int,
    sizes: Sequence[int],
    epsilon: str,
    rng: np.random.Generator,
) -> np.ndarray:
    """AHEAD's shares of all leaves, each round's people asked for themselves.

    Args:
        histograms: people of each round by leaf.
        people: of all rounds.
        sizes: leaves of each axis.
        epsilon: of a report.
        rng: draws reports.
    """
    own, rounds, boxes = largest_weight(Fraction(epsilon)), [], ahead.first_boxes(sizes)
    theta = ahead.threshold(people, own, sizes)
    for histogram in histograms:
        oracle, asked = ahead.box_oracle(boxes, own), int(histogram.sum())
        tally = tally_of(oracle, histogram_of_boxes(boxes, histogram), rng).astype(float)
        rounds.append(ahead.close_round(boxes, estimate(oracle, tally, asked), asked))
        boxes = ahead.next_boxes(rounds[-1], theta)
    return ahead.spread_evenly(rounds[-1].boxes, ahead.finest_shares(rounds), sizes)


def _errors(
    method: Method, shares: np.ndarray, people: int, epsilon: str, draws: list[tuple[int, ...]]
) -> np.ndarray:
    """Mean squared error over all ranges, one entry a run."""
    workload = range_workload(shares.size)
    off = [method(shares, people, epsilon, np.random.default_rng(seed)) - shares for seed in draws]
    return np.array([o @ workload @ o for o in off])


def _row(
    name: str, shares: np.ndarray, people: int, epsilon: str, runs: int, row: int
) -> tuple[float, float]:
    """Our mean squared error by each rival's; prints both with their standard errors.

    Every method draws for itself, so that a change of one leaves the others' figures alone; rivals are cheap and run
    `RIVAL_RUNS` times as often.
    """
    means, spreads = [], []
    for i, method in enumerate((ours, nonnegative_hierarchy, adaptive)):
        draws = [(row, i, run) for run in range(runs * RIVAL_RUNS if i else max(runs, 2))]
        found = _errors(method, shares, people, epsilon, draws)
        means.append(float(found.mean()))
        spreads.append(float(found.std(ddof=1)) / math.sqrt(found.size) / means[-1])
    ratios = (means[0] / means[1], means[0] / means[2])
    told = [
        f"{r:.2f} +- {r * math.hypot(spreads[0], s):.2f}" for r, s in zip(ratios, spreads[1:], strict=True)
    ]
    print(f"  {name}, epsilon {epsilon}: {', '.join(told)}", flush=True)
    return ratios


def _report(figures: Figures, title: str, ratios: list[tuple[float, float]], bound: float) -> None:
    found = np.array(ratios)
    for i, rival in enumerate(("hierarchy + NNLS", "AHEAD")):
        figures.at_most(f"one axis, MSE by {rival}", float(np.exp(np.log(found[:, i]).mean())), bound, title)
    figures.table(f"one axis, MSE by the best other, worst row, {title}", float(found.max()))


def adaptive_alone(figures: Figures) -> None:
    """AHEAD on the bell, 256 leaves, a million people, epsilon 1: the rival must not be a weak one."""
    shares, workload = shapes(256)["normal"], range_workload(256)
    off = [adaptive(shares, 1_000_000, "1", np.random.default_rng(run)) - shares for run in range(40)]
    figures.at_most(
        "AHEAD with right weights, MSE", float(np.mean([o @ workload @ o for o in off])), 1.15 * 3.7e-5
    )


def synthetic(figures: Figures, runs: int) -> None:
    """Sixteen rows: four shapes at four epsilons, 256 leaves, a million people."""
    ratios: list[tuple[float, float]] = []
    for name, shares in shapes(256).items():
        for epsilon in EPSILONS:
            ratios.append(_row(name, shares, 1_000_000, epsilon, runs, len(ratios)))
    _report(figures, "one axis, synthetic", ratios, 0.6)


def adult(figures: Figures, runs: int) -> None:
    """Columns of Adult at four epsilons."""
    ratios: list[tuple[float, float]] = []
    for column, (low, high, width) in ADULT.items():
        leaf = f"(greatest({low}, least({high}, {column})) - {low}) // {width}"
        size = math.ceil((high - low + 1) / width)
        counts = counted(f"'{data_root()}/adult/adult_train.parquet'", (size,), leaf)
        for epsilon in EPSILONS:
            people = int(counts.sum())
            ratios.append(_row(column, counts / people, people, epsilon, runs, len(ratios)))
    _report(figures, "one axis, Adult", ratios, 0.8)


def spiky_coverage(figures: Figures, runs: int) -> None:
    """Ranges of a spiky axis inside the 95% intervals of both answers, each with error bars of its own."""
    leaves, people, masks = 100, 32_000, range_masks(100)
    for epsilon in ("1", "3"):
        default, positive = [], []
        for run in range(runs):
            rng = np.random.default_rng((run, int(epsilon)))
            found = OneAxis.collect("spiky", rounded(leaves), people, epsilon, rng)
            default.append(1 - outside(found.exact, found.unbiased.counts))
            if found.positive is not None and found.positive.errors is not None:
                positive.append(float(np.mean(found.hits(masks))))
        label = f"95% intervals of ranges, spiky axis, epsilon {epsilon}"
        figures.within("one axis, coverage", float(np.mean(default)), 0.93, 0.97, label)
        figures.table(f"one axis, coverage of non-negative answers, {label}", float(np.mean(positive)))


LEAVES, PEOPLE = 64, 100_000


def held_back() -> Iterator[tuple[str, np.ndarray]]:
    """Histograms that the parts were not chosen on."""
    for name, shares in shapes(256).items():
        yield f"generated {name}", shares.reshape(LEAVES, -1).sum(axis=1)
    if os.environ.get("DPSQL_DATA"):
        for name, counts in stars():
            yield name, np.add.reduceat(counts, np.arange(LEAVES) * counts.size // LEAVES)


def held(shares: np.ndarray, epsilon: str, seed: int) -> tuple[float, float]:
    """Part of large ranges, and of small ones, inside 95% intervals in one collection."""
    found = OneAxis.collect("bars", shares / shares.sum(), PEOPLE, epsilon, np.random.default_rng(seed))
    masks = range_masks(LEAVES)
    masks = masks[masks.sum(axis=1) < LEAVES]
    inside, large = found.hits(masks), masks @ found.exact >= 0.05
    return float(inside[large].mean()), float(inside[~large].mean()) if (~large).any() else 1.0


def large_ranges(figures: Figures, runs: int) -> None:
    """Coverage of large ranges at epsilon 1, set by set; the recipe's means were 95.9% and, held back, 95.5%."""
    tuned: list[tuple[str, np.ndarray]] = []
    if os.environ.get("DPSQL_DATA"):
        tuned = [(name, dpbench(name).reshape(LEAVES, -1).sum(axis=1).astype(float)) for name in DPBENCH]
    for title, sets, bound in (("DPBench", tuned, 0.939), ("held back", list(held_back()), 0.935)):
        covered = []
        for number, (name, shares) in enumerate(sets):
            found = np.array([held(shares, "1", 1000 * number + run) for run in range(runs)])
            covered.append(found.mean(axis=0))
            print(f"  {title}, {name}: large {covered[-1][0]:.3f}, small {covered[-1][1]:.3f}", flush=True)
        if sets:
            for what, share, least in zip(
                ("large", "small"), np.mean(covered, axis=0), (bound, 0.94), strict=True
            ):
                name = f"{what} ranges, {title}"
                figures.at_least("unseen histograms, coverage", float(share), least, name)
