"""Commands of a first hour: confirm, what a draft read from private rows, one question a table; and start.

`dpsql start`: from a folder of tables to a page, by the commands that a curator would type one after another.

Each step says the command that does the same, and writes a file that the next one reads; so whoever stops, or answers
"later", types `dpsql start` again and goes on behind the last file that is there.

    init      questions about whose rows, what is public, how much, and which questions -> shop.yaml
    confirm   bounds that were read from private rows, one question a table
    plan      the intervals to expect, in words and as a picture                            -> shop.plan.html
    publish   asks first, then spends                                                   -> shop.dpsql
    explore   the page
"""

from __future__ import annotations

import getpass
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpsql.errors import InterfaceError
from dpsql.interfaces import aligned
from dpsql.interfaces.cli import FILE, CommandOutput, cli, say, tells

if TYPE_CHECKING:
    from dpsql.catalog import Catalog
    from dpsql.curator.confirm import Mark

EVERY = "all"
"""Every table that waits, and the promise."""

READ, ROUNDER, LATER = "r", "o", "l"


@cli.command()
@click.argument("catalog", type=FILE)
@click.option(
    "--as-read", multiple=True, metavar="TABLE", help="confirm it with the bounds that were read; or `all`"
)
@click.option(
    "--rounder", multiple=True, metavar="TABLE", help="confirm it with the rounder bounds; or `all`"
)
@click.option("--by", metavar="NAME", help="who confirms (default: the login name)")
@tells
def confirm(
    catalog: Path, as_read: tuple[str, ...], rounder: tuple[str, ...], by: str | None
) -> CommandOutput:
    """Show what CATALOG holds that was read from private rows, table by table, and take the marks off.

    Each bound stands next to a rounder one, which tells less about whoever holds the outermost value. In a terminal
    there is one question a table; elsewhere --as-read and --rounder name the tables, and without them the marks are
    only shown. Who confirmed what is recorded in a file next to the catalog.
    """
    from dpsql.catalog import load_catalog
    from dpsql.curator.confirm import confirm_file, groups_of, open_marks, record_of

    marks = open_marks(load_catalog(catalog))
    groups = groups_of(marks)
    choices = _named(groups, as_read, rounder)
    if not choices and sys.stdin.isatty():
        choices = ask_tables(marks)
    elif not choices:
        value = [
            {"place": ".".join(mark.path), "read": mark.shown, "rounder": dict(mark.rounder)}
            for mark in marks
        ]
        return CommandOutput(value, "\n".join(_lines(marks)) or "nothing needs confirmation", result=True)
    confirmed = confirm_file(catalog, choices, by or login()) if choices else ()
    left_open = [group for group in groups if group not in choices]
    names = ", ".join(f"{group}{' (rounder)' if rounder else ''}" for group, rounder, _ in confirmed)
    told = f"still open: {', '.join(left_open)}" if left_open else f"every place in {catalog} is confirmed"
    if confirmed:
        told = f"confirmed {names}; {told}; recorded in {record_of(catalog)}"
    return CommandOutput({"confirmed": [group for group, _, _ in confirmed], "open": left_open}, told)


def login() -> str:
    """Name of the logged-in user.

    Raises:
        InterfaceError: the machine does not say.
    """
    try:
        return getpass.getuser()
    except (OSError, KeyError) as error:
        raise InterfaceError("your login name is unknown", hint="pass --by NAME") from error


def _named(groups: Sequence[str], as_read: Sequence[str], rounder: Sequence[str]) -> dict[str, bool]:
    """Marks that the options confirm.

    Raises:
        InterfaceError: a table is named twice.
    """
    choices: dict[str, bool] = {}
    for names, is_rounder in ((as_read, False), (rounder, True)):
        for name in groups if EVERY in names else names:
            if name in choices:
                raise InterfaceError(f"{name} is given to both --as-read and --rounder", hint="name it once")
            choices[name] = is_rounder
    return choices


def ask_tables(marks: Sequence[Mark]) -> dict[str, bool]:
    """One question a table: as read, rounder, or later.

    Args:
        marks: what waits.
    """
    choices: dict[str, bool] = {}
    for group in dict.fromkeys(mark.group for mark in marks):
        of_group = [mark for mark in marks if mark.group == group]
        say("\n".join(_lines(of_group)), err=True)
        has_rounder = any(mark.rounder for mark in of_group)
        answers = {READ: "as [r]ead", **({ROUNDER: "r[o]under"} if has_rounder else {}), LATER: "[l]ater"}
        choice = click.prompt(
            f"{group}: confirm {', '.join(answers.values())}", type=click.Choice(list(answers)), show_choices=False,
            default=ROUNDER if has_rounder else READ, err=True,
        )  # fmt: skip
        if choice != LATER:
            choices[group] = choice == ROUNDER
    return choices


def _lines(marks: Sequence[Mark]) -> list[str]:
    """The marks of each table, a bound beside its rounder one."""
    lines = []
    for group in dict.fromkeys(mark.group for mark in marks):
        rows = [
            (mark.name, mark.shown, f"rounder: {' to '.join(mark.rounder.values())}" if mark.rounder else "")
            for mark in marks
            if mark.group == group
        ]
        lines.append(
            f"{group}: {len(rows)} places read from its rows" if len(rows) > 1 else f"{group}: one place"
        )
        lines += [f"  {line}" for line in aligned(rows)]
    return lines


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
