"""The `dpsql` command: one click group, one module a family of commands, and an example or two of every command.

Results go to standard output, everything else to standard error. Exit codes: 0 done, 1 the statement,
2 something cannot be opened or the catalog is wrong, 3 a privacy refusal, 4 the machine refused (disk, rights,
memory, a lock), 130 stopped by Ctrl-C.

A command's `--help` shows its examples; a test types all of them. Files are called alike throughout: `shop.yaml`
describes the tables in `data`, `shop.dpsql` is its release. `dpsql --help` prints the summaries and loads no module.

Here is the frame of every command: errors as one line and an exit code, results as text or JSON, stages of long work.
"""

from __future__ import annotations

import gc
import json
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, NoReturn

import click

from dpsql.errors import INTERRUPTED, TERMINATED, Error, MachineFault, visible_lines
from dpsql.progress import Progress, Stage

FILE = click.Path(path_type=Path)
SALES = '"SELECT region, COUNT(*) FROM shop GROUP BY region"'
GROUPS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "Begin": {
        "start": ("draft", "Go from data and questions to a release, step by step", "dpsql start data questions.sql"),
        "init": ("draft", "Draft a catalog from files, DuckDB or PostgreSQL",
            "dpsql init data -o drafted.yaml --unit customer.customer_id --public product"),
        "confirm": ("draft", "Confirm the bounds that were read from private rows", "dpsql confirm shop.yaml",
            "dpsql confirm shop.yaml --rounder all --by ada"),
        "plan": ("plan", "Forecast the error of each question; spends nothing",
            "dpsql plan shop.yaml --workload questions.sql"),
        "rehearse": ("plan", "Publish made-up rows and compare; spends nothing",
            "dpsql rehearse shop.yaml --units 300 --rows 900 --releases 2"),
        "publish": ("curate", "Spend the budget once and write a release", "dpsql publish shop.yaml -o shop.dpsql"),
    },
    "Ask": {
        "query": ("analyst", "Answer one SQL statement with its intervals", f"dpsql query shop.dpsql {SALES}",
            f"dpsql query shop.dpsql {SALES} --format csv --level 0.9",
            'dpsql query shop.dpsql more.dpsql "SELECT COUNT(*) FROM sales"'),
        "explain": ("analyst", "Show the plan of a statement: views, nodes, error",
            f"dpsql explain shop.dpsql {SALES}"),
        "shell": ("analyst", "Ask interactively, or run statements from a file", "dpsql shell shop.dpsql",
            'dpsql shell shop.dpsql -c "SHOW VIEWS"'),
        "explore": ("analyst", "Open a local web page: SQL, tables, charts", "dpsql explore shop.dpsql"),
        "serve": ("analyst", "Serve releases to PostgreSQL clients", "dpsql serve shop.dpsql",
            "dpsql serve shop.dpsql more.dpsql --port 5444"),
        "export": ("analyst", "Write the noisy tables as Parquet, with errors", "dpsql export shop.dpsql -o tables",
            "dpsql export shop.dpsql -o months --view trend --level 0.9"),
        "report": ("analyst", "Write one self-contained page about a release",
            "dpsql report shop.dpsql -o report.html"),
        "site": ("analyst", "Write a static site with a question builder", "dpsql site shop.dpsql -o site"),
        "mcp": ("analyst", "Offer releases to agents as tools", "dpsql mcp shop.dpsql"),
    },
    "Prove": {
        "audit": ("curate", "Check a release against its catalog, offline",
            "dpsql audit shop.dpsql --catalog shop.yaml"),
        "verify": ("analyst", "Check signature, structure and numbers of a file", "dpsql verify shop.dpsql"),
        "certificate": ("curate", "Write the page for a data-protection officer",
            "dpsql certificate shop.dpsql --catalog shop.yaml -o certificate.html"),
        "check": ("analyst", "Check the numbers that a report quotes", "dpsql check report.md --release shop.dpsql"),
        "budget": ("curate", "Show what each lineage has spent, and what is left", "dpsql budget shop.yaml"),
        "ledger": ("curate", "Back up or move the ledger",
            "dpsql ledger backup .dpsql/ledger.duckdb -o ledger-copy.duckdb"),
    },
    "Streams and collections": {
        "append": ("curate", "Append one batch to a stream",
            "dpsql append days.dpsql --catalog days.yaml --batch 2025-01-01",
            "dpsql append days.dpsql --catalog days.yaml --batch 2025-01-02 --source day.parquet"),
        "collection-plan": ("curate", "Write the plan that people's devices answer",
            "dpsql collection-plan survey.yaml -o plan.json --people 5000"),
        "collect": ("curate", "Count reports of devices and write a release",
            "dpsql collect made.json reports.parquet -o survey.dpsql"),
        "simulate": ("curate", "Simulate the reports of a raw star; protects nobody",
            "dpsql simulate survey.yaml -o reports.parquet --plan made.json --seed 1"),
        "forget": ("curate", "Erase some people from stored reports or a stream",
            "dpsql forget days.dpsql --people gone.txt --catalog days.yaml"),
    },
    "Tools": {
        "design": ("draft", "Propose the views with the least error for a workload",
            "dpsql design shop.yaml --workload questions.sql"),
        "buy": ("curate", "Publish what a few statements need, and no more",
            'dpsql buy shop.yaml "SELECT COUNT(*) FROM sales" --epsilon 0.1 --plan',
            'dpsql buy shop.yaml "SELECT COUNT(*) FROM sales" --epsilon 0.1 -o more.dpsql'),
        "doctor": ("analyst", "Check this installation, and releases if named", "dpsql doctor",
            "dpsql doctor shop.dpsql"),
    },
}  # fmt: skip
"""Groups in the order of a first use; commands in the order of use. Of each command: the module of this package that
registers it, a summary of under 60 characters, and lines to type."""
COMMANDS: Mapping[str, tuple[str, ...]] = {
    name: entry for group in GROUPS.values() for name, entry in group.items()
}
MODULES: tuple[str, ...] = tuple(dict.fromkeys(module for module, *_ in COMMANDS.values()))
EXAMPLES: Mapping[str, Sequence[str]] = {name: lines for name, (_, _, *lines) in COMMANDS.items()}
"""Lines to type by command."""
BEGIN = "begin here: dpsql start DATA"


