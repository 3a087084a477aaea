"""Command about serving: serve."""

from __future__ import annotations

import json
from pathlib import Path

import click

from dpsql.cli import cli
from dpsql.cli.query import RELEASE
from dpsql.errors import InterfaceError

FILE = click.Path(path_type=Path)


@cli.command()
@click.argument("releases", type=RELEASE, nargs=-1, required=True)
@click.option("--pg", is_flag=True, help="speak PostgreSQL's protocol (the only one there is)")
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=5433, show_default=True, help="0 takes a free one")
@click.option("--password-file", type=FILE, help="one line user:password; readable by you alone")
@click.option("--tls-certificate", type=FILE, help="PEM file")
@click.option("--tls-key", type=FILE, help="PEM file")
@click.option(
    "--processes", type=click.IntRange(1, 64), default=1, show_default=True, help="one uses one core"
)
@click.option("--as-of", help="of a stream: the newest batch wanted, by number or date")
@click.option("--together", type=FILE, hidden=True)
@click.option("--json", "as_json", is_flag=True, help="say where it listens as JSON")
def serve(
    releases: tuple[Path, ...], pg: bool, host: str, port: int, password_file: Path | None,
    tls_certificate: Path | None, tls_key: Path | None, processes: int, as_of: str | None, together: Path | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Serve RELEASES (files or streams) read-only to psql, JDBC and every PostgreSQL driver, until interrupted.

    Only this machine can connect, unless TLS and a password are given.
    """
    from dpsql.session import open_session
    from dpsql.wire import Options, check
    from dpsql.wire import serve as serve_wire
    from dpsql.wire.workers import serve_together

    if not pg:
        raise InterfaceError("which protocol?", hint="write dpsql serve --pg")

    def told(address: str, number: int) -> None:
        line = (
            json.dumps({"host": address, "port": number}) if as_json else f"listening on {address}:{number}"
        )
        click.echo(line, err=not as_json)

    options = Options(host, port, password_file, tls_certificate, tls_key, together is not None, together)
    check(options)
    opened = open_session(releases, as_of=as_of)
    try:
        if processes == 1:
            serve_wire(opened, options, told)
    finally:
        opened.close()
    if processes > 1:
        words: dict[str, Path | str | None]
        words = {"--password-file": password_file, "--tls-certificate": tls_certificate, "--tls-key": tls_key,
                 "--as-of": as_of}  # fmt: skip
        given = [str(word) for name, value in words.items() if value is not None for word in (name, value)]
        serve_together([*map(str, releases), *given], processes, host, port, told)
