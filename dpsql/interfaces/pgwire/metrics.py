"""Numbers to watch a server by, for Prometheus, and whether it is well; on an address of their own.

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

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

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
