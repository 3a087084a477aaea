"""One statement or command: run it and write what it gives."""

from __future__ import annotations

import sys
import time

from dpsql.errors import InterfaceError
from dpsql.output import render
from dpsql.shell.commands import NAMES, SYNONYMS, TABLE, read_file
from dpsql.shell.state import State
from dpsql.split import Piece, split, unfinished

MAX_NESTED_FILES = 16


class Stop(Exception):
    """Raised by `\\q`."""


def evaluate(piece: Piece, state: State) -> None:
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


def run_pieces(text: str, state: State) -> None:
    """Run a whole script; an unfinished last statement counts as finished.

    Raises:
        Stop, dpsql.errors.Error: as `evaluate`; what follows is not run.
    """
    pieces, rest = split(text)
    if last := unfinished(rest):
        pieces.append(Piece(last, False))
    for piece in pieces:
        evaluate(piece, state)


def show(text: str, state: State) -> None:
    """Write text; a person gets a pager when it is longer than the screen."""
    import shutil

    if state.terminal and state.output is sys.stdout:
        size = shutil.get_terminal_size()
        lines = text.split("\n")
        if len(lines) >= size.lines or max(map(len, lines)) > 4 * size.columns:
            import click

            click.echo_via_pager(text + "\n")
            return
    state.write(text)


def _statement(text: str, state: State) -> str:
    if told := state.settings.take(text):
        print(f"dpsql: {told}", file=sys.stderr, flush=True)
        return ""
    result = state.asked.query(text)
    style = "vertical" if state.expanded and state.style == "table" else state.style
    if style in ("csv", "json", "jsonl"):  # formats for programs have no place for words
        for note in result.notes:
            print(f"note: {note}", file=sys.stderr, flush=True)
    return render(result, style, state.level, errors=state.errors)


def _command(line: str, state: State) -> str:
    word, _, rest = line[1:].partition(" ")
    name = SYNONYMS.get(word.lower(), word.lower())
    if name == "q":
        raise Stop
    if name == "i":
        return _run_file(rest.strip(), state)
    if name not in TABLE:
        import difflib

        near = difflib.get_close_matches(name, [*NAMES, *SYNONYMS], n=1)
        raise InterfaceError(
            f"there is no command {line[0]}{word}",
            hint=f"did you mean \\{near[0]}?" if near else "\\? lists them",
        )
    return TABLE[name][2](state, rest)


def _run_file(path: str, state: State) -> str:
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
