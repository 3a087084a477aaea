"""Command of the analyst: shell."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from dpsql.cli import cli
from dpsql.cli.query import RELEASE
from dpsql.output import STYLES


@cli.command()
@click.argument("releases", type=RELEASE, nargs=-1, required=True)
@click.option("-c", "--command", "commands", multiple=True, help="run a statement or command, then leave")
@click.option("-f", "--file", "script", type=click.Path(path_type=Path), help="run a file, then leave")
@click.option("--format", "style", type=click.Choice(STYLES), help="table on a terminal, else csv")
@click.option(
    "--level", type=click.FloatRange(0.5, 0.9999), default=0.95, show_default=True, help="of margins"
)
@click.option("--as-of", help="of a stream: the newest batch wanted, by number or date")
@click.pass_context
def shell(
    context: click.Context, releases: tuple[Path, ...], commands: tuple[str, ...], script: Path | None,
    style: str | None, level: float, as_of: str | None,
) -> None:  # fmt: skip
    """Ask RELEASES (files or streams) interactively; reads statements from standard input when it is not a terminal.

    Several releases of one population are alternatives: the smallest predicted error answers.
    """
    from dpsql.session import open_session
    from dpsql.shell import State, interact, run_text
    from dpsql.shell.commands import read_file

    terminal = sys.stdout.isatty()
    opened = open_session(releases, as_of=as_of)
    state = State(opened, style or ("table" if terminal else "csv"), level, terminal)
    try:
        texts = [*commands, *([read_file(str(script))] if script else [])]
        if not texts and sys.stdin.isatty():
            context.exit(interact(state))
        for text in texts or [sys.stdin.read()]:
            code = run_text(text, state)
            if code:
                context.exit(code)
    finally:
        state.redirect("")
        opened.close()
