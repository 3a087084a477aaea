"""From a connection's first byte until somebody has logged in: encryption, start-up message, password.

A role that there is not is asked for a password like any other, and refused like a wrong one.

Admission to a server: places for connections, time-outs, and waits after wrong passwords.

| | bounded by |
|---|---|
| clients that have logged in | `Options.connections`; one more is told `53300 too_many_connections` |
| connections that have not | an eighth of that beside them; one more waits, or another leaves (`ConnectionSlots`) |
| memory of answers that are worked out, kept or sent | `Options.memory`, shared by roles (`MemoryPool`) |
| seconds until a connection has logged in | `Options.login` |
| seconds that a client says nothing, or does not take what it asked for | `Options.idle` |
| wrong passwords | `LoginBackoff` |

So connections that never log in take no place from clients, and one address takes few from other addresses.

Sessions and their keys: what a cancel request must show.

A client gets a key when it logs in (BackendKeyData): a number and a secret. A cancel request carries both, over a
connection of its own that nobody logs in to; it gets no answer, right or wrong. Of several processes on one port
the kernel may hand the request to another one than the session's. Then it is passed on through Unix sockets in a
folder that only these processes can enter.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import math
import os
import secrets
import socket
import ssl
import struct
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from dpsql import errors
from dpsql.interfaces.pgwire import protocol
from dpsql.interfaces.pgwire.events import EventLog
from dpsql.interfaces.pgwire.protocol import FrameError, FrameReader
from dpsql.interfaces.pgwire.roles import (
    MECHANISM,
    Exchange,
    FairQueue,
    LoginRefused,
    ServerRoles,
    Turns,
    stand_in,
)
from dpsql.interfaces.pgwire.statements import Backend
from dpsql.release.request import MemoryPool, Request

NUMBER = struct.Struct("!i")
KEY_BYTES = NUMBER.size + 4


class WireSession:
    """A session, and the request that it waits for.

    Args:
        key: what a client shows to have its session's statement stopped: a number and a secret, as they stand in
            messages.
    """

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.request: Request | None = None


class Sessions:
    """The sessions of this process, by their keys.

    Args:
        folder: where processes on one port hear of each other's requests; None for a single one.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._open: dict[bytes, WireSession] = {}

    def open(self) -> WireSession:
        """A new session."""
        number = NUMBER.pack(secrets.randbits(31))
        while number in self._open:
            number = NUMBER.pack(secrets.randbits(31))
        self._open[number] = session = WireSession(number + secrets.token_bytes(4))
        return session

    def close(self, session: WireSession) -> None:
        self._open.pop(session.key[: NUMBER.size], None)

    @property
    def busy(self) -> bool:
        """True if some session waits for an answer."""
        return any(session.request is not None for session in self._open.values())

    def cancel(self, body: bytes) -> None:
        """Stop what the session of a key is asking, here or in another process; nothing if there is no such key.

        Args:
            body: of a cancel request.
        """
        if len(body) == KEY_BYTES and not self.stop(body) and self.folder is not None:
            # every other process hears of it; one that has gone, or is too busy to hear, is left out
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                for place in self.folder.iterdir():
                    if place.name != str(os.getpid()):
                        with contextlib.suppress(OSError):
                            sender.sendto(body, str(place))

    def stop(self, body: bytes) -> bool:
        """True if the key names a session of this process, after stopping what it asks if the secret is right."""
        if len(body) != KEY_BYTES:
            return False
        session = self._open.get(body[: NUMBER.size])
        if session is None:
            return False
        if hmac.compare_digest(session.key, body) and session.request is not None:
            session.request.stop()
        return True

    async def hear(self) -> None:
        """Listen for requests that reached other processes on the port.

        Raises:
            OperationalError: their folder cannot be used.
        """
        if self.folder is None:
            return
        place, sessions = self.folder / str(os.getpid()), self

        class CancelListener(asyncio.DatagramProtocol):
            def datagram_received(self, data: bytes, addr: object) -> None:
                sessions.stop(data)

        loop = asyncio.get_running_loop()
        try:
            await loop.create_datagram_endpoint(CancelListener, local_addr=str(place), family=socket.AF_UNIX)
        except OSError as error:
            raise errors.OperationalError(
                f"cannot listen on {place}", hint="set TMPDIR to a shorter path"
            ) from error


