"""One client's connection once it is there: login, then simple and extended queries until it leaves.

Whatever a client sends, an error ends at most its own connection. A client that leaves while it is being answered
stops what it asked.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import struct
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from dpsql import errors
from dpsql.interfaces.pgwire import protocol
from dpsql.interfaces.pgwire.events import ANSWERED
from dpsql.interfaces.pgwire.login import Login, WireService
from dpsql.interfaces.pgwire.portals import WireAnswer, bind, copied
from dpsql.interfaces.pgwire.protocol import (
    TEXT,
    FrameError,
    FrameReader,
    StatementRefused,
    as_binary,
    as_text,
    parameter_value,
    state_of,
)
from dpsql.interfaces.pgwire.roles import LoginRefused
from dpsql.interfaces.pgwire.statements import (
    Backend,
    SessionState,
    is_silent,
    returns_to_savepoint,
    started_with,
)
from dpsql.interfaces.python.dbapi import placeholders, split, unfinished
from dpsql.release.request import LIMIT, MOST_BYTES, Charge, Request, size_of
from dpsql.row_expressions.expression import MAX_BYTES

MOST_PORTALS = 64
"""Of one client, that are open."""
MOST_MESSAGE = MAX_BYTES + 1024
"""Bytes of a message that is read: a statement, and a name and types beside it."""
ROWS_AT_ONCE = 500
"""Rows that are written before others have their turn, and before the client must have taken what came before."""
SECONDS_TO_CLOSE = 1.0
IDLE, OPEN, FAILED = b"I", b"T", b"E"
"""States of a transaction, as ReadyForQuery has them."""
ENDS = re.compile(r"\s*(?P<end>(?:ROLLBACK|ABORT|COMMIT|END)\b.*)", re.IGNORECASE | re.DOTALL)
ANNOUNCED = ("server_encoding", "client_encoding", "application_name", "DateStyle", "IntervalStyle", "TimeZone",
             "integer_datetimes", "standard_conforming_strings", "is_superuser", "session_authorization")  # fmt: skip
"""Settings that a client hears of when it comes in."""


@dataclass
class Portal:
    """A bound statement, the request that its rows are for, and how many of them were sent."""

    answer: WireAnswer
    formats: list[int]
    request: Request
    sent: int = 0


class ClientReader(asyncio.StreamReader):
    """Reader of a client's messages; `left` is set once she has closed her side, whatever was not read yet."""

    def __init__(self) -> None:
        super().__init__()
        self.left = asyncio.Event()

    def feed_eof(self) -> None:
        """She has closed her side."""
        super().feed_eof()
        self.left.set()


