"""Streams: seed 004's comparison re-run, and every figure that the stream strategies must reach.

    python -m benchmarks.streams.measure [--out FILE]

One line a figure, then tables as markdown (to FILE or standard output).

Errors are variances per unit count at epsilon = 1 (pure) or mu^2 = 1 (Gaussian), from closed forms; times are of this
run (processor seconds where early and late batches are compared). The convex solver is SciPy's SLSQP, the method
that seed 004 calls SQP.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from benchmarks.baselines.fenwick_equal import equal_fenwick
from benchmarks.figures import Figures
from benchmarks.streams.agree import agreement_figures, choice_figures
from benchmarks.streams.retail import retail_figures, retail_run, retail_table
from benchmarks.streams.spectral import spectral_figures
from dpsql.mechanisms.law import GAUSSIAN, LAPLACE, NoiseLaw
from dpsql.mechanisms.rows import AxisBudget
from dpsql.mechanisms.timeline import toeplitz, words
from dpsql.mechanisms.timeline.fda import fda_strategy, fenwick_nodes
from dpsql.mechanisms.timeline.nodes import NodeErrors
from dpsql.mechanisms.timeline.subtraction import best_subtraction
from dpsql.mechanisms.timeline.time_strategy import TimeStrategy, question_of
from dpsql.mechanisms.timeline.time_tree import TimeTreeStrategy
from dpsql.noise import ExactNoise, os_entropy
from dpsql.streams.append import Batch, StreamNoise, StreamSpec, StreamStatistic, opened_stream
from dpsql.tree import FloatArray
from tests.time_forms import (
    asking,
    create_stream,
    fda_error,
    fda_share,
    root_coefficients,
    strategy_matrix,
)

SIZES = (15, 63, 365, 1023, 16383, 65535, 2**20 - 1)
COUNT = StreamStatistic(LAPLACE, (AxisBudget(np.ones(1, np.int64), 1),), Fraction(1), 1)
VECTORS = Path(__file__).parents[2] / "tests" / "vectors" / "continual.json"


class Figure(NamedTuple):
    """One measured figure and its bound; small is good."""

    name: str
    value: float
    bound: float


def solved_shares(n: int) -> tuple[float, float]:
    """SLSQP's least sum of uses / lambda^2 over n batches, and the seconds it took."""
    cover = strategy_matrix(n).astype(float)
    uses = fenwick_nodes(n).uses.astype(float)
    begin = time.perf_counter()
    result = minimize(
        lambda x: float((uses / x**2).sum()) / n,
        np.full(n, 1 / n.bit_length()),
        jac=lambda x: -2 * uses / x**3 / n,
        method="SLSQP",
        bounds=[(1e-3, 1)] * n,
        options={"maxiter": 500, "ftol": 1e-13},
        constraints=[{"type": "ineq", "fun": lambda x: 1 - cover.T @ x, "jac": lambda x: -cover.T}],
    )
    return float(result.fun) * n, time.perf_counter() - begin


def chan_error(n: int) -> tuple[float, float]:
    """Chan's binary tree over n batches: every level spends 1/levels, a prefix reads one node per one-bit."""
    levels = n.bit_length()
    bits = np.array([int(t).bit_count() for t in range(1, n + 1)])
    return 2.0 * levels**2 * float(bits.mean()), 2.0 * levels**2 * float(bits.max())


def naive_error(n: int) -> tuple[float, float]:
    """Seed 004's naive way: each day's increment is noised and added to the last total."""
    return float(n + 1), 2.0 * n


def mean_and_largest(variance: FloatArray) -> tuple[float, float]:
    """Of the prefixes' variances."""
    return float(variance.mean()), float(variance.max())


def of_nodes(errors: NodeErrors) -> tuple[float, float]:
    """Prefix errors of a strategy made of noise nodes: running sums of node entries and exits."""
    nodes = errors.nodes
    change = np.bincount(nodes.first, errors.variance, nodes.horizon + 2)
    change -= np.bincount(nodes.stop, errors.variance, nodes.horizon + 2)
    return mean_and_largest(np.maximum(np.cumsum(change)[1 : nodes.horizon + 1], 0.0))


