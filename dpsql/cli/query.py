"""Commands of the analyst: query, explain."""

from __future__ import annotations

import json
from pathlib import Path

import click

from dpsql import engine
from dpsql.cli import cli
from dpsql.output import FORMATS, render

RELEASE = click.Path(path_type=Path)


@cli.command()
@click.argument("release", type=RELEASE)
@click.argument("sql")
@click.option("--format", "style", type=click.Choice(FORMATS), default="table", show_default=True)
@click.option("--dialect", default="duckdb", show_default=True, help="SQL dialect of the statement")
@click.option(
    "--level", type=click.FloatRange(0.5, 0.9999), default=0.95, show_default=True, help="of intervals"
)
@click.option("--as-of", help="of a stream: the newest batch wanted, by number or date")
@click.option("--nonnegative", is_flag=True, help="counts from their non-negative (biased) estimates")
def query(
    release: Path, sql: str, style: str, dialect: str, level: float, as_of: str | None, nonnegative: bool
) -> None:
    """Answer one SQL statement on RELEASE (a file or a stream); every aggregate comes with its error."""
    result = engine.query(sql, release=release, dialect=dialect, as_of=as_of, nonnegative=nonnegative)
    click.echo(render(result, style, level))
    if style in ("csv", "json", "jsonl"):  # formats for programs have no place for words
        for note in result.notes:
            click.echo(f"note: {note}", err=True)


@cli.command()
@click.argument("release", type=RELEASE)
@click.argument("sql")
@click.option("--dialect", default="duckdb", show_default=True)
@click.option("--as-of", help="of a stream: the newest batch wanted, by number or date")
@click.option("--json", "as_json", is_flag=True, help="report as JSON, with the predicted errors as numbers")
def explain(release: Path, sql: str, dialect: str, as_of: str | None, as_json: bool) -> None:
    """Say how a statement would be answered: route, view, nodes, predicted error, the DuckDB SQL."""
    if not as_json:
        click.echo(engine.explain(sql, release=release, dialect=dialect, as_of=as_of))
        return
    result = engine.query(sql, release=release, dialect=dialect, as_of=as_of)
    report = {
        "columns": result.columns,
        "plan": result.plan,
        "stderr": result.stderr_rows,
        "provenance": result.provenance,
    }
    click.echo(json.dumps(report, indent=2, default=str))
