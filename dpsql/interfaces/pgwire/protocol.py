"""The PostgreSQL protocol 3.0 as bytes: messages, read with limits and built, SQLSTATEs of errors, and
values: DuckDB's types as PostgreSQL's OIDs, each value in text and in binary form.

A parameter of a binary client comes in the form of the type that the server has named, so what `parameters` infers is
what is read here.
"""

from __future__ import annotations

import asyncio
import datetime
import decimal
import re
import struct
import uuid
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dpsql import errors

BOOL, BYTEA, CHAR, NAME, INT8, INT2, INT2VECTOR, INT4, TEXT, OID = 16, 17, 18, 19, 20, 21, 22, 23, 25, 26
OIDVECTOR, JSON, FLOAT4, FLOAT8, UNKNOWN, BPCHAR, VARCHAR = 30, 114, 700, 701, 705, 1042, 1043
DATE, TIME, TIMESTAMP, TIMESTAMPTZ, INTERVAL, NUMERIC, UUID = 1082, 1083, 1114, 1184, 1186, 1700, 2950
REGPROC, REGCLASS, REGTYPE = 24, 2205, 2206

OIDS = {
    "BOOLEAN": BOOL, "TINYINT": INT2, "SMALLINT": INT2, "INTEGER": INT4, "UINTEGER": INT8, "BIGINT": INT8,
    "UBIGINT": NUMERIC, "HUGEINT": NUMERIC, "DECIMAL": NUMERIC, "FLOAT": FLOAT4, "DOUBLE": FLOAT8, "DATE": DATE,
    "TIME": TIME, "TIMESTAMP": TIMESTAMP, "BLOB": BYTEA, "INTERVAL": INTERVAL, "UUID": UUID,
}  # fmt: skip
ARRAYS = {
    BOOL: 1000, BYTEA: 1001, CHAR: 1002, NAME: 1003, INT2: 1005, INT4: 1007, TEXT: 1009, BPCHAR: 1014, VARCHAR: 1015,
    INT8: 1016, FLOAT4: 1021, FLOAT8: 1022, OID: 1028, TIMESTAMP: 1115, DATE: 1182, TIME: 1183, TIMESTAMPTZ: 1185,
    INTERVAL: 1187, NUMERIC: 1231, UUID: 2951,
}  # fmt: skip
"""Element type -> array type."""
EPOCH = datetime.datetime(2000, 1, 1)
MICROSECOND = datetime.timedelta(microseconds=1)
QUOTED = re.compile(r'[{}",\\\s]|^$|^null$', re.IGNORECASE)
ELEMENT = re.compile(r'"((?:[^"\\]|\\.)*)"|([^,"{}]+)')


def oid_of(kind: str) -> int:
    """The OID of a DuckDB type.

    >>> oid_of("DECIMAL(18,2)"), oid_of("VARCHAR")
    (1700, 25)
    """
    base = kind.upper().removesuffix("[]").split("(")[0].split(" ")[0].split("_")[0]
    oid = OIDS.get(base, TEXT)
    return ARRAYS[oid] if kind.endswith("[]") else oid


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
        zone = "+00" if value.tzinfo is not None else ""
        return (universal(value).isoformat(sep=" ") + zone).encode()
    if isinstance(value, datetime.timedelta):
        return f"{value // MICROSECOND / 1e6:g} seconds".encode()
    if isinstance(value, bytes | bytearray):
        return b"\\x" + bytes(value).hex().encode()
    if isinstance(value, list | tuple):
        return ("{" + ",".join(map(_element, value)) + "}").encode()
    return str(value).encode("utf-8")


def with_length(raw: bytes | None) -> bytes:
    """A value as messages, arrays and COPY have it, after its length; -1 is NULL."""
    return struct.pack("!i", -1) if raw is None else struct.pack("!i", len(raw)) + raw


def _element(value: Any) -> str:
    text = (as_text(value) or b"").decode()
    if value is None or isinstance(value, list | tuple) or not QUOTED.search(text):
        return "NULL" if value is None else text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def universal(value: datetime.datetime) -> datetime.datetime:
    """A moment in universal time, without its zone."""
    return value if value.tzinfo is None else value.astimezone(datetime.UTC).replace(tzinfo=None)


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
    raise ValueError("binary parameters of this type are not supported; send text")


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


def _read_numeric(raw: bytes) -> decimal.Decimal:
    """The inverse of `_numeric`.

    >>> _read_numeric(bytes.fromhex("0003000140000001000109291388"))
    Decimal('-12345.5')
    """
    count, weight, sign, scale = struct.unpack("!hhHh", raw[:8])
    if sign not in (0, 0x4000) or len(raw) != 8 + 2 * count:
        raise ValueError("not a finite number")
    digits = struct.unpack(f"!{count}h", raw[8:])
    number = sum(
        (decimal.Decimal(digit).scaleb(4 * (weight - i)) for i, digit in enumerate(digits)),
        decimal.Decimal(0),
    )
    with decimal.localcontext(prec=max(decimal.getcontext().prec, 4 * count + scale + 8)):
        number = number.quantize(decimal.Decimal(1).scaleb(-scale))
    return -number if sign else number


def _read_date(word: str) -> datetime.date:
    """A date, whatever time and zone stand behind it."""
    match = WITH_TIME.fullmatch(word.strip())
    if match is None:
        raise ValueError("not a date")
    return datetime.date.fromisoformat(match[1])


WITH_TIME = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ][-+\d:. Z]*)?")


def _from_microseconds(raw: bytes) -> datetime.datetime:
    return EPOCH + datetime.timedelta(microseconds=struct.unpack("!q", raw)[0])


