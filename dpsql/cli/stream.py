"""Commands of the curator of a stream: append."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpsql import engine
from dpsql.cli import cli
from dpsql.cli.progress import steps

if TYPE_CHECKING:
    from dpsql.publishing.stream import Appended, Compared

FILE = click.Path(path_type=Path)


@cli.command()
@click.argument("release", type=FILE)
@click.option("--catalog", required=True, type=FILE, help="catalog with `stream`")
@click.option("--batch", required=True, help="a date or time inside the batch, for instance 2026-11-21")
@click.option("--source", type=FILE, help="Parquet or CSV file with the rows that arrive")
@click.option(
    "--check", is_flag=True, help="compare with the rows that a public batch was made of; appends nothing"
)
@click.option("--json", "as_json", is_flag=True, help="report as JSON on standard output")
def append(release: Path, catalog: Path, batch: str, source: Path | None, check: bool, as_json: bool) -> None:
    """Append one batch to the stream directory RELEASE; the first append makes it and spends its budget.

    Without --source the batch is the rows of the catalog's source whose time lies in it. A batch that is public stays
    as it is, whatever rows come; --check tells whether they are those that it was made of (exit code 3 if not). That,
    and what is reported about rows that were left out, is private.
    """
    report: Appended | Compared
    if check:
        report = engine.check_batch(release, source, batch, catalog=catalog)
    else:
        with steps("append") as progress:
            report = engine.append(release, source, batch, catalog=catalog, progress=progress)
    if as_json:
        click.echo(json.dumps(report.to_json(), indent=2))
    else:
        click.echo(report.summary(), err=True)
