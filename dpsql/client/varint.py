"""Unsigned integers in LEB128, as reports hold them."""

from __future__ import annotations

from dataclasses import dataclass

from dpsql.errors import DataError


@dataclass(frozen=True)
class Varint:
    """An integer read from bytes and how many bytes it took."""

    value: int
    size: int


def varint(value: int) -> bytes:
    """Write an unsigned integer in LEB128, seven bits a byte, least significant first.

    Example:
        >>> varint(300).hex()
        'ac02'
    """
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(raw: bytes) -> Varint:
    """Read an unsigned LEB128 integer; only its shortest form is accepted.

    Raises:
        DataError: if it is cut off, longer than four bytes, or not in shortest form.
    """
    value = 0
    for position, byte in enumerate(raw[:4]):
        value |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            if byte == 0 and position:
                break
            return Varint(value, position + 1)
    raise DataError("a report's integer is cut off or not in shortest form")