def of_subtraction(n: int, law: NoiseLaw) -> tuple[float, float]:
    """Prefix errors of k-ary subtraction."""
    return of_nodes(best_subtraction(asking(law, n, "prefix")).errors(n))


def of_time(n: int, law: NoiseLaw) -> tuple[float, float]:
    """Errors of running totals on the best time tree, asked when the batch arrives."""
    tree = words()["chain"].choose(asking(law, n, "running")).strategy
    assert isinstance(tree, TimeTreeStrategy)
    return mean_and_largest(tree.errors(n).running_totals())


def of_toeplitz(n: int) -> tuple[float, float]:
    """Prefix errors of square-root Toeplitz at mu^2 1."""
    norms = np.cumsum(root_coefficients(n) ** 2)
    return mean_and_largest(norms * norms[-1])


def lower_bound(n: int) -> float:
    """No linear mechanism has a smaller mean prefix error at mu^2 = 1: (sum of singular values)^2 / n^2.

    The prefix matrix has the singular values 1 / (2 sin((2k - 1) pi / (4n + 2))).
    """
    k = np.arange(1, n + 1)
    singular = 0.5 / np.sin((2 * k - 1) * np.pi / (4 * n + 2))
    return float((singular.sum() / n) ** 2)


def shown(error: tuple[float, float] | None) -> str:
    """Errors as a table's cell."""
    return "-" if error is None else " / ".join(f"{e:,.0f}" if e >= 1000 else f"{e:.4g}" for e in error)


def table(title: str, header: list[str], rows: list[list[str]]) -> Iterator[str]:
    """A titled markdown table, line by line."""
    yield from ("", f"### {title}", "", "| " + " | ".join(header) + " |", "|" + "---|" * len(header))
    yield from ("| " + " | ".join(row) + " |" for row in rows)


def comparison() -> Iterator[str]:
    """Seed 004's figure 5, re-run: mean / largest error of the prefixes 1..N."""
    pure: list[tuple[str, Callable[[int], tuple[float, float] | None]]] = [
        ("naive: increments", naive_error),
        ("Chan binary tree", chan_error),
        ("Fenwick tree, equal budgets", lambda n: of_nodes(equal_fenwick(LAPLACE, n))),
        ("convex solver (SLSQP)", lambda n: (2 * solved_shares(n)[0] / n, float("nan")) if n <= 63 else None),
        ("FDA", lambda n: of_nodes(fda_strategy(LAPLACE, n).errors(n))),
        ("time tree + BLUE, best plan, asked at once", lambda n: of_time(n, LAPLACE)),
        ("k-ary subtraction, theorem budgets", lambda n: of_subtraction(n, LAPLACE)),
    ]
    zcdp: list[tuple[str, Callable[[int], tuple[float, float] | None]]] = [
        ("FDA, shares of mu^2", lambda n: of_nodes(fda_strategy(GAUSSIAN, n).errors(n))),
        ("time tree + BLUE, best plan, asked at once", lambda n: of_time(n, GAUSSIAN)),
        ("k-ary subtraction, theorem budgets", lambda n: of_subtraction(n, GAUSSIAN)),
        ("square-root Toeplitz", of_toeplitz),
        ("lower bound (mean)", lambda n: (lower_bound(n), float("nan"))),
    ]
    for title, methods in (
        ("Prefix error, mean / largest, pure, epsilon = 1", pure),
        ("Prefix error, mean / largest, Gaussian, mu^2 = 1", zcdp),
    ):
        rows = [[name, *(shown(method(n)).replace(" / nan", "") for n in SIZES)] for name, method in methods]
        yield from table(title, ["method", *(f"N = {n:,}" for n in SIZES)], rows)