class CommandGroup(click.Group):
    """A click group that loads a command when it is run, and turns dpsql's errors into one line and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(dict.fromkeys((*COMMANDS, *super().list_commands(ctx))))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands:
            all_commands(COMMANDS[cmd_name][:1] if cmd_name in COMMANDS else MODULES)
        return super().get_command(ctx, cmd_name)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """One screen of 80 x 40: the commands by group with their summaries, none of them loaded."""
        width = max(map(len, COMMANDS))
        lines = [
            f"Usage: {ctx.command_path} [--version] [--help] COMMAND [ARGS]...",
            self.get_short_help_str(80),
        ]
        for group, entries in GROUPS.items():
            lines += [f"{group}:", *(f"  {name:{width}}  {entry[1]}" for name, entry in entries.items())]
        formatter.write("\n".join([*lines, BEGIN]) + "\n")

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; print an error's one line and leave with its code."""
        try:
            with stopped_by_signals():
                _check_address_space()
                return super().invoke(ctx)
        except Error as error:
            _refuse(ctx, error)
        except (KeyboardInterrupt, Terminated) as stop:
            say("; ".join(("dpsql: stopped", *getattr(stop, "__notes__", ()))), err=True)
            ctx.exit(TERMINATED if isinstance(stop, Terminated) else INTERRUPTED)
        except (click.exceptions.Exit, click.ClickException, BrokenPipeError):
            raise
        except Exception as fault:
            from dpsql.faults import (
                ANEW,
                FAULTS,
                advice,
                reason,
            )  # loaded once there is an exception that may be one

            if not isinstance(fault, FAULTS):
                raise
            _refuse(ctx, MachineFault(f"the system refused: {reason(fault)}", hint=advice(ANEW, fault)))


