"""`make demo`: publish the bundled shop once, ask it questions, and hold the answers against the truth.

The truth can be shown because the shop is generated. With real people it is what nobody sees. A customer is protected
with all of her sales, under (1, 1e-6), and publishing chooses every bound; a line tells of pure epsilon beside it.

Then the same fifty thousand customers report for themselves, in spring and in autumn, and one question is answered
three ways. Their reports are simulated from the generated shop, and everything made of them says so.

    central   the curator's release: a trusted curator held the rows
    local     releases made of scrambled reports: nobody held the rows
    both      the inverse-variance mean of all of them
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
from rich.console import Console
from rich.table import Table

import dpsql
from dpsql.results.render import interval_text, number
from dpsql.results.result import Result

CATALOG, PURE_CATALOG = Path("catalog/retail_user.yaml"), Path("catalog/retail.yaml")
RELEASE = Path("retail.dpsql")
DATA = Path("data")
LEVEL = 0.95

JOINED = """
        SELECT COUNT(*) AS sales FROM sales JOIN customer USING (customer_id) JOIN product USING (product_id)
        WHERE age BETWEEN 20 AND 39 AND price >= 10 AND price < 40"""
BY_MONTH = """
        SELECT DATE_TRUNC('month', sold_on) AS month, COUNT(*) AS sales, SUM(amount) AS revenue
        FROM sales GROUP BY 1 ORDER BY 1"""

QUESTIONS: Mapping[str, str] = {
    "How many sales were there?": "SELECT COUNT(*) AS sales FROM sales",
    "What did they bring in?": "SELECT SUM(amount) AS revenue FROM sales",
    "A join with two ranges: sales to people of 20-39 of things for 10-40": JOINED,
    "The average sale to customers of 60 and more": """
        SELECT AVG(amount) AS average FROM sales JOIN customer USING (customer_id) WHERE age >= 60""",
    "By region": """
        SELECT region, COUNT(*) AS sales, AVG(amount) AS average
        FROM sales JOIN customer USING (customer_id) GROUP BY region""",
    "By month": BY_MONTH,
    "Who are the customers?": "SELECT sex, COUNT(*) AS customers FROM customer GROUP BY sex",
    "Who came three times or more? Rows are grouped by the customer": """
        SELECT COUNT(*) AS regulars FROM
        (SELECT customer_id, COUNT(*) AS n FROM sales GROUP BY customer_id HAVING COUNT(*) >= 3) AS c""",
    "Who has not come since September?": """
        SELECT COUNT(*) AS lapsed FROM
        (SELECT customer_id, MAX(sold_on) AS d FROM sales GROUP BY customer_id) AS c WHERE d < DATE '2025-10-01'""",
    "What does a customer of ten visits or more spend? At most 1,000 count": """
        SELECT AVG(total) AS spent FROM
        (SELECT customer_id, SUM(amount) AS total, COUNT(*) AS n FROM sales GROUP BY customer_id) AS c WHERE n >= 10""",
}

SURVEY = Path("catalog/shop_survey.yaml")
SEASONS = ("spring", "autumn")
SEED = 20250101
ASKED_THREE_WAYS = """SELECT sex, COUNT(*) AS customers FROM customer
WHERE age BETWEEN 30 AND 49 AND income >= 40000 GROUP BY sex"""


def main() -> None:
    """Publish, ask, print; then collect and ask three ways."""
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold]Publishing {RELEASE} from {CATALOG}[/bold]")
    published = dpsql.publish(CATALOG, RELEASE, progress=lambda step: console.print(f"  {step}"))
    console.print(f"  {published.summary()}\n")
    truth = _truth(DATA)
    inside = total = 0
    for title, sql in QUESTIONS.items():
        hits, values = _ask(console, truth, title, sql)
        inside, total = inside + hits, total + values
    console.print(f"{inside} of {total} true values lie inside their {LEVEL:.0%} intervals.")
    console.print(f"{_beside_pure()}\n")
    console.print("[bold]The same customers report for themselves, one scrambled report a season[/bold]")
    surveys = _collect_surveys(console, DATA / "survey")
    _ask_three_ways(console, RELEASE, surveys, truth)
    console.print('\nNow ask your own: .venv/bin/dpsql query retail.dpsql "SELECT ..."')


def _ask(console: Console, truth: duckdb.DuckDBPyConnection, title: str, sql: str) -> tuple[int, int]:
    """Print one question's answers beside the truth; returns how many intervals hold it."""
    console.print(f"[bold]{title}[/bold]\n[dim]{' '.join(sql.split())}[/dim]")
    answer = dpsql.query(sql, release=RELEASE)
    low, high = answer.interval_rows(LEVEL)
    exact = {_key(row, answer): row for row in truth.execute(sql).fetchall()}
    hits = values = 0
    for r, row in enumerate(answer.rows):
        key = _key(row, answer)
        texts = ["  " + ", ".join(key)] if key else [" "]
        for c in answer.noisy:
            name, (lower, upper) = answer.columns[c], (low[r][c], high[r][c])
            if key not in exact or lower is None or upper is None:
                texts.append(f"{name} {number(row[c])}")
                continue
            true, margin = exact[key][c], (upper - lower) / 2
            covered = bool(lower <= float(true) <= upper)
            hits, values = hits + covered, values + 1
            place = "inside" if covered else "OUTSIDE"
            texts.append(
                f"{name} {interval_text(row[c], lower, upper)} (true {number(true, margin)}, {place})"
            )
        console.print("  ".join(texts))
    console.print()
    return hits, values


