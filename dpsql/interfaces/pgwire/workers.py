"""Processes behind one port, and their parent, which never serves.

One Python process uses one core. The parent makes a listening socket for each process, on one port: the kernel hands
each connection to one of them. Requests to cancel are passed on through a folder of theirs.

| when | then |
|---|---|
| another server has the port | this one is refused, also where both could share it (`SO_REUSEPORT`) |
| a process dies | its parent starts another, at most one in `PAUSE` seconds; who connects meanwhile waits |
| SIGHUP, or a release or a file of passwords, roles or options changes | new processes start; then the old ones drain |
| a process drains | it takes no more clients, and ends when its last one has left |
| a new process cannot start | the old ones stay; the log says so |
| the parent ends, even by SIGKILL | its processes end: their standard input, a pipe that it holds, is closed |

So nothing goes on with releases and passwords that a new server has withdrawn, a connection in flight ends on what it
came in to, and no reload loses one: sockets stay the parent's.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from dpsql.errors import OperationalError
from dpsql.interfaces.pgwire.events import EventLog

BACKLOG = 256
SECONDS_TO_END = 10.0
PAUSE = 1.0
"""Seconds between two looks at processes and files."""
DRAIN = signal.SIGUSR1
ANSWER = "a new process ended before it listened; its error is on standard error"

Address = tuple[str, int]
Worker = subprocess.Popen[str]
Stamp = tuple[tuple[int, int, int], ...]


def listener(address: Address, descriptor: int | None = None, *, shared: bool = False) -> socket.socket:
    """A listening socket: an inherited one, or a new one.

    Raises:
        OperationalError: the address cannot be used.
    """
    if descriptor is not None:
        return socket.socket(fileno=descriptor)
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    try:
        return socket.create_server(address, family=family, backlog=BACKLOG, reuse_port=shared)
    except OSError as error:
        raise OperationalError(
            f"cannot listen on {address[0]}:{address[1]}", hint="is the port taken?"
        ) from error


def supervise(
    command: Sequence[str],
    sockets: Sequence[tuple[socket.socket, ...]],
    files: Callable[[], Sequence[Path]],
    log: EventLog,
    announce: Callable[[], None],
) -> None:
    """Run `dpsql serve` once for each set of sockets, until interrupted.

    Args:
        command: of each process; its sockets and a folder are added.
        sockets: that listen for clients, and for metrics if these are wanted.
        files: what the processes read; after a change of one of them others take their place.
        log: says what became of that.
        announce: called once, when all of them listen.

    Raises:
        OperationalError: a process ended before it listened.
    """
    reload = False

    def want(number: int, frame: object) -> None:
        nonlocal reload
        reload = True

    with tempfile.TemporaryDirectory(prefix="dpsql") as folder:
        options = ("--socket", "--metrics-socket")
        held = [
            [(option, str(one.fileno())) for option, one in zip(options, own, strict=False)]
            for own in sockets
        ]
        words = [[*command, "--together", folder, *chain.from_iterable(pairs)] for pairs in held]
        descriptors = [socket.fileno() for own in sockets for socket in own]
        previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
        signal.signal(signal.SIGHUP, want)
        workers: list[Worker] = []
        retired: list[Worker] = []
        try:
            with contextlib.suppress(KeyboardInterrupt):
                workers += [_start(line, descriptors) for line in words]
                if not all(map(_listens, workers)):
                    raise OperationalError(
                        "a server process ended before it listened", hint="its error is above"
                    )
                announce()
                current = before = _stamp(files())
                while True:
                    time.sleep(PAUSE)
                    retired = [worker for worker in retired if worker.poll() is None]
                    for place, worker in enumerate(workers):
                        if worker.poll() is not None:
                            workers[place] = _start(words[place], descriptors)
                            break
                    stamp = _stamp(files())
                    if reload or before == stamp != current:  # written, and not being written any more
                        reload, current = False, stamp
                        retired += _replace(workers, words, descriptors, log)
                    before = stamp
        finally:
            signal.signal(signal.SIGTERM, previous)
            for worker in (*workers, *retired):
                worker.terminate()
            for worker in (*workers, *retired):
                worker.wait(SECONDS_TO_END)


def _replace(
    workers: list[Worker], words: Sequence[Sequence[str]], descriptors: Sequence[int], log: EventLog
) -> list[Worker]:
    """Put new processes in the place of others, which drain; these, or none where new ones do not start."""
    fresh = [_start(line, descriptors) for line in words]
    if not all(map(_listens, fresh)):
        for worker in fresh:
            worker.terminate()
            worker.wait(SECONDS_TO_END)
        log.reloaded(ANSWER)
        return []
    former, workers[:] = workers[:], fresh
    for worker in former:
        worker.send_signal(DRAIN)
    log.reloaded()
    return former


def _start(command: Sequence[str], descriptors: Sequence[int]) -> Worker:
    """A process; it ends when its standard input does, which nobody writes to."""
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, pass_fds=descriptors)


def _listens(worker: Worker) -> bool:
    """Wait until a process says where it listens; False if it ends first, which it may say in JSON too."""
    line = worker.stdout.readline() if worker.stdout is not None else ""
    try:
        return "port" in json.loads(line)
    except ValueError:
        return False


def _stamp(files: Sequence[Path]) -> Stamp:
    """Stamp that changes when a file is written or replaced; a file that is gone counts as another one."""
    stamps = []
    for file in files:
        try:
            facts = file.stat()
            stamps.append((facts.st_ino, facts.st_mtime_ns, facts.st_size))
        except OSError:
            stamps.append((0, 0, 0))
    return tuple(stamps)


@contextlib.contextmanager
def shared_sockets(
    address: Address, metrics: Address | None, processes: int
) -> Iterator[list[tuple[socket.socket, ...]]]:
    """Listening sockets for so many processes; of the metrics' address each takes the next port.

    Raises:
        OperationalError: an address cannot be used, or another server has it.
    """
    with contextlib.ExitStack() as stack:
        # a socket that does not share is refused beside any that listens
        listener(address).close()
        clients = [stack.enter_context(listener(address, shared=True))]
        address = (address[0], clients[0].getsockname()[1])
        clients += [stack.enter_context(listener(address, shared=True)) for _ in range(processes - 1)]
        if metrics is None:
            yield [(held,) for held in clients]
            return
        host, port = metrics
        watched = [stack.enter_context(listener((host, port + number))) for number in range(processes)]
        yield list(zip(clients, watched, strict=True))


async def end_with_parent(stop: asyncio.Event) -> None:
    """Set an event when the parent of this process has ended."""

    class Lifeline(asyncio.Protocol):
        def connection_lost(self, error: Exception | None) -> None:
            stop.set()

    await asyncio.get_running_loop().connect_read_pipe(Lifeline, os.fdopen(os.dup(sys.stdin.fileno()), "rb"))


async def first(*events: asyncio.Event) -> None:
    """Wait until one of some events is set."""
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