FEWEST_STRANGERS = 16
SILENCE = 0.1
"""Seconds after which a connection that has sent nothing may be pushed out for another."""
POLL = 0.02
"""Seconds between two looks whether one may."""
FREE = 3
"""Wrong passwords of an address for one role that cost no wait."""
NETWORKS = (30, 60, 120)
"""The same for all roles: of an address, and of the /56 and /48 around it, which one customer may have."""
GUESSES, BURST = 4.0, 10
"""Wrong passwords a second for one role from wherever, and how many of them may come at once."""
FAMILIAR = 86_400.0
"""Seconds after a login that its address is known for its role."""
LONGEST_WAIT = 60.0
MEMORY_A_CORE = 250_000_000
FORGOTTEN = 900.0
"""Seconds after its last wait that a wrong password is forgotten."""
MOST_REMEMBERED = 4096


@dataclass(frozen=True)
class Options:
    """Addresses to listen on, who may connect, and what connections may take.

    Args:
        host, port: address; port 0 takes a free one.
        roles: a file of roles; None for one role, or none.
        password_file: one line `user:password`; without it and roles everybody on loopback may ask.
        certificate, key: PEM files for TLS.
        connections: clients that have logged in, at a time.
        login: seconds until a connection has logged in.
        idle: seconds that a client may be silent; 0 for as long as it likes.
        memory: bytes of all answers, as `size_of` counts them; in truth they take a sixth more.
        log: a file for the log of events; None is standard error.
        log_statements: whether the log has a line for each statement.
        metrics: host and port of /metrics and /healthz; None for none.
        siblings: the folder in which processes that listen on the same port pass cancel requests on; None for one.
        clients_socket, metrics_socket: descriptors of listening sockets that a parent holds; None where a process makes
            its own.
    """

    host: str = "127.0.0.1"
    port: int = 5433
    roles: Path | None = None
    password_file: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    connections: int = 800
    login: float = 10.0
    idle: float = 3600.0
    memory: int = MEMORY_A_CORE
    log: Path | None = None
    log_statements: bool = False
    metrics: tuple[str, int] | None = None
    siblings: Path | None = None
    clients_socket: int | None = None
    metrics_socket: int | None = None

    @property
    def strangers(self) -> int:
        """Connections that have not logged in, at a time."""
        return max(FEWEST_STRANGERS, self.connections // 8)


class ConnectionSlots:
    """The connections of a server.

    A login takes milliseconds, and a crowd of honest ones may come at one moment. So of the connections that have not
    logged in one may be pushed out for another only once it has been silent for `SILENCE`, or has sent a message and
    been silent since for half of its time; those that have sent nothing go first. While none may, no connection is
    accepted: the kernel's backlog holds what comes.

    Args:
        limits: how many there may be.
    """

    def __init__(self, limits: Options) -> None:
        self.limits, self.inside = limits, 0
        self._strangers: dict[asyncio.Timeout, Login] = {}

    async def room(self) -> None:
        """Wait until one more connection that has not logged in may be accepted."""
        while len(self._strangers) >= self.limits.strangers and not self._removable():
            await asyncio.sleep(POLL)

    def arrive(self, time_left: asyncio.Timeout, login: Login) -> None:
        """A new connection; where there are too many that have not logged in, another one's time is over.

        That is the longest waiting one of the address that has most of those that may be pushed out.

        Args:
            time_left: the time that it has to log in.
            login: of the connection.
        """
        if len(self._strangers) >= self.limits.strangers and (removable := self._removable()):
            (crowd, _) = Counter(self._strangers[stranger].address for stranger in removable).most_common(1)[
                0
            ]
            longest = next(stranger for stranger in removable if self._strangers[stranger].address == crowd)
            del self._strangers[longest]
            longest.reschedule(asyncio.get_running_loop().time())
        self._strangers[time_left] = login

    def _removable(self) -> list[asyncio.Timeout]:
        """Connections that may be pushed out: of those that have sent nothing if there are any, in order of arrival."""
        now = time.monotonic()
        silent = [
            each for each, login in self._strangers.items() if not login.spoke and now - login.since > SILENCE
        ]
        return silent or [
            each for each, login in self._strangers.items() if now - login.since > self.limits.login / 2
        ]

    def pushed_out(self, time_left: asyncio.Timeout) -> bool:
        """True if a connection had to leave for another one; it has left in any case."""
        return self._strangers.pop(time_left, None) is None

    @contextmanager
    def client(self) -> Iterator[bool]:
        """A place of a client that has logged in, while the block runs; False where there is none."""
        free = self.inside < self.limits.connections
        self.inside += free
        try:
            yield free
        finally:
            self.inside -= free


class LoginBackoff:
    """Wrong passwords, and how long their senders wait.

    | who | waits |
    |---|---|
    | an address for a role | 1, 2, 4 .. 60 seconds once `FREE` wrong ones are used up |
    | an address, and the /56 and /48 around an IPv6 one, for all roles | the same, after `NETWORKS` |
    | all addresses together for one role | as `GUESSES` a second allow, after a burst of `BURST` |
    | an address for a role that logged in from there within `FAMILIAR` seconds | as `GUESSES` allow, and nothing else |

    So guesses at one role are slow from however many addresses they come, a stale password in some program does not
    lock out those who share its address, and who tries one name after another is remembered too. The same wrong
    password sent again cannot be told from another one: a SCRAM proof is never twice the same.

    Args:
        now: a clock, in seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._wrong: OrderedDict[tuple[str, str | None], tuple[int, float]] = OrderedDict()
        self._guesses: OrderedDict[tuple[str | None, str], float] = OrderedDict()
        self._familiar: OrderedDict[tuple[str, str], float] = OrderedDict()

    def seconds(self, address: str, role: str) -> float:
        """Seconds to wait until a password is looked at; 0 or less for none."""
        familiar = self._is_familiar(address, role)
        # each guess takes 1 / `GUESSES` of a second, and `BURST` may come at once
        guess = self._guesses.get((_networks(address)[0] if familiar else None, role), 0.0)
        until_guess = guess - self._now() - (BURST - 1) / GUESSES
        if familiar:
            return until_guess
        return max(max(self._seen(key)[1] for key in _keys(address, role)) - self._now(), until_guess)

    def wrong(self, address: str, role: str) -> None:
        """A password was wrong."""
        if self._is_familiar(address, role):
            self._count_guess((_networks(address)[0], role))
            return
        self._count_guess((None, role))
        for key, free in _keys(address, role).items():
            times = self._seen(key)[0] + 1
            over = min(times - free, 10)
            self._wrong[key] = times, self._now() + (min(2.0**over, LONGEST_WAIT) if over >= 0 else 0)
            self._wrong.move_to_end(key)
        while len(self._wrong) > MOST_REMEMBERED:
            self._wrong.popitem(last=False)

    def right(self, address: str, role: str) -> None:
        """A password was right: this address has no wait for this role any more, and is familiar."""
        place = _networks(address)[0]
        self._wrong.pop((place, role), None)
        self._familiar[place, role] = self._now()
        self._familiar.move_to_end((place, role))
        while len(self._familiar) > MOST_REMEMBERED:
            self._familiar.popitem(last=False)

    def _is_familiar(self, address: str, role: str) -> bool:
        return self._now() - self._familiar.get((_networks(address)[0], role), -math.inf) < FAMILIAR

    def _seen(self, key: tuple[str, str | None]) -> tuple[int, float]:
        """How many wrong passwords there were, and until when they wait."""
        times, until = self._wrong.get(key, (0, 0.0))
        return (times, until) if self._now() < until + FORGOTTEN else (0, 0.0)

    def _count_guess(self, key: tuple[str | None, str]) -> None:
        self._guesses[key] = max(self._guesses.get(key, 0.0), self._now()) + 1 / GUESSES
        self._guesses.move_to_end(key)
        while len(self._guesses) > MOST_REMEMBERED:
            self._guesses.popitem(last=False)


def _keys(address: str, role: str) -> dict[tuple[str, str | None], int]:
    """Under which wrong passwords are counted, and how many are free; None stands for all roles."""
    places = _networks(address)
    everywhere: dict[tuple[str, str | None], int] = {
        (place, None): free for place, free in zip(places, NETWORKS, strict=False)
    }
    return everywhere | {(places[0], role): FREE}


@lru_cache(maxsize=256)  # each guess asks four times
def _networks(address: str) -> tuple[str, ...]:
    """Networks that likely are one sender: an IPv4 address; or the /64, /56 and /48 of an IPv6 one.

    >>> _networks("192.0.2.7"), _networks("2001:db8:1:234::7"), _networks("")
    (('192.0.2.7',), ('2001:db8:1:234::/64', '2001:db8:1:200::/56', '2001:db8:1::/48'), ('',))
    """
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return (address,)
    if ip.version == 4:
        return (address,)
    return tuple(str(ipaddress.ip_network((ip, length), strict=False)) for length in (64, 56, 48))


class WireService:
    """Service that every client of a server meets: sessions, for cancelling; turns of statements and laps of messages;
    memory of answers; places for connections; and waits after wrong passwords.

    Args:
        roles: who may come in, and what she may ask.
        options: what connections may take.
        log: of what happens.
        tls: or None where nothing is encrypted.
    """

    def __init__(
        self, roles: ServerRoles, options: Options, log: EventLog, tls: ssl.SSLContext | None = None
    ) -> None:
        (self.everybody, self.named), self.options, self.log, self.tls = roles, options, log, tls
        self.sessions, self.waits = Sessions(options.siblings), LoginBackoff()
        self.turns, self.laps = Turns(options.connections), FairQueue()
        self.memory, self.places = MemoryPool(options.memory), ConnectionSlots(options)
        self.tls_only = not is_loopback(options.host)  # whether a client must encrypt


def is_loopback(host: str) -> bool:
    """True if an address stays on this machine.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Login:
    """The login of one connection.

    Args:
        reader, writer: the connection.
        service: what it has come to.
        address: where it comes from, without the port.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, service: WireService, address: str
    ) -> None:
        self.reader, self.writer, self.service, self.address = reader, writer, service, address
        self.role = ""
        # whether it has sent a message, and when the last one came
        self.spoke, self.since = False, time.monotonic()

    def _hear(self) -> None:
        """A whole message of it was read."""
        self.spoke, self.since = True, time.monotonic()

    async def enter(self) -> tuple[Backend, dict[str, str]] | None:
        """What her statements run on, and options of her start-up message; None if it was for something else.

        Raises:
            FrameError: it does not speak the protocol.
            Refused: she may not come in.
            asyncio.IncompleteReadError, OSError: the client left.
        """
        code, body = await self._startup()
        if code == protocol.CANCEL_REQUEST:
            self.service.sessions.cancel(body)
            return None
        if code != protocol.PROTOCOL:
            raise FrameError("only protocol 3.0 is supported")
        words = [word.decode("utf-8", "replace") for word in body.rstrip(b"\0").split(b"\0")]
        options = dict(zip(words[::2], words[1::2], strict=False))
        self.role = options.get("user", "")
        if self.service.tls_only and self.writer.get_extra_info("ssl_object") is None:
            raise FrameError("this server asks for TLS; set sslmode=require")
        return self.service.everybody or await self._password(), options

    async def _startup(self) -> tuple[int, bytes]:
        """The start-up message, encrypted if the client asked for that."""
        encrypted = False
        code, body = await protocol.read_startup(self.reader)
        self._hear()
        while code in (protocol.SSL_REQUEST, protocol.GSS_REQUEST):
            tls = self.service.tls if code == protocol.SSL_REQUEST and not encrypted else None
            if tls is None:
                self.writer.write(b"N")
            else:
                # bytes that somebody put before the encrypted part are refused
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0):
                        await self.reader.read(1)
                        raise FrameError("nothing may follow a request for TLS before its answer")
                self.writer.write(b"S")
                await self.writer.start_tls(tls)
                encrypted = True
            code, body = await protocol.read_startup(self.reader)
            self._hear()
        return code, body

    async def _password(self) -> Backend:
        self.writer.write(protocol.authentication(10, protocol.text(MECHANISM) + b"\0"))
        # as they are now: a reload changes neither password nor releases of this login; of a role that there is not,
        # what looks the same and takes no password
        verifier, backend = self.service.named.get(self.role) or (stand_in(self.role), None)
        exchange = Exchange(verifier)
        first = await self._expect_password()
        if first.text() != MECHANISM:
            raise LoginRefused(f"only {MECHANISM} is supported")
        self.writer.write(protocol.authentication(11, exchange.first(first.value() or b"")))
        last = await self._expect_password()
        # from here on nothing else runs until the password was looked at: many guesses at once are counted one by one
        if (seconds := self.service.waits.seconds(self.address, self.role)) > 0:
            raise LoginRefused(f"too many wrong passwords; wait {math.ceil(seconds)} s")
        try:
            signature = exchange.final(last.body)
        except LoginRefused:
            self.service.waits.wrong(self.address, self.role)
            raise
        assert backend is not None  # a stand-in takes no password
        self.service.waits.right(self.address, self.role)
        self.writer.write(protocol.authentication(12, signature))
        return backend

    async def _expect_password(self) -> FrameReader:
        """The next message of a login."""
        await self.writer.drain()
        received, fields = await protocol.read_frame(self.reader, protocol.MOST_STARTUP_BYTES)
        self._hear()
        if received != "p":
            raise FrameError("a password message was expected")
        return fields
