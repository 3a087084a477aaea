"""95% intervals of composite values hold the value without noise in 93-97% of independent releases.

One set of cells, noise drawn anew for each release. Classes: linear maps of groups, quotients, differences of averages,
products, and quotients whose denominator is near 0.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from benchmarks.composites.star import Publish, clinic
from benchmarks.figures import Figures
from dpsql.noise import ExactNoise, ZeroNoise, insecure_test_entropy

RELEASES = 200
LEVEL = 0.95

BY_WARD = "(SELECT ward, COUNT(*) AS n, SUM(cost) AS s, AVG(cost) AS m FROM clinic GROUP BY ward) AS g"
BY_DAY = "(SELECT day, COUNT(*) AS n, SUM(cost) AS s FROM clinic GROUP BY day) AS g"
BY_AGE = "(SELECT age // 10 AS decade, COUNT(*) AS n, SUM(cost) AS s FROM clinic GROUP BY 1) AS g"

STATEMENTS: dict[str, tuple[str, ...]] = {
    "linear": (
        f"SELECT SUM(n), SUM(s), AVG(n) FROM {BY_WARD}",
        f"SELECT SUM(n) FILTER (WHERE decade < 5) - SUM(n) FILTER (WHERE decade >= 5) FROM {BY_AGE}",
        f"SELECT SUM(n) OVER (ORDER BY day), SUM(s) OVER (ORDER BY day) FROM {BY_DAY}",
        f"SELECT n - LAG(n) OVER (ORDER BY day) FROM {BY_DAY}",
        "SELECT a.n - b.n FROM (SELECT COUNT(*) AS n FROM clinic WHERE age < 50) AS a, "
        "(SELECT COUNT(*) AS n FROM clinic WHERE day <= 6) AS b",
        "SELECT SUM(n) FROM (SELECT COUNT(*) AS n FROM clinic WHERE age < 30 AND ward = 'a' UNION ALL "
        "SELECT COUNT(*) FROM clinic WHERE day > 8 AND ward = 'a') AS u",
        "SELECT (SELECT SUM(cost) FROM clinic WHERE ward = 'b' AND age < 60) "
        "- (SELECT SUM(cost) FROM clinic WHERE ward = 'b' AND day < 7)",
    ),
    "ratio": (
        f"SELECT n / SUM(n) OVER (), s / SUM(s) OVER () FROM {BY_WARD}",
        f"SELECT SUM(s) / SUM(n), SUM(s) FILTER (WHERE day > 6) / SUM(s) FROM {BY_DAY}",
        "SELECT (SELECT COUNT(*) FROM clinic WHERE age < 40) / (SELECT COUNT(*) FROM clinic WHERE day < 5)",
        "SELECT (n - LAG(n) OVER (ORDER BY day)) / LAG(n) OVER (ORDER BY day) FROM " + BY_DAY,
    ),
    "smooth": (
        "SELECT AVG(cost) FILTER (WHERE age < 50) - AVG(cost) FILTER (WHERE age >= 50) FROM clinic",
        f"SELECT m - (SELECT AVG(cost) FROM clinic) FROM {BY_WARD}",
        f"SELECT n * m, n * n FROM {BY_WARD}",
        f"SELECT AVG(m), SUM(m * n) / SUM(n) FROM {BY_WARD}",
        f"SELECT (n / SUM(n) OVER ()) * (s / SUM(s) OVER ()) FROM {BY_WARD}",
    ),
    "near zero": (
        f"SELECT a.n / b.n FROM {BY_DAY.replace('AS g', 'AS a')}, "
        "(SELECT COUNT(*) AS n FROM clinic WHERE ward IS NULL AND age >= 90) AS b",
        "SELECT AVG(cost) FILTER (WHERE ward IS NULL AND age >= 90) - AVG(cost) FROM clinic",
    ),
}  # fmt: skip
"""Statements of one class; every noisy number of theirs counts."""


def coverage(publish: Publish, releases: int, seed: int) -> dict[str, dict[str, float]]:
    """How often intervals hold, for each statement of each class.

    Args:
        publish: draws a release.
        releases: how many.
        seed: of the test entropy.
    """
    exact = publish(ZeroNoise(), "exact.dpsql")
    noise = ExactNoise(insecure_test_entropy(seed))
    texts = [(name, text) for name, group in STATEMENTS.items() for text in group]
    truth = {text: exact.query(text).rows for _, text in texts}
    held: dict[str, list[bool]] = {text: [] for _, text in texts}
    for number in range(releases):
        answerer = publish(noise, f"r{number}.dpsql")
        for _, text in texts:
            lows, highs = answerer.query(text).interval_rows(LEVEL)
            for row, low, high in zip(truth[text], lows, highs, strict=True):
                ends = zip(row, low, high, strict=True)
                held[text] += [
                    a <= float(value) <= b for value, a, b in ends if a is not None and value is not None
                ]
        answerer.release.close()
        (answerer.release.path).unlink()
    return {
        name: {text: sum(held[text]) / max(len(held[text]), 1) for text in group}
        for name, group in STATEMENTS.items()
    }


def main(releases: int = RELEASES) -> int:
    """Measure and print."""
    figures = Figures()
    with tempfile.TemporaryDirectory() as folder:
        found = coverage(clinic(Path(folder)), releases, 20261122)
    for name, rates in found.items():
        for text, rate in rates.items():
            print(f"{rate:.3f}  {text}")
        mean = sum(rates.values()) / len(rates)
        figures.within("composite coverage", mean, 0.93, 0.97, name)
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
