"""The bundled shop as a stream of 365 days: seconds an append, and predicted against actual errors.

    python -m benchmarks.streams.retail [--plot FILE]

Five combinations of axes (day alone, and with region, age group, sex, category). Processor seconds, so that other work
on the machine does not count. The draws come from the operating system, so errors differ a little from run to run.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dpsql.answer.answerer import Answerer
from dpsql.examples.retail import CUSTOMERS, make_star, write_star
from dpsql.mechanisms.law import LAPLACE
from dpsql.mechanisms.timeline.fda import fda_strategy
from dpsql.mechanisms.timeline.time_strategy import TimeStrategy
from dpsql.mechanisms.timeline.time_tree import TimeTreeStrategy
from dpsql.noise import ExactNoise, os_entropy
from dpsql.release import open_release
from dpsql.star import load_catalog
from dpsql.streams.publish import Arrival, Chance, append_batch
from tests.stream_shop import CATALOG, FIRST, NOW, StreamShop

DAYS = 365
BETWEEN = "COUNT(*) FROM sales WHERE sold_on BETWEEN DATE '{}' AND DATE '{}'"
WINDOWS = (1, 7, 30, 90, 365)


class Run(NamedTuple):
    """Seconds of each append; ratios of actual to predicted errors; (length, predicted, actual) mean errors."""

    seconds: tuple[float, ...]
    deviations: tuple[float, ...]
    windows: tuple[tuple[int, float, float], ...]


def retail_run(days: int = DAYS, customers: int = CUSTOMERS) -> Run:
    """Append day by day, then ask windows and cells."""
    with tempfile.TemporaryDirectory() as folder:
        shop = StreamShop(Path(folder), ExactNoise(os_entropy()))
        write_star(shop.folder / "data", make_star(20250101, customers, 2000))
        shop.catalog.write_text(CATALOG.replace("EPSILON", "1.0").replace("DELTA", "0"))
        catalog, seconds = load_catalog(shop.catalog), []
        for day in range(days):
            begin = time.process_time()
            append_batch(catalog, shop.directory, Arrival((FIRST + timedelta(days=day)).isoformat(), now=NOW),
                         Chance(shop.noise, os_entropy()))  # fmt: skip
            seconds.append(time.process_time() - begin)
        state = Answerer(open_release(shop.directory))
        return Run(tuple(seconds), _cells(shop, state, days), tuple(_windows(shop, state, days)))


def _cells(shop: StreamShop, state: Answerer, days: int) -> tuple[float, ...]:
    """(answer - truth) / predicted standard error of every day and region, and every week and category."""
    found = []
    for question in (
        "SELECT sold_on AS t, region AS g, COUNT(*) FROM sales JOIN customer USING (customer_id) GROUP BY 1, 2",
        "SELECT DATE_TRUNC('week', sold_on) AS t, category AS g, COUNT(*) FROM sales JOIN product USING (product_id) "
        "GROUP BY 1, 2",
    ):
        exact = {(str(t)[:10], g): n for t, g, n in shop.raw(days).execute(question).fetchall()}
        result = state.query(question)
        for (t, g, n), errors in zip(result.rows, result.stderr_rows, strict=True):
            if isinstance(g, str):
                found.append((float(n) - exact.get((str(t)[:10], g), 0)) / float(errors[-1]))
    return tuple(found)


def _windows(shop: StreamShop, state: Answerer, days: int) -> Iterator[tuple[int, float, float]]:
    """Root mean squared error of windows of some lengths, predicted and actual."""
    raw = shop.raw(days)
    for length in (w for w in WINDOWS if w <= days):
        predicted, actual = [], []
        for start in np.unique(np.linspace(0, days - length, 40).astype(int)).tolist():
            ends = FIRST + timedelta(days=start), FIRST + timedelta(days=start + length - 1)
            question = "SELECT " + BETWEEN.format(*ends)
            result = state.query(question)
            exact = raw.execute(question).fetchall()[0][0]
            predicted.append(float(result.stderr_rows[0][0]) ** 2)
            actual.append((float(result.scalar()) - exact) ** 2)
        yield length, float(np.mean(predicted)) ** 0.5, float(np.mean(actual)) ** 0.5


def retail_figures(run: Run) -> Iterator[tuple[str, float, float]]:
    """(name, value, bound) of each figure; small is good."""
    seconds = np.array(run.seconds)
    name = f"retail star, {seconds.size} daily appends, 5 axes combinations, processor seconds"
    yield f"{name}, largest", float(seconds.max()), 2.0
    yield f"{name}, median", float(np.median(seconds)), 2.0
    deviation = np.array(run.deviations)
    inside = float((np.abs(deviation) <= 1.96).mean())
    yield (
        f"retail stream, |share of {deviation.size} 95% intervals that cover - 0.95|",
        abs(inside - 0.95),
        0.02,
    )
    yield "retail stream, |actual / predicted standard error - 1|", abs(float(deviation.std()) - 1), 0.05


def retail_table(run: Run) -> Iterator[str]:
    """Windows on the shop's stream: root mean squared errors, predicted and measured."""
    yield from ("", "### One year of the shop, epsilon 1, c = 10 rows a day, D = 10 days a life", "")
    yield from ("| window | predicted standard error | measured, up to 40 windows |", "|---|--:|--:|")
    yield from (
        f"| {length} days | {predicted:,.0f} | {actual:,.0f} |" for length, predicted, actual in run.windows
    )


def plot(path: Path) -> None:
    """Mean error of windows by length over one year, strategy by strategy."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    lengths = (1, 2, 3, 5, 7, 10, 14, 21, 28, 30, 45, 60, 90, 120, 180, 270, 365)
    strategies: list[tuple[str, TimeStrategy]] = [
        ("increments", TimeTreeStrategy(LAPLACE)), ("FDA", fda_strategy(LAPLACE, DAYS)),
        ("days and blocks of 28 + BLUE", TimeTreeStrategy(LAPLACE, (1, 28), (6, 4))),
    ]  # fmt: skip
    figure, axis = plt.subplots(figsize=(5.6, 3.6))
    for style, (name, strategy) in zip(("x:", "s--", "^-", "o-"), strategies, strict=True):
        errors = [strategy.errors(DAYS).window(length) for length in lengths]
        axis.loglog(lengths, errors, style, label=name, markersize=4, linewidth=1)
    axis.set_xlabel("window, days")
    axis.set_ylabel("mean squared error, epsilon 1")
    axis.grid(alpha=0.3)
    axis.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=72, metadata={"Software": ""})


def main() -> None:
    """Print the table; write the plot if asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--plot", type=Path, help="write the plot of window errors to this PNG")
    given = parser.parse_args()
    if given.plot:
        plot(given.plot)
        return
    run = retail_run()
    print("\n".join([*retail_table(run), "", *(f"{n}: {v:.4g} ({b:g})" for n, v, b in retail_figures(run))]))


if __name__ == "__main__":
    main()
