"""Command of a first hour: confirm. What a draft read from private rows, one question a table."""

from __future__ import annotations

import getpass
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpsql.errors import InterfaceError
from dpsql.interfaces.cli.command import FILE, CommandOutput, asks, cli, say, tells

if TYPE_CHECKING:
    from dpsql.curator.confirm import ConfirmedTable, Mark

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
    if not choices and asks():
        choices = ask_tables(marks)
    elif not choices:
        return CommandOutput(
            _values(marks), "\n".join(_lines(marks)) or "nothing needs confirmation", result=True
        )
    confirmed = confirm_file(catalog, choices, by or login()) if choices else ()
    left_open = [group for group in groups if group not in choices]
    return CommandOutput(
        {"confirmed": [table.group for table in confirmed], "open": left_open}, _summary(confirmed, left_open, catalog)
        + (f"; recorded in {record_of(catalog)}" if confirmed else "")
    )  # fmt: skip


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
            (mark.name, mark.shown, " to ".join(mark.rounder.values()))
            for mark in marks
            if mark.group == group
        ]
        name, shown = (max(len(row[i]) for row in rows) for i in (0, 1))
        lines.append(
            f"{group}: {len(rows)} places read from its rows" if len(rows) > 1 else f"{group}: one place"
        )
        lines += [
            f"  {row[0]:<{name}}  {row[1]:<{shown}}  {f'rounder: {row[2]}' if row[2] else ''}".rstrip()
            for row in rows
        ]
    return lines


def _values(marks: Sequence[Mark]) -> list[Mapping[str, object]]:
    return [
        {"place": ".".join(mark.path), "read": mark.shown, "rounder": dict(mark.rounder)} for mark in marks
    ]


def _summary(confirmed: Sequence[ConfirmedTable], left_open: Sequence[str], catalog: Path) -> str:
    names = ", ".join(f"{table.group}{' (rounder)' if table.rounder else ''}" for table in confirmed)
    waiting = f"still open: {', '.join(left_open)}" if left_open else f"every place in {catalog} is confirmed"
    return f"confirmed {names}; {waiting}" if names else waiting
