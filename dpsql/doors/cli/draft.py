"""Commands of a curator's first hour: init. They read raw tables or questions, write a catalog, and spend nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpsql import api
from dpsql.doors.cli import FILE, Told, cli, tells

if TYPE_CHECKING:
    from dpsql.curate.draft.drafting import Choices, Draft, Sketch


@cli.command()
@click.argument("source")
@click.option("-o", "--output", required=True, type=FILE, help="catalog to write")
@click.option("--name", help="catalog name (default: the source's)")
@click.option("--unit", help="whose privacy: row, or table.key of the people's table")
@click.option(
    "--public",
    "public",
    multiple=True,
    metavar="TABLE",
    help="a table whose rows anybody may see; `none`: no table",
)
@click.option("--cap", help="most that these people may ever lose, in epsilon; for instance 4")
@click.option("--epsilon", help="what the first release spends; for instance 1")
@click.option("--interactive", is_flag=True, help="ask for these in the terminal")
@tells
def init(
    source: str,
    output: Path,
    name: str | None,
    unit: str | None,
    public: tuple[str, ...],
    cap: str | None,
    epsilon: str | None,
    interactive: bool,
) -> Told:
    """Draft a catalog from SOURCE: a folder of Parquet or CSV files, one such file, a DuckDB file, or postgresql://..

    Keys and foreign keys, facts and dimensions, whose rows they are, bounds, cuts and categories in their order are
    proposed. What was read from private rows is marked `confirm: true`, because it is not private; publish refuses
    until you have replaced or confirmed each of them. What you say here is not marked.
    """
    from dpsql.curate.draft.drafting import Choices

    said = Choices(unit, frozenset(public) - {"none"} if public else None, epsilon, cap)
    made = api.init(source, output, name=name, ask=_asking(said) if interactive else lambda _: said)
    value = {
        "catalog": str(output), "to_confirm": made.open, "question": made.question or None,
        "foreign_keys": made.foreign_keys, "public": list(made.public),
    }  # fmt: skip
    return Told(value, _draft_text(output, made))


def _draft_text(output: Path, made: Draft) -> str:
    lines = [f"wrote {output}: {made.open} places to confirm, {made.foreign_keys} foreign keys found"]
    lines += [f"proposed as public: {', '.join(made.public)}"] if made.public else []
    return "\n".join([*lines, *([f"asked: {made.question}; say it by --unit"] if made.question else [])])


def _asking(said: Choices) -> Callable[[Sketch], Choices]:
    """Ask in the terminal for what the options leave open."""

    def ask(sketch: Sketch) -> Choices:
        from dpsql.curate.draft.drafting import Choices

        for table in sketch.tables:
            named = ", ".join(f"{c} -> {t}" for c, t in sketch.links.foreign[table.name].items())
            click.echo(f"  {table.name}: {table.rows} rows" + (f"; {named}" if named else ""), err=True)
        return Choices(
            said.unit or _asked("Whose privacy", sketch.whose.unit, sketch.whose.candidates),
            _public(sketch) if said.public is None else said.public,
            cap=said.cap
            or click.prompt("Most that these people may ever lose, in epsilon (for instance 4)", err=True),
            epsilon=said.epsilon
            or click.prompt("What the first release spends of it (for instance 1)", err=True),
        )

    return ask


def _asked(question: str, default: str, others: tuple[str, ...]) -> str:
    return str(click.prompt(f"{question} ({', '.join(others)})", default=default, err=True)).strip()


def _public(sketch: Sketch) -> frozenset[str]:
    """Tables whose rows anybody may see; a dash for none."""
    proposed = " ".join(sorted(sketch.public)) or "-"
    words = click.prompt("Tables whose rows anybody may see", default=proposed, err=True)
    return frozenset(str(words).replace(",", " ").split()) - {"-"}
