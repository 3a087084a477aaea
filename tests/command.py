"""The `dpsql` command run in this process: what it prints and how it leaves, without paying for a fresh interpreter.

A start costs a second or two of imports; hundreds of tests ask only what a command says. Those that are about the
process itself (signals, terminals, entry points, what is imported) start one.
"""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from dpsql.interfaces.cli import main


def dpsql_command(
    *arguments: object, cwd: Path | None = None, text: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end.

    Args:
        arguments: its words.
        cwd: the working directory; this process's unless given.
        text: standard input, which is no terminal.

    Returns:
        Exit code and both outputs. An exception that would have left a traceback is raised here.
    """
    words = [str(word) for word in arguments]
    with _streams(text) as (out, err), contextlib.chdir(cwd or Path.cwd()):
        try:
            main(words)
            code = 0
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else int(left.code is not None)
    return subprocess.CompletedProcess(["dpsql", *words], code, *(_said(stream) for stream in (out, err)))


@contextlib.contextmanager
def _streams(text: str) -> Iterator[tuple[io.TextIOWrapper, io.TextIOWrapper]]:
    """Standard streams over memory, as pipes look to a program."""
    before = sys.stdin, sys.stdout, sys.stderr
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    sys.stdin, sys.stdout, sys.stderr = io.TextIOWrapper(io.BytesIO(text.encode())), out, err
    try:
        yield out, err
    finally:
        sys.stdin, sys.stdout, sys.stderr = before


def _said(stream: io.TextIOWrapper) -> str:
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode()
