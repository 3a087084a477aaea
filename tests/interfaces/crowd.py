"""A crowd at the server: clients that wait, clients that ask without end, and others that do what none should.

While the busy ones ask, strangers connect and never log in, and some clients leave in the middle of a statement.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.interfaces.test_shell import ENDLESS
from tests.interfaces.wire_client import Server, Wire, kinds, log_in

STRANGERS = 150
"""That a flood holds open; half a login message each."""
AT_LEAST_EVERY = 500
"""Statements after which somebody leaves in the middle of a long one."""


@dataclass
class Seen:
    """What happened.

    Args:
        seconds: of each statement.
        unserved: statements of clients that had logged in without the answer that they should have.
        idle: of the clients that waited, those who were served afterwards.
        strangers: connections that never logged in.
        left: clients that left in the middle of a statement.
        bytes: resident memory of the server after so many statements.
    """

    seconds: list[float] = field(default_factory=list)
    unserved: int = 0
    idle: int = 0
    strangers: int = 0
    left: int = 0
    bytes: list[tuple[int, int]] = field(default_factory=list)


def questions() -> Iterator[tuple[str, str]]:
    """Statements without end, each with the kinds of messages that answer it.

    A dashboard's, which come again; each fifth a new one; now and then a catalogue query, a mistake and a list.
    """
    number = 0
    while True:
        number += 1
        if number % 20 == 0:
            yield "SELECT relname FROM pg_class WHERE relnatts > 2", "TDDZ"
        elif number % 20 == 1:
            yield "SELECT nothing FROM sales", "EZ"
        elif number % 100 == 2:
            yield "SHOW VIEWS", "TDDZ"
        elif number % 5 == 0:
            yield (
                f"SELECT region, COUNT(*) + {number} FROM shop WHERE age < {21 + number % 38} GROUP BY 1",
                "TDZ",
            )
        else:
            yield (
                f"SELECT COUNT(*) FROM shop WHERE age >= {20 + number % 10} AND age < {31 + number % 19}", "TDZ"
            )  # fmt: skip


def resident(process: int) -> int:
    """Bytes of memory that a process holds."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * 4096


async def answer(reader: asyncio.StreamReader) -> str:
    """The kinds of the messages of one answer."""
    found = ""
    while not found.endswith("Z"):
        kind, length = struct.unpack("!ci", await reader.readexactly(5))
        await reader.readexactly(length - 4)
        found += kind.decode()
    return found


def query(sql: str) -> bytes:
    body = sql.encode() + b"\0"
    return b"Q" + struct.pack("!i", len(body) + 4) + body


async def busy(
    client: Wire, asked: Iterator[tuple[str, str]], statements: int, seen: Seen, server: Server
) -> None:
    """Ask one statement after another until so many have been asked by all."""
    reader, writer = await asyncio.open_connection(sock=client.socket)
    try:
        for sql, expected in asked:
            if len(seen.seconds) >= statements:
                return
            begun = time.perf_counter()
            writer.write(query(sql))
            found = await answer(reader)
            seen.seconds.append(time.perf_counter() - begun)
            seen.unserved += not set(expected) <= set(found) or ("E" in found) != ("E" in expected)
            if len(seen.seconds) % AT_LEAST_EVERY == 0:
                seen.bytes.append((len(seen.seconds), resident(server.process.pid)))
    except (OSError, asyncio.IncompleteReadError):
        seen.unserved += 1
    finally:
        writer.close()


async def flood(port: int, seen: Seen) -> None:
    """Connect again and again, and never log in."""
    held: list[asyncio.StreamWriter] = []
    while True:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(struct.pack("!ii", 60, 196608) + b"user\0an")
            held.append(writer)
            seen.strangers += 1
        if len(held) > STRANGERS:
            held.pop(0).close()
        await asyncio.sleep(0.02)


async def leavers(port: int, password: str, every: float, seen: Seen) -> None:
    """Log in, ask something that takes long, and leave before it is answered."""
    while True:
        client = await asyncio.to_thread(log_in, port, "ana", password)
        client.send("Q", ENDLESS.replace("> 7", f"> {seen.left}").encode() + b"\0")
        await asyncio.sleep(0.2)
        client.socket.close()
        seen.left += 1
        await asyncio.sleep(every)


def crowd(server: Server, password: str, idle: int, clients: int, statements: int, every: float) -> Seen:
    """Let a crowd come.

    Args:
        server: a server of the tests' shop, with the role `ana`.
        password: hers.
        idle, clients: how many wait, and how many ask.
        statements: that are asked in all.
        every: seconds between two clients that leave.

    Returns:
        What happened.
    """
    seen, asked = Seen(), questions()
    waiting = [log_in(server.port, "ana", password) for _ in range(idle)]
    asking = [log_in(server.port, "ana", password) for _ in range(clients)]
    seen.unserved += sum(not client.greeting.endswith("Z") for client in (*waiting, *asking))

    async def all_at_once() -> None:
        others = [
            asyncio.create_task(flood(server.port, seen)),
            asyncio.create_task(leavers(server.port, password, every, seen)),
        ]
        await asyncio.gather(*(busy(client, asked, statements, seen, server) for client in asking))
        for task in others:
            assert not task.done() or task.result() is None
            task.cancel()

    asyncio.run(all_at_once())
    for client in waiting:
        seen.idle += "D" in kinds(client.ask("SELECT COUNT(*) FROM sales"))
        client.socket.close()
    return seen


def logins_at_once(port: int, count: int) -> int:
    """How many of so many logins of a role succeed that are all connected before the first of them says a word."""
    clients = [Wire(port, startup=b"") for _ in range(count)]
    for client in clients:
        client.start("ana")
    entered = sum(client.log_in("correct horse").greeting[-1:] == "Z" for client in clients)
    for client in clients:
        client.socket.close()
    return entered
