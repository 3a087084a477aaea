"""What one client asks of the server keeps neither the others waiting nor the server from ending."""

from __future__ import annotations

import json
import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from benchmarks.processes import seconds_until_quiet, worked
from dpsql.interfaces.pgwire.client import MOST_MESSAGE
from tests.answer.test_limits import ATTACKS, NUMBERS
from tests.answer.test_requests import BY_AGE
from tests.interfaces.test_shell import ENDLESS
from tests.interfaces.wire_client import Server, Wire, kinds, state
from tests.interrupts import ended_children

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a process's work is read from /proc")

INNER, DEEP = "(SELECT relname AS a FROM pg_class)", 25
CATALOGUE = {
    "sleep": "SELECT pg_sleep(30), relname FROM pg_class",
    "recursion": "WITH RECURSIVE a AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM a) SELECT MAX(x) FROM a, pg_class",
    "series": "SELECT COUNT(*) FROM generate_series(1, 1000000000), pg_class",
    "computed series": "SELECT COUNT(*) FROM generate_series(1, 1000 * 1000), pg_class",
    "repeat": "SELECT repeat(relname, 1000000000) FROM pg_class",
    "pad": "SELECT lpad(relname, 1000000000, 'x') FROM pg_class",
    "doubled": "SELECT a || a FROM " + "(SELECT a || a AS a FROM " * DEEP + INNER + ")" * DEEP,
    "lists": "SELECT [a, a] FROM " + "(SELECT [a, a] AS a FROM " * DEEP + INNER + ")" * DEEP,
    "settings": "SELECT * FROM duckdb_settings(), pg_class",
    "file": "SELECT * FROM read_csv('/etc/passwd'), pg_class",
    "file by name": "SELECT * FROM '/etc/passwd', pg_class",
    "environment": "SELECT getenv('HOME') FROM pg_class",
    "write": "CREATE TABLE pg_mine AS SELECT 1",
}  # fmt: skip
PRODUCT = "SELECT COUNT(*) FROM " + ", ".join(f"pg_attribute AS a{i}" for i in range(12))


def entered(port: int) -> Wire:
    client = Wire(port)
    client.until_ready()
    return client


@pytest.mark.parametrize("name", CATALOGUE)
def test_the_catalogue_runs_none_of_it(server: Server, name: str) -> None:
    client, before = entered(server.port), worked(server.process.pid)
    first = client.ask(CATALOGUE[name])
    assert [kind for kind, _ in first if kind in "DE"][-1] == "E"
    assert state(next(body for kind, body in first if kind == "E")) in ("0A000", "42000", "42601", "42P01")
    assert worked(server.process.pid) - before < 10


@pytest.mark.parametrize("kind", "QPBDECHS")
def test_long_messages_are_refused_by_their_length(server: Server, kind: str) -> None:
    client = entered(server.port)
    client.send(kind, bytes(MOST_MESSAGE + 1))
    if kind not in "QS":
        client.send("S", b"")
    first, *others = client.until_ready()
    assert first[0] == "E" and state(first[1]) == "54000"
    assert kinds(others) == "Z"
    assert "D" in kinds(client.ask("SELECT COUNT(*) FROM sales"))
    client.socket.sendall(kind.encode() + struct.pack("!i", 2**31 - 1))
    assert state(client.until_ready()[0][1]) == "08P01"


def test_catalogue_queries_are_cut_off(server: Server) -> None:
    client, before = entered(server.port), worked(server.process.pid)
    assert client.ask(PRODUCT)[0][0] == "E"
    assert worked(server.process.pid) - before < 10


@pytest.mark.parametrize("rounds", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_others_are_served_meanwhile(server: Server, rounds: int) -> None:
    over, port, pid = threading.Event(), server.port, server.process.pid

    def attack() -> None:
        client = entered(port)
        while not over.is_set():
            for sql in (*ATTACKS.values(), *CATALOGUE.values(), PRODUCT):
                assert client.ask(sql)[0][0] == "E"

    attackers = [threading.Thread(target=attack) for _ in range(2)]
    for each in attackers:
        each.start()
    clients = [entered(port) for _ in range(6)]
    slowest = 0.0
    for number in range(rounds):
        for place, client in enumerate(clients):
            before = worked(pid)
            assert "D" in kinds(client.ask(f"SELECT COUNT(*) + {number * 6 + place} FROM sales"))
            slowest = max(slowest, worked(pid) - before)
    over.set()
    for each in attackers:
        each.join()
    assert slowest < 20


ERRORS = f"SELECT DP_STDERR(a.n - b.n + c.n) AS e FROM {BY_AGE} AS a, {BY_AGE} AS b, {BY_AGE} AS c"
"""64,000 errors: half a minute in which DuckDB runs for a second."""


def test_errors_are_not_worked_out_for_a_client_who_has_left(server: Server) -> None:
    client = entered(server.port)
    client.send("Q", ERRORS.encode() + b"\0")
    time.sleep(2)
    client.send("X", b"")  # drivers say goodbye, which nobody reads while a statement runs
    client.socket.close()
    before = worked(server.process.pid)
    seconds_until_quiet(server.process.pid)
    assert worked(server.process.pid) - before < 2


def test_a_busy_server_ends_soon_and_says_so_to_every_client(shop: Path) -> None:
    """Statements in DuckDB, more than compute at a time, errors in Python, and a client that asks nothing."""
    others = ended_children()
    command = [sys.executable, "-m", "dpsql", "serve", "--json", "--port", "0", str(shop)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = json.loads(process.stdout.readline())["port"]
        clients = [entered(port) for _ in range(12)]
        for client, sql in zip(clients, [ERRORS, *[ENDLESS] * 10], strict=False):
            client.send("Q", sql.encode() + b"\0")
        time.sleep(1)
        before = worked(process.pid)
        process.send_signal(signal.SIGTERM)
        told = [{state(body) for kind, body in client.until_ready() if kind == "E"} for client in clients]
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 0 and "Traceback" not in errors
    assert told[-1] == {"57P01"} and set().union(*told) <= {"57P01", "57014"}
    assert ended_children() - others - before < 5


@pytest.mark.slow
def test_rows_of_open_portals_count(port: int) -> None:
    client = entered(port)
    client.ask("BEGIN")
    sql = f"SELECT REPEAT('x', 600), a.x FROM (VALUES {NUMBERS}) a(x), (VALUES {NUMBERS}) b(x)"
    client.send("P", b"big\0" + sql.encode() + b"\0\0\0")
    for number in range(6):  # 50 MB each
        client.send("B", f"p{number}".encode() + b"\0big\0" + bytes(6))
    client.send("S", b"")
    messages = client.until_ready()
    assert kinds(messages).startswith("122") and kinds(messages)[-2:] == "EZ"
    assert state(messages[-2][1]) == "0A000" and b"memory" in messages[-2][1]
    client.ask("COMMIT")
    assert "D" in kinds(client.ask("SELECT COUNT(*) FROM sales"))
