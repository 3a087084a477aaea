"""Commands of the curator: init, publish, budget."""

from __future__ import annotations

import json
from pathlib import Path

import click

from dpsql import curator, engine
from dpsql.cli import cli
from dpsql.cli.budget import budget_json, budget_text
from dpsql.cli.progress import steps

FILE = click.Path(path_type=Path)


@cli.command()
@click.argument("source", type=FILE)
@click.option("-o", "--output", required=True, type=FILE, help="catalog to write")
@click.option("--name", help="catalog name (default: the source's)")
@click.option("--json", "as_json", is_flag=True, help="report as JSON on standard output")
def init(source: Path, output: Path, name: str | None, as_json: bool) -> None:
    """Draft a catalog from SOURCE (a DuckDB file or a folder of Parquet or CSV files).

    Every bound that was read from the data is marked `confirm: true`, because it is not private; publish
    refuses until you have replaced or confirmed each of them.
    """
    marked = curator.init(source, output, name=name)
    if as_json:
        click.echo(json.dumps({"catalog": str(output), "to_confirm": marked}))
        return
    click.echo(
        f"wrote {output}: {marked} places to confirm, plus the privacy unit, epsilon and views", err=True
    )


@cli.command()
@click.argument("catalog", type=FILE)
@click.option("-o", "--output", required=True, type=FILE, help="release file to write")
@click.option("--label", help="idempotence label (default: the output's name)")
@click.option("--json", "as_json", is_flag=True, help="report as JSON on standard output")
def publish(catalog: Path, output: Path, label: str | None, as_json: bool) -> None:
    """Spend the budget once and write a release of CATALOG.

    The same specification and label return the release as it is: data are not compared, since the answer would tell
    whether they are equal. To publish today's rows choose another output or another --label.
    """
    with steps("publish") as progress:
        report = engine.publish(catalog, output, label=label, progress=progress)
    if as_json:
        click.echo(json.dumps(report.to_json(), indent=2))
    else:
        click.echo(report.summary(), err=True)


@cli.command()
@click.argument("catalog", type=FILE)
@click.option("--json", "as_json", is_flag=True, help="report as JSON")
def budget(catalog: Path, as_json: bool) -> None:
    """Show what the ledger of CATALOG holds: each lineage's cap, what it has spent on which releases, what is left.

    What people spend on their own devices, one report each, is charged to no lineage.
    """
    report = curator.budget(catalog)
    click.echo(json.dumps(budget_json(report), indent=2) if as_json else budget_text(report))
