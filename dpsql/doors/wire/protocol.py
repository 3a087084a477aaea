"""The PostgreSQL protocol 3.0 as bytes: messages, read with limits and built, and the values in them.

DuckDB's types are told as Postgres OIDs; values are written and read as Postgres writes them, in text and in binary.
"""

from __future__ import annotations

import asyncio
import datetime
import decimal
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

PROTOCOL = 196608
SSL_REQUEST, GSS_REQUEST, CANCEL_REQUEST = 80877103, 80877104, 80877102
MOST_BYTES = 1 << 20
MOST_STARTUP_BYTES = 10_000

BOOL, BYTEA, INT8, INT2, INT4, TEXT, OID = 16, 17, 20, 21, 23, 25, 26
FLOAT4, FLOAT8, VARCHAR, DATE, TIME, TIMESTAMP, NUMERIC = 700, 701, 1043, 1082, 1083, 1114, 1700

OIDS = {
    "BOOLEAN": BOOL, "TINYINT": INT2, "SMALLINT": INT2, "INTEGER": INT4, "UINTEGER": INT8, "BIGINT": INT8,
    "UBIGINT": NUMERIC, "HUGEINT": NUMERIC, "DECIMAL": NUMERIC, "FLOAT": FLOAT4, "DOUBLE": FLOAT8, "DATE": DATE,
    "TIME": TIME, "TIMESTAMP": TIMESTAMP, "BLOB": BYTEA,
}  # fmt: skip
EPOCH = datetime.datetime(2000, 1, 1)


class FrameError(Exception):
    """A frame that breaks the protocol; the connection ends."""

    state = "08P01"


class Frame(NamedTuple):
    """One message from a client."""

    kind: str
    body: bytes


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


async def read_frame(stream: asyncio.StreamReader, most: int = MOST_BYTES) -> Frame:
    """The next message.

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
    return Frame(head[:1].decode("ascii"), await stream.readexactly(length - 4))


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


def ready(in_transaction: bool) -> bytes:
    """Z: the next command may come."""
    return message("Z", b"T" if in_transaction else b"I")


def complete(tag: str) -> bytes:
    """C: a command is done."""
    return message("C", text(tag))


class WireColumn(NamedTuple):
    """A column of an answer: its name, its type's OID, and the bytes of a value (-1 where they differ)."""

    name: str
    oid: int
    width: int


def row_description(columns: Sequence[WireColumn], formats: Sequence[int]) -> bytes:
    """T: the columns of an answer, each in text (0) or binary form (1)."""
    fields = [struct.pack("!h", len(columns))]
    for (name, oid, width), form in zip(columns, formats, strict=True):
        fields.append(text(name) + struct.pack("!ihihih", 0, 0, oid, width, -1, form))
    return message("T", *fields)


def data_row(values: Sequence[bytes | None]) -> bytes:
    """D: one row."""
    fields = [struct.pack("!h", len(values))]
    fields += [struct.pack("!i", -1) if v is None else struct.pack("!i", len(v)) + v for v in values]
    return message("D", *fields)


def notice(told: str) -> bytes:
    """N: something to know about what follows."""
    fields = [("S", "NOTICE"), ("V", "NOTICE"), ("C", "00000"), ("M", told)]
    return message("N", *(key.encode() + text(value) for key, value in fields), b"\0")


def error(
    state: str, reason: str, *, hint: str = "", position: int | None = None, severity: str = "ERROR"
) -> bytes:
    """E: what went wrong, with its SQLSTATE."""
    fields = [("S", severity), ("V", severity), ("C", state), ("M", reason)]
    fields += [("H", hint)] if hint else []
    fields += [("P", str(position))] if position is not None else []
    return message("E", *(key.encode() + text(value) for key, value in fields), b"\0")


def oid_of(kind: str) -> int:
    """The OID of a DuckDB type.

    >>> oid_of("DECIMAL(18,2)"), oid_of("VARCHAR")
    (1700, 25)
    """
    base = kind.upper().split("(")[0].split(" ")[0].split("_")[0]
    return TEXT if kind.endswith("[]") else OIDS.get(base, TEXT)


def as_text(value: Any) -> bytes | None:
    """A value in text form.

    >>> as_text(True), as_text(datetime.datetime(2025, 1, 2)), as_text(None)
    (b't', b'2025-01-02 00:00:00', None)
    """
    if value is None:
        return None
    if isinstance(value, bool):
        return b"t" if value else b"f"
    if isinstance(value, float):
        return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(repr(value), repr(value)).encode()
    if isinstance(value, datetime.datetime):
        return value.isoformat(sep=" ").encode()
    if isinstance(value, bytes | bytearray):
        return b"\\x" + bytes(value).hex().encode()
    if isinstance(value, list | tuple):
        return ("{" + ",".join((as_text(element) or b"NULL").decode() for element in value) + "}").encode()
    return str(value).encode("utf-8")


