"""The `dpsql shell`: SQL and backslash commands over open releases.

One statement or command at a time becomes text on the output: in a loop on a terminal, or from -c, -f or a pipe.
What the user has set stands in `commands`, with the backslash commands; `complete` knows tables, columns and
category values.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from dpsql.errors import INTERRUPTED, Error, InterfaceError, visible, visible_lines
from dpsql.interfaces.python.describe import Words
from dpsql.interfaces.python.scan import InputPiece, is_command, split, unfinished
from dpsql.interfaces.shell.commands import NAMES, SYNONYMS, TABLE, ShellState, read_file
from dpsql.release.request import heeding_keys
from dpsql.results.render import notes_beside, render

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
        return _run_file(argument.strip(), state)
    if name not in TABLE:
        import difflib

        near = difflib.get_close_matches(name, [*NAMES, *SYNONYMS], n=1)
        raise InterfaceError(
            f"there is no command {line[0]}{word}",
            hint=f"did you mean \\{near[0]}?" if near else "\\? lists them",
        )
    return TABLE[name].run(state, argument)


def _run_file(path: str, state: ShellState) -> str:
    """Run a script that may run others, so many deep and no deeper."""
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

    from dpsql.interfaces.shell.completer import ShellCompleter

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
        completer=ShellCompleter(Words(table for _, table in state.tables())),
        complete_while_typing=False,
        history=FileHistory(str(path)) if path else InMemoryHistory(),
        key_bindings=keys,
    )


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
