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
from tests.statements import sections

RELEASES = 200
LEVEL = 0.95


STATEMENTS: dict[str, tuple[str, ...]] = {
    name: tuple(text for text, _ in statements)
    for name, statements in sections(Path(__file__).with_name("statements.sql")).items()
}
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
