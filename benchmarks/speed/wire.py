"""What a statement costs over the wire: CPU of the server, and how long many clients wait.

The server is a process of its own. One client asks alone, then 16 ask at once; each statement has constants of its own.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from benchmarks.figures import Figures
from benchmarks.processes import at_once, worked
from tests.interfaces.wire_client import Server, running

LEAVES = 748
CLIENTS, EACH = 16, 50
ALONE = 300
PROTOCOL = 196608


def statements(seed: int) -> Iterator[str]:
    """Ever new statements over a range of the fact and one of a joined dimension."""
    rng = np.random.default_rng(seed)
    while True:
        (a, b), (c, d) = (np.sort(rng.choice(LEAVES + 1, size=2, replace=False)).tolist() for _ in range(2))
        within = f"x >= {a} AND x < {b} AND y BETWEEN {c} AND {d - 1}"
        yield f"SELECT COUNT(*) FROM facts JOIN person USING (id) WHERE {within}"


class Client:
    """A connection that speaks the simple protocol."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.file = self.socket.makefile("rb")
        body = struct.pack("!i", PROTOCOL) + b"user\0me\0\0"
        self.socket.sendall(struct.pack("!i", len(body) + 4) + body)
        self._until_ready()

    def ask(self, text: str) -> float:
        """Milliseconds until the server is ready again."""
        body = text.encode() + b"\0"
        begun = time.perf_counter()
        self.socket.sendall(b"Q" + struct.pack("!i", len(body) + 4) + body)
        assert b"D" in self._until_ready(), text
        return (time.perf_counter() - begun) * 1e3

    def _until_ready(self) -> bytes:
        """Kinds of the messages up to ReadyForQuery."""
        kinds = b""
        while not kinds.endswith(b"Z"):
            kind, length = struct.unpack("!ci", self.file.read(5))
            self.file.read(length - 4)
            kinds += kind
        return kinds


def alone(server: Server, seed: int) -> tuple[float, float]:
    """(CPU, median wait) of one client's statements, in milliseconds."""
    client, texts = Client(server.port), list(islice(statements(seed), ALONE + 20))
    for text in texts[:20]:
        client.ask(text)
    before = worked(server.process.pid)
    waits = [client.ask(text) for text in texts[20:]]
    return 1e3 * (worked(server.process.pid) - before) / ALONE, float(np.median(waits))


def together(server: Server, seed: int) -> float:
    """99th percentile of the waits of clients that ask at once, in milliseconds."""
    waits: list[float] = []

    def ask(number: int) -> None:
        client = Client(server.port)
        waits.extend([client.ask(text) for text in islice(statements(seed + number), EACH)])

    at_once(CLIENTS, ask)
    assert len(waits) == CLIENTS * EACH
    return float(np.percentile(waits, 99))


def measure(release: Path, figures: Figures) -> None:
    """The figure of a release of a million node combinations."""
    with running(release) as server:
        cpu, wait = alone(server, 100)
        worst = together(server, 200)
    print(f"over the wire: {cpu:.2f} ms CPU, one client waits {wait:.2f} ms")
    title = f"{CLIENTS} clients of distinct statements, p99 over one client's p50"
    figures.at_most(title, worst / wait, 25.0)