class Type(NamedTuple):
    """A type of Postgres, and how its values travel.

    Args:
        name: in pg_type.
        width: bytes of a value in binary form; -1 where they differ.
        pack: value -> binary form.
        unpack: binary form -> value.
        parse: text form -> value.
    """

    name: str
    width: int
    pack: Callable[[Any], bytes | None]
    unpack: Callable[[bytes], Any]
    parse: Callable[[str], Any] = str


def _fixed(name: str, form: str, parse: Callable[[str], Any]) -> Type:
    code = struct.Struct(form)
    return Type(name, code.size, code.pack, lambda raw: code.unpack(raw)[0], parse)


def _unread(raw: bytes) -> Any:
    raise ValueError("binary parameters of this type are not read; send text")


def _numeric(value: decimal.Decimal) -> bytes:
    """Digits to base 10,000 with the weight of the first.

    >>> _numeric(decimal.Decimal("-12345.5")).hex()
    '0003000140000001000109291388'
    """
    scale = max(0, -int(value.as_tuple().exponent))
    integer, _, fraction = format(abs(value), "f").partition(".")
    integer = integer.lstrip("0")
    integer = integer.zfill(-(-len(integer) // 4) * 4)
    fraction = fraction.ljust(-(-len(fraction) // 4) * 4, "0")
    digits = [int((integer + fraction)[i : i + 4]) for i in range(0, len(integer + fraction), 4)]
    weight = len(integer) // 4 - 1
    while digits and digits[0] == 0:
        digits, weight = digits[1:], weight - 1
    while digits and digits[-1] == 0:
        digits = digits[:-1]
    sign = 0x4000 if value < 0 else 0
    head = struct.pack("!hhHh", len(digits), weight if digits else 0, sign, scale)
    return head + b"".join(struct.pack("!h", digit) for digit in digits)


def _microseconds(value: datetime.time) -> int:
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return seconds * 1_000_000 + value.microsecond


def _from_days(raw: bytes) -> datetime.date:
    return EPOCH.date() + datetime.timedelta(days=struct.unpack("!i", raw)[0])


def _from_microseconds(raw: bytes) -> datetime.datetime:
    return EPOCH + datetime.timedelta(microseconds=struct.unpack("!q", raw)[0])


TYPES = {
    BOOL: Type("bool", 1, lambda value: b"\1" if value else b"\0", lambda raw: raw == b"\1",
               lambda word: word.lower() in ("t", "true", "1", "on", "yes")),
    BYTEA: Type("bytea", -1, bytes, bytes),
    INT8: _fixed("int8", "!q", int), INT2: _fixed("int2", "!h", int), INT4: _fixed("int4", "!i", int),
    OID: _fixed("oid", "!I", int), FLOAT4: _fixed("float4", "!f", float), FLOAT8: _fixed("float8", "!d", float),
    TEXT: Type("text", -1, as_text, bytes.decode), VARCHAR: Type("varchar", -1, as_text, bytes.decode),
    DATE: Type("date", 4, lambda value: struct.pack("!i", (value - EPOCH.date()).days), _from_days,
               datetime.date.fromisoformat),
    TIME: Type("time", 8, lambda value: struct.pack("!q", _microseconds(value)), _unread),
    TIMESTAMP: Type("timestamp", 8,
                    lambda value: struct.pack("!q", (value - EPOCH) // datetime.timedelta(microseconds=1)),
                    _from_microseconds, datetime.datetime.fromisoformat),
    NUMERIC: Type("numeric", -1, lambda value: _numeric(decimal.Decimal(value)), _unread, decimal.Decimal),
}  # fmt: skip
"""By OID."""

OTHER = Type("", -1, as_text, _unread)


def as_binary(value: Any, oid: int) -> bytes | None:
    """A value in binary form; types without one are sent as their text, which is what text's is."""
    return None if value is None else TYPES.get(oid, OTHER).pack(value)


def parameter_value(raw: bytes | None, oid: int, binary: bool) -> Any:
    """A bound parameter as a Python value; text of an unknown type stays text.

    Raises:
        ValueError: it is not a value of its type.

    >>> parameter_value(b"2025-01-31", DATE, False), parameter_value(b"\\0\\7", INT2, True)
    (datetime.date(2025, 1, 31), 7)
    """
    kind = TYPES.get(oid or TEXT, OTHER)
    if raw is None:
        return None
    try:
        return kind.unpack(raw) if binary else kind.parse(raw.decode("utf-8"))
    except (struct.error, ArithmeticError) as error:
        raise ValueError("a number has another form") from error
