"""A small read-only PostgreSQL server over releases, so that psql, JDBC and every Postgres driver can ask.

protocol    messages of protocol 3.0, and DuckDB's types as PostgreSQL's, each value in text and binary form
roles       who may come in, with which password, which releases she may ask, and turns of her statements
login       one connection until somebody has logged in: options, places, time-outs, waits, keys for cancelling
events      the log of logins and statements, and numbers to watch, for Prometheus
catalogue   pg_catalog in an in-memory DuckDB, for \\d, getTables and getColumns, what a query of it may be made of, and
            its functions
relations   its tables
rewrite     PostgreSQL's spellings turned into DuckDB's
statements  what a statement is: a question, a catalogue query, a setting, or a word to nod at
portals     types of parameters, cursors and COPY
client      one connection: simple and extended protocol
here        listening: loopback, or TLS and a password; the server's options as a file; processes behind one port, which
            end with their parent and are replaced when they die and when files change
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from socket import IPPROTO_TCP, TCP_NODELAY
from typing import Any

from dpsql.catalog.base import Model, Text
from dpsql.catalog.catalog import read_model
from dpsql.errors import InterfaceError, OperationalError
from dpsql.interfaces.pgwire.client import Client, ClientReader
from dpsql.interfaces.pgwire.events import EventLog, Meter, event_log, watched
from dpsql.interfaces.pgwire.login import Options, WireService, is_loopback
from dpsql.interfaces.pgwire.roles import (
    ServerRole,
    ServerRoles,
    read_password_file,
    read_roles,
    settings_text,
)

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


GRACE = 0.4
"""Seconds that a server which ends leaves to the statements that run; most take milliseconds."""
SWITCH = 0.0005
"""Seconds that a statement's thread keeps the interpreter while the event loop waits for it; Python's 5 ms would be met
about eight times by each statement of other roles."""
OTHER_FILES = 100
"""Files that a process has open beside its connections: releases, libraries, logs."""


def serve(roles: ServerRoles, options: Options, announce: Callable[[str, int], None]) -> None:
    """Serve until interrupted.

    Args:
        roles: who may ask what.
        options: where to listen.
        announce: called with host and port once the server listens.

    Raises:
        InterfaceError: beyond loopback without TLS and a password.
        OperationalError: the address or a file cannot be used.
    """
    tls, _ = check(options)
    sys.setswitchinterval(SWITCH)
    _allow_files(options.connections + options.strangers + OTHER_FILES)
    meter = Meter() if options.metrics else None
    with contextlib.ExitStack() as stack, contextlib.suppress(KeyboardInterrupt):
        log = stack.enter_context(event_log(options.log, options.log_statements, meter))
        service = WireService(roles, options, log, tls)
        stack.callback(service.turns.close)
        hide = None
        if meter is not None and options.metrics is not None:
            meter.watch("dpsql_connections", "Clients that are in.", lambda: service.places.inside)
            meter.watch("dpsql_answer_bytes", "Memory of answers.", lambda: service.memory.taken)
            hide = stack.enter_context(watched(meter, listener(options.metrics, options.metrics_socket)))
        asyncio.run(_listen(service, hide, announce))


def read_guests(options: Options, releases: Sequence[Path]) -> tuple[ServerRole, ...]:
    """Roles that may connect, and their rights.

    Args:
        options: of the server.
        releases: what everybody, or the one role, may ask; none where a file of roles says it.

    Raises:
        InterfaceError: no release is named, or one beside a file of roles; or a password file is not right.
        OperationalError: a file cannot be read.
        CatalogError: the file of roles is not right.
    """
    if options.roles is not None:
        if releases or options.password_file is not None:
            raise InterfaceError(
                "a file of roles says who may ask what",
                hint="give --roles without releases and --password-file",
            )
        return read_roles(options.roles)
    if not releases:
        raise InterfaceError("no release is named", hint="name releases, or give --roles")
    verifier = read_password_file(options.password_file) if options.password_file else None
    return (ServerRole(verifier, tuple(releases), options.password_file),)


def check(options: Options) -> tuple[ssl.SSLContext | None, str]:
    """The TLS of some options, and what to say of it, or nothing.

    Raises:
        InterfaceError: beyond loopback without TLS and a password, or a key or certificate that is not right.
        OperationalError: a file cannot be read.
    """
    if (options.certificate is None) != (options.key is None):
        raise InterfaceError("TLS needs a certificate and a key", hint="give --tls-certificate and --tls-key")
    tls, warning = None, ""
    if options.certificate is not None and options.key is not None:
        tls, warning = read_tls(options.certificate, options.key)
    if not is_loopback(options.host) and (not (options.password_file or options.roles) or tls is None):
        raise InterfaceError(
            f"{options.host} is not a loopback address",
            hint="give --password-file or --roles, --tls-certificate and --tls-key",
        )
    return tls, warning


def _allow_files(wanted: int) -> None:
    """Let the process open so many files.

    Raises:
        OperationalError: the machine does not allow it.
    """
    allowed, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed >= wanted or allowed == resource.RLIM_INFINITY:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard_limit))
    except (ValueError, OSError) as error:
        raise OperationalError(
            f"the machine allows {hard_limit} open files, {wanted} are wanted",
            hint="give fewer --connections",
        ) from error


async def _listen(
    service: WireService, hide: Callable[[], None] | None, announce: Callable[[str, int], None]
) -> None:
    options = service.options
    clients: set[asyncio.Task[None]] = set()
    left = asyncio.Event()
    await service.sessions.hear()

    async def welcome(reader: ClientReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        clients.add(task)
        try:
            # the server ends: asyncio would print a traceback for a task that ends by being cancelled
            with contextlib.suppress(asyncio.CancelledError):
                await Client(reader, writer, service).serve()
        finally:
            clients.discard(task)
            if not clients:
                left.set()

    loop = asyncio.get_running_loop()
    socket = listener((options.host, options.port), options.clients_socket)

    def streams() -> asyncio.StreamReaderProtocol:
        # as `asyncio.start_server` makes them, but with a reader that knows who has left
        reader = ClientReader()
        return asyncio.StreamReaderProtocol(reader, lambda _, writer: welcome(reader, writer))

    async def accept() -> None:
        # not `create_server`, which accepts at once whatever has come: what there is no room for stays in the backlog
        while True:
            await service.places.room()
            try:
                connection, _ = await loop.sock_accept(socket)
                # asyncio does it for sockets made with a protocol number alone: a login would wait 40 ms for an ACK
                connection.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
                await loop.connect_accepted_socket(streams, connection)
            except OSError as error:
                # the client has gone again; or no descriptors or memory are left
                await asyncio.sleep(0 if isinstance(error, ConnectionError) else PAUSE)

    socket.setblocking(False)
    socket.listen(BACKLOG)
    accepting = asyncio.create_task(accept())
    stop, drain = asyncio.Event(), asyncio.Event()
    for wanted in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(wanted, stop.set)
    if options.siblings:
        loop.add_signal_handler(DRAIN, drain.set)
        await end_with_parent(stop)
    host, port = socket.getsockname()[:2]
    announce(str(host), int(port))
    await first(stop, drain)
    accepting.cancel()
    await asyncio.wait([accepting])
    socket.close()
    if hide is not None:
        await asyncio.to_thread(hide)
    if drain.is_set():
        (left.clear if clients else left.set)()
        await first(stop, left)
    if service.log.meter is not None:
        service.log.meter.healthy = False
    end = time.monotonic() + GRACE
    while service.sessions.busy and time.monotonic() < end:
        await asyncio.sleep(0.02)
    for task in clients:  # whose requests stop
        task.cancel()


SOON = 14 * 86_400.0
"""Seconds before a certificate's end from which it is said."""
NOT_YET, EXPIRED = 9, 10
"""Codes of OpenSSL's verification."""


