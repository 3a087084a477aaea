"""A client of protocol 3.0 that asks one statement with text parameters, and takes what comes."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from typing import NamedTuple


class Given(NamedTuple):
    """What a server answers.

    Args:
        columns: (name, OID) of each.
        rows: as texts.
        error: SQLSTATE and message, or empty.
    """

    columns: tuple[tuple[str, int], ...]
    rows: tuple[tuple[str | None, ...], ...]
    error: str


class Asker:
    """A connection without a password."""

    def __init__(self, port: int, user: str, database: str = "shop", options: str = "") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        words = ["user", user, "database", database, *(["options", options] if options else [])]
        body = struct.pack("!i", 196608) + b"".join(word.encode() + b"\0" for word in words) + b"\0"
        self.socket.sendall(struct.pack("!i", len(body) + 4) + body)
        self.reader = self.socket.makefile("rb")
        self._until_ready()

    def ask(self, text: str, values: Sequence[str | None] = ()) -> Given:
        """Ask a statement: with the simple protocol, or with the extended one if it has parameters."""
        if not values:
            self._send("Q", text.encode() + b"\0")
            return self._until_ready()
        self._send("P", b"\0" + text.encode() + b"\0\0\0")
        raw = [None if value is None else value.encode() for value in values]
        packed = b"".join(struct.pack("!i", -1) if v is None else struct.pack("!i", len(v)) + v for v in raw)
        self._send("B", b"\0\0" + struct.pack("!hh", 0, len(raw)) + packed + struct.pack("!h", 0))
        self._send("D", b"P\0")
        self._send("E", b"\0\0\0\0\0")
        self._send("S", b"")
        return self._until_ready()

    def close(self) -> None:
        """Leave."""
        self._send("X", b"")
        self.socket.close()

    def _send(self, kind: str, body: bytes) -> None:
        self.socket.sendall(kind.encode() + struct.pack("!i", len(body) + 4) + body)

    def _until_ready(self) -> Given:
        columns: tuple[tuple[str, int], ...] = ()
        rows: list[tuple[str | None, ...]] = []
        error = ""
        while True:
            head = self.reader.read(5)
            if len(head) < 5:
                return Given(columns, tuple(rows), error or "the connection ended")
            kind, body = chr(head[0]), self.reader.read(struct.unpack("!i", head[1:])[0] - 4)
            if kind == "T":
                columns, rows = _columns(body), []
            elif kind == "D":
                rows.append(_values(body))
            elif kind == "E":
                fields = {part[:1]: part[1:].decode() for part in body.split(b"\0") if part}
                error = f"{fields[b'C']} {fields[b'M']}"
            elif kind == "Z":
                return Given(columns, tuple(rows), error)


def _columns(body: bytes) -> tuple[tuple[str, int], ...]:
    count, place, columns = struct.unpack("!h", body[:2])[0], 2, []
    for _ in range(count):
        end = body.index(b"\0", place)
        oid = struct.unpack("!ihihih", body[end + 1 : end + 19])[2]
        columns.append((body[place:end].decode(), oid))
        place = end + 19
    return tuple(columns)


def _values(body: bytes) -> tuple[str | None, ...]:
    count, place, values = struct.unpack("!h", body[:2])[0], 2, list[str | None]()
    for _ in range(count):
        length = struct.unpack("!i", body[place : place + 4])[0]
        place += 4
        values.append(None if length < 0 else body[place : place + length].decode())
        place += max(length, 0)
    return tuple(values)
