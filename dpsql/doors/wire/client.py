"""One client's connection: start-up, login, then simple and extended queries until it leaves.

Whatever a client sends, an error ends at most its own connection.

A client gets a key when it logs in (BackendKeyData): a number and a secret. A cancel request carries both, over a
connection of its own that nobody logs in to; it gets no answer, right or wrong. Of several processes on one port
the kernel may hand the request to another one than the session's. Then it is passed on through Unix sockets in a
folder that only these processes can enter.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import secrets
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from dpsql import errors
from dpsql.answer.session import Settings
from dpsql.doors.scan import bind_numbered, placeholders, split, unfinished
from dpsql.doors.wire import protocol
from dpsql.doors.wire.password import MECHANISM, Exchange, Refused, Verifier
from dpsql.doors.wire.protocol import FrameError, Reader, as_binary, as_text, parameter_value
from dpsql.doors.wire.statements import Answer, Backend, sets, started_with
from dpsql.doors.wire.turns import Turns
from dpsql.release.watch import Stopper

STATES = (
    (errors.SqlSyntaxError, "42601"), (errors.UnknownName, "42703"), (errors.ProgrammingError, "42000"),
    (errors.NotSupportedError, "0A000"), (errors.DataError, "22000"), (errors.QueryTimeout, "57014"),
    (errors.PrivacyError, "42501"), (errors.InterfaceError, "08P01"),
)  # fmt: skip
LOGIN_SECONDS = 30.0
MOST_PREPARED = 1000


_KEY = struct.Struct("!ii")


class Key(NamedTuple):
    """What a client shows to have its session's statement stopped."""

    number: int
    secret: int

    def pack(self) -> bytes:
        """As it stands in messages.

        >>> Key(1, -1).pack().hex()
        '00000001ffffffff'
        """
        return _KEY.pack(*self)


class Sessions:
    """The sessions of this process, by their keys.

    Args:
        folder: where processes on one port hear of each other's requests; None for a single one.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._open: dict[int, tuple[Key, Stopper]] = {}

    def open(self) -> tuple[Key, Stopper]:
        """A new session: its key, and what stops its statements."""
        number = secrets.randbits(31)
        while number in self._open:
            number = secrets.randbits(31)
        found = Key(number, secrets.randbits(32) - 2**31), Stopper()
        self._open[number] = found
        return found

    def close(self, key: Key) -> None:
        """Forget a session."""
        self._open.pop(key.number, None)

    def cancel(self, body: bytes) -> None:
        """Stop what the session of a key is asking, here or in another process; nothing if there is no such key.

        Args:
            body: of a cancel request.
        """
        if len(body) == _KEY.size and not self.stop(body) and self.folder is not None:
            _tell(self.folder, body)

    def stop(self, body: bytes) -> bool:
        """Whether the key names a session of this process, after stopping what it asks if the secret is right."""
        if len(body) != _KEY.size:
            return False
        key, stopper = self._open.get(_KEY.unpack(body)[0], (None, None))
        if key is None or stopper is None:
            return False
        if hmac.compare_digest(key.pack(), body):
            stopper.stop()
        return True

    async def hear(self) -> None:
        """Listen for requests that reached other processes on the port.

        Raises:
            OperationalError: their folder cannot be used.
        """
        if self.folder is None:
            return
        place, sessions = self.folder / str(os.getpid()), self

        class Heard(asyncio.DatagramProtocol):
            def datagram_received(self, data: bytes, addr: object) -> None:
                sessions.stop(data)

        loop = asyncio.get_running_loop()
        try:
            await loop.create_datagram_endpoint(Heard, local_addr=str(place), family=socket.AF_UNIX)
        except OSError as error:
            raise errors.OperationalError(
                f"cannot listen on {place}", hint="set TMPDIR to a shorter path"
            ) from error


def _tell(folder: Path, body: bytes) -> None:
    """Pass a request on to every other process; one that has gone, or is too busy to hear, is left out."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        for place in folder.iterdir():
            if place.name != str(os.getpid()):
                with contextlib.suppress(OSError):
                    sender.sendto(body, str(place))


@dataclass(frozen=True)
class Service:
    """What every client of a server meets.

    Args:
        backend: what statements run on.
        sessions: all clients, for cancelling.
        verifier: of the password, or None where everybody may come in.
        turns: of all clients' statements.
        tls: or None where nothing is encrypted.
        tls_only: whether a client must encrypt.
    """

    backend: Backend
    sessions: Sessions
    verifier: Verifier | None
    turns: Turns
    tls: ssl.SSLContext | None
    tls_only: bool


@dataclass
class Portal:
    """A bound statement, and how many of its rows were sent."""

    answer: Answer
    formats: list[int]
    sent: int = 0


@dataclass(frozen=True)
class Prepared:
    """A statement with its parameter types."""

    sql: str
    oids: list[int]


