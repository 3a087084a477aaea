"""What is promised of facts about people, one figure each.

python -m benchmarks.people.measure [shop] [flights] [baseball] [retention] [cost]

The questions are asked of twenty releases a star: the share of 95% intervals that cover the answer of a release without
noise (which tests hold equal to plain Python's), and on the method's star the median standard errors over its table's.
A ratio whose denominator may be 0 states no interval; how many those are is printed. Retention, a cohort's people by
month, has releases of its own.
Cost: CPU of the statement that makes the lines over that of the plain GROUP BY with four aggregates, best of three.
"""

from __future__ import annotations

import sys
import tempfile
from math import isnan
from pathlib import Path
from statistics import median

from benchmarks.figures import Figures
from benchmarks.people.stars import STARS, numbers, shop
from dpsql.catalog import Catalog, made_view, parse_catalog
from dpsql.central.central import publish_release
from dpsql.curator.design.axes import without_unused
from dpsql.executor.engine import ReleaseEngine
from dpsql.noise import ExactNoise, Noise, ZeroNoise, insecure_test_entropy
from dpsql.release import open_release

RELEASES = 20
LOW, HIGH = 0.93, 0.97
RETENTION = 17.0
"""Standard error of the method's cells."""
SIMPLE, ORDERED = 3.0, 15.0
"""Times the plain GROUP BY."""


def answerers(catalog: Catalog, folder: Path, releases: int = RELEASES) -> list[ReleaseEngine]:
    """A release without noise, then the others."""
    noises: list[Noise] = [
        ZeroNoise(),
        *(ExactNoise(insecure_test_entropy(seed)) for seed in range(releases)),
    ]
    opened = []
    for number, noise in enumerate(noises):
        path = folder / f"{catalog.privacy.lineage}{number}.dpsql"
        publish_release(catalog, path, noise=noise, key=bytes(range(number, number + 32)))
        opened.append(ReleaseEngine(open_release(path, insecure=True)))
    return opened


class Asked:
    """What intervals cover: numbers inside of theirs, numbers with one, and numbers without."""

    def __init__(self) -> None:
        self.inside = self.numbers = self.blind = 0

    def errors(
        self, answerer: ReleaseEngine, sql: str, truth: list[float | None], keys: int = 1
    ) -> list[float]:
        """Ask; the standard errors."""
        answer = answerer.query(sql)
        low, high, errors = (
            numbers(list(side.itertuples(index=False)), keys)
            for side in (*answer.interval(0.95), answer.stderr)
        )
        for value, bottom, top in zip(truth, low, high, strict=True):
            if value is None or bottom is None or top is None or isnan(bottom + top):
                self.blind += 1
            else:
                self.numbers, self.inside = self.numbers + 1, self.inside + (bottom <= value <= top)
        return [error for error in errors if error is not None and not isnan(error)]


def ask(name: str, figures: Figures) -> None:
    """The questions of a star."""
    with tempfile.TemporaryDirectory() as place:
        star, asked = STARS[name](Path(place)), Asked()
        exact, *noisy = answerers(parse_catalog(star.catalog), Path(place))
        for question, sql in star.questions.items():
            truth = numbers(exact.query(sql).rows)
            errors = [error for answerer in noisy for error in asked.errors(answerer, sql, truth)]
            stated = star.expected.get(question)
            shown = f"{median(errors):.5g}" if errors else "-"
            print(
                f"{name}, {question}: median standard error {shown}"
                + (f" (method {stated:g})" if stated else "")
            )
            if stated and errors:
                # sums and counts of one view share a draw, and views share their margins: some lines err less
                label = f"people-{name}-{question.replace(' ', '-')}-over-method"
                figures.at_most("people, error over the method's", median(errors) / stated, 1.05, label)
        print(f"{name}: {asked.blind} numbers without an interval")
        figures.within("people, coverage", asked.inside / asked.numbers, LOW, HIGH, name)


def retention(figures: Figures) -> None:
    """People of each cohort by month, of releases that hold nothing else."""
    with tempfile.TemporaryDirectory() as place:
        view = {
            "of": "facts",
            "axes": ["people.first", "facts.day"],
            "measures": {"count": "0.05", "people": "0.95"},
        }
        catalog = parse_catalog(shop(Path(place)).catalog)
        catalog = without_unused(catalog.model_copy(update={"views": {"kept": made_view("kept", view)}}))
        exact, *noisy = answerers(catalog, Path(place))
        months = "DATE_TRUNC('month', first) AS d, DATE_TRUNC('month', day) AS e"
        sql = f"SELECT {months}, COUNT(DISTINCT id) AS n FROM facts JOIN people USING (id) GROUP BY 1, 2 ORDER BY 1, 2"
        truth, asked = numbers(exact.query(sql).rows, 2), Asked()
        errors = [error for answerer in noisy for error in asked.errors(answerer, sql, truth, 2)]
        print(f"shop, retention: median standard error {median(errors):.5g} (method {RETENTION:g})")
        figures.at_most("people, error over the method's", median(errors) / RETENTION, 1.05, "retention")
        figures.within("people, coverage", asked.inside / asked.numbers, LOW, HIGH, "cohort cells")


def main(words: list[str]) -> int:
    figures = Figures()
    others = {"retention": retention}
    for name in words or [*STARS, *others]:
        if name in others:
            others[name](figures)
        else:
            ask(name, figures)
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
