"""Several server processes on one port, because one Python process uses one core.

The kernel hands each connection to one of them. The port is held by a socket of the parent's that never
listens, so that a free port stays the same for all. Requests to cancel are passed on through a folder of theirs.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence

from dpsql.errors import OperationalError

SECONDS = 20.0


def serve_together(
    arguments: Sequence[str], processes: int, host: str, port: int, told: Callable[[str, int], None]
) -> None:
    """Run `dpsql serve` so many times on one port, until interrupted.

    Args:
        arguments: releases and options that every process gets.
        processes: how many.
        host, port: where; port 0 takes a free one.
        told: called once with host and port when all of them listen.

    Raises:
        OperationalError: the address cannot be used, or a process ended.
    """
    with _held(host, port) as number, tempfile.TemporaryDirectory(prefix="dpsql") as together:
        command = [
            sys.executable,
            "-m",
            "dpsql.cli",
            "serve",
            "--pg",
            "--json",
            "--together",
            together,
            *arguments,
        ]
        command += ["--host", host, "--port", str(number)]
        workers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
        previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            with contextlib.suppress(KeyboardInterrupt):
                for worker in workers:
                    _await(worker)
                told(host, number)
                workers[0].wait()
        finally:
            signal.signal(signal.SIGTERM, previous)
            for worker in workers:
                worker.terminate()
            for worker in workers:
                worker.wait(SECONDS)


def _await(worker: subprocess.Popen[str]) -> None:
    """Until the process says that it listens."""
    if worker.stdout is None or not worker.stdout.readline():
        raise OperationalError("a server process ended before it listened", hint="its error stands above")


@contextlib.contextmanager
def _held(host: str, port: int) -> Iterator[int]:
    """A port that is taken but not listened on."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            holder.bind((host, port))
        except OSError as error:
            raise OperationalError(f"cannot listen on {host}:{port}", hint="is the port taken?") from error
        yield int(holder.getsockname()[1])