def _to_microseconds(value: datetime.date) -> bytes:
    moment = (
        value if isinstance(value, datetime.datetime) else datetime.datetime.combine(value, datetime.time())
    )
    return struct.pack("!q", (universal(moment) - EPOCH) // MICROSECOND)


def _with_zone(value: datetime.datetime) -> datetime.datetime:
    return value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)


def _from_interval(raw: bytes) -> datetime.timedelta:
    microseconds, days, months = struct.unpack("!qii", raw)
    if months:
        raise ValueError("months have no length")
    return datetime.timedelta(days=days, microseconds=microseconds)


def _text(name: str) -> Type:
    return Type(name, -1, as_text, bytes.decode)


TYPES = {
    BOOL: Type("bool", 1, lambda value: b"\1" if value else b"\0", lambda raw: raw == b"\1",
               lambda word: word.lower() in ("t", "true", "1", "on", "yes")),
    BYTEA: Type("bytea", -1, bytes, bytes),
    INT8: _fixed("int8", "!q", int), INT2: _fixed("int2", "!h", int), INT4: _fixed("int4", "!i", int),
    OID: _fixed("oid", "!I", int), FLOAT4: _fixed("float4", "!f", float), FLOAT8: _fixed("float8", "!d", float),
    TEXT: _text("text"), VARCHAR: _text("varchar"), NAME: _text("name"), BPCHAR: _text("bpchar"), JSON: _text("json"),
    UNKNOWN: _text("unknown"), REGCLASS: _text("regclass"), REGTYPE: _text("regtype"), REGPROC: _text("regproc"),
    CHAR: _text("char")._replace(width=1),
    DATE: Type("date", 4, lambda value: struct.pack("!i", (value - EPOCH.date()).days),
               lambda raw: EPOCH.date() + datetime.timedelta(days=struct.unpack("!i", raw)[0]), _read_date),
    TIME: Type("time", 8, lambda value: struct.pack("!q", _microseconds(value)),
               lambda raw: _from_microseconds(raw).time(), datetime.time.fromisoformat),
    TIMESTAMP: Type("timestamp", 8, _to_microseconds, _from_microseconds, datetime.datetime.fromisoformat),
    TIMESTAMPTZ: Type("timestamptz", 8, _to_microseconds, lambda raw: _with_zone(_from_microseconds(raw)),
                      lambda word: _with_zone(datetime.datetime.fromisoformat(word))),
    INTERVAL: Type("interval", 16, lambda value: struct.pack("!qii", value // MICROSECOND, 0, 0), _from_interval),
    UUID: Type("uuid", 16, lambda value: uuid.UUID(str(value)).bytes, lambda raw: str(uuid.UUID(bytes=raw))),
    NUMERIC: Type("numeric", -1, lambda value: _numeric(decimal.Decimal(value)), _read_numeric, decimal.Decimal),
}  # fmt: skip
"""By OID."""


def _pack_array(element: int, values: Sequence[Any]) -> bytes:
    """One dimension, as PostgreSQL writes it."""
    if not values:
        return struct.pack("!iii", 0, 0, element)
    raw = [as_binary(value, element) for value in values]
    head = struct.pack("!iiiii", 1, int(None in raw), element, len(raw), 1)
    return head + b"".join(map(with_length, raw))


def _unpack_array(raw: bytes) -> list[Any]:
    dimensions, _, element = struct.unpack("!iii", raw[:12])
    if dimensions == 0:
        return []
    if dimensions != 1:
        raise ValueError("an array of several dimensions")
    count, place, values = struct.unpack("!i", raw[12:16])[0], 20, list[Any]()
    for _ in range(min(count, len(raw))):
        (length,) = struct.unpack("!i", raw[place : place + 4])
        place += 4 + max(length, 0)
        value = raw[place - length : place] if length >= 0 else None
        values.append(parameter_value(value, element, True))
    return values


def _parse_array(word: str, element: int) -> list[Any]:
    """The text form of one dimension.

    >>> _parse_array('{1,NULL}', INT4), _parse_array('{"a,b",c}', TEXT)
    ([1, None], ['a,b', 'c'])
    """
    if not (word.startswith("{") and word.endswith("}")):
        raise ValueError("not an array")
    texts = [
        re.sub(r"\\(.)", r"\1", quoted) if not bare else None if bare.upper() == "NULL" else bare
        for quoted, bare in ELEMENT.findall(word[1:-1])
    ]
    return [None if text is None else parameter_value(text.encode(), element, False) for text in texts]


def _array(name: str, element: int) -> Type:
    return Type(
        name, -1, lambda values: _pack_array(element, values), _unpack_array, lambda word: _parse_array(word, element)
    )  # fmt: skip


TYPES |= {array: _array(f"_{TYPES[element].name}", element) for element, array in ARRAYS.items()}
TYPES |= {INT2VECTOR: _array("int2vector", INT2), OIDVECTOR: _array("oidvector", OID)}
OIDS_BY_NAME = {kind.name: oid for oid, kind in TYPES.items()}

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
        raise ValueError("a number is malformed") from error


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


async def read_head(stream: asyncio.StreamReader, most: int = MOST_BYTES) -> tuple[str, int]:
    """Kind of the next message, and bytes of its fields, which are not read yet.

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
    return head[:1].decode("ascii"), length - 4


async def read_frame(stream: asyncio.StreamReader, most: int = MOST_BYTES) -> tuple[str, FrameReader]:
    """Kind and fields of the next message; raises as `read_head`."""
    kind, size = await read_head(stream, most)
    return kind, FrameReader(await stream.readexactly(size))


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
