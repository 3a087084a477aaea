"""DuckDB's types as Postgres OIDs, and values as Postgres writes them, in text and in binary."""

from __future__ import annotations

import datetime
import decimal
import struct
from typing import Any

BOOL, BYTEA, INT8, INT2, INT4, TEXT, OID = 16, 17, 20, 21, 23, 25, 26
FLOAT4, FLOAT8, VARCHAR, DATE, TIME, TIMESTAMP, NUMERIC = 700, 701, 1043, 1082, 1083, 1114, 1700

OIDS = {
    "BOOLEAN": BOOL, "TINYINT": INT2, "SMALLINT": INT2, "INTEGER": INT4, "UINTEGER": INT8, "BIGINT": INT8,
    "UBIGINT": NUMERIC, "HUGEINT": NUMERIC, "DECIMAL": NUMERIC, "FLOAT": FLOAT4, "DOUBLE": FLOAT8, "DATE": DATE,
    "TIME": TIME, "TIMESTAMP": TIMESTAMP, "BLOB": BYTEA,
}  # fmt: skip
WIDTHS = {BOOL: 1, INT2: 2, INT4: 4, INT8: 8, FLOAT4: 4, FLOAT8: 8, DATE: 4, TIME: 8, TIMESTAMP: 8}
TYPE_NAMES = {
    BOOL: "bool", BYTEA: "bytea", INT8: "int8", INT2: "int2", INT4: "int4", TEXT: "text", OID: "oid",
    FLOAT4: "float4", FLOAT8: "float8", VARCHAR: "varchar", DATE: "date", TIME: "time",
    TIMESTAMP: "timestamp", NUMERIC: "numeric",
}  # fmt: skip
EPOCH = datetime.datetime(2000, 1, 1)


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
        return ("{" + ",".join((as_text(item) or b"NULL").decode() for item in value) + "}").encode()
    return str(value).encode("utf-8")


def as_binary(value: Any, oid: int) -> bytes | None:
    """A value in binary form; types without one are sent as their text, which is what text's is."""
    if value is None:
        return None
    if oid == BOOL:
        return b"\1" if value else b"\0"
    formats = {INT2: "!h", INT4: "!i", INT8: "!q", OID: "!I", FLOAT4: "!f", FLOAT8: "!d"}
    if oid in formats:
        return struct.pack(formats[oid], value)
    if oid == DATE:
        return struct.pack("!i", (value - EPOCH.date()).days)
    if oid == TIMESTAMP:
        return struct.pack("!q", (value - EPOCH) // datetime.timedelta(microseconds=1))
    if oid == TIME:
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        return struct.pack("!q", seconds * 1_000_000 + value.microsecond)
    if oid == NUMERIC:
        return _numeric(decimal.Decimal(value))
    return as_text(value)


def _numeric(value: decimal.Decimal) -> bytes:
    """Digits to base 10,000 with the weight of the first.

    >>> _numeric(decimal.Decimal("-12345.5")).hex()
    '0003000140000001000109291388'
    """
    scale = max(0, -int(value.as_tuple().exponent))
    whole, _, part = format(abs(value), "f").partition(".")
    whole = whole.lstrip("0")
    whole = whole.zfill(-(-len(whole) // 4) * 4)
    part = part.ljust(-(-len(part) // 4) * 4, "0")
    digits = [int((whole + part)[i : i + 4]) for i in range(0, len(whole + part), 4)]
    weight = len(whole) // 4 - 1
    while digits and digits[0] == 0:
        digits, weight = digits[1:], weight - 1
    while digits and digits[-1] == 0:
        digits = digits[:-1]
    sign = 0x4000 if value < 0 else 0
    head = struct.pack("!hhHh", len(digits), weight if digits else 0, sign, scale)
    return head + b"".join(struct.pack("!h", digit) for digit in digits)


def parameter_value(raw: bytes | None, oid: int, binary: bool) -> Any:
    """A bound parameter as a Python value; text of an unknown type stays text.

    Raises:
        ValueError: it is not a value of its type.
    """
    if raw is None:
        return None
    formats = {INT2: "!h", INT4: "!i", INT8: "!q", OID: "!I", FLOAT4: "!f", FLOAT8: "!d"}
    if binary and oid in formats:
        try:
            return struct.unpack(formats[oid], raw)[0]
        except struct.error as error:
            raise ValueError("a binary number has another length") from error
    if binary and oid == BOOL:
        return raw == b"\1"
    if binary and oid == DATE and len(raw) == 4:
        return EPOCH.date() + datetime.timedelta(days=struct.unpack("!i", raw)[0])
    if binary and oid == TIMESTAMP and len(raw) == 8:
        return EPOCH + datetime.timedelta(microseconds=struct.unpack("!q", raw)[0])
    if binary and oid not in (0, TEXT, VARCHAR):
        raise ValueError(f"binary parameters of type {oid} are not read; send text")
    text = raw.decode("utf-8")
    if oid in (INT2, INT4, INT8, OID):
        return int(text)
    if oid in (FLOAT4, FLOAT8):
        return float(text)
    if oid == NUMERIC:
        return decimal.Decimal(text)
    if oid == BOOL:
        return text.lower() in ("t", "true", "1", "on", "yes")
    if oid == DATE:
        return datetime.date.fromisoformat(text)
    if oid == TIMESTAMP:
        return datetime.datetime.fromisoformat(text)
    return text
