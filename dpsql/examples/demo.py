"""`make demo`: publish the bundled shop once, ask it questions, and hold the answers against the truth; then let its
customers report for themselves (`local_demo`) and answer one question from both kinds of release.

The truth can be shown because the shop is generated. With real people it is what nobody sees.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
from rich.console import Console

import dpsql
from dpsql.examples.local_demo import ask_three_ways, collect_surveys
from dpsql.output import margin_text, number

CATALOG = Path("catalog/retail.yaml")
RELEASE = Path("retail.dpsql")
DATA = Path("data")
LEVEL = 0.95

QUESTIONS: Mapping[str, str] = {
    "How many sales were there?": "SELECT COUNT(*) AS sales FROM sales",
    "What did they bring in?": "SELECT SUM(amount) AS revenue FROM sales",
    "A join with two ranges: sales to people of 20-39 of things for 10-40": """
        SELECT COUNT(*) AS sales FROM sales JOIN customer USING (customer_id) JOIN product USING (product_id)
        WHERE age BETWEEN 20 AND 39 AND price >= 10 AND price < 40""",
    "The average sale to customers of 60 and more": """
        SELECT AVG(amount) AS average FROM sales JOIN customer USING (customer_id) WHERE age >= 60""",
    "By region": """
        SELECT region, COUNT(*) AS sales, AVG(amount) AS average
        FROM sales JOIN customer USING (customer_id) GROUP BY region""",
    "By month": """
        SELECT DATE_TRUNC('month', sold_on) AS month, COUNT(*) AS sales, SUM(amount) AS revenue
        FROM sales GROUP BY 1 ORDER BY 1""",
    "Who are the customers?": "SELECT sex, COUNT(*) AS customers FROM customer GROUP BY sex",
}


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
    console.print(f"{inside} of {total} true values lie inside their {LEVEL:.0%} intervals.\n")
    console.print("[bold]The same customers report for themselves, one scrambled report a season[/bold]")
    surveys = collect_surveys(console, DATA / "survey")
    ask_three_ways(console, RELEASE, surveys, truth, LEVEL)
    console.print('\nNow ask your own: .venv/bin/dpsql query retail.dpsql "SELECT ..."')


def _ask(console: Console, truth: duckdb.DuckDBPyConnection, title: str, sql: str) -> tuple[int, int]:
    """Print one question's answers beside the truth; returns how many intervals hold it."""
    console.print(f"[bold]{title}[/bold]\n[dim]{' '.join(sql.split())}[/dim]")
    result = dpsql.query(sql, release=RELEASE)
    low, high = (frame.to_numpy() for frame in result.interval(LEVEL))
    noisy = [any(row[i] is not None for row in result.stderr_rows) for i in range(len(result.columns))]
    exact = _by_key(truth.execute(sql).fetchall(), noisy)
    hits = values = 0
    for r, (row, errors) in enumerate(zip(result.rows, result.stderr_rows, strict=True)):
        key, expected = _split(row, noisy)[0], iter(exact.get(_split(row, noisy)[0], ()))
        parts = ["  " + ", ".join(str(part)[:10] for part in key)] if key else [" "]
        for i, (value, error) in enumerate(zip(row, errors, strict=True)):
            if not noisy[i]:
                continue
            true = next(expected, None)
            if value is None or error is None or true is None:
                parts.append(f"{result.columns[i]} {number(value)}")
                continue
            held = bool(low[r][i] <= float(true) <= high[r][i])
            margin = (high[r][i] - low[r][i]) / 2
            hits, values = hits + held, values + 1
            place = "inside" if held else "OUTSIDE"
            parts.append(
                f"{result.columns[i]} {margin_text(value, margin)} (true {number(true, margin)}, {place})"
            )
        console.print("  ".join(parts))
    console.print()
    return hits, values


def _truth(data: Path) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for table in ("customer", "product", "sales"):
        connection.execute(f"CREATE VIEW {table} AS SELECT * FROM '{data / table}.parquet'")
    return connection


def _split(row: Sequence[Any], noisy: Sequence[bool]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """(keys, aggregates) of a row; dates and timestamps of one day are the same key."""
    key = tuple(str(v)[:10] for v, is_noisy in zip(row, noisy, strict=True) if not is_noisy)
    return key, tuple(v for v, is_noisy in zip(row, noisy, strict=True) if is_noisy)


def _by_key(rows: Sequence[Sequence[Any]], noisy: Sequence[bool]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    return dict(_split(row, noisy) for row in rows)


if __name__ == "__main__":
    main()
