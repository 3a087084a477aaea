"""Designed views against those made by hand: the same star, promise and statements, the same number of releases.

A statement's error in a release is the root of the sum of squared differences from the answer without noise, over the
root of the sum of squared answers. Stars whose catalogs were made by hand for other statements too keep these views: a
designed catalog is made for the corpus alone, which is what a workload is for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import exp, log, sqrt
from pathlib import Path
from typing import NamedTuple

from benchmarks.baselines.common import SimulationNoise
from benchmarks.central.datasets import data_root
from benchmarks.coverage import draws, opened, redrawn
from benchmarks.figures import Figures, main
from dpsql.catalog import load_catalog
from dpsql.curator.design import CatalogDesign, design_catalog
from dpsql.errors import Error
from dpsql.examples.demo import QUESTIONS
from dpsql.examples.retail import CUSTOMERS, PRODUCTS, make_star, write_star
from dpsql.executor.engine import ReleaseEngine
from dpsql.noise import ZeroNoise
from dpsql.results.result import Result

CATALOGS = Path(__file__).parents[2] / "catalog"
NAMED = {"bf": "blackfriday", "taxi": "nyc_taxi"}


class Statement(NamedTuple):
    """A statement of the corpus, its short name, and the star that it is about."""

    name: str
    star: str
    sql: str


def statements() -> list[Statement]:
    """Every statement, in the order of its file."""
    found = []
    for path in sorted((data_root() / "sql").glob("*/*.sql")):
        text = path.read_text(encoding="utf-8")
        header = dict(re.findall(r"-- (id|dataset): (.*)", text))
        found.append(Statement(header["id"].strip(), header["dataset"].strip(), text))
    return found


def by_hand(star: str) -> Path:
    """The shipped catalog of a star whose unit is a row."""
    return CATALOGS / f"{NAMED.get(star, star)}.yaml"


WORSE = 1.1
"""Times the error of a catalog made by hand that a designed one may have, on each star."""

HELD_BACK, SEED = "retail", 20250101


class Star(NamedTuple):
    """A star with the catalog made by hand, and what is asked of it."""

    name: str
    catalog: Path
    statements: tuple[Statement, ...]


class Compared(NamedTuple):
    """One statement: its mean squared relative error under the designed views and under those made by hand."""

    statement: Statement
    designed: float
    by_hand: float


def measure(figures: Figures, folder: Path, releases: int = 20) -> None:
    """Design every star of the corpus, and one that the search was not made with, and compare."""
    for star in (*_corpus(), held_back(folder)):
        asked = [each.sql for each in star.statements]
        made = design_catalog(star.catalog.read_text(encoding="utf-8"), star.catalog, asked, None)
        for each, question in zip(star.statements, made.questions, strict=True):
            if question.refusal is not None:
                print(f"  {each.name} is not served: {question.refusal[:200]}")
        compared = list(_compare(star, made, releases, folder / f"design of {star.name}"))
        for each in compared:
            both = f"{sqrt(each.designed):.3g} designed, {sqrt(each.by_hand):.3g} by hand"
            print(f"  {star.name} {each.statement.name}: {both}", flush=True)
        figures.at_most("design-error-over-by-hand", _ratio(compared), WORSE, star.name)


def _corpus() -> Iterator[Star]:
    """The stars of the corpus with their statements."""
    corpus = statements()
    for name in dict.fromkeys(each.star for each in corpus):
        yield Star(name, by_hand(name), tuple(each for each in corpus if each.star == name))


def held_back(folder: Path) -> Star:
    """The bundled shop and what its demonstration asks; no choice of the search was made by it.

    Args:
        folder: where its files are written.
    """
    write_star(folder / "data", make_star(SEED, CUSTOMERS, PRODUCTS))
    text = (CATALOGS / "retail.yaml").read_text(encoding="utf-8")
    assert text.count("  root: data\n") == 1
    catalog = folder / "retail.yaml"
    catalog.write_text(text.replace("  root: data\n", f"  root: {folder / 'data'}\n"), encoding="utf-8")
    asked = (Statement(f"demo-{i}", HELD_BACK, sql) for i, sql in enumerate(QUESTIONS.values(), 1))
    return Star(HELD_BACK, catalog, tuple(asked))


def _ratio(compared: Sequence[Compared]) -> float:
    """The geometric mean of errors, designed over by hand."""
    return exp(sum(log(each.designed / each.by_hand) / 2 for each in compared) / len(compared))


def _compare(star: Star, made: CatalogDesign, releases: int, folder: Path) -> Iterator[Compared]:
    """Statements that both answer with noise."""
    mine, designed, errors = star.statements, folder / "designed.yaml", []
    for kind, file in (("designed", designed), ("by-hand", star.catalog)):
        (folder / kind).mkdir(parents=True)
        designed.write_text(made.text, encoding="utf-8")
        publish = redrawn(load_catalog(file), folder / kind)
        for exact in opened([publish(ZeroNoise(), "exact.dpsql")]):
            known = {each: truth for each in mine if (truth := _truth(exact, each.sql)) is not None}
        totals = dict.fromkeys(mine, 0.0)
        for seed in range(releases):
            for noisy in draws(publish, SimulationNoise(seed), 1):
                for each, truth in known.items():
                    totals[each] += _error(truth, noisy.query(each.sql)) / releases
        errors.append(totals)
    for each in mine:
        if errors[0][each] > 0 and errors[1][each] > 0:
            yield Compared(each, errors[0][each], errors[1][each])


class Truth(NamedTuple):
    """A statement's noisy columns, and their cells without noise."""

    at: tuple[int, ...]
    cells: dict[tuple[object, ...], float]


def _truth(exact: ReleaseEngine, sql: str) -> Truth | None:
    """What a statement answers without noise; None where it has no noisy column or is refused."""
    try:
        answer = exact.query(sql)
    except Error:
        return None
    at = tuple(i for i in range(len(answer.columns)) if any(row[i] for row in answer.stderr_rows))
    return Truth(at, _cells(answer, at)) if at else None


def _error(truth: Truth, noisy: Result) -> float:
    """Squared difference over squared answer."""
    seen = _cells(noisy, truth.at)
    squared = sum(value**2 for value in truth.cells.values())
    differ = sum((value - seen.get(key, 0.0)) ** 2 for key, value in truth.cells.items())
    return differ / squared if squared else 0.0


def _cells(result: Result, at: Sequence[int]) -> dict[tuple[object, ...], float]:
    """Noisy cells by their row's other values."""
    return {
        (i, *(value for j, value in enumerate(row) if j not in at)): float(row[i] or 0.0)
        for row in result.rows for i in at
    }  # fmt: skip


if __name__ == "__main__":
    main(measure)
