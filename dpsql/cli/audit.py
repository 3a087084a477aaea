"""Command of the curator: audit. What a release file holds, held against its catalog and ledger."""

from __future__ import annotations

import json
from pathlib import Path

import click

from dpsql import curator
from dpsql.cli import cli
from dpsql.cli.query import RELEASE


@cli.command()
@click.argument("release", type=RELEASE)
@click.option("--catalog", type=click.Path(path_type=Path), help="also check the ledger and public tables")
@click.option(
    "--samples",
    type=click.IntRange(0, 10**6),
    default=20_000,
    show_default=True,
    help="of the auditor; 0: none",
)
@click.option("--json", "as_json", is_flag=True, help="report as JSON on standard output")
@click.pass_context
def audit(context: click.Context, release: Path, catalog: Path | None, samples: int, as_json: bool) -> None:
    """Check offline that RELEASE holds what its catalog says and nothing else; exit code 3 if not.

    Everything in the file but the noisy integers is recomputed from its catalog and from those integers.
    """
    report = curator.audit(release, catalog=catalog, samples=samples)
    click.echo(json.dumps(report.to_json(), indent=2) if as_json else report.text())
    context.exit(0 if report.held else 3)
