"""The PostgreSQL protocol 3.0 as bytes: messages, read with limits and built, and the SQLSTATEs of errors."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence

from dpsql import errors
from dpsql.interfaces.pgwire.values import with_length

PROTOCOL = 196608
SSL_REQUEST, GSS_REQUEST, CANCEL_REQUEST = 80877103, 80877104, 80877102
MOST_BYTES = 1 << 20
MOST_STARTUP_BYTES = 10_000


class FrameError(Exception):
    """A frame that breaks the protocol; the connection ends."""

    state = "08P01"


class FrameReader:
    """Reads the fields of a frame; every read past its end is a FrameError."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.at = 0

    def take(self, count: int) -> bytes:
        if count < 0 or self.at + count > len(self.body):
            raise FrameError("a message ends too early")
        self.at += count
        return self.body[self.at - count : self.at]

    def int16(self) -> int:
        """A two-byte integer, unsigned."""
        return int(struct.unpack("!H", self.take(2))[0])

    def int32(self) -> int:
        """A four-byte integer, signed."""
        return int(struct.unpack("!i", self.take(4))[0])

    def text(self) -> str:
        """A zero-terminated string."""
        end = self.body.find(b"\0", self.at)
        if end < 0:
            raise FrameError("a string has no end")
        raw = self.body[self.at : end]
        self.at = end + 1
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise FrameError("a string is not UTF-8") from error

    def value(self) -> bytes | None:
        """A value with its length; -1 is NULL."""
        length = self.int32()
        return None if length == -1 else self.take(length)


async def read_startup(stream: asyncio.StreamReader) -> tuple[int, bytes]:
    """The first message of a connection: (code, body)."""
    length = struct.unpack("!i", await stream.readexactly(4))[0]
    if not 8 <= length <= MOST_STARTUP_BYTES:
        raise FrameError(f"a startup message has {length} bytes")
    body = await stream.readexactly(length - 4)
    return int(struct.unpack("!i", body[:4])[0]), body[4:]


async def read_frame(stream: asyncio.StreamReader, most: int = MOST_BYTES) -> tuple[str, FrameReader]:
    """Kind and fields of the next message.

    Raises:
        FrameError: longer than `most` bytes, or not a message.
        asyncio.IncompleteReadError: the client left.
    """
    head = await stream.readexactly(5)
    length = struct.unpack("!i", head[1:])[0]
    if not 4 <= length <= most:
        raise FrameError(f"a message has {length} bytes, the limit is {most}")
    if not head[:1].isalpha():
        raise FrameError("a message has no type")
    return head[:1].decode("ascii"), FrameReader(await stream.readexactly(length - 4))


def message(kind: str, *parts: bytes) -> bytes:
    """A message of a kind.

    >>> message("Z", b"I")
    b'Z\\x00\\x00\\x00\\x05I'
    """
    body = b"".join(parts)
    return kind.encode("ascii") + struct.pack("!i", len(body) + 4) + body


def text(value: str) -> bytes:
    """A zero-terminated string."""
    return value.encode("utf-8").replace(b"\0", b"") + b"\0"


def authentication(code: int, data: bytes = b"") -> bytes:
    """R: 0 done, 10 offer SASL, 11 continue, 12 final."""
    return message("R", struct.pack("!i", code), data)


def parameter(name: str, value: str) -> bytes:
    """S: a setting of the server."""
    return message("S", text(name), text(value))


def ready(transaction: bytes) -> bytes:
    """Z: the next command may come; `I` outside of a transaction, `T` in one, `E` in one that has failed."""
    return message("Z", transaction)


def complete(tag: str) -> bytes:
    """C: a command is done."""
    return message("C", text(tag))


WireColumn = tuple[str, int, int]
"""A column of an answer: its name, its type's OID, and the bytes of a value (-1 where they differ)."""


def row_description(columns: Sequence[WireColumn], formats: Sequence[int]) -> bytes:
    """T: the columns of an answer, each in text (0) or binary form (1)."""
    fields = [struct.pack("!h", len(columns))]
    for (name, oid, width), form in zip(columns, formats, strict=True):
        fields.append(text(name) + struct.pack("!ihihih", 0, 0, oid, width, -1, form))
    return message("T", *fields)


def data_row(values: Sequence[bytes | None]) -> bytes:
    """D: one row."""
    return message("D", struct.pack("!h", len(values)), *map(with_length, values))


def notice(told: str) -> bytes:
    """N: something to know about what follows."""
    return _told("N", S="NOTICE", V="NOTICE", C="00000", M=told)


def error(
    state: str, reason: str, *, hint: str = "", detail: str = "", position: int | None = None, severity: str = "ERROR"
) -> bytes:  # fmt: skip
    """E: what went wrong, with its SQLSTATE."""
    place = {} if position is None else {"P": str(position)}
    known = {name: words for name, words in (("D", detail), ("H", hint)) if words}
    return _told("E", S=severity, V=severity, C=state, M=reason, **known, **place)


def _told(kind: str, **fields: str) -> bytes:
    """A message of texts, each after the letter of its field."""
    return message(kind, *(key.encode() + text(value) for key, value in fields.items()), b"\0")


def copy_out(columns: int, binary: bool) -> bytes:
    """H: rows follow as CopyData."""
    form = int(binary)
    return message("H", struct.pack(f"!bh{columns}h", form, columns, *[form] * columns))


class StatementRefused(errors.ProgrammingError):
    """A statement that PostgreSQL would refuse too.

    Args:
        state: its SQLSTATE.
        message, hint: as of any error.
    """

    def __init__(self, state: str, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.state = state


STATES = (
    (errors.SqlSyntaxError, "42601"), (errors.UnknownTable, "42P01"), (errors.UnknownName, "42703"),
    (errors.ProgrammingError, "42000"), (errors.NotSupportedError, "0A000"), (errors.DataError, "22000"),
    (errors.QueryTimeout, "57014"), (errors.MemoryTaken, "53200"), (errors.PrivacyError, "42501"),
    (errors.InterfaceError, "08P01"),
)  # fmt: skip
"""The first class that an error is of gives its state."""


def state_of(error: errors.Error) -> str:
    """The SQLSTATE of an error.

    >>> state_of(errors.UnknownTable("there is no table t"))
    '42P01'
    """
    if isinstance(error, StatementRefused):
        return error.state
    return next((state for kind, state in STATES if isinstance(error, kind)), "58000")
