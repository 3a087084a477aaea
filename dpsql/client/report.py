"""Report version 1: a few bytes that name the plan, the view and the oracle, then the perturbed answer.

    magic 2 ("L1") | plan hash 8 | view u16 | oracle u8 | payload          big-endian

Payloads: GRR and Square Wave an unsigned LEB128 integer, OUE ceil(D/8) bytes, OLH a seed u16 and a LEB128
bucket. A report holds no user id. The JSON twin carries the same fields under names.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NamedTuple

from dpsql.errors import DataError

MAGIC = b"L1"
HEADER = 13
ORACLES = {"GRR": 1, "OUE": 2, "OLH": 3, "WAVE": 4}
NAMES = {code: name for name, code in ORACLES.items()}
_JSON_KEYS = {"report", "plan", "view", "oracle", "payload"}


class Report(NamedTuple):
    """One report: the plan's hash, a view's number, an oracle's name, and payload bytes."""

    plan: bytes
    view: int
    oracle: str
    payload: bytes


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


def encode(report: Report) -> bytes:
    """Write a report as bytes."""
    head = MAGIC + report.plan + report.view.to_bytes(2, "big") + bytes([ORACLES[report.oracle]])
    return head + report.payload


def decode(raw: bytes) -> Report:
    """Read report bytes; the payload is checked against a plan by the collector, not here.

    Raises:
        DataError: if the bytes are not a report of version 1.
    """
    if len(raw) <= HEADER or raw[:2] != MAGIC:
        raise DataError("not a report of version 1")
    if raw[12] not in NAMES:
        raise DataError("a report names an unknown oracle")
    return Report(raw[2:10], int.from_bytes(raw[10:12], "big"), NAMES[raw[12]], raw[HEADER:])


def to_json(report: Report) -> str:
    """Write a report as one JSON line.

    Example:
        >>> to_json(Report(bytes(8), 3, "GRR", varint(2)))
        '{"report":1,"plan":"0000000000000000","view":3,"oracle":"GRR","payload":"02"}'
    """
    fields = {
        "report": 1,
        "plan": report.plan.hex(),
        "view": report.view,
        "oracle": report.oracle,
        "payload": report.payload.hex(),
    }
    return json.dumps(fields, separators=(",", ":"))


def from_json(line: str) -> Report:
    """Read the JSON twin.

    Raises:
        DataError: if a field is missing, unknown or of the wrong type.
    """
    try:
        fields = json.loads(line)
        if not isinstance(fields, dict) or set(fields) != _JSON_KEYS or fields["report"] != 1:
            raise DataError("not a JSON report of version 1")
        view, oracle = fields["view"], fields["oracle"]
        if type(view) is not int or not 0 <= view < 1 << 16 or oracle not in ORACLES:
            raise DataError("a JSON report's view or oracle is not valid")
        plan, payload = bytes.fromhex(fields["plan"]), bytes.fromhex(fields["payload"])
        return decode(encode(Report(plan, view, oracle, payload)))
    except (ValueError, TypeError) as error:
        raise DataError("not a JSON report of version 1") from error
