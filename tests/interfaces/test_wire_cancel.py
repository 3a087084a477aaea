"""Cancel requests: the right key stops what its session asks, anything else does nothing."""

from __future__ import annotations

import socket
import struct
import sys
import threading
import time
from pathlib import Path

import pytest

from benchmarks.processes import worked
from dpsql.errors import QueryTimeout
from dpsql.executor.engine import ReleaseEngine
from dpsql.interfaces.pgwire.login import Sessions
from dpsql.release import open_release
from dpsql.release.request import Request
from tests.interfaces.test_shell import ENDLESS
from tests.interfaces.wire_client import Server, Wire, kinds, serving, state, values

pytestmark = pytest.mark.usefixtures("publishes")

CANCEL = 80877102
PATIENCE = 0.5  # seconds after which a statement that nobody stops is still running


def entered(port: int) -> tuple[Wire, bytes]:
    """A client that has logged in, and its key."""
    client = Wire(port)
    messages = client.until_ready()
    return client, next(body for kind, body in messages if kind == "K")


def request(port: int, key: bytes) -> bytes:
    """Send a cancel request; returns what came back, which is nothing."""
    body = struct.pack("!i", CANCEL) + key
    with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
        connection.sendall(struct.pack("!i", len(body) + 4) + body)
        return connection.recv(1)


def running(client: Wire) -> bool:
    """Whether the client still waits for an answer."""
    client.socket.settimeout(PATIENCE)
    try:
        return not client.socket.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        return True
    finally:
        client.socket.settimeout(120)


def stopped(client: Wire) -> None:
    """The client is told, and may go on."""
    messages = client.until_ready()
    assert kinds(messages) == "EZ"
    assert state(messages[0][1]) == "57014"
    assert values(client.ask("SELECT 5")[1][1]) == [b"5"]


def ask(client: Wire, sql: str) -> None:
    client.send("Q", sql.encode() + b"\0")


@pytest.mark.skipif(sys.platform != "linux", reason="a process's work is read from /proc")
def test_the_right_key_stops_a_statement_and_no_other(server: Server) -> None:
    port = server.port
    (first, key), (second, other) = entered(port), entered(port)
    ask(first, ENDLESS)
    ask(second, ENDLESS.replace("> 7", "> 8"))
    assert running(first)
    number, secret = struct.unpack("!ii", key)
    for wrong in (
        struct.pack("!ii", number, secret ^ 1), struct.pack("!ii", number ^ 1, secret), key[:4], key + b"\0", b"",
    ):  # fmt: skip
        assert request(port, wrong) == b""
    assert running(first)
    before = worked(server.process.pid)
    assert request(port, key) == b""
    stopped(first)
    assert worked(server.process.pid) - before < 10
    assert running(second)
    request(port, other)
    stopped(second)


def test_keys_are_each_sessions_own(port: int) -> None:
    keys = {entered(port)[1] for _ in range(8)}
    assert len(keys) == len({key[:4] for key in keys}) == len({key[4:] for key in keys}) == 8


def test_a_request_to_an_idle_session_does_nothing(port: int) -> None:
    client, key = entered(port)
    request(port, key)
    assert kinds(client.ask("SELECT COUNT(*) FROM sales")) == "NTDCZ"
    ask(client, f"SELECT 1; {ENDLESS} SELECT 2")
    time.sleep(PATIENCE)
    request(port, key)
    messages = client.until_ready()
    assert kinds(messages) == "TDCEZ"  # what came before stands, what comes after is not run
    assert state(messages[3][1]) == "57014"


def test_extended_queries_are_stopped_too(port: int) -> None:
    client, key = entered(port)
    client.send("P", b"\0" + ENDLESS.rstrip(";").encode() + b"\0\0\0")
    client.send("B", bytes(2) + bytes(6))
    client.send("E", b"\0" + bytes(4))
    client.send("S", b"")
    time.sleep(PATIENCE)
    request(port, key)
    messages = client.until_ready()
    assert kinds(messages) == "1EZ"
    assert state(messages[1][1]) == "57014"


def test_statements_that_wait_for_a_thread_are_stopped_before_they_run(port: int) -> None:
    """More sessions than threads: the last ones have not begun when they are stopped."""
    clients = [entered(port) for _ in range(40)]
    for client, _ in clients:
        ask(client, ENDLESS)
    time.sleep(PATIENCE)
    for _, key in reversed(clients):
        request(port, key)
    for client, _ in clients:
        stopped(client)


@pytest.mark.slow
def test_several_processes_pass_requests_on(shop: Path) -> None:
    """The kernel picks the process that hears of a request: of eight, about four reach the wrong one."""
    with serving(shop, "--processes", "2") as port:
        for _ in range(8):
            client, key = entered(port)
            ask(client, ENDLESS)
            time.sleep(PATIENCE / 2)
            request(port, key)
            stopped(client)


def test_a_request_stops_what_works_on_it(shop: Path) -> None:
    answerer, request = ReleaseEngine(open_release(shop)), Request()
    with request.working():
        assert answerer.query("SELECT COUNT(*) FROM sales").rows
        threading.Timer(0.3, request.stop).start()
        with pytest.raises(QueryTimeout, match="the statement was stopped"):
            answerer.query(ENDLESS.rstrip(";"))
        with pytest.raises(QueryTimeout):  # the same request, though it asks for something else
            answerer.query("SELECT SUM(amount) FROM sales")
    with pytest.raises(QueryTimeout), request.working():
        pass
    with Request().working():
        assert answerer.query("SELECT SUM(amount) FROM sales").rows
    with pytest.raises(QueryTimeout, match="after"):  # the limit is as it was
        ReleaseEngine(answerer.release, timeout=0.3).query(ENDLESS.rstrip(";"))


def test_sessions_are_forgotten() -> None:
    sessions = Sessions()
    session = sessions.open()
    assert sessions.stop(session.key)  # nothing runs: nothing is remembered
    session.request = request = Request()
    assert sessions.stop(session.key) and request.stopped
    sessions.close(session)
    assert not sessions.stop(session.key)


@pytest.mark.slow
def test_psycopg_cancels(port: int) -> None:
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(
        host="127.0.0.1", port=port, user="me", dbname="shop", autocommit=True
    ) as connection:
        threading.Timer(1.0, connection.cancel).start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute(ENDLESS)
        assert connection.execute("SELECT 5").fetchone() == (5,)
