"""Commands of a first hour: init, design, confirm, start. They write a catalog; start alone goes on to a publish.

`dpsql start`: from a folder of tables to a page, by the commands that a curator would type one after another.

Each step says the command that does the same, and writes a file that the next one reads; so whoever stops, or answers
"later", types `dpsql start` again and goes on behind the last file that is there.

    init      questions about whose rows, what is public, how much, and which questions -> shop.yaml
    confirm   bounds that were read from private rows, one question a table
    plan      the intervals to expect, in words and as a picture                            -> shop.plan.html
    rehearse  a light for each question, and the changes that help most, where guesses were stated
    publish   asks first, then spends                                                   -> shop.dpsql
    explore   the page
"""

from __future__ import annotations

import getpass
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dpsql import api
from dpsql.catalog import load_catalog
from dpsql.curator.design.axes import view_lines
from dpsql.errors import InterfaceError
from dpsql.interfaces import aligned
from dpsql.interfaces.cli import FILE, CommandOutput, cli, say, tells
from dpsql.interfaces.cli.plan import HALF, stated_guess, statements

if TYPE_CHECKING:
    from dpsql.catalog.tables import PublicGuess
    from dpsql.curator.confirm import Mark
    from dpsql.curator.design import CatalogDesign
    from dpsql.curator.draft import CuratorChoices, DroppedColumn, Sketch


SELECTED = ("refuse", "allow")
"""Whether noisy numbers may choose how views are measured: no, yes."""


@cli.command()
@click.argument("source")
@click.option("-o", "--output", required=True, type=FILE, help="catalog to write")
@click.option("--name", help="catalog name (default: the source's)")
@click.option("--unit", help="whose privacy: row, or table.key of the people's table")
@click.option(
    "--public",
    multiple=True,
    metavar="TABLE",
    help="a table whose rows anybody may see; `none`: no table",
)
@click.option(
    "--trait",
    multiple=True,
    metavar="COLUMN",
    help="where several rows are one person's: a column that is about her, not about one row; `none`: no column",
)
@click.option("--cap", help="most that these people may ever lose, in epsilon; for instance 4")
@click.option("--epsilon", help="what the first release spends; for instance 1")
@click.option(
    "--workload", type=FILE, help="file of SQL statements, each ended by `;`, that the views are designed for"
)
@click.option(
    "--data-dependent", type=click.Choice(SELECTED), help="let noisy numbers choose how views are measured"
)
@click.option(
    "--encoding", default="utf-8", type=click.Choice(["utf-8", "cp1252", "latin-1"]), help="of CSV files"
)
@click.option("--skip-lines", is_flag=True, help="leave out lines of CSV files that are no rows")
@click.option("--interactive", is_flag=True, help="ask for these in the terminal")
@click.option("--units", type=click.IntRange(1), help="public guess: how many units own rows")
@click.option("--rows", type=click.IntRange(1), help="public guess: how many rows there are")
@click.option("--most-rows", type=click.IntRange(1), help="public guess: rows that hardly any unit exceeds")
@tells
def init(
    source: str, output: Path, name: str | None, workload: Path | None, interactive: bool, **said: Any
) -> CommandOutput:
    """Draft a catalog from SOURCE: a folder of Parquet or CSV files, one such file, a DuckDB file, or postgresql://..

    Keys and foreign keys, facts and dimensions, whose rows they are, bounds, cuts and categories in their order are
    proposed. What was read from private rows is marked `confirm: true`, because it is not private; publish refuses
    until you have replaced or confirmed each of them. What you say here is not marked. Every table is private unless
    --public names it; the draft names those that look like lists of things.
    """
    from dpsql.catalog.tables import PublicGuess
    from dpsql.curator.draft import CuratorChoices, DraftWorkload

    guess = stated_guess(said["units"], said["rows"], said["most_rows"])
    allows = None if said["data_dependent"] is None else bool(SELECTED.index(said["data_dependent"]))
    public = frozenset(said["public"]) - {"none"} if said["public"] else None
    numbers = {key: said[key] for key in ("units", "rows", "most_rows") if said[key] is not None}
    guesses = {"": PublicGuess.model_validate(numbers)} if numbers else {}
    traits = frozenset(said["trait"]) - {"none"} if said["trait"] else None
    choices = CuratorChoices(said["unit"], public, said["epsilon"], said["cap"], allows, guesses, traits)
    if interactive and workload is None:
        workload = _questions()
    questions = None if workload is None else DraftWorkload(statements(workload), guess)
    asked = _asking(choices) if interactive else lambda _: choices

    def ask(sketch: Sketch) -> CuratorChoices:
        _refuse_lost_lines(sketch, Path(source), skipped=said["skip_lines"])
        return asked(sketch)

    drafted = api.init(source, output, name=name, ask=ask, workload=questions, encoding=said["encoding"])
    value = {
        "catalog": str(output), "to_confirm": drafted.open, "question": drafted.question or None,
        "foreign_keys": drafted.foreign_keys, "public": list(drafted.public),
        "candidates": list(drafted.candidates), "notes": list(drafted.notes),
        "dropped": [column._asdict() for column in drafted.dropped], "unmatched": list(drafted.unmatched),
        "unread": list(drafted.unread),
    }  # fmt: skip
    keys = "1 foreign key" if drafted.foreign_keys == 1 else f"{drafted.foreign_keys} foreign keys"
    lines = [f"wrote {output}: {drafted.open} places to confirm, {keys} found"]
    lines += [*drafted.unread, *drafted.unmatched]
    lines += drafted.notes
    lines += [f"{drafted.question} If not, pass --unit TABLE.KEY."] if drafted.question else []
    lines += [] if drafted.design is None else _design_lines(drafted.design)
    lines += _dropped_lines(drafted.dropped)
    lines += [f"next: dpsql confirm {output}"] if drafted.open else []
    return CommandOutput(value, "\n".join(lines))


