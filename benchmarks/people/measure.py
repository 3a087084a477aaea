"""What is promised of facts about people, one figure each.

python -m benchmarks.people.measure [shop] [flights] [baseball] [cost]

Twelve questions are asked of five releases a star: the share of 95% intervals that hold the answer of a release without
noise (which tests hold equal to plain Python's), and on the method's star the median standard errors over its table's.
Cost: CPU of the statement that makes the lines over that of the plain GROUP BY with four aggregates, best of three.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from benchmarks.figures import Figures
from benchmarks.people.stars import STARS, PeopleStar, numbers, shop
from dpsql.answer.answerer import Answerer
from dpsql.engines.keys import open_star
from dpsql.noise import ExactNoise, Noise, ZeroNoise, insecure_test_entropy
from dpsql.publishing.central import publish_release
from dpsql.release import open_release
from dpsql.star import parse_catalog

RELEASES = 5
SIMPLE, ORDERED = 3.0, 15.0
"""Times the plain GROUP BY."""


def answerers(star: PeopleStar, folder: Path) -> list[Answerer]:
    """A release without noise, then the others."""
    noises: list[Noise] = [
        ZeroNoise(),
        *(ExactNoise(insecure_test_entropy(seed)) for seed in range(RELEASES)),
    ]
    opened = []
    for number, noise in enumerate(noises):
        path = folder / f"r{number}.dpsql"
        publish_release(parse_catalog(star.catalog), path, noise=noise, key=bytes(range(number, number + 32)))
        opened.append(Answerer(open_release(path, insecure=True)))
    return opened


def ask(name: str, figures: Figures) -> None:
    """The twelve questions of a star."""
    with tempfile.TemporaryDirectory() as place:
        star = STARS[name](Path(place))
        exact, *noisy = answerers(star, Path(place))
        inside = asked = 0
        for question, sql in star.questions.items():
            truth, errors = numbers(exact.query(sql).rows), []
            for answerer in noisy:
                answer = answerer.query(sql)
                low, high = (numbers(list(side.itertuples(index=False))) for side in answer.interval(0.95))
                errors += [
                    error
                    for error in numbers(list(answer.stderr.itertuples(index=False)))
                    if error is not None
                ]
                for value, bottom, top in zip(truth, low, high, strict=True):
                    if None not in (value, bottom, top):
                        asked, inside = asked + 1, inside + (bottom <= value <= top)  # type: ignore[operator]
            stated = star.expected.get(question)
            shown = f"{median(errors):.5g}" if errors else "-"
            print(
                f"{name}, {question}: median standard error {shown}"
                + (f" (method {stated:g})" if stated else "")
            )
            if stated and errors:
                figures.at_most(
                    f"people-{name}-{question.replace(' ', '-')}-over-method", median(errors) / stated, 1.05
                )
        figures.at_least(f"people-{name}-coverage-{asked}-numbers", inside / asked, 0.93)


def cpu(run: Callable[[], object]) -> float:
    """Least CPU of three runs."""
    best = float("inf")
    for _ in range(3):
        begun = time.process_time()
        run()
        best = min(best, time.process_time() - begun)
    return best


def cost(figures: Figures) -> None:
    """CPU of the lines over the plain GROUP BY."""
    simple = ("visits", "spent", "first", "last")
    with tempfile.TemporaryDirectory() as place:
        star = shop(Path(place))
        figures.at_most("people-cpu-simple", ratio(star, simple, simple), SIMPLE)
        figures.at_most(
            "people-cpu-ordered",
            ratio(star, (*simple, "second", "favourite"), (*simple, "favourite")),
            ORDERED,
        )


def ratio(star: PeopleStar, summaries: tuple[str, ...], shown: tuple[str, ...]) -> float:
    """CPU of some summaries over that of count, sum, min and max by person."""
    catalog = parse_catalog(star.catalog)
    table = catalog.tables["people"]
    few = table.model_copy(
        update={"summaries": {name: table.summaries[name] for name in summaries}, "derive": {}}
    )
    raw = open_star(catalog := catalog.model_copy(update={"tables": {**catalog.tables, "people": few}}))
    try:
        connection = raw.connection
        connection.execute("SET threads = 1")
        # every value is read: a hash of each line, and how many differ
        outer = "SELECT count(DISTINCT h) FROM (SELECT hash({}) AS h FROM {} AS p)"
        made = outer.format(", ".join(shown), raw.rows(catalog, "people"))
        totals = "SELECT id, count(*) AS a, sum(amount) AS b, min(day) AS c, max(day) AS d FROM raw.facts GROUP BY id"
        plain = outer.format("a, b, c, d", f"({totals})")
        base = cpu(lambda: connection.execute(plain).fetchall())
        return cpu(lambda: connection.execute(made).fetchall()) / base
    finally:
        raw.close()


def main(words: list[str]) -> int:
    figures = Figures()
    for name in words or [*STARS, "cost"]:
        if name == "cost":
            cost(figures)
        else:
            ask(name, figures)
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