def _beside_pure() -> str:
    """One line: the standard error of months, beside the one that a plan forecasts under pure epsilon.

    A plan spends nothing: the shop's people have a ledger, and it would charge them for a second release.
    """
    (forecast,) = dpsql.plan(PURE_CATALOG, [BY_MONTH]).queries
    answer = dpsql.query(BY_MONTH, release=RELEASE)
    counted = answer.noisy[0]
    typical = statistics.median(row[counted] for row in answer.rows)
    here = statistics.median(row[counted] for row in answer.stderr_rows) / typical
    (error,) = (column.median for column in forecast.columns if column.name == "sales")
    pure = (error or 0.0) / typical
    return f"Standard errors of counts: months {here:.1%} here, {pure:.1%} under pure epsilon 1."


def _key(row: Sequence[Any], answer: Result) -> tuple[str, ...]:
    """Key of a row; dates and timestamps of one day are the same key."""
    return tuple(number(value)[:10] for c, value in enumerate(row) if c not in answer.noisy)


def _truth(folder: Path) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for table in ("customer", "product", "sales"):
        connection.execute(f"CREATE VIEW {table} AS SELECT * FROM '{folder / table}.parquet'")
    return connection


def _collect_surveys(console: Console, folder: Path) -> list[Path]:
    """Simulate a report of every customer in each season, and collect each season into a release.

    Args:
        console: where to print.
        folder: where plans, reports and releases go.

    Returns:
        The releases.
    """
    folder.mkdir(parents=True, exist_ok=True)
    releases = []
    for year, season in enumerate(SEASONS):
        plan, reports, release = (folder / f"{season}{end}" for end in (".json", ".parquet", ".dpsql"))
        for old in (plan, reports, release):
            old.unlink(missing_ok=True)
        with console.status(f"{season}: everybody reports") as status:
            people = dpsql.simulate(
                SURVEY,
                reports,
                plan,
                seed=SEED + year,
                label=season,
                progress=lambda step: status.update(str(step)),
            )
            done = dpsql.collect(plan, [reports], release, progress=lambda step: status.update(str(step)))
        console.print(f"  {season}: {people} simulated reports, {done.manifest.accepted} accepted")
        releases.append(release)
    return releases


def _ask_three_ways(
    console: Console, central: Path, surveys: Sequence[Path], truth: duckdb.DuckDBPyConnection
) -> None:
    """Print one question's answers from the central release, from the surveys, and from all, beside the truth."""
    ways: Mapping[str, Sequence[Path]] = {"central": [central], "local": surveys, "both": [central, *surveys]}
    cells: dict[str, dict[str, str]] = {}
    for name, paths in ways.items():
        with dpsql.connect(*paths, combine=True) as connection:
            answer = connection.execute(ASKED_THREE_WAYS).result
            cells[name], provenance = _cells(answer), answer.provenance
    console.print(f"[dim]{' '.join(ASKED_THREE_WAYS.split())}[/dim]")
    table = Table("sex", *cells, "true", box=None, pad_edge=False)
    for sex, exact in sorted(truth.execute(ASKED_THREE_WAYS).fetchall()):
        table.add_row(str(sex), *(shown.get(sex, "-") for shown in cells.values()), number(exact))
    console.print(table)
    together = provenance.get("routed", {}).get("all_together")
    if provenance.get("combined"):
        console.print(f"  Both: one table from {', '.join(provenance['combined'])}.")
    if together:
        console.print(f"  Somebody in all of them: epsilon {together['epsilon']} for replacing a person.")


def _cells(answer: Result) -> dict[str, str]:
    """The count of each sex with its margin."""
    low, high = answer.interval_rows(LEVEL)
    return {
        str(row[0]): interval_text(row[1], below[1], above[1])
        for row, below, above in zip(answer.rows, low, high, strict=True)
    }


if __name__ == "__main__":
    main()