SPACE, SPACE_OF_A_CORE = 1200, 200
"""Megabytes of addresses (`ulimit -v`) that a command may come to reserve: a small publish on two cores 1,545."""


def _check_address_space() -> None:
    """Refuse to begin where threads could not be started later: the system ends such a process without a word of ours.

    Raises:
        MachineFault: the limit is below what a command may need.
    """
    if sys.platform == "win32":
        return
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    needed = SPACE + SPACE_OF_A_CORE * (os.cpu_count() or 1)
    if limit != resource.RLIM_INFINITY and limit < needed * 1_000_000:
        raise MachineFault(
            f"`ulimit -v` leaves {limit // 1_000_000} MB of address space, {needed} are needed; nothing was started",
            hint=f"ulimit -v {needed * 1000}, or limit the memory of a control group",
        )


class Terminated(SystemExit):
    """SIGTERM: systemd, a container's stop or `timeout` ends the command. Nothing that heeds Ctrl-C keeps it."""

    def __init__(self) -> None:
        super().__init__(TERMINATED)


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Ctrl-C and SIGTERM end the block with an exception, also while DuckDB works, which makes a RuntimeError of it.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed; with the notes of what it ended.
        Terminated: SIGTERM came; with the same notes.
    """
    arrived: list[type[BaseException]] = []

    def arrive(number: int, frame: FrameType | None) -> None:
        arrived.append(Terminated if number == signal.SIGTERM else KeyboardInterrupt)
        raise arrived[-1]

    # A signal that whoever started us ignores or heeds stays as it is; an outer block has both already.
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    taken = {number: handler for number, handler in usual.items() if signal.getsignal(number) is handler}
    for number in taken:
        signal.signal(number, arrive)
    try:
        yield
    except click.exceptions.Exit:
        raise
    except RuntimeError as error:
        if not arrived:
            raise
        stop = arrived[-1]()
        for note in getattr(error, "__notes__", ()):
            stop.add_note(note)
        raise stop from error
    finally:
        for number, handler in taken.items():
            signal.signal(number, handler)


def _refuse(ctx: click.Context, error: Error) -> NoReturn:
    """Print an error's one line, as JSON too where that is wanted, and leave with its code."""
    if ctx.meta.get(_AS_JSON):
        report = {"type": type(error).__name__, "message": str(error)}
        click.echo(
            json.dumps(
                {"command": ctx.invoked_subcommand, "code": error.exit_code, "error": report}, indent=2
            )
        )
    click.echo(f"dpsql: {error}", err=True)
    if error.caret:
        say(error.caret, err=True)
    ctx.exit(error.exit_code)


class CommandOutput(NamedTuple):
    """Output of a finished command.

    Args:
        value: for programs, as JSON.
        text: for people.
        result: whether the text is the result, or only words about it, which go to standard error.
        code: to exit with.
    """

    value: Any
    text: str
    result: bool = False
    code: int = 0


_AS_JSON = "dpsql.json"


def wants_json() -> None:
    """Have an error of this command said on standard output too, as JSON."""
    click.get_current_context().meta[_AS_JSON] = True


def as_object(value: Any, code: int = 0, *, indent: int | None = 2) -> str:
    """Output for programs: one object of docs/output.schema.json.

    Args:
        value: its own keys; another value stands under `result`.
        code: to exit with.
        indent: None for one line.
    """
    command = click.get_current_context().command_path.partition(" ")[2]
    report = value if isinstance(value, Mapping) else {"result": value}
    return json.dumps({"command": command, "code": code, **report}, indent=indent, default=str)


