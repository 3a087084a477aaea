"""Listening: on loopback as it is; beyond it only with TLS and a password."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import signal
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import dpsql
from dpsql.describe import describe
from dpsql.errors import InterfaceError, OperationalError
from dpsql.session import OpenReleases
from dpsql.wire.cancel import Sessions
from dpsql.wire.catalogue import make_catalogue
from dpsql.wire.client import Client
from dpsql.wire.scram import Verifier, read_password_file
from dpsql.wire.statements import Backend

MOST_CLIENTS = 200


@dataclass(frozen=True)
class Options:
    """Where to listen and who may come in.

    Args:
        host, port: address; port 0 takes a free one.
        password_file: one line `user:password`; without it everybody on loopback may ask.
        certificate, key: PEM files for TLS.
        shared: whether other processes listen on the same port.
        together: the folder in which these processes pass cancel requests on.
    """

    host: str = "127.0.0.1"
    port: int = 5433
    password_file: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    shared: bool = False
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
    far = not is_loopback(options.host)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_listen(releases, options, verifier, tls, far, told))


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


async def _listen(
    releases: OpenReleases, options: Options, verifier: Verifier | None, tls: ssl.SSLContext | None,
    tls_only: bool, told: Callable[[str, int], None],
) -> None:  # fmt: skip
    tables = [(release.name, table) for release in releases.releases for table in describe(release)]
    backend = Backend(releases, make_catalogue(tables, releases.releases[0].name, dpsql.__version__))
    clients: set[asyncio.Task[None]] = set()
    sessions = Sessions(options.together)
    await sessions.hear()

    async def welcome(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or len(clients) >= MOST_CLIENTS:
            writer.close()
            return
        clients.add(task)
        try:
            # the server ends: asyncio would print a traceback for a task that ends by being cancelled
            with contextlib.suppress(asyncio.CancelledError):
                await Client(reader, writer, backend, sessions, verifier, tls, tls_only).serve()
        finally:
            clients.discard(task)

    try:
        server = await asyncio.start_server(
            welcome, options.host, options.port, reuse_port=options.shared or None
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
    for task in clients:
        task.cancel()
