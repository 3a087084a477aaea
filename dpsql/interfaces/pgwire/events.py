"""Events of a server as log lines and metrics: who came, from where, whether she was let in, and how long her
statements took. Never the text of a statement.

One line of JSON an event, so that no name can pass for another field, and no character commands a terminal:

    {"time": "2026-11-23T08:00:00Z", "login": "accepted", "role": "ana", "from": "10.0.0.7:5181", "releases": ["a"]}
    {"time": "2026-11-23T08:00:02Z", "login": "refused", "role": "ana", "from": "10.0.0.9:4002", "why": "no TLS"}
    {"time": "2026-11-23T08:00:03Z", "statement": "22023", "role": "ana", "from": "10.0.0.7:5181",
     "request": "5f3a09c1d2e4b687", "seconds": 0.004}

A statement's line has its SQLSTATE, `00000` where it was answered; the client is told the request's number with an
error, so that a complaint can be looked up.

Nobody waits for the log. A line that cannot be written at once, or one more refusal in a second than a flood should
fill a disk with, is left out, and the next line says how many were (`left_out`).

Numbers to watch a server by, for Prometheus, and whether it is well; on an address of their own.

| `/metrics` | |
|---|---|
| `dpsql_statements_total{state}` | statements by SQLSTATE; `00000` were answered |
| `dpsql_statement_seconds` | a histogram, from the first wait for a turn to the last row |
| `dpsql_logins_total{outcome}` | accepted, refused |
| `dpsql_connections` | clients that are in |
| `dpsql_answer_bytes` | memory of answers that are worked out, kept or sent |
| `process_*` | memory, CPU time and open files, as prometheus_client has them |

`/healthz` is 200 while the server takes clients and 503 once it ends. Neither names a role, a release or a client:
labels are a fixed list, so no client can make more of them.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from dpsql.errors import OperationalError, visible
from dpsql.extras import extra

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SECONDS_TO_ASK = 5.0


class Meter:
    """Counts what happens at a server; any thread may call it.

    Raises:
        InterfaceError: prometheus_client is not installed.
    """

    def __init__(self) -> None:
        library = extra("metrics")
        self.registry = library.CollectorRegistry()
        library.ProcessCollector(registry=self.registry)
        self._statements = library.Counter(
            "dpsql_statements", "Statements by SQLSTATE.", ["state"], registry=self.registry
        )
        self._seconds = library.Histogram(
            "dpsql_statement_seconds", "Seconds of a statement.", buckets=SECONDS, registry=self.registry
        )
        self._logins = library.Counter(
            "dpsql_logins", "Logins by outcome.", ["outcome"], registry=self.registry
        )
        self._gauge = library.Gauge
        self.healthy = True

    def statement(self, seconds: float, state: str) -> None:
        self._statements.labels(state).inc()
        self._seconds.observe(seconds)

    def login(self, outcome: str) -> None:
        self._logins.labels(outcome).inc()

    def watch(self, name: str, help_text: str, value: Callable[[], float]) -> None:
        """Show a number as it is whenever somebody looks."""
        self._gauge(name, help_text, registry=self.registry).set_function(value)


class QuietHandler(WSGIRequestHandler):
    """One request; its sender has `SECONDS_TO_ASK` for it, and it leaves no line."""

    timeout = SECONDS_TO_ASK

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def watched(meter: Meter, listener: socket.socket) -> Iterator[Callable[[], None]]:
    """Answer `/metrics` and `/healthz` in a thread while the block runs.

    Args:
        meter: what is shown.
        listener: a socket that listens.

    Yields:
        What ends it before.
    """
    metrics = extra("metrics").make_wsgi_app(meter.registry)

    def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Sequence[bytes]:
        if environ["PATH_INFO"] == "/metrics":
            return metrics(environ, start)  # type: ignore[no-any-return]
        if environ["PATH_INFO"] == "/healthz":
            status = HTTPStatus.OK if meter.healthy else HTTPStatus.SERVICE_UNAVAILABLE
        else:
            status = HTTPStatus.NOT_FOUND
        start(f"{status.value} {status.phrase}", [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{status.phrase}\n".encode()]

    host, port = listener.getsockname()[:2]
    server = WSGIServer((host, port), QuietHandler, bind_and_activate=False)
    server.socket.close()
    server.socket = listener
    server.server_name, server.server_port = host, port
    server.setup_environ()
    server.set_app(answer)
    thread = threading.Thread(target=server.serve_forever, name="dpsql-metrics", daemon=True)
    thread.start()
    try:
        yield server.shutdown
    finally:
        server.shutdown()
        server.server_close()


MOST_NAME = 64
"""Characters of a role that a client names; Postgres has 63."""
MOST_REFUSALS = 50
"""In a second."""


ANSWERED = "00000"


class EventLog:
    """Writes lines to an open file, and counts.

    Args:
        file: its descriptor.
        statements: whether statements have lines.
        meter: where events are counted; None for nowhere.
        now: seconds since 1970.
    """

    def __init__(
        self, file: int, statements: bool = False, meter: Meter | None = None, now: Callable[[], float] = time.time
    ) -> None:  # fmt: skip
        self._file, self._statements, self.meter, self._now = file, statements, meter, now
        self._second, self._refusals, self._left_out = 0, 0, 0

    def accepted(self, role: str, place: str, releases: list[str]) -> None:
        """Somebody was let in, and may ask these releases."""
        if self.meter is not None:
            self.meter.login("accepted")
        self._write("login", "accepted", role, place, {"releases": releases})

    def refused(self, role: str, place: str, why: str) -> None:
        """Somebody was not let in."""
        if self.meter is not None:
            self.meter.login("refused")
        second = int(self._now())
        self._refusals = self._refusals + 1 if second == self._second else 1
        self._second = second
        if self._refusals > MOST_REFUSALS:
            self._left_out += 1
        else:
            self._write("login", "refused", role, place, {"why": why})

    def reloaded(self, why: str = "") -> None:
        """Roles and releases were read anew; or not, and why."""
        self._write("reload", "failed" if why else "done", "", "", {"why": visible(why)} if why else {})

    def statement(self, role: str, place: str, request: str, seconds: float, state: str = ANSWERED) -> None:
        """A statement has ended, answered or refused."""
        if self.meter is not None:
            self.meter.statement(seconds, state)
        if self._statements:
            self._write("statement", state, role, place, {"request": request, "seconds": round(seconds, 6)})

    def _write(self, event: str, outcome: str, role: str, place: str, extra: dict[str, Any]) -> None:
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._now()))
        left_out = {"left_out": self._left_out} if self._left_out else {}
        line = (
            {"time": moment, event: outcome, "role": visible(role)[:MOST_NAME], "from": place}
            | extra
            | left_out
        )
        try:
            if not select.select([], [self._file], [], 0)[1]:  # a pipe that nobody reads
                raise BlockingIOError
            os.write(self._file, (json.dumps(line) + "\n").encode("ascii"))
            self._left_out = 0
        except (OSError, ValueError):  # full, closed or gone: clients are served all the same
            self._left_out += 1


@contextmanager
def event_log(path: Path | None, statements: bool = False, meter: Meter | None = None) -> Iterator[EventLog]:
    """A log at the end of a file that its owner alone can read, made if it is absent; None is standard error.

    Raises:
        OperationalError: it cannot be written.
    """
    if path is None:
        yield EventLog(sys.stderr.fileno(), statements, meter)
        return
    try:
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    except OSError as error:
        raise OperationalError(f"cannot write {path}: {error.strerror}", hint="name another file") from error
    try:
        yield EventLog(file, statements, meter)
    finally:
        os.close(file)