def read_tls(certificate: Path, key: Path) -> tuple[ssl.SSLContext, str]:
    """The TLS of a certificate and its key, both PEM files, and what to say of it: that it ends soon, or nothing.

    Raises:
        InterfaceError: others can read the key, or the certificate is not valid now.
        OperationalError: a file cannot be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        mode = key.stat().st_mode
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise OperationalError(
            "the TLS certificate or key cannot be read", hint="both are PEM files"
        ) from error
    if mode & 0o077:
        raise InterfaceError(f"others can read {key}", hint=f"chmod 600 {key}")
    seconds = _until_end(context, certificate)
    if seconds < SOON:
        return context, f"the TLS certificate ends in {seconds / 86_400:.0f} days; renew it"
    return context, ""


def _until_end(context: ssl.SSLContext, certificate: Path) -> float:
    """Seconds until a certificate ends, by a handshake in memory with a client that trusts just this certificate.

    Raises:
        InterfaceError: it is not valid now.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(certificate)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(to_client, to_server), context.wrap_bio(to_server, to_client, server_side=True)]
    for _ in range(4):  # flights of a handshake
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as error:
                if error.verify_code not in (NOT_YET, EXPIRED):
                    return SOON  # for instance made for another purpose: clients say so, or take it
                raise InterfaceError(
                    f"the TLS certificate {certificate} is not valid now",
                    hint="renew it, or see whether the clock is right",
                ) from error
    shown = ends[0].getpeercert()
    return ssl.cert_time_to_seconds(str(shown["notAfter"])) - time.time() if shown else SOON


BEGIN = "begin with `releases: [retail.dpsql]`"
PATHS = ("roles", "password_file", "tls_certificate", "tls_key", "log")
PARAMETERS = {
    "tls_certificate": "certificate", "tls_key": "key", "idle_timeout": "idle", "login_timeout": "login",
}  # fmt: skip
"""Keys that the command's parameters have other names for."""


class ServerFile(Model):
    """The file. Types and bounds are those of the options, which are checked where they are given."""

    releases: tuple[Text, ...] = ()
    host: Text | None = None
    port: Text | None = None
    roles: Text | None = None
    password_file: Text | None = None
    tls_certificate: Text | None = None
    tls_key: Text | None = None
    connections: Text | None = None
    idle_timeout: Text | None = None
    login_timeout: Text | None = None
    memory: Text | None = None
    log: Text | None = None
    log_statements: bool = False
    metrics: Text | None = None
    processes: Text | None = None


def read_config(file: Path) -> dict[str, Any]:
    """The file's values by the names of the command's parameters.

    Raises:
        OperationalError: it cannot be read.
        CatalogError: it is not of that form; names the line.
    """
    text = settings_text(file, "options", BEGIN)
    values = read_model(text, str(file), ServerFile, BEGIN).model_dump(exclude_none=True)
    for name in PATHS:
        if name in values:
            values[name] = str(file.parent / values[name])
    values["releases"] = [str(file.parent / release) for release in values["releases"]]
    return {PARAMETERS.get(name, name): value for name, value in values.items()}
