"""The second half of `make demo`: the same customers report for themselves, and one question is answered three ways.

    central   the curator's release: a trusted curator held the rows
    local     releases made of scrambled reports: nobody held the rows
    both      the inverse-variance mean of all of them

Fifty thousand customers report twice, in spring and in autumn: 100,000 reports. Here they are simulated from the
generated shop, and everything made of them says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb
from rich.console import Console
from rich.table import Table

import dpsql
from dpsql.answer import Result
from dpsql.output import margin_text, number

SURVEY = Path("catalog/shop_survey.yaml")
SEASONS = ("spring", "autumn")
SEED = 20250101
QUESTION = """SELECT sex, COUNT(*) AS customers FROM customer
WHERE age BETWEEN 30 AND 49 AND income >= 40000 GROUP BY sex"""


def collect_surveys(console: Console, folder: Path) -> list[Path]:
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
                SURVEY, reports, plan, seed=SEED + year, label=season, progress=status.update
            )
            done = dpsql.collect(plan, [reports], release, progress=status.update)
        console.print(f"  {season}: {people} simulated reports, {done.manifest.accepted} accepted")
        releases.append(release)
    return releases


def ask_three_ways(
    console: Console, central: Path, surveys: Sequence[Path], truth: duckdb.DuckDBPyConnection, level: float
) -> None:
    """Print one question's answers from the central release, from the surveys, and from all, beside the truth."""
    ways: Mapping[str, Sequence[Path]] = {"central": [central], "local": surveys, "both": [central, *surveys]}
    cells: dict[str, dict[str, str]] = {}
    for name, paths in ways.items():
        with dpsql.connect(*paths, combine=True) as connection:
            result = connection.execute(QUESTION).result
            cells[name], told = _cells(result, level), result.provenance
    console.print(f"[dim]{' '.join(QUESTION.split())}[/dim]")
    table = Table("sex", *cells, "true", box=None, pad_edge=False)
    for sex, exact in sorted(truth.execute(QUESTION).fetchall()):
        table.add_row(str(sex), *(shown.get(sex, "-") for shown in cells.values()), number(exact))
    console.print(table)
    for part in told.get("combined", ()):
        console.print(
            f"  {part['release']}: error {number(part['mean_error'])}, weight {part['mean_share']:.0%}"
        )
    if told.get("all_together"):
        console.print(
            f"  Somebody in all of them: epsilon {told['all_together']['epsilon']} for replacing a person."
        )


def _cells(result: Result, level: float) -> dict[str, str]:
    """The count of each sex with its margin."""
    low, high = result.interval_rows(level)
    return {
        str(row[0]): margin_text(row[1], (above[1] - below[1]) / 2)
        for row, below, above in zip(result.rows, low, high, strict=True)
    }
