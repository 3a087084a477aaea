"""From a connection's first byte until somebody has logged in: encryption, start-up message, password.

A role that there is not is asked for a password like any other, and refused like a wrong one.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import ssl
from dataclasses import dataclass
from typing import NamedTuple

from dpsql.interfaces.pgwire import protocol
from dpsql.interfaces.pgwire.admission import ConnectionLimits, ConnectionSlots, LoginBackoff
from dpsql.interfaces.pgwire.events import EventLog
from dpsql.interfaces.pgwire.password import MECHANISM, Exchange, LoginRefused
from dpsql.interfaces.pgwire.protocol import FrameError, FrameReader
from dpsql.interfaces.pgwire.roles import Admission, ServerRoles
from dpsql.interfaces.pgwire.scheduler import FairQueue, Turns
from dpsql.interfaces.pgwire.sessions import Sessions
from dpsql.release.request import MemoryPool


@dataclass(frozen=True)
class WireService:
    """Service that every client of a server meets.

    Args:
        roles: who may come in, and what she may ask.
        sessions: all clients, for cancelling.
        turns: of all clients' statements.
        laps: of all clients' messages.
        memory: of all clients' answers.
        limits: what connections may take.
        places: the connections.
        waits: after wrong passwords.
        log: of what happens.
        tls: or None where nothing is encrypted.
        tls_only: whether a client must encrypt.
    """

    roles: ServerRoles
    sessions: Sessions
    turns: Turns
    laps: FairQueue
    memory: MemoryPool
    limits: ConnectionLimits
    places: ConnectionSlots
    waits: LoginBackoff
    log: EventLog
    tls: ssl.SSLContext | None
    tls_only: bool


class Guest(NamedTuple):
    """Somebody who has logged in.

    Args:
        role: as she says it.
        admission: what she may ask.
        options: of her start-up message.
    """

    role: str
    admission: Admission
    options: dict[str, str]


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

    async def enter(self) -> Guest | None:
        """Authenticated client; None if the connection was for something else.

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
        admission = self.service.roles.everybody
        return Guest(self.role, admission if admission is not None else await self._password(), options)

    async def _startup(self) -> tuple[int, bytes]:
        """The start-up message, encrypted if the client asked for that."""
        encrypted = False
        code, body = await protocol.read_startup(self.reader)
        while code in (protocol.SSL_REQUEST, protocol.GSS_REQUEST):
            tls = self.service.tls if code == protocol.SSL_REQUEST and not encrypted else None
            if tls is None:
                self.writer.write(b"N")
            else:
                await self._nothing_before_tls()
                self.writer.write(b"S")
                await self.writer.start_tls(tls)
                encrypted = True
            code, body = await protocol.read_startup(self.reader)
        return code, body

    async def _nothing_before_tls(self) -> None:
        """Refuse bytes that somebody on the way put before the encrypted part."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0):
                await self.reader.read(1)
                raise FrameError("nothing may follow a request for TLS before its answer")

    async def _password(self) -> Admission:
        self.writer.write(protocol.authentication(10, protocol.text(MECHANISM) + b"\0"))
        roles = (
            self.service.roles
        )  # as they are now: a reload changes neither password nor releases of this login
        exchange = Exchange(roles.verifier(self.role))
        first = await self._expect("p")
        if first.text() != MECHANISM:
            raise LoginRefused(f"only {MECHANISM} is supported")
        self.writer.write(protocol.authentication(11, exchange.first(first.value() or b"")))
        last = await self._expect("p")
        # from here on nothing else runs until the password was looked at: many guesses at once are counted one by one
        if (seconds := self.service.waits.seconds(self.address, self.role)) > 0:
            raise LoginRefused(f"too many wrong passwords; wait {math.ceil(seconds)} s")
        try:
            signature = exchange.final(last.body)
        except LoginRefused:
            self.service.waits.wrong(self.address, self.role)
            raise
        self.service.waits.right(self.address, self.role)
        self.writer.write(protocol.authentication(12, signature))
        return self.service.roles.named[self.role][1]

    async def _expect(self, kind: str) -> FrameReader:
        """The next message of a login."""
        await self.writer.drain()
        received, fields = await protocol.read_frame(self.reader, protocol.MOST_STARTUP_BYTES)
        if received != kind:
            raise FrameError("a password message was expected")
        return fields