class Client:
    """The server's side of one connection."""

    def __init__(self, reader: ClientReader, writer: asyncio.StreamWriter, service: WireService) -> None:
        self.reader, self.writer, self.service = reader, writer, service
        address, port = (writer.get_extra_info("peername") or ("", 0))[:2]
        self.address, self.place = str(address), f"{address}:{port}"
        self.unsent: list[bytes] = []
        self.login = Login(reader, writer, service, self.address)
        self.backend: Backend | None = None  # once she has come in
        self.portals: dict[str, Portal] = {}
        self.state = SessionState()
        self.session = service.sessions.open()
        self.cursor_rows = Charge("", service.memory)
        self.transaction = IDLE
        self.skipping = False
        self.request_number = ""
        extended = {
            "P": self._parse, "B": self._bind, "D": self._describe, "E": self._execute, "C": self._close,
            "H": self._flush,
        }  # fmt: skip
        self.steps: dict[str, Callable[[FrameReader], Awaitable[None]]] = {
            "Q": self._simple,
            "S": self._sync,
            "X": self._leave,
            **{kind: partial(self._extended, step) for kind, step in extended.items()},
        }

    async def serve(self) -> None:
        """Serve until the client leaves, breaks the protocol, or is silent for too long."""
        try:
            guest = await self._enter()
            if guest is not None:
                with self.service.places.client() as free:
                    if not free:
                        raise LoginRefused("too many clients; try again later", "53300")
                    self.backend, options = guest
                    self.cursor_rows = Charge(self.payer, self.service.memory)
                    await self._welcome(self.backend, options)
                    while True:  # until she leaves
                        await self._take_message()
        except (FrameError, LoginRefused) as error:
            if self.backend is None:
                self.service.log.refused(self.login.role, self.place, str(error))
            self._send(protocol.error(error.state, str(error), severity="FATAL"))
        except errors.Error as error:
            self._send(refusal(error))
        except asyncio.CancelledError:
            self._send(protocol.error("57P01", "the server is shutting down", severity="FATAL"))
            raise
        except TimeoutError:
            silent = f"the client was silent for {self.service.options.idle:g} s"
            self._send(protocol.error("57P05", silent, severity="FATAL"))
        except (asyncio.IncompleteReadError, OSError):
            pass  # the client left; there is nobody to tell
        finally:
            self.service.sessions.close(self.session)
            self._close_portals()
            self.cursor_rows.count(0)
            await self._end()

    @property
    def payer(self) -> str:
        """Account for turns and memory of her statements: her role, or her address where there are no roles."""
        return self.address if self.service.everybody is not None else self.login.role

    async def _enter(self) -> tuple[Backend, dict[str, str]] | None:
        """Authenticated client, within the time limit."""
        seconds, places, pushed_out = self.service.options.login, self.service.places, False
        try:
            async with asyncio.timeout(seconds) as time_left:
                places.arrive(time_left, self.login)
                try:
                    return await self.login.enter()
                finally:
                    pushed_out = places.pushed_out(time_left)
        except TimeoutError as error:
            if pushed_out:
                raise LoginRefused("too many connections that have not logged in", "53300") from error
            raise LoginRefused(f"the login took more than {seconds:g} s", "57014") from error

    async def _welcome(self, backend: Backend, options: dict[str, str]) -> None:
        """Say that she has come in."""
        self.service.log.accepted(self.login.role, self.place, backend.files)
        for statement in started_with(options):
            backend.run(statement, self.state)
        self._send(protocol.authentication(0))
        values = self.state.variables
        settings = {"server_version": "15.0 (dpsql)"} | {name: values[name] for name in ANNOUNCED}
        self._send(*(protocol.parameter(name, value) for name, value in settings.items()))
        self._send(protocol.message("K", self.session.key), protocol.ready(IDLE))
        await self._taken()

    async def _take_message(self) -> None:
        idle = self.service.options.idle or None
        async with asyncio.timeout(idle):
            kind, size = await protocol.read_head(self.reader)
        if kind not in self.steps:
            raise FrameError(f"a message of type {kind} is unknown")
        self.request_number = ""
        if size > MOST_MESSAGE:
            await self._pass_over(kind, size)
        else:
            async with asyncio.timeout(idle):
                fields = FrameReader(await self.reader.readexactly(size))
            await self.service.laps.begin(self.payer)
            await self.steps[kind](fields)
        await self._taken()

    async def _pass_over(self, kind: str, size: int) -> None:
        """Refuse a message by its length, before anything reads it; each of its pieces waits as a message does.

        Whatever is done with it is work of the event loop, for which other roles wait.
        """
        for at in range(0, size, MOST_MESSAGE):
            await self.service.laps.begin(self.payer)
            async with asyncio.timeout(self.service.options.idle or None):
                await self.reader.readexactly(min(MOST_MESSAGE, size - at))
        if not self.skipping:
            self._refuse(
                StatementRefused("54000", f"a message has {size} bytes, the limit is {MOST_MESSAGE}")
            )
            self.skipping = kind != "Q"
        if kind == "S":
            self.skipping = False
        if not self.skipping:
            self._send(protocol.ready(self.transaction))

    async def _end(self) -> None:
        """Close the connection; what a client does not take is thrown away."""
        self._write()
        self.writer.close()
        try:
            async with asyncio.timeout(SECONDS_TO_CLOSE):
                await self.writer.wait_closed()
        except OSError:
            pass  # it is gone, or takes nothing
        finally:
            self.writer.transport.abort()

    def _send(self, *messages: bytes) -> None:
        """Put messages into the next packet; each packet is a call of the system."""
        self.unsent += messages

    def _write(self) -> None:
        if self.unsent:
            self.writer.write(b"".join(self.unsent))
            self.unsent.clear()

    async def _taken(self) -> None:
        """Until the client has taken most of what was sent."""
        self._write()
        async with asyncio.timeout(self.service.options.idle or None):
            await self.writer.drain()

    async def _send_rows(self, request: Request, rows: Iterable[bytes]) -> None:
        """Send rows as the client takes them; other clients have their turns between.

        The request's time passes while rows are written, not while the client takes them: `Options.idle` bounds that.
        """
        messages = iter(rows)
        while True:
            with request.working():
                block = list(islice(messages, ROWS_AT_ONCE))
            if not block:
                return
            self._send(*block)
            if len(block) < ROWS_AT_ONCE:  # the last ones; what follows waits until they are taken
                return
            await self._taken()
            await asyncio.sleep(0)

    async def _send_copy(self, request: Request, answer: WireAnswer) -> None:
        """Rows as COPY sends them."""
        assert answer.copy is not None
        columns = answer.columns or ()
        self._send(protocol.copy_out(len(columns), answer.copy[0] == "binary"))
        await self._send_rows(
            request, (protocol.message("d", piece) for piece in copied(columns, answer.rows, answer.copy))
        )
        self._send(protocol.message("c"))

    async def _leave(self, body: FrameReader) -> None:
        raise ConnectionAbortedError("the client says goodbye")

    async def _sync(self, body: FrameReader) -> None:
        self.skipping = False
        if self.transaction == IDLE:
            self._close_portals()  # as in Postgres: they end with their transaction
        self._send(protocol.ready(self.transaction))

    async def _extended(self, step: Callable[[FrameReader], Awaitable[None]], body: FrameReader) -> None:
        """A step of the extended protocol; after an error the others are skipped until Sync."""
        if self.skipping:
            return
        try:
            await step(body)
        except errors.Error as error:
            self._refuse(error)
            self.skipping = True

    @contextmanager
    def _request(self) -> Iterator[Request]:
        """A request of this client, while she waits for it; what works on it stops when the block ends by an error.

        Rows of open portals stay in memory: further requests may take what is left.
        """
        portals = sum(portal.request.bytes for portal in self.portals.values())
        seconds, memory = min(LIMIT, self.state.timeout or LIMIT), MOST_BYTES - portals - self.state.size
        request = Request(seconds, memory, self.payer, self.service.memory)
        self.session.request = request
        self.request_number = secrets.token_hex(8)
        begun, state = time.monotonic(), ANSWERED
        try:
            yield request
        except BaseException as error:
            state = state_of(error) if isinstance(error, errors.Error) else "57014"
            request.stop()
            request.bytes = 0
            raise
        finally:
            self.session.request = None
            spent = time.monotonic() - begun
            self.service.log.statement(self.login.role, self.place, self.request_number, spent, state)

    async def _run(self, request: Request, sql: str, *, described: bool = False) -> WireAnswer:
        """WireAnswer a statement, or describe its columns; it is stopped if its client leaves."""
        assert self.backend is not None
        ends = ENDS.match(sql)
        if self.transaction == FAILED and not ends:
            raise StatementRefused(
                "25P02", "the transaction has failed; statements are refused until it ends", hint="ROLLBACK"
            )
        work = partial(self.backend.describe if described else self.backend.run, sql, self.state)
        asking = asyncio.ensure_future(self.service.turns.take(partial(request.run, work), self.payer))
        leaving = asyncio.ensure_future(self.reader.left.wait())
        try:
            await asyncio.wait([asking, leaving], return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                raise ConnectionAbortedError("the client has left")
            answer = asking.result()
        finally:
            asking.cancel()
            leaving.cancel()
        request.bytes = size_of(answer.rows)  # those of its errors are free again
        try:
            self.cursor_rows.count(self.state.size)
        except errors.MemoryTaken:  # without memory for the rows of open cursors they are closed
            self.state.cursors.clear()
            self.cursor_rows.count(0)
            raise
        if answer.tag == "BEGIN" or (ends and returns_to_savepoint(ends["end"])):
            self.transaction = OPEN
        elif answer.tag in ("COMMIT", "ROLLBACK"):
            answer = replace(answer, tag="ROLLBACK" if self.transaction == FAILED else answer.tag)
            self.transaction = IDLE
        self._send(*(protocol.parameter(name, value) for name, value in answer.reported))
        return answer

    def _refuse(self, error: errors.Error) -> None:
        """Say what went wrong; an open transaction has failed."""
        self._send(refusal(error, self.request_number))
        if self.transaction == OPEN:
            self.transaction = FAILED

    async def _simple(self, body: FrameReader) -> None:
        if self.skipping:
            return
        pieces, tail = split(body.text())
        statements = [piece.text for piece in pieces] + ([last] if (last := unfinished(tail)) else [])
        if not statements:
            self._send(protocol.message("I"))
        try:
            for sql in statements:
                with self._request() as request:
                    answer = await self._run(request, sql)
                    self._send(*map(protocol.notice, self.state.news(answer)))
                    if answer.copy is not None:
                        await self._send_copy(request, answer)
                    elif answer.columns is not None:
                        self._send(protocol.row_description(answer.columns, [0] * len(answer.columns)))
                        rows = (protocol.data_row([as_text(v) for v in row]) for row in answer.rows)
                        await self._send_rows(request, rows)
                    self._send(protocol.complete(tag_of(answer)))
                    request.bytes = 0
        except errors.Error as error:
            self._refuse(error)
        self._send(protocol.ready(self.transaction))

    async def _parse(self, body: FrameReader) -> None:
        name, sql = body.text(), body.text()
        oids = [body.int32() for _ in range(body.int16())]
        assert self.backend is not None
        oids += [0] * (placeholders(sql) - len(oids))
        if 0 in oids:
            types = self.backend.parameter_oids(sql)
            oids = [oid or types.get(number, TEXT) for number, oid in enumerate(oids, 1)]
        self.state.prepare(name, sql, oids)
        self._send(protocol.message("1"))

    async def _bind(self, body: FrameReader) -> None:
        portal, name = body.text(), body.text()
        sql, parameter_oids = self.state.statement(name)
        if len(self.portals) >= MOST_PORTALS and portal not in self.portals:
            raise errors.ProgrammingError(f"more than {MOST_PORTALS} portals", hint="close some")
        codes = [body.int16() for _ in range(body.int16())]
        raw = [body.value() for _ in range(body.int16())]
        formats = [body.int16() for _ in range(body.int16())]
        binary = codes * len(raw) if len(codes) == 1 else codes or [0] * len(raw)
        oids = parameter_oids + [0] * (len(raw) - len(parameter_oids))
        try:
            triples = zip(raw, oids, binary, strict=False)
            values = [parameter_value(value, oid, code == 1) for value, oid, code in triples]
        except ValueError as error:
            raise errors.DataError(f"a parameter cannot be read: {type(error).__name__}") from error
        self._close_portals(portal)
        with self._request() as request:
            answer = await self._run(request, bind(sql, values, parameter_oids))
        width = len(answer.columns or ())
        wanted = formats * width if len(formats) == 1 else formats or [0] * width
        self.portals[portal] = Portal(answer, wanted, request)
        self._send(protocol.message("2"))

    async def _describe(self, body: FrameReader) -> None:
        kind, name = body.take(1), body.text()
        if kind == b"P" and name not in self.portals and name in self.state.cursors:
            columns = self.state.cursors[name].answer.columns or ()  # a cursor of SQL is a portal too
            self._send(protocol.row_description(columns, [0] * len(columns)))
            return
        if kind == b"P":
            self._send_columns(self._portal(name).answer, self._portal(name).formats)
            return
        sql, oids = self.state.statement(name)
        self._send(protocol.message("t", struct.pack(f"!h{len(oids)}i", len(oids), *oids)))
        if is_silent(sql):
            self._send(protocol.message("n"))
            return
        with self._request() as request:
            text = bind(sql, [None] * len(oids), oids)
            answer = await self._run(request, text, described=True)
            request.bytes = 0
        self._send_columns(answer, [0] * len(answer.columns or ()))

    def _send_columns(self, answer: WireAnswer, formats: list[int]) -> None:
        if answer.columns is None or answer.copy is not None:
            self._send(protocol.message("n"))
        else:
            self._send(protocol.row_description(answer.columns, formats))

    async def _execute(self, body: FrameReader) -> None:
        portal, limit = self._portal(body.text()), body.int32()
        answer = portal.answer
        self._send(*map(protocol.notice, () if portal.sent else self.state.news(answer)))
        if answer.copy is not None:
            await self._send_copy(portal.request, answer)
            self._send(protocol.complete(tag_of(answer)))
            return
        rows = answer.rows[portal.sent : portal.sent + limit] if limit > 0 else answer.rows[portal.sent :]
        portal.sent += len(rows)
        forms = [(oid, form) for (_, oid, _), form in zip(answer.columns or (), portal.formats, strict=True)]
        texts = (
            protocol.data_row(
                [as_binary(v, oid) if form else as_text(v) for v, (oid, form) in zip(row, forms, strict=True)]
            )
            for row in rows
        )
        self.session.request = portal.request
        try:
            await self._send_rows(portal.request, texts)
        finally:
            self.session.request = None
        if portal.sent < len(answer.rows):
            self._send(protocol.message("s"))
        elif not answer.tag:
            self._send(protocol.message("I"))
        else:
            self._send(protocol.complete(tag_of(answer)))

    async def _close(self, body: FrameReader) -> None:
        kind, name = body.take(1), body.text()
        if kind == b"P":
            self._close_portals(name)
        else:
            self.state.prepared.pop(name, None)
        self._send(protocol.message("3"))

    def _close_portals(self, *names: str) -> None:
        """Close portals by name, or all of them: their rows are not needed any more."""
        for name in names or tuple(self.portals):
            if (portal := self.portals.pop(name, None)) is not None:
                portal.request.bytes = 0

    async def _flush(self, body: FrameReader) -> None:
        await self._taken()

    def _portal(self, name: str) -> Portal:
        if name not in self.portals:
            raise errors.ProgrammingError(f"there is no portal {name!r}", hint="bind it first")
        return self.portals[name]


def tag_of(answer: WireAnswer) -> str:
    """CommandComplete's words."""
    counted = answer.columns is not None and answer.tag in ("SELECT", "FETCH", "COPY")
    return f"{answer.tag} {len(answer.rows)}" if counted else answer.tag


def refusal(error: errors.Error, request: str = "") -> bytes:
    """An ErrorResponse with SQLSTATE, hint, place and the number under which the log has it."""
    place = error.position[0] + 1 if error.position else None
    detail = f"request {request}" if request else ""
    return protocol.error(state_of(error), error.reason, hint=error.hint, detail=detail, position=place)
