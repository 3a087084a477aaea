"""What is promised of facts about people, one figure each.

The questions are asked of twenty releases a star: the share of 95% intervals that cover the answer of a release without
noise (which tests hold equal to plain Python's), and on the method's star the median standard errors over its table's.
A ratio whose denominator may be 0 states no interval; how many those are is printed. Retention, a cohort's people by
month, has releases of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import isnan
from pathlib import Path
from statistics import median

from benchmarks.figures import Figures, main, sections
from benchmarks.people.stars import STARS, numbers, shop
from dpsql.catalog import Catalog, made_view, parse_catalog
from dpsql.central.central import publish_release
from dpsql.curator.design.axes import without_unused
from dpsql.executor.engine import ReleaseEngine
from dpsql.noise import Noise, ZeroNoise
from dpsql.release import open_release
from tests.releases import seeded

RELEASES = 20
LOW, HIGH = 0.93, 0.97
RETENTION = 17.0
"""Standard error of the method's cells."""


def answerers(catalog: Catalog, folder: Path, releases: int = RELEASES) -> list[ReleaseEngine]:
    """A release without noise, then the others."""
    noises: list[Noise] = [ZeroNoise(), *map(seeded, range(releases))]
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


def ask(name: str, figures: Figures, folder: Path) -> None:
    """The questions of a star."""
    star, asked = STARS[name](folder), Asked()
    exact, *noisy = answerers(parse_catalog(star.catalog), folder)
    for question, sql in star.questions.items():
        truth = numbers(exact.query(sql).rows)
        errors = [error for answerer in noisy for error in asked.errors(answerer, sql, truth)]
        stated = star.expected.get(question)
        shown, method = f"{median(errors):.5g}" if errors else "-", f" (method {stated:g})" if stated else ""
        print(f"{name}, {question}: median standard error {shown}{method}")
        if stated and errors:
            # sums and counts of one view share a draw, and views share their margins: some lines err less
            label = f"people-{name}-{question.replace(' ', '-')}-over-method"
            figures.at_most("people, error over the method's", median(errors) / stated, 1.05, label)
    print(f"{name}: {asked.blind} numbers without an interval")
    figures.within("people, coverage", asked.inside / asked.numbers, LOW, HIGH, name)


def retention(figures: Figures, folder: Path) -> None:
    """People of each cohort by month, of releases that hold nothing else."""
    axes, measures = ["people.first", "facts.day"], {"count": "0.05", "people": "0.95"}
    view = made_view("kept", {"of": "facts", "axes": axes, "measures": measures})
    catalog = parse_catalog(shop(folder).catalog)
    catalog = without_unused(catalog.model_copy(update={"views": {"kept": view}}))
    exact, *noisy = answerers(catalog, folder)
    months = "DATE_TRUNC('month', first) AS d, DATE_TRUNC('month', day) AS e"
    sql = f"SELECT {months}, COUNT(DISTINCT id) AS n FROM facts JOIN people USING (id) GROUP BY 1, 2 ORDER BY 1, 2"
    truth, asked = numbers(exact.query(sql).rows, 2), Asked()
    errors = [error for answerer in noisy for error in asked.errors(answerer, sql, truth, 2)]
    print(f"shop, retention: median standard error {median(errors):.5g} (method {RETENTION:g})")
    figures.at_most("people, error over the method's", median(errors) / RETENTION, 1.05, "retention")
    figures.within("people, coverage", asked.inside / asked.numbers, LOW, HIGH, "cohort cells")


def measure(figures: Figures, folder: Path, parts: Sequence[str] = ()) -> None:
    """Ask the named stars, or all."""

    def part(name: str) -> None:
        (folder / name).mkdir()
        retention(figures, folder / name) if name == "retention" else ask(name, figures, folder / name)

    sections(parts, {name: partial(part, name) for name in (*STARS, "retention")})


if __name__ == "__main__":
    main(measure)
