"""Command about a release: report."""

from __future__ import annotations

import json
from pathlib import Path

import click

from dpsql.cli import cli
from dpsql.cli.query import RELEASE
from dpsql.errors import OperationalError


@cli.command()
@click.argument("release", type=RELEASE)
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="HTML file to write")
@click.option("--json", "as_json", is_flag=True, help="say what was written as JSON")
def report(release: Path, output: Path, as_json: bool) -> None:
    """Write one self-contained page about RELEASE: promise, spends, histograms, error maps, search box."""
    from dpsql.release import open_release
    from dpsql.report import report_page

    opened = open_release(release)
    try:
        page = report_page(opened)
    finally:
        opened.close()
    try:
        output.write_text(page, encoding="utf-8")
    except OSError as error:
        raise OperationalError(f"cannot write {output}: {error.strerror}") from error
    size = len(page.encode())
    click.echo(
        json.dumps({"page": str(output), "bytes": size}) if as_json else f"wrote {output}", err=not as_json
    )