def _refuse_lost_lines(sketch: Sketch, source: Path, *, skipped: bool) -> None:
    """Refuse a draft that would be about some of the lines alone, unless she says so.

    Raises:
        InterfaceError: lines of a file are no rows.
    """
    from dpsql.curator.draft.profile import lost_lines

    for table in sketch.tables if not skipped else ():
        if table.left_out:
            file = source if source.is_file() else source / table.place
            raise InterfaceError(lost_lines(file, table.left_out), hint="no catalog is written")


def _questions() -> Path | None:
    """A file of statements; None for first views."""

    def read(text: str) -> str:
        if text and not Path(text).expanduser().is_file():
            raise click.UsageError(f"no file {text}")
        return text

    prompt = "A file with your questions in SQL, each ended by `;` (empty: first views)"
    answer = click.prompt(prompt, default="", show_default=False, value_proc=read, err=True)
    return Path(answer).expanduser() if answer else None


SHOWN = 12
"""Columns of a table that no question names and that its row shows by name."""


def _dropped_lines(dropped: Sequence[DroppedColumn]) -> list[str]:
    """Columns left out, the reason, and the line that keeps each, one under the other."""
    from dpsql.curator.draft.roles import NO_QUESTION, NO_TABLE

    if not dropped:
        return ["left out: no column"]
    rows = [("left out", "why", "the line that keeps it")]
    rows += [
        (f"{column.table}.{column.column}", column.why, column.line)
        for column in dropped
        if column.why not in (NO_QUESTION, NO_TABLE)
    ]
    # columns that no question reads: a row for each table, and one for all tables that none needs
    keeps = "name it in a question, or take its line from `dpsql init --json`"
    for table in dict.fromkeys(column.table for column in dropped if column.why == NO_QUESTION):
        names = [column.column for column in dropped if (column.table, column.why) == (table, NO_QUESTION)]
        shown = ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
        rows.append((f"{table}: {shown}", f"left out: {NO_QUESTION}", keeps))
    if tables := dict.fromkeys(column.table for column in dropped if column.why == NO_TABLE):
        rows.append((", ".join(tables), f"left out: {NO_TABLE}", keeps))
    return aligned(rows)


@cli.command()
@click.argument("catalog", type=FILE)
@click.option("--workload", required=True, type=FILE, help="file of SQL statements, each ended by `;`")
@click.option("-o", "--output", type=FILE, help="catalog to write; without it the views are shown")
@click.option("--units", type=click.IntRange(1), help="public guess: how many units own rows")
@click.option("--rows", type=click.IntRange(1), help="public guess: how many rows there are")
@tells
def design(
    catalog: Path, workload: Path, output: Path | None, units: int | None, rows: int | None
) -> CommandOutput:
    """Propose the views of CATALOG that answer the questions of a workload with the least predicted error.

    Says what each answer will err, and which questions cannot be served and why; spends nothing, opens no private
    table. With --units and --rows errors are also told relative to a typical answer. The views become public with
    the release, so choose the questions without looking at private rows.
    """
    if output is not None and output.exists():
        raise InterfaceError(f"{output} exists", hint="choose another output, or remove it")
    designed = api.design(catalog, statements(workload), guess=stated_guess(units, rows))
    if output is not None:
        output.write_text(designed.text, encoding="utf-8")
    value = {
        "views": designed.views, "summaries": designed.summaries, "served": designed.served,
        "questions": [asdict(question) for question in designed.questions], "notes": list(designed.notes),
    }  # fmt: skip
    shown = [] if output is not None else ["views:", *view_lines(designed.views)]
    return CommandOutput(value, "\n".join([*shown, *_design_lines(designed)]), result=True)