QUESTIONS = ("running", "prefix", "range", "1", "7", "30")


def year() -> Iterator[str]:
    """One year of days under the questions SQL asks, strategy by strategy."""
    strategies: list[tuple[str, TimeStrategy]] = []
    for law in (LAPLACE, GAUSSIAN):
        strategies += [
            (f"{law.name}: each day on its own", TimeTreeStrategy(law)),
            (f"{law.name}: FDA", fda_strategy(law, 365)),
            (f"{law.name}: k-ary subtraction", best_subtraction(asking(law, 365, "prefix"))),
            (f"{law.name}: days and blocks of 28, budgets 6 : 4", TimeTreeStrategy(law, (1, 28), (6, 4))),
        ]
    strategies.append(("Gaussian: square-root Toeplitz", toeplitz.square_root(GAUSSIAN, 365)))
    rows = [
        [name, *(f"{question_of(q, 1).error(strategy.errors(365)):.4g}" for q in QUESTIONS)]
        for name, strategy in strategies
    ]
    header = ["strategy", "total so far", "prefix", "any range", "day", "7 days", "30 days"]
    yield from table("Mean error by question, N = 365, epsilon = 1 or mu^2 = 1", header, rows)


def speed() -> Iterator[str]:
    """Time per share: closed form against the solver."""
    rows = []
    for n in (15, 31, 63):
        rows.append([f"{n}", f"{share_time(n)[0]:.1f}", f"{solved_shares(n)[1] / n * 1e6:,.0f}"])
    for n in (1023, 65535, 2**20 - 1):
        rows.append([f"{n:,}", f"{share_time(n)[0]:.1f}", "-"])
    yield from table("Microseconds per lambda_i", ["N", "FDA, closed form", "SLSQP, all of them / N"], rows)


def share_time(n: int) -> tuple[float, float]:
    """Mean and 99th percentile of the microseconds that one share takes, one at a time."""
    numbers = np.unique(np.linspace(1, n, min(n, 4000)).astype(int)).tolist()
    budgets = fda_strategy(LAPLACE, n)
    taken = []
    for number in numbers:
        begin = time.perf_counter()
        budgets.share(number)
        taken.append(time.perf_counter() - begin)
    return float(np.mean(taken)) * 1e6, float(np.quantile(taken, 0.99)) * 1e6


def vector_figures() -> Iterator[Figure]:
    """Distance to the numbers that were worked out beforehand."""
    known = json.loads(VECTORS.read_text())
    errors = [abs(fda_error(2**m - 1) - e) / e for m, e in enumerate(known["err_m"], start=1)]
    errors += [abs(fda_error(int(n)) - e) / e for n, e in known["err_N"].items()]
    for n, shares in known["lambda"].items():
        numbered = shares if isinstance(shares, dict) else dict(enumerate(shares, start=1))
        errors += [abs(fda_share(int(n), int(i)) - s) for i, s in numbered.items()]
    yield Figure("stream vectors, largest difference", max(errors), 1e-8)
    worst = max(abs(solved_shares(n)[0] / fda_error(n) - 1) for n in range(1, 64))
    yield Figure("FDA against a convex solver, every N <= 63", worst, 1e-6)
    mean, high = share_time(2**20 - 1)
    yield Figure("microseconds per lambda_i at N = 2^20 - 1, mean", mean, 100)
    yield Figure("microseconds per lambda_i at N = 2^20 - 1, 99th percentile", high, 100)


def error_figures() -> Iterator[Figure]:
    """The errors that the strategies must reach."""
    axis = TimeTreeStrategy(LAPLACE, (1, 28), (6, 4)).errors(365)
    for question, bound in (("prefix", 100), ("range", 97), ("1", 6), ("30", 61)):
        value = question_of(question, 1).error(axis)
        yield Figure(f"days and blocks of 28, N = 365, {question}", value, bound)
    for n, bound in ((1023, 160), (65535, 560), (2**20 - 1, 1035)):
        yield Figure(f"prefix strategy, N = {n}", of_subtraction(n, LAPLACE)[0], bound)
    for n, bound_there in ((1023, 9.8), (65535, 19.7), (2**20 - 1, 28.3)):
        yield Figure(f"Gaussian, N = {n}", of_toeplitz(n)[0], bound_there)