class Client:
    """The server's side of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, service: Service) -> None:
        self.reader, self.writer, self.service = reader, writer, service
        self.prepared: dict[str, Prepared] = {}
        self.portals: dict[str, Portal] = {}
        self.settings = Settings()
        self.key, self.stopper = service.sessions.open()
        self.in_transaction = False
        self.skipping = False
        extended = {
            "P": self._parse, "B": self._bind, "D": self._describe, "E": self._execute, "C": self._close,
            "H": self._flush,
        }  # fmt: skip
        self.steps: dict[str, Callable[[Reader], Awaitable[None]]] = {
            "Q": self._simple,
            "S": self._sync,
            "X": self._leave,
            **{kind: partial(self._extended, step) for kind, step in extended.items()},
        }

    async def serve(self) -> None:
        """Serve until the client leaves or breaks the protocol."""
        try:
            if await asyncio.wait_for(self._start(), LOGIN_SECONDS):
                while True:
                    frame = await protocol.read_frame(self.reader)
                    if frame.kind not in self.steps:
                        raise FrameError(f"a message of type {frame.kind} is not known")
                    await self.steps[frame.kind](Reader(frame.body))
                    await self.writer.drain()
        except FrameError as error:
            self._send(protocol.error("08P01", str(error), severity="FATAL"))
        except errors.Error as error:
            self._send(refusal(error))
        except Refused as error:
            self._send(protocol.error("28P01", str(error), severity="FATAL"))
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError, ssl.SSLError):
            pass  # the client left; there is nobody to tell
        finally:
            self.service.sessions.close(self.key)
            self.writer.close()

    def _send(self, *messages: bytes) -> None:
        self.writer.write(b"".join(messages))

    async def _start(self) -> bool:
        """Start-up and login; False if the connection was for something else."""
        encrypted = False
        code, body = await protocol.read_startup(self.reader)
        while code in (protocol.SSL_REQUEST, protocol.GSS_REQUEST):
            offered = code == protocol.SSL_REQUEST and self.service.tls is not None and not encrypted
            self._send(b"S" if offered else b"N")
            await self.writer.drain()
            if offered and self.service.tls is not None:
                await self.writer.start_tls(self.service.tls)
                encrypted = True
            code, body = await protocol.read_startup(self.reader)
        if code == protocol.CANCEL_REQUEST:
            self.service.sessions.cancel(body)
            return False
        if code != protocol.PROTOCOL:
            raise FrameError("only protocol 3.0 is spoken here")
        if self.service.tls_only and not encrypted:
            raise FrameError("this server asks for TLS; set sslmode=require")
        words = body.rstrip(b"\0").split(b"\0")
        options = dict(zip(words[::2], words[1::2], strict=False))
        await self._login(
            {k.decode("utf-8", "replace"): v.decode("utf-8", "replace") for k, v in options.items()}
        )
        return True

    async def _login(self, options: dict[str, str]) -> None:
        if self.service.verifier is not None:
            self._send(protocol.authentication(10, protocol.text(MECHANISM) + b"\0"))
            exchange = Exchange(self.service.verifier)
            first = await self._expect("p")
            if first.text() != MECHANISM:
                raise Refused(f"only {MECHANISM} is spoken here")
            self._send(protocol.authentication(11, exchange.first(first.value() or b"")))
            signature = exchange.final((await self._expect("p")).body)
            if options.get("user", "") != self.service.verifier.user:
                raise Refused("wrong user or password")
            self._send(protocol.authentication(12, signature))
        for statement in started_with(options):
            self.settings.take(statement)
        self._send(protocol.authentication(0))
        settings = {
            "server_version": "15.0 (dpsql)", "server_encoding": "UTF8", "client_encoding": "UTF8",
            "DateStyle": "ISO, MDY", "TimeZone": "UTC", "integer_datetimes": "on", "standard_conforming_strings": "on",
        }  # fmt: skip
        self._send(*(protocol.parameter(name, value) for name, value in settings.items()))
        self._send(protocol.message("K", self.key.pack()), protocol.ready(False))
        await self.writer.drain()

    async def _expect(self, kind: str) -> Reader:
        """The next message of a login."""
        await self.writer.drain()
        frame = await protocol.read_frame(self.reader, protocol.MOST_STARTUP_BYTES)
        if frame.kind != kind:
            raise FrameError("a password message was expected")
        return Reader(frame.body)

    async def _leave(self, body: Reader) -> None:
        raise ConnectionAbortedError("the client says goodbye")

    async def _sync(self, body: Reader) -> None:
        self.skipping = False
        self._send(protocol.ready(self.in_transaction))

    async def _extended(self, step: Callable[[Reader], Awaitable[None]], body: Reader) -> None:
        """A step of the extended protocol; after an error the others are skipped until Sync."""
        if self.skipping:
            return
        try:
            await step(body)
        except errors.Error as error:
            self._send(refusal(error))
            self.skipping = True

    async def _run(self, sql: str) -> Answer:
        with self.stopper.statement():
            run = partial(self.service.backend.run, sql, self.settings)
            answer = await self.service.turns.take(run)
        if answer.tag in ("BEGIN", "COMMIT", "ROLLBACK"):
            self.in_transaction = answer.tag == "BEGIN"
        return answer

    async def _simple(self, body: Reader) -> None:
        if self.skipping:
            return
        pieces, rest = split(body.text())
        statements = [piece.text for piece in pieces] + ([last] if (last := unfinished(rest)) else [])
        if not statements:
            self._send(protocol.message("I"))
        try:
            for sql in statements:
                await self._answer(sql)
        except errors.Error as error:
            self._send(refusal(error))
        self._send(protocol.ready(self.in_transaction))

    async def _answer(self, sql: str) -> None:
        answer = await self._run(sql)
        self._send(*map(protocol.notice, answer.flags))
        if answer.columns is not None:
            self._send(protocol.row_description(answer.columns, [0] * len(answer.columns)))
            self._send(*(protocol.data_row([as_text(value) for value in row]) for row in answer.rows))
        self._send(protocol.complete(tag_of(answer)))

    async def _parse(self, body: Reader) -> None:
        name, sql = body.text(), body.text()
        oids = [body.int32() for _ in range(body.int16())]
        if len(self.prepared) >= MOST_PREPARED and name not in self.prepared:
            raise errors.ProgrammingError(f"more than {MOST_PREPARED} prepared statements", hint="close some")
        oids += [0] * (placeholders(sql) - len(oids))
        self.prepared[name] = Prepared(sql, oids)
        self._send(protocol.message("1"))

    async def _bind(self, body: Reader) -> None:
        portal, name = body.text(), body.text()
        prepared = self._prepared(name)
        codes = [body.int16() for _ in range(body.int16())]
        raw = [body.value() for _ in range(body.int16())]
        formats = [body.int16() for _ in range(body.int16())]
        binary = codes * len(raw) if len(codes) == 1 else codes or [0] * len(raw)
        oids = prepared.oids + [0] * (len(raw) - len(prepared.oids))
        try:
            triples = zip(raw, oids, binary, strict=False)
            values = [parameter_value(value, oid, code == 1) for value, oid, code in triples]
        except ValueError as error:
            raise errors.DataError(f"a parameter cannot be read: {type(error).__name__}") from error
        answer = await self._run(bind_numbered(prepared.sql, values))
        width = len(answer.columns or ())
        wanted = formats * width if len(formats) == 1 else formats or [0] * width
        if len(self.portals) >= MOST_PREPARED:
            self.portals.clear()
        self.portals[portal] = Portal(answer, wanted)
        self._send(protocol.message("2"))

    async def _describe(self, body: Reader) -> None:
        kind, name = body.take(1), body.text()
        if kind == b"P":
            self._send_columns(self._portal(name).answer, self._portal(name).formats)
            return
        prepared = self._prepared(name)
        self._send(
            protocol.message("t", struct.pack(f"!h{len(prepared.oids)}i", len(prepared.oids), *prepared.oids))
        )
        if sets(prepared.sql):
            self._send(protocol.message("n"))
            return
        answer = await self._run(bind_numbered(prepared.sql, [None] * len(prepared.oids)))
        self._send_columns(answer, [0] * len(answer.columns or ()))

    def _send_columns(self, answer: Answer, formats: list[int]) -> None:
        if answer.columns is None:
            self._send(protocol.message("n"))
        else:
            self._send(protocol.row_description(answer.columns, formats))

    async def _execute(self, body: Reader) -> None:
        portal, most = self._portal(body.text()), body.int32()
        answer = portal.answer
        self._send(*map(protocol.notice, () if portal.sent else answer.flags))
        rows = answer.rows[portal.sent : portal.sent + most] if most > 0 else answer.rows[portal.sent :]
        portal.sent += len(rows)
        for row in rows:
            triples = zip(row, answer.columns or (), portal.formats, strict=True)
            self._send(
                protocol.data_row([as_binary(v, c.oid) if form else as_text(v) for v, c, form in triples])
            )
        if portal.sent < len(answer.rows):
            self._send(protocol.message("s"))
        elif not answer.tag:
            self._send(protocol.message("I"))
        else:
            self._send(protocol.complete(tag_of(answer)))

    async def _close(self, body: Reader) -> None:
        kind, name = body.take(1), body.text()
        (self.portals if kind == b"P" else self.prepared).pop(name, None)
        self._send(protocol.message("3"))

    async def _flush(self, body: Reader) -> None:
        await self.writer.drain()

    def _prepared(self, name: str) -> Prepared:
        if name not in self.prepared:
            raise errors.ProgrammingError(f"there is no prepared statement {name!r}", hint="parse it first")
        return self.prepared[name]

    def _portal(self, name: str) -> Portal:
        if name not in self.portals:
            raise errors.ProgrammingError(f"there is no portal {name!r}", hint="bind it first")
        return self.portals[name]


def tag_of(answer: Answer) -> str:
    """CommandComplete's words."""
    return f"SELECT {len(answer.rows)}" if answer.columns is not None else answer.tag


def refusal(error: errors.Error) -> bytes:
    """An ErrorResponse with SQLSTATE, hint and place."""
    state = next((state for kind, state in STATES if isinstance(error, kind)), "58000")
    place = error.position[0] + 1 if error.position else None
    return protocol.error(state, error.reason, hint=error.hint, position=place)
