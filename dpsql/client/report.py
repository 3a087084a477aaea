"""Report version 1: a few bytes that name the plan, the view and the oracle, then the perturbed answer.

    magic 2 ("L1") | plan hash 8 | view u16 | oracle u8 | payload          big-endian

Payloads: GRR and Square Wave an unsigned LEB128 integer, OUE ceil(D/8) bytes, OLH a seed u16 and a LEB128
bucket. A report holds no user id. The JSON twin carries the same fields under names.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from dpsql.client.oracles import coded_oracle, device_oracle, oracle_code
from dpsql.errors import DataError

MAGIC = b"L1"
HEADER = 13
_JSON_KEYS = {"report", "plan", "view", "oracle", "payload"}


class Report(NamedTuple):
    """One report: the plan's hash, a view's number, an oracle's name, and payload bytes."""

    plan: bytes
    view: int
    oracle: str
    payload: bytes


def encode(report: Report) -> bytes:
    """Write a report as bytes."""
    head = MAGIC + report.plan + report.view.to_bytes(2, "big") + bytes([oracle_code(report.oracle)])
    return head + report.payload


def decode(raw: bytes) -> Report:
    """Read report bytes; the payload is checked against a plan by the collector, not here.

    Raises:
        DataError: if the bytes are not a report of version 1.
    """
    if len(raw) <= HEADER or raw[:2] != MAGIC:
        raise DataError("not a report of version 1")
    oracle = coded_oracle(raw[12])
    if oracle is None:
        raise DataError("a report names an unknown oracle")
    return Report(raw[2:10], int.from_bytes(raw[10:12], "big"), oracle.name, raw[HEADER:])


def to_json(report: Report) -> str:
    r"""Write a report as one JSON line.

    Example:
        >>> to_json(Report(bytes(8), 3, "GRR", b"\x02"))
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
        if type(view) is not int or not 0 <= view < 1 << 16 or device_oracle(oracle) is None:
            raise DataError("a JSON report's view or oracle is not valid")
        plan, payload = bytes.fromhex(fields["plan"]), bytes.fromhex(fields["payload"])
        return decode(encode(Report(plan, view, oracle, payload)))
    except (ValueError, TypeError, RecursionError) as error:
        raise DataError("not a JSON report of version 1") from error
