"""The `dpsql` command: one click group, one module a family of commands, and an example or two of every command.

Results go to standard output, everything else to standard error. Exit codes: 0 done, 1 the statement,
2 something cannot be opened or the catalog is wrong, 3 a privacy refusal, 4 the machine refused (disk, rights,
memory, a lock), 130 stopped by Ctrl-C.

A command's `--help` shows its examples; a test types all of them. Files are called alike throughout: `shop.yaml`
describes the tables in `data`, `shop.dpsql` is its release.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module

import click

from dpsql.interfaces.cli.command import cli
from dpsql.interfaces.cli.summaries import MODULES

SALES = '"SELECT region, COUNT(*) FROM shop GROUP BY region"'

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "start": ("dpsql start data questions.sql",),
    "init": ("dpsql init data -o drafted.yaml --unit customer.customer_id --public product",),
    "confirm": ("dpsql confirm shop.yaml", "dpsql confirm shop.yaml --rounder all --by ada"),
    "design": ("dpsql design shop.yaml --workload questions.sql",),
    "plan": ("dpsql plan shop.yaml --workload questions.sql",),
    "rehearse": ("dpsql rehearse shop.yaml --units 300 --rows 900 --releases 2",),
    "publish": ("dpsql publish shop.yaml -o shop.dpsql",),
    "buy": (
        'dpsql buy shop.yaml "SELECT COUNT(*) FROM sales" --epsilon 0.1 --plan',
        'dpsql buy shop.yaml "SELECT COUNT(*) FROM sales" --epsilon 0.1 -o more.dpsql',
    ),
    "append": (
        "dpsql append days.dpsql --catalog days.yaml --batch 2025-01-01",
        "dpsql append days.dpsql --catalog days.yaml --batch 2025-01-02 --source day.parquet",
    ),
    "budget": ("dpsql budget shop.yaml",),
    "audit": ("dpsql audit shop.dpsql --catalog shop.yaml",),
    "certificate": ("dpsql certificate shop.dpsql --catalog shop.yaml -o certificate.html",),
    "query": (
        f"dpsql query shop.dpsql {SALES}",
        f"dpsql query shop.dpsql {SALES} --format csv --level 0.9",
        'dpsql query shop.dpsql more.dpsql "SELECT COUNT(*) FROM sales"',
    ),
    "explain": (f"dpsql explain shop.dpsql {SALES}",),
    "shell": ("dpsql shell shop.dpsql", 'dpsql shell shop.dpsql -c "SHOW VIEWS"'),
    "report": ("dpsql report shop.dpsql -o report.html",),
    "export": (
        "dpsql export shop.dpsql -o tables",
        "dpsql export shop.dpsql -o months --view trend --level 0.9",
    ),
    "site": ("dpsql site shop.dpsql -o site",),
    "mcp": ("dpsql mcp shop.dpsql",),
    "check": ("dpsql check report.md --release shop.dpsql",),
    "explore": ("dpsql explore shop.dpsql",),
    "serve": ("dpsql serve shop.dpsql", "dpsql serve shop.dpsql more.dpsql --port 5444"),
    "verify": ("dpsql verify shop.dpsql",),
    "collection-plan": ("dpsql collection-plan survey.yaml -o plan.json --people 5000",),
    "simulate": ("dpsql simulate survey.yaml -o reports.parquet --plan made.json --seed 1",),
    "collect": ("dpsql collect made.json reports.parquet -o survey.dpsql",),
    "forget": ("dpsql forget days.dpsql --people gone.txt --catalog days.yaml",),
    "ledger": ("dpsql ledger backup .dpsql/ledger.duckdb -o ledger-copy.duckdb",),
    "doctor": ("dpsql doctor", "dpsql doctor shop.dpsql"),
    "completion": ("dpsql completion bash",),
}
"""Lines to type by command."""


def epilog(command: str) -> str | None:
    """Last lines of a command's help."""
    lines = EXAMPLES.get(command)
    if lines is None:
        return None
    title = "Example:" if len(lines) == 1 else "Examples:"
    return "\n".join(["\b", title, *(f"  $ {line}" for line in lines)])


def all_commands(modules: Iterable[str] = MODULES) -> Mapping[str, click.Command]:
    """The commands by name, once some modules have registered theirs."""
    gc.disable()  # modules are no garbage: looking for some is a tenth of a cold start
    for module in modules:
        import_module(f"dpsql.interfaces.cli.{module}")
    gc.freeze()
    gc.enable()
    for name, command in cli.commands.items():
        command.epilog = epilog(name)
    return cli.commands


cli.load = all_commands


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the console script."""
    cli.main(args=list(arguments) if arguments is not None else sys.argv[1:], prog_name="dpsql")