def tells(command: Callable[..., CommandOutput]) -> Callable[..., None]:
    """Give a command the option --json, and say what it returns."""

    @click.option("--json", "as_json", is_flag=True, help="report as JSON on standard output")
    @wraps(command)
    def run(*, as_json: bool, **arguments: Any) -> None:
        if as_json:
            wants_json()
        outcome = command(**arguments)
        text = as_object(outcome.value, outcome.code) if as_json else visible_lines(outcome.text)
        try:
            click.echo(text, err=not (outcome.result or as_json))
        except BrokenPipeError:
            raise
        except OSError as error:
            raise MachineFault(
                f"the command succeeded, but its output cannot be written ({error.strerror})",
                hint="run the same command again, nothing is charged twice",
            ) from error
        click.get_current_context().exit(outcome.code)

    return run


def say(text: str, *, err: bool = False) -> None:
    """Print lines; names and labels in them may come from anybody.

    Args:
        text: what to print.
        err: to standard error.
    """
    click.echo(visible_lines(text), err=err)


def write_text(file: Path, text: str) -> None:
    """Write a file that a command was asked for.

    Raises:
        MachineFault: it cannot be written.
    """
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise MachineFault(f"cannot write {file}: {error.strerror}") from error


@contextmanager
def steps(title: str) -> Iterator[Progress | None]:
    """A callback that shows each step on standard error while the block runs; silence where that is no terminal.

    The bar fills, with percent and the time left, where steps are counted; it runs to and fro where nobody knows how
    many there are.

    Args:
        title: what is being done, for instance `publish`.

    Yields:
        A callback for the engine, or None where standard error is not a terminal.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        SpinnerColumn,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bars

    head, step_now = TextColumn("{task.fields[title]}"), TextColumn("{task.description}")
    columns = (
        SpinnerColumn(), head, BarColumn(24), TaskProgressColumn(), TimeElapsedColumn(), TimeRemainingColumn(), step_now
    )  # fmt: skip
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("starting", total=None, title=title)

        def show(step: Stage) -> None:
            bars.update(task, description=str(step), completed=step.done, total=step.total)
            bars.print(str(step), style="dim", highlight=False, markup=False)

        yield show


@click.group(
    cls=CommandGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(package_name="dpsql", prog_name="dpsql")
@click.pass_context
def cli(context: click.Context) -> None:
    """Private analytics over star schemas: publish once, ask SQL, get intervals."""
    if context.invoked_subcommand is not None:
        return
    release = os.environ.get("DPSQL_RELEASE")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        click.echo(context.get_help())
    elif release:
        shell = cli.get_command(context, "shell")
        assert shell is not None
        shell.invoke(shell.make_context("shell", [release], parent=context))
    else:
        say(at_hand(Path()))


def at_hand(folder: Path) -> str:
    """Suggestions after `dpsql` alone: the releases of a folder, or the demo."""
    releases = sorted(file.name for file in folder.glob("*.dpsql"))
    lines = [f"  dpsql shell {shlex.quote(name)}" for name in releases[:AT_HAND]]
    more = [f"  and {len(releases) - AT_HAND} more"] if len(releases) > AT_HAND else []
    opened = (
        ["releases here:", *lines, *more] if releases else ["no release here, and DPSQL_RELEASE is not set"]
    )
    made_up = "a made-up shop to try: python -m dpsql.examples.retail data --seed 7, then dpsql init data"
    return "\n".join([*opened, made_up, "commands: dpsql --help"])


AT_HAND = 10
"""Releases that are listed."""


def all_commands(modules: Iterable[str] = MODULES) -> Mapping[str, click.Command]:
    """The commands by name, once some modules have registered theirs; each one's help ends with its examples."""
    gc.disable()  # modules are no garbage: looking for some is a tenth of a cold start
    for module in modules:
        import_module(f"dpsql.interfaces.cli.{module}")
    gc.freeze()
    gc.enable()
    for name, command in cli.commands.items():
        if lines := EXAMPLES.get(name):
            title = "Example:" if len(lines) == 1 else "Examples:"
            command.epilog = "\n".join(["\b", title, *(f"  $ {line}" for line in lines)])
    return cli.commands


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the console script."""
    cli.main(args=list(arguments) if arguments is not None else sys.argv[1:], prog_name="dpsql")
