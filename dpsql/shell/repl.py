"""Running the shell: a loop on a terminal, or a text from -c, -f or a pipe."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from dpsql.errors import Error
from dpsql.shell.evaluate import Stop, evaluate, run_pieces
from dpsql.shell.state import State
from dpsql.split import is_command, split, unfinished

PROMPT, CONTINUED = "dpsql> ", "   ... "


def run_text(text: str, state: State) -> int:
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
        return 1
    return 0


def report(error: Error) -> None:
    """One line on standard error, and the place in the statement if it has one."""
    print(f"dpsql: {error}", file=sys.stderr, flush=True)
    if error.caret:
        print(error.caret, file=sys.stderr, flush=True)


def interact(state: State) -> int:
    """Read, evaluate, print until Ctrl-D or `\\q`.

    Args:
        state: settings.

    Returns:
        Exit code 0.
    """
    session = _session(state)
    names = ", ".join(release.name for release in state.releases.releases)
    print(f"dpsql: {names}. Statements end with ; and \\? lists the commands.")
    while True:
        try:
            text = session.prompt()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return 0
        pieces, rest = split(text)
        if rest.strip():
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
    """Whether Enter sends the text: a command, a statement with its `;`, or nothing at all.

    >>> complete_input("SELECT 1"), complete_input("SELECT 1;"), complete_input("\\\\d")
    (False, True, True)
    """
    if not text.strip() or is_command(text):
        return True
    pieces, rest = split(text)
    return bool(pieces) and not unfinished(rest)


def _session(state: State):  # type: ignore[no-untyped-def]  # prompt_toolkit is loaded on a terminal only
    from prompt_toolkit import PromptSession
    from prompt_toolkit.filters import Condition
    from prompt_toolkit.history import FileHistory, InMemoryHistory
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    from dpsql.shell.complete import ShellCompleter, words_of

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
        completer=ShellCompleter(words_of(state)),
        complete_while_typing=False,
        history=FileHistory(str(path)) if path else InMemoryHistory(),
        key_bindings=keys,
    )


def history_path() -> Path | None:
    """Where statements are remembered; None where nothing can be written."""
    home = os.environ.get("XDG_STATE_HOME") or os.environ.get("HOME")
    if not home:
        return None
    folder = Path(home) / ("dpsql" if "XDG_STATE_HOME" in os.environ else ".local/state/dpsql")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder / "history"
