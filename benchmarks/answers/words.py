"""Flags where intervals may miss, bounds of conditions finer than a grain, numbers in notes."""

from __future__ import annotations

import random
import re
import tempfile
from itertools import count
from pathlib import Path

import duckdb
import numpy as np

import dpsql
from benchmarks.figures import Figures, main
from tests.answer.test_excess import LONG_TAILED, PERSON, ROW, outside_without_flag, released, star
from tests.answer.test_interval_ends import ROWS, VISITS, finer_statement
from tests.rehearsal.claims import CLAIMS, false_claims
from tests.rehearsal.generator import Knobs, generate
from tests.rehearsal.published import draft, published
from tests.releases import write_catalog

QUESTIONS = [
    f"SELECT region, COUNT(*) FROM {of} JOIN person USING (person_id) GROUP BY region"
    for of in ("visit", "loan")
]


def long_tails(figures: Figures) -> None:
    """Sums, averages and counts above a bound that leaves out the largest .1% of rows."""
    misses = 0
    for name, unit in ((name, unit) for name in LONG_TAILED for unit in (ROW, PERSON)):
        amounts = np.round(LONG_TAILED[name](np.random.default_rng(11)), 2)
        upper = int(np.quantile(amounts, 0.999))
        with tempfile.TemporaryDirectory() as place:
            release = released(star(Path(place), amounts, upper, unit=unit)).release
            misses += outside_without_flag(release, Path(place), upper)
            release.close()
    figures.at_most("sums, averages and counts of five long tails outside without a flag", misses, 0)


def finer(figures: Figures, statements: int) -> None:
    """Random conditions finer than what the catalog knows of a column."""
    draw, misses = random.Random(53), 0
    with tempfile.TemporaryDirectory() as place, duckdb.connect() as database:
        database.execute(f"CREATE TABLE visits AS {ROWS}")
        catalog = write_catalog(Path(place), VISITS, {"visits": ROWS})
        release = dpsql.publish(catalog, catalog.with_name("r.dpsql")).path
        with dpsql.connect(release, on_partial_bin="interpolate") as session:
            for text in (finer_statement(draw) for _ in range(statements)):
                (truth,) = database.execute(text).fetchone() or ()
                result = session.execute(text).result
                (low,), (high,) = (ends[0] for ends in result.interval_rows(0.9999))
                misses += not (low - 1e-6 <= truth <= high + 1e-6 or result.notes)
    figures.at_most(f"of {statements} statements finer than a grain, outside without a note", misses, 0)


def numbers(figures: Figures, wanted: int) -> None:
    """Numbers that notes state of rows beyond a bound, over stars of several laws."""
    stated = false = 0
    for seed in count(1):
        law = ("geometric", "lognormal", "pareto", "few")[seed % 4]
        made = generate(seed, Knobs(people=2_000, law=law, max_ids="3"))
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            (folder / "exact").mkdir()
            made.write(folder / "exact")
            catalog = draft(made, folder, QUESTIONS, "1")
            with made.exact(folder / "exact") as rows, published(catalog, range(20)) as releases:
                for release in releases:
                    notes = {note for sql in QUESTIONS for note in release.query(sql).notes}
                    stated += sum(bool(re.search(each.pattern, note)) for each in CLAIMS for note in notes)
                    false += sum(1 for _ in false_claims(tuple(notes), rows))
        if stated >= wanted:
            break
    figures.at_most(f"false numbers in notes, of {stated}", false, 0)


def measure(figures: Figures, statements: int = 500) -> None:
    long_tails(figures)
    finer(figures, statements)
    numbers(figures, statements)


if __name__ == "__main__":
    main(measure)