def _design_lines(designed: CatalogDesign) -> list[str]:
    """Predicted error of each question, or the reason why it is not served."""
    measures = designed.measures.items()
    new = [f"{table}.{name} = {m.expr}" for table, gained in measures for name, m in gained.items()]
    lines = [f"new measures, with bounds that follow from the columns': {'; '.join(new)}"] if new else []
    facts = []
    for name, entry in designed.summaries.items():
        ends = f", {entry['lower']} to {entry['upper']}" if "lower" in entry else ""
        facts.append(f"{name} = {entry['is']} of {entry['of']}{ends}")
    if facts:
        lines.append(f"new facts about people; values beyond a bound count as the bound: {'; '.join(facts)}")
    lines += designed.notes
    lines.append(
        f"{designed.served} of {len(designed.questions)} questions are served by {len(designed.views)} views"
    )
    for number, question in enumerate(designed.questions, 1):
        lines.append(f"{number}. {' '.join(question.sql.split())}")
        if question.refusal is not None:
            lines.append(f"   not served: {question.refusal}")
            continue
        noisy = [column for column in question.columns if column.view]
        views = ", ".join(dict.fromkeys(column.view for column in noisy))
        exact = "its error depends on the answer" if question.columns else "from the catalog, no noise"
        errors = [f"{c.name} ± {c.median * HALF:.4g}" for c in noisy if c.median is not None]
        unforeseen = {c.name: c.wants_guess for c in noisy if c.wants_guess}
        if unforeseen:
            of = " and ".join(dict.fromkeys(unforeseen.values()))
            errors.append(f"{', '.join(unforeseen)}: `dpsql plan` forecasts it where {of} has a `guess:`")
        about = [] if question.relative is None or any(c.wants_guess for c in noisy) else [
            f"about {HALF * question.relative:.1%} of a typical answer"
        ]  # fmt: skip
        lines.append(f"   {'; '.join([*about, *errors, *([f'view {views}'] if views else [exact])])}")
    return lines


SELECTION = (
    "May noisy numbers choose how a view is measured? They cost 1 to 2% of its budget; where most cells are empty "
    "errors fall to .3 to .8, and answers may then be biased, with a note"
)


def _asking(options: CuratorChoices) -> Callable[[Sketch], CuratorChoices]:
    """Ask in the terminal for what the options leave open."""

    def ask(sketch: Sketch) -> CuratorChoices:
        from dpsql.curator.draft import CuratorChoices

        for table in sketch.tables:
            named = ", ".join(f"{c} -> {t}" for c, t in sketch.links.foreign[table.name].items())
            say(f"  {table.name}: {table.rows} rows" + (f"; {named}" if named else ""), err=True)
        unit = options.unit or _unit(sketch)
        public = _public(sketch, unit) if options.public is None else options.public
        cap = options.cap or _amount(
            "Most that these people may ever lose, in epsilon (for instance 4)", None
        )
        spends = options.epsilon or _amount("What the first release spends of it (for instance 1)", cap)
        allows = options.data_dependent
        if allows is None:
            allows = click.confirm(SELECTION, default=True, err=True)
        guesses = options.guesses or ({} if unit == "row" else _guesses(sketch, unit))
        traits = _traits(sketch, unit) if options.traits is None else options.traits
        return CuratorChoices(
            unit, public, cap=cap, epsilon=spends, data_dependent=allows, guesses=guesses, traits=traits
        )

    return ask


TRAITS = (
    "Several rows of {} are one person's. Which columns are about her, not about one row (of several values the least "
    "counts; empty: none)? {}"
)


def _traits(sketch: Sketch, unit: str) -> frozenset[str] | None:
    """Columns that make a table of people; None where the source has one. Names are listed, no row is looked at."""
    people = next((table for table in sketch.tables if table.name == unit.partition(".")[0]), None)
    if people is None or not people.people_of:
        return None
    of = next(table for table in sketch.tables if table.name == people.people_of)
    names = [column.name for column in of.columns if column.name != people.columns[0].name]

    return _names(TRAITS.format(of.name, ", ".join(names)), names, f"{of.name} has no column {{}}")


def _names(prompt: str, offered: Sequence[str], unknown: str) -> frozenset[str]:
    """Ask for some of the names that are offered."""

    def read(text: str) -> frozenset[str]:
        chosen = frozenset(text.replace(",", " ").split())
        if wrong := sorted(chosen - frozenset(offered)):
            raise click.UsageError(f"{unknown.format(wrong[0])}; there are {', '.join(offered)}")
        return chosen

    answer: frozenset[str] = click.prompt(prompt, default="", show_default=False, value_proc=read, err=True)
    return answer


