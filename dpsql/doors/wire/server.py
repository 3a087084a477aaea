"""Listening: on loopback as it is; beyond it only with TLS and a password.

One Python process uses one core, so several processes may share a port: the kernel hands each connection to one
of them. The port is held by a socket of their parent's that never listens, so that a free port stays the same for
all. Requests to cancel are passed on through a folder of theirs.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import dpsql
from dpsql.answer.session import OpenReleases
from dpsql.doors.describe import describe
from dpsql.doors.wire.catalogue import make_catalogue
from dpsql.doors.wire.client import Client, Service, Sessions
from dpsql.doors.wire.password import Verifier, read_password_file
from dpsql.doors.wire.statements import Backend
from dpsql.doors.wire.turns import Turns
from dpsql.errors import InterfaceError, OperationalError

MOST_CLIENTS = 200
SECONDS_TO_END = 10.0


@dataclass(frozen=True)
class Options:
    """Where to listen and who may come in.

    Args:
        host, port: address; port 0 takes a free one.
        password_file: one line `user:password`; without it everybody on loopback may ask.
        certificate, key: PEM files for TLS.
        together: the folder in which processes that listen on the same port pass cancel requests on; None for one.
    """

    host: str = "127.0.0.1"
    port: int = 5433
    password_file: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    together: Path | None = None


def serve(releases: OpenReleases, options: Options, told: Callable[[str, int], None]) -> None:
    """Serve until interrupted.

    Args:
        releases: what is asked.
        options: where to listen.
        told: called with host and port once the server listens.

    Raises:
        InterfaceError: beyond loopback without TLS and a password.
        OperationalError: the address or a file cannot be used.
    """
    verifier, tls = check(options)
    tables = [(release.name, table) for release in releases.releases for table in describe(release)]
    backend = Backend(releases, make_catalogue(tables, releases.releases[0].name, dpsql.__version__))
    service = Service(
        backend, Sessions(options.together), verifier, Turns(), tls, not is_loopback(options.host)
    )
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_listen(service, options, told))


def check(options: Options) -> tuple[Verifier | None, ssl.SSLContext | None]:
    """The password and TLS of some options.

    Raises:
        InterfaceError: beyond loopback without TLS and a password.
        OperationalError: a file cannot be read.
    """
    verifier = read_password_file(options.password_file) if options.password_file else None
    tls = _tls(options)
    if not is_loopback(options.host) and (verifier is None or tls is None):
        raise InterfaceError(
            f"{options.host} is beyond loopback", hint="give --password-file, --tls-certificate and --tls-key"
        )
    return verifier, tls


def is_loopback(host: str) -> bool:
    """Whether an address stays on this machine.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _tls(options: Options) -> ssl.SSLContext | None:
    if options.certificate is None and options.key is None:
        return None
    if options.certificate is None or options.key is None:
        raise InterfaceError("TLS needs a certificate and a key", hint="give --tls-certificate and --tls-key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(options.certificate, options.key)
    except (OSError, ssl.SSLError) as error:
        raise OperationalError(
            "the TLS certificate or key cannot be read", hint="both are PEM files"
        ) from error
    return context


async def _listen(service: Service, options: Options, told: Callable[[str, int], None]) -> None:
    clients: set[asyncio.Task[None]] = set()
    await service.sessions.hear()

    async def welcome(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or len(clients) >= MOST_CLIENTS:
            writer.close()
            return
        clients.add(task)
        try:
            # the server ends: asyncio would print a traceback for a task that ends by being cancelled
            with contextlib.suppress(asyncio.CancelledError):
                await Client(reader, writer, service).serve()
        finally:
            clients.discard(task)

    try:
        server = await asyncio.start_server(
            welcome, options.host, options.port, reuse_port=bool(options.together) or None
        )
    except OSError as error:
        raise OperationalError(
            f"cannot listen on {options.host}:{options.port}", hint="is the port taken?"
        ) from error
    stop = asyncio.Event()
    for wanted in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(wanted, stop.set)
    host, port = server.sockets[0].getsockname()[:2]
    told(str(host), int(port))
    async with server:
        await stop.wait()
        server.close()
        for task in clients:  # a statement whose client is gone stops, see `Stopper`
            task.cancel()


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
        command = [sys.executable, "-m", "dpsql.doors.cli", "serve", "--json"]
        command += ["--together", together, *arguments, "--host", host, "--port", str(number)]
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
                worker.wait(SECONDS_TO_END)


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
