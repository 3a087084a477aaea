"""The `dpsql shell`: SQL and backslash commands over open releases.

One statement or command at a time becomes text on the output: in a loop on a terminal, or from -c, -f or a pipe. Each
command takes what the user has set and the rest of its line, and returns text to show.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TextIO

from dpsql.errors import INTERRUPTED, Error, InterfaceError, OperationalError, visible, visible_lines
from dpsql.federation.session import OpenReleases, Settings
from dpsql.interfaces import aligned
from dpsql.interfaces.python.dbapi import InputPiece, is_command, split, unfinished
from dpsql.interfaces.python.describe import TableInfo, Words, complete, describe, offered
from dpsql.release.request import heeding_keys
from dpsql.results.render import STYLES, notes_beside, render

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completer


class ShellState:
    """The shell's settings; commands change them. `errors` shows margins and marks, `timing` elapsed time, `expanded`
    each row vertically; `settings` is what was set in SQL; `notes` are those of the last answer, and `known_lines`
    lines below answers that the session has shown.

    Args:
        releases: what is asked.
        style: one of `dpsql.results.render.STYLES`.
        level: of the margins shown.
        terminal: whether output goes to a person: pager, colours, elapsed time.
        output: where results go.
    """

    def __init__(
        self, releases: OpenReleases, style: str, level: float = 0.95, terminal: bool = False,
        output: TextIO | None = None,
    ) -> None:  # fmt: skip
        self.releases, self.style, self.level, self.terminal = releases, style, level, terminal
        self.errors, self.timing, self.expanded = True, False, False
        self.output, self.depth, self.settings = output or sys.stdout, 0, Settings()
        self.notes: tuple[str, ...] = ()
        self.known_lines: set[str] = set()

    @property
    def asked(self) -> OpenReleases:
        """The open releases, under the settings."""
        return self.settings.of(self.releases)

    def tables(self) -> list[tuple[str, TableInfo]]:
        """(release name, table) of everything a statement may name."""
        return [(r.name, table) for r in self.releases.releases for table in describe(r)]

    def write(self, text: str) -> None:
        """Text and a line end to the output; names and labels in it may come from anybody."""
        print(visible_lines(text), file=self.output, flush=True)

    def redirect(self, path: str) -> None:
        """Send results to a file, or back to standard output for an empty path."""
        if self.output is not sys.stdout:
            self.output.close()
        self.output = open(path, "w", encoding="utf-8") if path else sys.stdout  # noqa: SIM115, PTH123 - kept open


Command = Callable[[ShellState, str], str]


def columns_text(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Left-aligned columns under a head.

    >>> print(columns_text(["a", "bb"], [["xxx", "y"]]))
    a    bb
    ---  --
    xxx  y
    """
    rule = ["-" * max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return "\n".join(aligned([head, rule, *rows]))


def list_or_describe(state: ShellState, rest: str) -> str:
    """All tables, or the columns of one."""
    wanted = rest.strip().strip(";").replace('"', "").lower()
    tables = state.tables()
    if not wanted:
        return columns_text(
            ["release", "table", "kind", "columns", "comment"],
            [[name, t.name, t.kind, str(len(t.columns)), t.comment] for name, t in tables],
        )
    matches = [t for name, t in tables if wanted in (t.name.lower(), f"{name}.{t.name}".lower())]
    if not matches:
        raise InterfaceError(f"there is no table {rest.strip()}", hint="\\d lists the tables")
    rows = [[c.name, c.type, "yes" if c.nullable else "no", c.comment] for c in matches[0].columns]
    arrows = [f"{column} -> {table}.{key}" for column, (table, key) in matches[0].references.items()]
    return "\n".join([columns_text(["column", "type", "nullable", "comment"], rows), *arrows])


def releases(state: ShellState, rest: str) -> str:
    """The open releases and what each promises."""
    rows = []
    for release in state.releases.releases:
        privacy = release.meta.privacy
        amounts = [(name, getattr(privacy, name)) for name in ("delta", "epsilon", "mu2", "unit")]
        promise = ", ".join(f"{name} {amount}" for name, amount in amounts if amount)
        views = len({s.view for s in release.statistics if release.declares(s.view)})
        rows.append([release.name, release.meta.release_id[:12], promise, str(views), str(release.path)])
    return columns_text(["release", "id", "promise", "views", "file"], rows)


def explain(state: ShellState, rest: str) -> str:
    """Explain a statement."""
    if not rest.strip():
        raise InterfaceError(
            "\\explain needs a statement", hint="for instance \\explain SELECT COUNT(*) FROM t"
        )
    return heeding_keys(lambda: state.asked.explain(rest.strip().rstrip(";")))


def set_style(state: ShellState, rest: str) -> str:
    """Choose how results are written."""
    word = rest.strip().lower()
    if word not in STYLES:
        raise InterfaceError(f"there is no format {word!r}", hint=f"one of {', '.join(STYLES)}")
    state.style = word
    return f"format is {word}"


def switch(name: str, attribute: str) -> Command:
    """A command that turns a setting on or off; without a word it turns it round."""

    def run(state: ShellState, rest: str) -> str:
        word = rest.strip().lower()
        if word not in ("", "on", "off"):
            raise InterfaceError(f"{name} takes on or off, not {word!r}")
        value = not getattr(state, attribute) if not word else word == "on"
        setattr(state, attribute, value)
        return f"{name} is {'on' if value else 'off'}"

    return run


def redirect(state: ShellState, rest: str) -> str:
    """Send results to a file; without a file back to the screen."""
    path = rest.strip()
    try:
        state.redirect(path)
    except OSError as error:
        raise OperationalError(f"cannot write {path}: {error.strerror}") from error
    return ""


def read_file(path: str) -> str:
    """The text of a script.

    Raises:
        OperationalError: it cannot be read.
    """
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OperationalError(f"cannot read {path}", hint="check the path; it must be UTF-8 text") from error


def help_text(state: ShellState, rest: str) -> str:
    """The commands."""
    rows = [
        [f"\\{name}", command.takes, (command.run.__doc__ or command.says).split(".")[0]]
        for name, command in TABLE.items()
    ]
    return columns_text(
        ["command", "takes", "does"], [*rows, ["\\i", "file", "Run a file"], ["\\q", "", "Leave"]]
    )


def notes(state: ShellState, rest: str) -> str:
    """All notes of the last answer."""
    return "\n".join(state.notes)


class ShellCommand(NamedTuple):
    """A command in the table: what it does, what it takes, and a line of help where the function has none."""

    run: Command
    takes: str = ""
    says: str = ""


TABLE = {
    "d": ShellCommand(list_or_describe, "[table]"),
    "releases": ShellCommand(releases),
    "explain": ShellCommand(explain, "statement"),
    "notes": ShellCommand(notes),
    "error": ShellCommand(switch("error", "errors"), "[on|off]", "Show margins and marks"),
    "timing": ShellCommand(switch("timing", "timing"), "[on|off]", "Show elapsed time"),
    "x": ShellCommand(switch("expanded", "expanded"), "[on|off]", "Show each row vertically"),
    "format": ShellCommand(set_style, "|".join(STYLES)),
    "o": ShellCommand(redirect, "[file]"),
    "?": ShellCommand(help_text),
}

SYNONYMS = {
    "dt": "d", "tables": "d", "schema": "d", "mode": "format", "output": "o", "read": "i", "timer": "timing",
    "help": "?", "h": "?", "quit": "q", "exit": "q", "errors": "error", "expanded": "x",
}  # fmt: skip
"""Words of other shells; `.word` and `\\word` both work."""

NAMES = (*TABLE, "i", "q")


PROMPT, CONTINUED = "dpsql> ", "   ... "
MAX_NESTED_FILES = 16


class Stop(Exception):
    """Raised by `\\q`."""


def evaluate(piece: InputPiece, state: ShellState) -> None:
    """Run one piece and write its result to the state's output.

    Args:
        piece: a statement or a command.
        state: settings; commands change them.

    Raises:
        Stop: the user wants to leave.
        dpsql.errors.Error: it went wrong; nothing was written.
    """
    started = time.perf_counter()
    text = _command(piece.text, state) if piece.command else _statement(piece.text, state)
    if text:
        show(text, state)
    if state.timing and not piece.command:
        state.write(f"time: {(time.perf_counter() - started) * 1000:.1f} ms")


def run_pieces(text: str, state: ShellState) -> None:
    """Run a whole script; an unfinished last statement counts as finished.

    Raises:
        Stop, dpsql.errors.Error: as `evaluate`; what follows is not run.
    """
    pieces, tail = split(text)
    if last := unfinished(tail):
        pieces.append(InputPiece(last, False))
    for piece in pieces:
        evaluate(piece, state)


def show(text: str, state: ShellState) -> None:
    """Write text; a person gets a pager when it is longer than the screen."""
    import shutil

    if state.terminal and state.output is sys.stdout:
        size = shutil.get_terminal_size()
        lines = text.split("\n")
        if len(lines) >= size.lines or max(map(len, lines)) > 4 * size.columns:
            import click

            click.echo_via_pager(visible_lines(text) + "\n")
            return
    state.write(text)


def _statement(text: str, state: ShellState) -> str:
    if notice := state.settings.take(text):
        print(f"dpsql: {notice}", file=sys.stderr, flush=True)
        return ""
    style = "vertical" if state.expanded and state.style == "table" else state.style

    def answer() -> tuple[str, tuple[str, ...]]:
        answered = state.settings.query(state.releases, text)
        state.notes = answered.notes
        known = state.known_lines
        text_shown = render(answered, style, state.level, errors=state.errors, known=known)
        return text_shown, notes_beside(answered, style, state.level, known)

    shown, notes = heeding_keys(answer)
    for note in notes:
        print(f"note: {visible(note)}", file=sys.stderr, flush=True)
    return shown


def _command(line: str, state: ShellState) -> str:
    word, _, argument = line.lstrip("\\.").partition(" ")
    name = SYNONYMS.get(word.lower(), word.lower())
    if name == "q":
        raise Stop
    if name == "i":
        # Run a script that may run others, so many deep and no deeper.
        path = argument.strip()
        if not path:
            raise InterfaceError("\\i needs a file")
        if state.depth >= MAX_NESTED_FILES:
            raise InterfaceError(
                f"files run files more than {MAX_NESTED_FILES} deep", hint="does one run itself?"
            )
        state.depth += 1
        try:
            run_pieces(read_file(path), state)
        finally:
            state.depth -= 1
        return ""
    if name not in TABLE:
        import difflib

        near = difflib.get_close_matches(name, [*NAMES, *SYNONYMS], n=1)
        raise InterfaceError(
            f"there is no command {line[0]}{word}",
            hint=f"did you mean \\{near[0]}?" if near else "\\? lists them",
        )
    return TABLE[name].run(state, argument)


def run_text(text: str, state: ShellState) -> int:
    """Run a script and stop at its first error.

    Args:
        text: statements and commands.
        state: settings.

    Returns:
        Exit code: 0, or that of the error.
    """
    try:
        run_pieces(text, state)
    except Stop:
        return 0
    except Error as error:
        report(error)
        return error.exit_code
    except KeyboardInterrupt:
        print("dpsql: stopped", file=sys.stderr)
        return INTERRUPTED
    return 0


def report(error: Error) -> None:
    """One line on standard error, and the place in the statement if it has one."""
    print(f"dpsql: {error}", file=sys.stderr, flush=True)
    if error.caret:
        print(visible_lines(error.caret), file=sys.stderr, flush=True)


def interact(state: ShellState) -> int:
    """Read, evaluate, print until Ctrl-D or `\\q`.

    Args:
        state: settings.

    Returns:
        Exit code 0.
    """
    session = _session(state)
    names = ", ".join(release.name for release in state.releases.releases)
    print(f"dpsql: {visible(names)}. Statements end with ; and \\? lists the commands.")
    while True:
        try:
            text = session.prompt()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return 0
        pieces, tail = split(text)
        if tail.strip():
            pieces, _ = split(text + ";")
        for piece in pieces:
            try:
                evaluate(piece, state)
            except Stop:
                return 0
            except Error as error:
                report(error)
                break
            except KeyboardInterrupt:
                print("dpsql: stopped", file=sys.stderr, flush=True)
                break


def complete_input(text: str) -> bool:
    """True if Enter sends the text: a command, a statement with its `;`, or nothing at all.

    >>> complete_input("SELECT 1"), complete_input("SELECT 1;"), complete_input("\\\\d")
    (False, True, True)
    """
    if not text.strip() or is_command(text):
        return True
    pieces, tail = split(text)
    return bool(pieces) and not unfinished(tail)


def _session(state: ShellState):  # type: ignore[no-untyped-def]  # prompt_toolkit is loaded on a terminal only
    from prompt_toolkit import PromptSession
    from prompt_toolkit.filters import Condition
    from prompt_toolkit.history import FileHistory, InMemoryHistory
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    keys = KeyBindings()

    @keys.add("enter")
    def _enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if complete_input(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    path = history_path()
    return PromptSession(
        PROMPT,
        multiline=Condition(lambda: True),
        prompt_continuation=lambda width, line, soft: CONTINUED,
        completer=shell_completer(Words(table for _, table in state.tables()), NAMES),
        complete_while_typing=False,
        history=FileHistory(str(path)) if path else InMemoryHistory(),
        key_bindings=keys,
    )


def shell_completer(words: Words, commands: Iterable[str]) -> Completer:
    """Completions for prompt_toolkit, which is loaded here: of the shell's commands after a backslash, else of SQL."""
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document

    class ShellCompleter(Completer):
        """Completions of the word before the cursor."""

        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
            before = document.text_before_cursor
            line = before.lstrip()
            if line[:1] not in ("\\", "."):
                suggestions = complete(words, before)
            else:
                word, space, argument = line[1:].partition(" ")
                if not space:
                    suggestions = offered(word, dict.fromkeys(commands, ""))
                else:
                    tables = words.tables if word in ("d", "dt") else {}
                    styles = dict.fromkeys(STYLES, "") if word in ("format", "mode") else {}
                    suggestions = offered(argument, tables or styles)
            for offer, typed, comment in suggestions:
                yield Completion(offer, start_position=-typed, display_meta=comment)

    return ShellCompleter()


def history_path() -> Path | None:
    """Path of the statement history; None where nothing can be written."""
    home = os.environ.get("XDG_STATE_HOME") or os.environ.get("HOME")
    if not home:
        return None
    folder = Path(home) / ("dpsql" if "XDG_STATE_HOME" in os.environ else ".local/state/dpsql")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder / "history"
