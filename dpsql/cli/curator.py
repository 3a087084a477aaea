"""Commands of the curator: init, publish, budget."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from dpsql import engine
from dpsql.cli import cli


@cli.command()
@click.argument("source", type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="catalog to write")
@click.option("--name", help="catalog name (default: the source's)")
def init(source: Path, output: Path, name: str | None) -> None:
    """Draft a catalog from SOURCE (a DuckDB file or a folder of Parquet or CSV files).

    Every bound that was read from the data is marked `confirm: true`, because it is not private; publish
    refuses until you have replaced or confirmed each of them.
    """
    marked = engine.init(source, output, name=name)
    click.echo(
        f"wrote {output}: {marked} places to confirm, plus the privacy unit, epsilon and views", err=True
    )


@cli.command()
@click.argument("catalog", type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="release file to write")
@click.option("--label", help="idempotence label (default: the output's name)")
@click.option("--json", "as_json", is_flag=True, help="report as JSON on standard output")
def publish(catalog: Path, output: Path, label: str | None, as_json: bool) -> None:
    """Spend the budget once and write a release of CATALOG."""
    report = engine.publish(catalog, output, label=label, progress=_progress())
    if as_json:
        click.echo(json.dumps(report.to_json(), indent=2))
    else:
        click.echo(report.summary(), err=True)


@cli.command()
@click.argument("catalog", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="report as JSON")
def budget(catalog: Path, as_json: bool) -> None:
    """Show what the lineage of CATALOG has spent, on which releases, and what is left."""
    report = engine.budget(catalog)
    click.echo(json.dumps(report.to_json(), indent=2) if as_json else report.summary())


def _progress() -> engine.Progress | None:
    """Lines on a terminal, silence otherwise."""
    if not sys.stderr.isatty():
        return None
    from rich.console import Console

    console = Console(stderr=True)
    return lambda step: console.print(f"[dim]{step}[/dim]")
