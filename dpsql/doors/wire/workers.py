"""Several processes behind one port, and their parent, which never serves.

One Python process uses one core. The kernel hands each connection to one of the workers; requests to cancel are passed
on through a folder of theirs.

| when | then |
|---|---|
| another server has the port | this one is refused, also where both could share it (`SO_REUSEPORT`) |
| a worker dies | its parent starts another, at most one in `PAUSE` seconds |
| the parent ends, even by SIGKILL | its workers end: their standard input, a pipe that it holds, is closed |

So no worker goes on with releases and passwords that a new server has withdrawn.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence

from dpsql.errors import OperationalError

SECONDS_TO_END = 10.0
PAUSE = 1.0
"""Seconds between a worker's death and the start of the next one, which may die of the same cause."""


def serve_together(
    arguments: Sequence[str], processes: int, host: str, port: int, announce: Callable[[str, int], None]
) -> None:
    """Run `dpsql serve` so many times on one port, until interrupted.

    Args:
        arguments: releases and options that every process gets.
        processes: how many.
        host, port: where; port 0 takes a free one.
        announce: called once with host and port when all of them listen.

    Raises:
        OperationalError: the address cannot be used, or a process ended before it listened.
    """
    with _held(host, port) as number, tempfile.TemporaryDirectory(prefix="dpsql") as together:
        command = [sys.executable, "-m", "dpsql.doors.cli", "serve", "--json"]
        command += ["--together", together, *arguments, "--host", host, "--port", str(number)]
        previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
        workers: list[subprocess.Popen[str]] = []
        try:
            with contextlib.suppress(KeyboardInterrupt):
                workers += [_start(command) for _ in range(processes)]
                for worker in workers:
                    if worker.stdout is None or not worker.stdout.readline():
                        raise OperationalError(
                            "a server process ended before it listened", hint="its error stands above"
                        )
                announce(host, number)
                _replace_dead(workers, command)
        finally:
            signal.signal(signal.SIGTERM, previous)
            for worker in workers:
                worker.terminate()
            for worker in workers:
                worker.wait(SECONDS_TO_END)


def _start(command: Sequence[str]) -> subprocess.Popen[str]:
    """A worker; it ends when its standard input does, which nobody writes to."""
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _replace_dead(workers: list[subprocess.Popen[str]], command: Sequence[str]) -> None:
    """Start a worker for each that has ended, for ever."""
    while True:
        time.sleep(PAUSE)
        for place, worker in enumerate(workers):
            if worker.poll() is not None:
                workers[place] = _start(command)
                break


async def end_with_parent(stop: asyncio.Event) -> None:
    """Set an event when the parent of this worker has ended."""

    class Lifeline(asyncio.Protocol):
        def connection_lost(self, error: Exception | None) -> None:
            stop.set()

    await asyncio.get_running_loop().connect_read_pipe(Lifeline, os.fdopen(os.dup(sys.stdin.fileno()), "rb"))


@contextlib.contextmanager
def _held(host: str, port: int) -> Iterator[int]:
    """A port that is taken but not listened on, so that a free one stays the same for all workers.

    Raises:
        OperationalError: it cannot be used, or another server has it.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as holder, socket.socket(family) as alone:
        try:
            if port:  # a socket that does not share is refused beside any that listens
                alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                alone.bind((host, port))
                alone.listen()
                alone.close()
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            holder.bind((host, port))
        except OSError as error:
            raise OperationalError(f"cannot listen on {host}:{port}", hint="is the port taken?") from error
        yield int(holder.getsockname()[1])
