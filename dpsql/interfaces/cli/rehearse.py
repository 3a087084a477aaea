"""Command of the curator: rehearse. Releases of made-up rows, each answer compared with the exact one."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpsql.interfaces.cli.command import FILE, CommandOutput, cli, steps, tells
from dpsql.interfaces.cli.plan import statements
from dpsql.progress import silent

if TYPE_CHECKING:
    from dpsql.curator.rehearse import RehearsalReport, RehearsedColumn, RehearsedQuestion


@cli.command()
@click.argument("catalog", type=FILE)
@click.option(
    "--workload", type=FILE, help="file of SQL statements, each ended by `;`; else each table's rows"
)
@click.option("--units", type=click.IntRange(1), help="public guess: how many own rows")
@click.option("--rows", type=click.IntRange(1), help="public guess: how many rows there are")
@click.option("--most-rows", type=click.FloatRange(1), help="public guess: rows that hardly any unit exceeds")
@click.option(
    "--releases", type=click.IntRange(1, 1000), default=8, show_default=True, help="per law of rows"
)
@tells
def rehearse(
    catalog: Path,
    workload: Path | None,
    units: int | None,
    rows: int | None,
    most_rows: float | None,
    releases: int,
) -> CommandOutput:
    """Publish made-up rows for CATALOG and compare each answer with the exact one; spends nothing.

    Rows are made up from the catalog, its public tables and a public guess of how many there are (--units and --rows,
    or `guess:` in the catalog), under three laws of rows per unit. Private tables and the ledger stay closed. It finds
    gross misses only. With --releases 100 it is a gate: exit code 1 says that a question misses more than by chance.
    """
    from dpsql.catalog import load_catalog
    from dpsql.curator.rehearse import public_guess, rehearse_catalog

    asked = statements(workload) if workload else ()
    star = load_catalog(catalog)
    guess = public_guess(star, units, rows, most_rows)
    with steps("rehearse") as progress:
        report = rehearse_catalog(star, asked, guess, releases=releases, progress=progress or silent)
    return CommandOutput(asdict(report), rehearsal_text(report), result=True, code=int(bool(report.misses)))


def rehearsal_text(report: RehearsalReport) -> str:
    """A report for people: a line for each noisy column, and what the rehearsal does not say."""
    lines = [
        f"{report.releases} releases of made-up rows under each of {len(report.laws)} laws of rows per unit "
        f"({', '.join(report.laws)}): {report.units:,} units, {report.rows:,} rows; nothing is spent"
    ]
    for number, question in enumerate(report.questions, 1):
        lines += [f"{number}. {question.sql}", *(f"   {line}" for line in _question_lines(question))]
    lines += [f"misses more often than chance would (1%, Holm): {miss}" for miss in report.misses]
    return "\n".join([*lines, "made-up rows show gross misses only; no real row was read"])


def _question_lines(question: RehearsedQuestion) -> list[str]:
    if question.refusal:
        return [f"refused: {question.refusal}"]
    if not question.columns:
        return ["no noise: a public fact"]
    lines = [_column_line(column) for column in question.columns]
    lines += [f"not compared: {question.uncompared}"] if question.uncompared else []
    return [*lines, *(f"note: {note}" for note in question.notes)]


def _column_line(column: RehearsedColumn) -> str:
    """A column in a line: its half-width, by law, its coverage and its light."""
    known = [half for half in column.by_law if half is not None]
    words = [f"{column.name}: {column.light}"]
    if column.half is None or not known:
        words.append("most intervals have an open end")
    else:
        apart = f" (by law: {min(known):.3g} to {max(known):.3g})" if len(known) > 1 else ""
        words.append(f"covers 95%, half about {column.half:.3g}{apart} of about {column.typical:.3g}")
    if column.light == "unclear":
        words.append("not served: the laws of rows disagree by more than 3 times, or leave an end open")
    if column.intervals:
        words.append(f"covered {column.covered:,} of {column.intervals:,}")
    outside, cells = column.loud
    words += [f"{outside} of {cells} cells miss where noise is small"] if outside else []
    return ", ".join(words)
