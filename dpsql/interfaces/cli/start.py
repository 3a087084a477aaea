"""`dpsql start`: from a folder of tables to a page, by the commands that a curator would type one after another.

Each step says the command that does the same, and writes a file that the next one reads; so whoever stops, or answers
"later", types `dpsql start` again and goes on behind the last file that is there.

    init      questions about whose rows, what is public, how much, and which questions -> shop.yaml
    confirm   bounds that were read from private rows, one question a table
    plan      the intervals to expect, in words and as a picture                            -> shop.plan.html
    publish   asks first, then spends                                                   -> shop.dpsql
    explore   the page
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpsql.interfaces.cli.command import FILE, cli, say

if TYPE_CHECKING:
    from dpsql.catalog import Catalog


@cli.command()
@click.argument("data")
@click.argument("questions", type=FILE, required=False)
@click.option(
    "-o", "--output", type=FILE, help="catalog to write; the release goes next to it  [default: asked]"
)
@click.option("--no-page", is_flag=True, help="stop once the release is written")
@click.pass_context
def start(
    context: click.Context, /, data: str, questions: Path | None, output: Path | None, no_page: bool
) -> None:
    """Go from DATA (as for init) and QUESTIONS in SQL to a release and its page, asking as little as possible.

    Run it again after any stop: what is there already is not done again, and nothing is spent twice.
    """
    name = Path(data).name.partition(".")[0] or "release"
    file = output or Path(click.prompt("Where the catalog goes", default=f"{name}.yaml", err=True))
    release = file.with_suffix(".dpsql")
    workload = [] if questions is None else ["--workload", str(questions)]
    if not file.exists():
        _step(context, ["init", data, "-o", str(file), "--interactive", *workload])
    if not _confirmed(file):
        return
    catalog = _loaded(file)
    if not release.exists():
        _step(context, ["plan", str(file), *workload])
        spends = f"epsilon {float(catalog.privacy.epsilon or 0):g} of {float(catalog.privacy.cap):g}"
        if not click.confirm(f"Publish {release} and spend {spends}? This cannot be undone", err=True):
            say(
                f"nothing was spent; continue with: dpsql start {shlex.quote(data)} -o {shlex.quote(str(file))}",
                err=True,
            )
            return
        _step(context, ["publish", str(file), "-o", str(release)])
    if no_page:
        say(f"next: dpsql explore {shlex.quote(str(release))}", err=True)
    else:
        _step(context, ["explore", str(release)])


def _step(context: click.Context, words: list[str]) -> None:
    """Run another command as it would be typed, after saying so."""
    say(f"$ {shlex.join(['dpsql', *words])}", err=True)
    command = cli.get_command(context, words[0])
    assert command is not None
    assert context.parent is not None
    try:
        command.invoke(command.make_context(words[0], words[1:], parent=context.parent))
    except click.exceptions.Exit as left:
        if left.exit_code:
            raise


def _loaded(file: Path) -> Catalog:
    from dpsql.catalog import load_catalog

    return load_catalog(file)


def _confirmed(file: Path) -> bool:
    """True if no mark is left, once each table was asked about."""
    from dpsql.curator.confirm import confirm_file, open_marks, record_of
    from dpsql.interfaces.cli.confirm import ask_tables, login

    marks = open_marks(_loaded(file))
    if not marks:
        return True
    say(f"$ {shlex.join(['dpsql', 'confirm', str(file)])}", err=True)
    choices = ask_tables(marks)
    if choices:
        confirm_file(file, choices, login())
        say(f"recorded in {record_of(file)}", err=True)
    left = open_marks(_loaded(file))
    if left:
        say(f"{len(left)} places need confirmation; run the same command again to continue", err=True)
    return not left
