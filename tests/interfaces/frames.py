"""Damaged conversations with the server, and what it makes of each.

A conversation is a start-up, a login where one is wanted, and a few frames as drivers send them. One thing in it is
damaged: a byte, a length, a type, a count, an end, an order. The server's side runs here, without a network, so that
an error that it does not expect is seen, and its CPU is known.
"""

from __future__ import annotations

import asyncio
import os
import random
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, cast

from dpsql.federation.session import open_session
from dpsql.interfaces.pgwire.client import Client, ClientReader
from dpsql.interfaces.pgwire.events import EventLog
from dpsql.interfaces.pgwire.login import Options, WireService
from dpsql.interfaces.pgwire.protocol import STATES
from dpsql.interfaces.pgwire.roles import ServerRole, make_verifier, open_roles
from dpsql.release.request import MOST_BYTES

KNOWN = {state for _, state in STATES} | {"08P01", "28P01", "22023", "25P02", "26000", "34000", "42704"}


def frame(kind: str, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return kind.encode() + struct.pack("!i", len(body) + 4) + body


def startup(words: bytes, code: int = 196608) -> bytes:
    return struct.pack("!ii", len(words) + 8, code) + words


SQL = (
    b"SELECT COUNT(*) FROM sales", b"SELECT region, AVG(amount) FROM shop GROUP BY 1", b"SHOW VIEWS", b"", b"BEGIN",
    b"SELECT relname FROM pg_class WHERE relnatts > 2", b"SELECT $1 + 1, $2", b"SET dp_nonnegative = on", b"COMMIT",
    b"SELECT 1; SELECT 2", b"SELECT * FROM sales",
)  # fmt: skip
MEANT = startup(b"user\0me\0database\0shop\0options\0-c dp_nonnegative=on\0\0")
FIRST = b"n,,n=,r=abcdefgh"
PASSWORDS = (
    frame("p", b"SCRAM-SHA-256\0", struct.pack("!i", len(FIRST)), FIRST),
    frame("p", b"c=biws,r=abcdefgh,p=" + b"A" * 43 + b"="),
)
STARTUPS = (startup(b"", 80877103), startup(b"", 80877104), startup(struct.pack("!ii", 5, 6), 80877102))


def extended(dice: random.Random) -> list[bytes]:
    """Parse, Bind, Describe, Execute, Close, Sync."""
    values = [b"41", None, b"\0\0\0\7"][: dice.randrange(4)]
    bound = b"".join(struct.pack("!i", -1) if v is None else struct.pack("!i", len(v)) + v for v in values)
    oids = [dice.choice((0, 16, 20, 23, 25, 701, 1082, 1114, 1700, 99)) for _ in values]
    return [
        frame("P", b"s\0", dice.choice(SQL), b"\0", struct.pack(f"!h{len(oids)}i", len(oids), *oids)),
        frame(
            "B",
            b"p\0s\0",
            struct.pack("!hhh", 1, dice.randrange(2), len(values)),
            bound,
            struct.pack("!hh", 1, 1),
        ),
        frame("D", dice.choice((b"Pp\0", b"Ss\0"))),
        frame("E", b"p\0", struct.pack("!i", dice.randrange(3))),
        frame("C", dice.choice((b"Pp\0", b"Ss\0"))),
        frame("S"),
    ]


def some_byte(raw: bytes, dice: random.Random) -> bytes:
    place = dice.randrange(len(raw))
    return raw[:place] + bytes([dice.randrange(256)]) + raw[place + 1 :]


def some_bit(raw: bytes, dice: random.Random) -> bytes:
    place = dice.randrange(len(raw))
    return raw[:place] + bytes([raw[place] ^ 1 << dice.randrange(8)]) + raw[place + 1 :]


def cut(raw: bytes, dice: random.Random) -> bytes:
    return raw[: dice.randrange(len(raw))]


def cut_with_its_length(raw: bytes, dice: random.Random) -> bytes:
    """The frame's end is missing, and its length says so."""
    kept = raw[: max(5, dice.randrange(len(raw)))]
    return kept[:1] + struct.pack("!i", len(kept) - 1) + kept[5:]


def other_length(raw: bytes, dice: random.Random) -> bytes:
    length = dice.choice((-1, 0, 3, 4, 5, 2**20, 2**20 + 1, 2**31 - 1, -(2**31), len(raw)))
    return raw[:1] + struct.pack("!i", length) + raw[5:]


def other_number(raw: bytes, dice: random.Random) -> bytes:
    """Two bytes somewhere are a count or a length that nobody means."""
    place = dice.randrange(len(raw))
    return raw[:place] + dice.choice((b"\xff\xff", b"\x7f\xff", b"\0\0", b"\x80\0")) + raw[place + 2 :]


def other_type(raw: bytes, dice: random.Random) -> bytes:
    return dice.choice(b"ABCDEFHPQSXZdfpy!\0\xff".decode("latin-1")).encode("latin-1") + raw[1:]


def more(raw: bytes, dice: random.Random) -> bytes:
    place = dice.randrange(len(raw) + 1)
    return raw[:place] + dice.randbytes(dice.randrange(1, 40)) + raw[place:]


def repeated(raw: bytes, dice: random.Random) -> bytes:
    return raw * dice.randrange(2, 40)


DAMAGE: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    some_byte, some_bit, cut, cut_with_its_length, other_length, other_number, other_type, more, repeated
)  # fmt: skip


