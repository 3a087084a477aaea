"""Frame of every command: errors as one line and an exit code, results as text or JSON, stages of long work."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, NoReturn

import click

from dpsql.errors import INTERRUPTED, TERMINATED, Error, MachineFault, visible_lines
from dpsql.interfaces.cli.summaries import BEGIN, COMMANDS, GROUPS, MODULES
from dpsql.progress import Progress, Stage

FILE = click.Path(path_type=Path)


class CommandGroup(click.Group):
    """A click group that loads a command when it is run, and turns dpsql's errors into one line and an exit code.

    Args:
        load: registers the commands of some modules.
    """

    load: Callable[[Iterable[str]], Mapping[str, click.Command]]

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(dict.fromkeys((*COMMANDS, *super().list_commands(ctx))))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands:
            self.load([COMMANDS[cmd_name].module] if cmd_name in COMMANDS else MODULES)
        return super().get_command(ctx, cmd_name)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """One screen of 80 x 40: the commands by group with their summaries, none of them loaded."""
        width = max(map(len, COMMANDS))
        lines = [
            f"Usage: {ctx.command_path} [--version] [--help] COMMAND [ARGS]...",
            self.get_short_help_str(80),
        ]
        for group, entries in GROUPS.items():
            lines += [f"{group}:", *(f"  {name:{width}}  {entry.summary}" for name, entry in entries.items())]
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
        except _faults() as fault:
            from dpsql.faults import ANEW, advice, reason

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


def _faults() -> tuple[type[BaseException], ...]:
    """Exceptions of a refusing machine; loaded once there is an exception that may be one."""
    from dpsql.faults import FAULTS

    return FAULTS


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


def asks() -> bool:
    """True if somebody sits at the terminal."""
    return sys.stdin.isatty()


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
