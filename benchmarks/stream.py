"""Streams: seed 004's comparison re-run, and every figure that the stream strategies must reach.

    python benchmarks/stream.py [--out FILE]     tables as markdown (to FILE or standard output), then one line a figure

Errors are variances per unit count at epsilon = 1 (pure) or rho = 1/2 (zCDP), from closed forms; times are of this
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
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from benchmarks.stream_retail import retail_figures, retail_run, retail_table
from dpsql.mechanisms.stream import choose, fenwick, laminar, toeplitz
from dpsql.mechanisms.stream.choose import StreamStrategy, predicted_error
from dpsql.mechanisms.stream.laminar import Currency
from dpsql.mechanisms.stream.online import running_total
from dpsql.mechanisms.stream.schedule import emissions
from dpsql.mechanisms.stream.subtraction import best_subtraction
from dpsql.mechanisms.stream.time_error import running_variance
from dpsql.mechanisms.stream.time_tree import TimePlan
from dpsql.noise import ExactNoise, os_entropy
from dpsql.publishing.stream_append import create_stream, opened_stream
from dpsql.publishing.stream_spec import Batch, StreamSpec, StreamStatistic, noise_for

SIZES = (15, 63, 365, 1023, 16383, 65535, 2**20 - 1)
VECTORS = Path(__file__).parents[1] / "tests" / "vectors" / "continual.json"


class Figure(NamedTuple):
    """One measured figure and its bound; small is good."""

    name: str
    value: float
    bound: float

    def line(self) -> str:
        """The figure as one line."""
        verdict = "ok" if self.value <= self.bound else "short"
        return f"figure {self.name}: {self.value:.6g} ({self.bound:g}) {verdict}"


def solved_shares(n: int) -> tuple[float, float]:
    """SLSQP's least sum of uses / lambda^2 over n batches, and the seconds it took."""
    cover = fenwick.strategy_matrix(n).astype(float)
    uses = fenwick.fenwick_nodes(n).uses.astype(float)
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


def of_nodes(kind: choose.Kind, n: int, currency: Currency) -> tuple[float, float]:
    """Mean and largest prefix error of a strategy made of noise nodes."""
    arity, levels = best_subtraction(n, currency) if kind == "prefix" else (0, 0)
    nodes, variance = choose.noise_nodes(StreamStrategy(kind, n, None, arity, levels), currency)
    return laminar.prefix_error(nodes, variance), laminar.worst_prefix_error(nodes, variance)


def of_time(n: int, currency: Currency) -> tuple[float, float]:
    """Mean and largest error of running totals on the best time tree, asked when the batch arrives."""
    ranked = choose.rank(n, choose.Workload(prefixes=1), currency)
    plan = next(entry.strategy.plan for entry in ranked if entry.strategy.plan is not None)
    value = running_variance(plan, n, currency)
    return float(value.mean()), float(value.max())


def of_toeplitz(n: int) -> tuple[float, float]:
    """Mean and largest prefix error of square-root Toeplitz."""
    value = toeplitz.prefix_variance(n)
    return float(value.mean()), float(value.max())


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
        ("Fenwick tree, equal budgets", lambda n: of_nodes("fenwick", n, "pure")),
        ("convex solver (SLSQP)", lambda n: (2 * solved_shares(n)[0] / n, float("nan")) if n <= 63 else None),
        ("FDA", lambda n: of_nodes("fda", n, "pure")),
        ("time tree + BLUE, best plan, asked at once", lambda n: of_time(n, "pure")),
        ("k-ary subtraction, theorem budgets", lambda n: of_nodes("prefix", n, "pure")),
    ]
    zcdp: list[tuple[str, Callable[[int], tuple[float, float] | None]]] = [
        ("FDA, shares of rho", lambda n: of_nodes("fda", n, "zcdp")),
        ("time tree + BLUE, best plan, asked at once", lambda n: of_time(n, "zcdp")),
        ("k-ary subtraction, theorem budgets", lambda n: of_nodes("prefix", n, "zcdp")),
        ("square-root Toeplitz", of_toeplitz),
        ("lower bound (mean)", lambda n: (toeplitz.lower_bound(n), float("nan"))),
    ]
    for title, methods in (
        ("Prefix error, mean / largest, pure, epsilon = 1", pure),
        ("Prefix error, mean / largest, zCDP, rho = 1/2", zcdp),
    ):
        rows = [[name, *(shown(method(n)).replace(" / nan", "") for n in SIZES)] for name, method in methods]
        yield from table(title, ["method", *(f"N = {n:,}" for n in SIZES)], rows)


QUESTIONS: tuple[choose.Question, ...] = ("running", "prefix", "range", 1, 7, 30)


def year() -> Iterator[str]:
    """One year of days under the questions SQL asks."""
    arity, levels = best_subtraction(365, "pure")
    strategies = [
        ("increments", StreamStrategy("increments", 365, TimePlan())),
        ("FDA", StreamStrategy("fda", 365)),
        ("k-ary subtraction", StreamStrategy("prefix", 365, arity=arity, levels=levels)),
        ("default: days and blocks of 28, budgets 6 : 4", choose.choose(365, None, "pure")),
    ]
    rows = [
        [name, *(f"{predicted_error(strategy, q, 'pure'):.4g}" for q in QUESTIONS)]
        for name, strategy in strategies
    ]
    header = ["strategy", "total so far", "prefix", "any range", "day", "7 days", "30 days"]
    yield from table("Mean error by question, N = 365, pure, epsilon = 1", header, rows)


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
    fenwick.fda_budget(n, 1)
    taken = []
    for number in numbers:
        begin = time.perf_counter()
        fenwick.fda_budget(n, number)
        taken.append(time.perf_counter() - begin)
    return float(np.mean(taken)) * 1e6, float(np.quantile(taken, 0.99)) * 1e6


