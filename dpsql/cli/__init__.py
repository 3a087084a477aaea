"""The `dpsql` command: one click group, one module a family of commands.

Results go to standard output, everything else to standard error. Exit codes: 0 done, 1 the statement,
2 something cannot be opened or the catalog is wrong, 3 a privacy refusal.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import click

from dpsql.errors import Error


class Group(click.Group):
    """A click group that turns dpsql's errors into one line and an exit code."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; print an error's one line and leave with its code."""
        try:
            return super().invoke(ctx)
        except Error as error:
            click.echo(f"dpsql: {error}", err=True)
            if error.caret:
                click.echo(error.caret, err=True)
            ctx.exit(error.exit_code)


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="dpsql", prog_name="dpsql")
def cli() -> None:
    """Private analytics over star schemas: publish once, ask unlimited SQL, get error bars."""


def all_commands() -> Mapping[str, click.Command]:
    """The commands by name; each module registers its own."""
    from dpsql.cli import audit, collect, curator, doctor, plan, query, report, serve, shell, stream  # noqa: F401

    return cli.commands


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the console script."""
    all_commands()
    cli.main(args=list(arguments) if arguments is not None else sys.argv[1:], prog_name="dpsql")