def long_tree(horizon: int) -> TimeStrategy:
    """The tree that a long stream gets."""
    return words()["chain"].choose(asking(LAPLACE, horizon, "running", "range", "1", "7", "30")).strategy


def growth_figures() -> Iterator[Figure]:
    """Cost of a batch late in a stream against early on, to 2^16 batches, and the nodes it touches."""
    horizon, span = 1 << 16, "last 4,096 of 2^16 / first 4,096"
    for name, strategy in (("time tree", long_tree(horizon)), ("FDA", fda_strategy(LAPLACE, horizon))):
        most, early, late = decide_times(strategy, horizon)
        yield Figure(f"{name}, most nodes in one batch of 2^16", most, 17)
        yield Figure(f"{name}, seconds to decide a batch, {span}", late / early, 1.5)
    yield Figure("append, seconds, after 1,000 batches / at the start", append_ratio(), 2.0)


def decide_times(strategy: TimeStrategy, batches: int) -> tuple[float, float, float]:
    """Most nodes in one batch; seconds for the first and the last 4,096 decisions (draws and private state)."""
    spec = StreamSpec(strategy, (1,))
    draw = StreamNoise([COUNT], ExactNoise(os_entropy()))
    most = max(len(strategy.emissions(number)) for number in range(batches))
    spans: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        directory, private = Path(folder) / "release", Path(folder) / "private" / "state"
        create_stream(directory, private, spec, release_id="bench", secret=bytes(32))
        with opened_stream(directory, private, spec) as stream:
            for start in range(0, batches, 4096):
                begin = time.process_time()
                with stream.state.transaction():  # one sync for many: the disk's pace is not the question
                    for number in range(start, start + 4096):
                        stream.decide(Batch(number, b"", (np.ones(1, np.int64),)), draw)
                spans.append(time.process_time() - begin)
    return float(most), spans[0], spans[-1]


def append_ratio() -> float:
    """Median seconds of whole appends, public side included: batches 960..1,020 over batches 4..64."""
    spec = StreamSpec(long_tree(1 << 16), (1,))
    draw = StreamNoise([COUNT], ExactNoise(os_entropy()))
    taken = []
    with tempfile.TemporaryDirectory() as folder:
        directory, private = Path(folder) / "release", Path(folder) / "private" / "state"
        create_stream(directory, private, spec, release_id="bench", secret=bytes(32))
        for number in range(1020):
            begin = time.process_time()
            with opened_stream(directory, private, spec) as stream:
                stream.append(Batch(number, b"", (np.ones(1, np.int64),)), draw)
            taken.append(time.process_time() - begin)
    return float(np.median(taken[960:]) / np.median(taken[4:64]))


def main() -> int:
    """Print the tables and the figures; 1 if a figure is short."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="write the tables to this markdown file")
    out = parser.parse_args().out
    figures, retail = Figures(), retail_run()
    groups = {
        "choice by auto": choice_figures(),
        "simulated variances": agreement_figures(),
        "spectral rows": spectral_figures(),
        "vectors": vector_figures(),
        "errors": error_figures(),
        "growth": growth_figures(),
        "appends of the bundled shop": retail_figures(retail),
    }
    for group, measured in groups.items():
        for name, value, bound in measured:
            figures.at_most(f"streams, {group}, how far past the bound", value - bound, 0, name)
    tables = [*(line for part in (comparison, year, speed) for line in part()), *retail_table(retail)]
    text = "\n".join(tables) + "\n"
    if out:
        out.write_text(text.lstrip("\n"), encoding="utf-8")
    else:
        sys.stdout.write(text + "\n")
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main())