def vector_figures() -> Iterator[Figure]:
    """Distance to the numbers that were worked out beforehand."""
    known = json.loads(VECTORS.read_text())
    errors = [abs(fenwick.fda_error(2**m - 1) - e) / e for m, e in enumerate(known["err_m"], start=1)]
    errors += [abs(fenwick.fda_error(int(n)) - e) / e for n, e in known["err_N"].items()]
    for n, shares in known["lambda"].items():
        numbered = shares if isinstance(shares, dict) else dict(enumerate(shares, start=1))
        errors += [abs(fenwick.fda_budget(int(n), int(i)) - s) for i, s in numbered.items()]
    yield Figure("stream vectors, largest difference", max(errors), 1e-8)
    worst = max(abs(solved_shares(n)[0] / fenwick.fda_error(n) - 1) for n in range(1, 64))
    yield Figure("FDA against a convex solver, every N <= 63", worst, 1e-6)
    mean, high = share_time(2**20 - 1)
    yield Figure("microseconds per lambda_i at N = 2^20 - 1, mean", mean, 100)
    yield Figure("microseconds per lambda_i at N = 2^20 - 1, 99th percentile", high, 100)


def error_figures() -> Iterator[Figure]:
    """The errors that the strategies must reach."""
    axis = choose.choose(365, None, "pure")
    year: tuple[tuple[choose.Question, float], ...] = (("prefix", 100), ("range", 97), (1, 6), (30, 61))
    for question, bound in year:
        name = f"{question} days" if isinstance(question, int) else question
        value = predicted_error(axis, question, "pure")
        yield Figure(f"default time axis, N = 365, {name}", value, bound)
    for n, bound in ((1023, 160), (65535, 560), (2**20 - 1, 1035)):
        yield Figure(f"prefix strategy, N = {n}", of_nodes("prefix", n, "pure")[0], bound)
    for n, bound in ((1023, 9.8), (65535, 19.7), (2**20 - 1, 28.3)):
        best = choose.rank(n, choose.Workload(prefixes=1), "zcdp")[0] if n < 10**6 else None
        yield Figure(f"zCDP, N = {n}", best.error if best else toeplitz.prefix_error(n), bound)


def growth_figures() -> Iterator[Figure]:
    """Cost of a batch late in a stream against early on, to 2^16 batches, and the nodes it touches."""
    horizon, span = 1 << 16, "last 4,096 of 2^16 / first 4,096"
    for name, strategy in (
        ("time tree", choose.choose(horizon, None, "pure")),
        ("FDA", StreamStrategy("fda", horizon)),
    ):
        most, early, late = decide_times(strategy, horizon)
        yield Figure(f"{name}, most nodes in one batch of 2^16", most, 17)
        yield Figure(f"{name}, seconds to decide a batch, {span}", late / early, 1.5)
    plan = choose.default_plan(horizon)
    yield Figure(f"time tree, following the total, {span}", follow_ratio(plan, horizon), 1.5)
    yield Figure("append, seconds, after 1,000 batches / at the start", append_ratio(), 2.0)


def decide_times(strategy: StreamStrategy, batches: int) -> tuple[float, float, float]:
    """Most nodes in one batch; seconds for the first and the last 4,096 decisions (draws and private state)."""
    spec = StreamSpec(strategy, "pure", (1,))
    draw = noise_for([StreamStatistic("count", 1, 1 << 30, 1 << 30)], ExactNoise(os_entropy()))
    most = max(len(emissions(strategy, "pure", number)) for number in range(batches))
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


def follow_ratio(plan: TimePlan, batches: int) -> float:
    """Time to follow the running total at the end of the stream over the time at its beginning."""
    state = running_total(plan, "pure")
    spans = []
    for start in range(0, batches, 4096):
        begin = time.process_time()
        for number in range(start + 1, start + 4097):
            state = state.append([1.0] * sum(number % span == 0 for span in plan.spans))
        spans.append(time.process_time() - begin)
    return spans[-1] / spans[0]


def append_ratio() -> float:
    """Median seconds of whole appends, public side included: batches 960..1,020 over batches 4..64."""
    strategy = StreamStrategy("time_tree", 1 << 16, choose.default_plan(1 << 16))
    spec = StreamSpec(strategy, "pure", (1,))
    draw = noise_for([StreamStatistic("count", 1, 1 << 30, 1 << 30)], ExactNoise(os_entropy()))
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
    retail = retail_run()
    tables = [*(line for part in (comparison, year, speed) for line in part()), *retail_table(retail)]
    text = "\n".join(tables) + "\n"
    if out:
        out.write_text(text.lstrip("\n"), encoding="utf-8")
    else:
        sys.stdout.write(text + "\n")
    short = False
    shop = map(Figure._make, retail_figures(retail))
    for figure in (*vector_figures(), *error_figures(), *growth_figures(), *shop):
        sys.stdout.write(figure.line() + "\n")
        short |= figure.line().endswith("short")
    return int(short)


if __name__ == "__main__":
    sys.exit(main())
