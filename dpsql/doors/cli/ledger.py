"""Commands about the ledger itself: backup and move. They spend nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpsql.doors.cli import FILE, CommandOutput, cli, tells

if TYPE_CHECKING:
    from dpsql.ledger.copies import Copied


@cli.group()
def ledger() -> None:
    """Back up the ledger, or move it; it must never exist twice."""


@ledger.command()
@click.argument("ledger", type=FILE)
@click.option("-o", "--output", required=True, type=FILE, help="the copy; its head is written beside it")
@click.option("--with-key", is_flag=True, help="copy the signing key too: whoever reads it signs as you")
@tells
def backup(ledger: Path, output: Path, with_key: bool) -> CommandOutput:
    """Copy LEDGER while nobody spends from it, checked and whole, for its owner's eyes alone.

    A restored copy is refused once a release is out that it does not know. Stream states are no part of it: never
    restore an older one.
    """
    from dpsql.ledger.copies import backup_ledger

    return _told("copied", backup_ledger(ledger, output, with_key=with_key))


@ledger.command()
@click.argument("old", type=FILE)
@click.argument("new", type=FILE)
@tells
def move(old: Path, new: Path) -> CommandOutput:
    """Move the ledger OLD to NEW with its key and the private states of its streams.

    A note stays at OLD, so nothing is spent there again. Then name NEW under `ledger` in the catalogs.
    """
    from dpsql.ledger.copies import move_ledger

    return _told("moved", move_ledger(old, new))


def _told(how: str, copied: Copied) -> CommandOutput:
    names = ", ".join(file.name for file in copied.files)
    return CommandOutput(
        {
            "ledger": str(copied.path),
            "entries": copied.entries,
            "files": [str(file) for file in copied.files],
        },
        f"{how} the ledger to {copied.path}: {copied.entries} entries; beside it {names}",
    )