def _unit(sketch: Sketch) -> str:
    """The people's key; a table's name stands for its key."""
    keys = {table.name: f"{table.name}.{sketch.links.keys[table.name]}" for table in sketch.tables
            if sketch.links.keys[table.name]}  # fmt: skip
    candidates = ", ".join(sketch.whose.candidates)

    def read(text: str) -> str:
        units = {"row": "row", **{key: key for key in keys.values()}, **keys}
        if text.strip() not in units:
            raise click.UsageError(f"write row, or one of {', '.join(keys.values())}")
        return units[text.strip()]

    if sketch.whose.question:
        click.echo(sketch.whose.question, err=True)
    prompt = f"Whose privacy ({candidates})"
    return str(click.prompt(prompt, default=sketch.whose.unit, value_proc=read, err=True))


GUESS = (
    "About how many of {unit} own rows of {table}, how many rows are there, and what number do hardly any exceed: "
    "two or three numbers that are public anyway, then means of what is summed, such as amount=40 (one digit of each "
    "is kept, the release shows it; empty: no forecast)"
)


def _guesses(sketch: Sketch, unit: str) -> dict[str, PublicGuess]:
    """Public guesses about each table that leads to the people; nothing is proposed."""

    def read(text: str) -> PublicGuess | None:
        from dpsql.catalog.tables import PublicGuess

        words = text.replace(",", " ").split()
        means = dict(word.split("=", 1) for word in words if "=" in word)
        whole = (word for word in words if "=" not in word)
        numbers = dict(zip(("units", "rows", "most_rows", "too many"), whole, strict=False))
        try:
            return PublicGuess.model_validate({**numbers, "means": means}) if words else None
        except ValueError as error:
            raise click.UsageError(
                "write two or three whole numbers, at least as many rows as units, then means: 600 20000 50 fee=4"
            ) from error

    people = unit.partition(".")[0]
    guesses = {}
    for table in sketch.tables:
        if people in sketch.links.reached(table.name):
            prompt = GUESS.format(unit=people, table=table.name)
            guesses[table.name] = click.prompt(
                prompt, default="", show_default=False, value_proc=read, err=True
            )
    return {table: guess for table, guess in guesses.items() if guess is not None}


PUBLIC = "Which of these are lists of things, not of people (anybody may see their rows; empty: none)? {}"


def _public(sketch: Sketch, unit: str) -> frozenset[str]:
    """Tables whose rows anybody may see; nothing is proposed, and a table that is not listed may be named too."""
    from dpsql.curator.draft.roles import why_private

    names = {table.name for table in sketch.tables} - {unit.partition(".")[0]}
    candidates = sorted(names - why_private(sketch.tables, sketch.links, unit).keys())

    prompt = PUBLIC.format(", ".join(candidates) or "no table looks so")
    return _names(prompt, sorted(names), "no table {} to name")


def _amount(question: str, most: str | None) -> str:
    """A number above 0 and at most `most`, as it was typed."""
    limit = _number(most or "")

    def read(text: str) -> str:
        amount = _number(text)
        if amount <= 0:
            raise click.UsageError("write a number above 0, such as 0.5")
        if 0 < limit < amount:
            raise click.UsageError(f"that is more than {most}, the most that may ever be spent")
        return text.strip()

    return str(click.prompt(question, value_proc=read, err=True))


def _number(text: str) -> Fraction:
    """A number as people type it; 0 where it is none."""
    try:
        return Fraction(text.strip())
    except (ValueError, ZeroDivisionError):
        return Fraction(0)


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
    from dpsql.curator.confirm import confirm_file, groups_of, open_marks, record_of

    marks = open_marks(load_catalog(catalog))
    groups = groups_of(marks)
    choices: dict[str, bool] = {}
    for tables, is_rounder in ((as_read, False), (rounder, True)):
        for table in groups if EVERY in tables else tables:
            if table in choices:
                raise InterfaceError(f"{table} is given to both --as-read and --rounder", hint="name it once")
            choices[table] = is_rounder
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
    catalog = load_catalog(file)
    if not release.exists():
        _step(context, ["plan", str(file), *workload])
        if workload and any(table.guess is not None for table in catalog.tables.values()):
            with suppress(click.exceptions.Exit):  # a miss is shown, and the question below comes after it
                _step(context, ["rehearse", str(file), *workload, "--releases", "2", "--offers"])
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


def _confirmed(file: Path) -> bool:
    """True if no mark is left, once each table was asked about."""
    from dpsql.curator.confirm import confirm_file, open_marks, record_of

    marks = open_marks(load_catalog(file))
    if not marks:
        return True
    say(f"$ {shlex.join(['dpsql', 'confirm', str(file)])}", err=True)
    choices = ask_tables(marks)
    if choices:
        confirm_file(file, choices, login())
        say(f"recorded in {record_of(file)}", err=True)
    left = open_marks(load_catalog(file))
    if left:
        say(f"{len(left)} places need confirmation; run the same command again to continue", err=True)
    return not left