class Conversation(NamedTuple):
    """What a client says.

    Args:
        name: of the damage.
        raw: all bytes that it sends.
        asked: whether the server wants a password.
    """

    name: str
    raw: bytes
    asked: bool


def conversation(seed: int) -> Conversation:
    """A damaged conversation; the same for the same seed."""
    dice = random.Random(seed)
    asked = dice.random() < 0.2
    said = [*dice.choices(STARTUPS, k=dice.randrange(2)), MEANT, *(PASSWORDS if asked else ())]
    for _ in range(dice.randrange(1, 3)):
        said += extended(dice) if dice.random() < 0.6 else [frame("Q", dice.choice(SQL), b"\0")]
    said += [frame("H"), frame("X")]
    if dice.random() < 0.1:
        dice.shuffle(said)
    damage, place = dice.choice(DAMAGE), dice.randrange(len(said))
    said[place] = damage(said[place], dice)
    return Conversation(damage.__name__, b"".join(said), asked)


class Sink:
    """The writing half of a connection, as far as the server uses it; it keeps what was written."""

    def __init__(self) -> None:
        self.sent, self.transport = bytearray(), self

    def write(self, data: bytes) -> None:
        self.sent += data

    def get_extra_info(self, name: str) -> Any:
        return {"peername": ("192.0.2.1", 5)}.get(name)

    async def drain(self) -> None: ...

    async def wait_closed(self) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...


class ScriptReader(ClientReader):
    """A client who sends everything at once and leaves when the server waits for more than that.

    Args:
        script: what she sends.
    """

    def __init__(self, script: bytes) -> None:
        super().__init__()
        self.unread = len(script)
        self.feed_data(script)

    async def readexactly(self, n: int) -> bytes:
        if n > self.unread:
            self.feed_eof()
        self.unread -= n
        return await super().readexactly(n)


class Outcome(NamedTuple):
    """What the server made of a conversation.

    Args:
        kinds: of the messages that it sent.
        states: of its errors.
        cpu: seconds.
    """

    kinds: str
    states: tuple[str, ...]
    cpu: float


class Served:
    """A server without a network over one release.

    Args:
        release: its path.
    """

    def __init__(self, release: Path) -> None:
        self.log = os.open(os.devnull, os.O_WRONLY)
        verifier = make_verifier("me", "correct horse")
        anybody, named = ServerRole(None, (release,)), ServerRole(verifier, (release,))
        self._open = open_roles((anybody, named), open_session)
        both = self._open.__enter__()
        self.roles = {False: both, True: (None, both[1])}

    def close(self) -> None:
        self._open.__exit__(None, None, None)
        os.close(self.log)

    def hear(self, said: Conversation) -> Outcome:
        """Serve one conversation to its end.

        Raises:
            Exception: whatever the server did not expect.
        """
        sink, begun = Sink(), time.process_time()

        async def serve() -> None:
            options = Options(login=5.0, idle=5.0, memory=MOST_BYTES)
            service = WireService(self.roles[said.asked], options, EventLog(self.log))
            await Client(ScriptReader(said.raw), cast(asyncio.StreamWriter, sink), service).serve()

        asyncio.run(serve())
        return Outcome(*messages(bytes(sink.sent)), time.process_time() - begun)


def messages(sent: bytes) -> tuple[str, tuple[str, ...]]:
    """The kinds of messages that a server sent, and the states of its errors; single bytes answer requests for TLS.

    Raises:
        ValueError: a message is not whole.
    """
    kinds, states, at = "", [], 0
    while sent[at : at + 1] == b"N" and sent[at + 1 : at + 3] != b"\0\0":
        at += 1
    while at < len(sent):
        kind, length = chr(sent[at]), int(struct.unpack("!i", sent[at + 1 : at + 5])[0])
        body = sent[at + 5 : at + 1 + length]
        if length < 4 or len(body) != length - 4 or kind not in "RSKZTDCEN123InstZ":
            raise ValueError(f"no message: {sent[at:][:40]!r}")
        kinds, at = kinds + kind, at + 1 + length
        if kind == "E":
            states.append(next(part[1:] for part in body.split(b"\0") if part[:1] == b"C").decode())
    return kinds, tuple(states)
