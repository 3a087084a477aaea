"""A small local collector for the survey page: serves the page and the plan, spools reports as JSON lines.

    dpsql collection-plan catalog/survey.yaml -o plan.json
    python examples/survey/collector.py plan.json reports.jsonl        then open http://localhost:8000
    dpsql collect plan.json reports.jsonl -o survey.dpsql

It keeps no address, no time and no order beyond the file's lines.
"""

from __future__ import annotations

import argparse
import os
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock

from dpsql.client import decode, read_plan, to_json
from dpsql.errors import DataError, Error

HERE = Path(__file__).parent
CLIENT = HERE.parents[1] / "clients" / "js"
CLIENT_FILES = ("dpsql-client.js", "dpsql-plan.js", "dpsql-rows.js")
LARGEST_REPORT = 1 << 16
PAGES = {
    "/": (HERE / "index.html", "text/html; charset=utf-8"),
    "/page.js": (HERE / "page.js", "text/javascript"),
    **{f"/{name}": (CLIENT / name, "text/javascript") for name in CLIENT_FILES},
}
_writing = Lock()


class Handler(BaseHTTPRequestHandler):
    """Answers GET for the page and the plan, POST /report with report bytes."""

    timeout = 20
    """Seconds after which a sender that says nothing more is left alone."""

    def __init__(self, plan: Path, spool: Path, *rest: object) -> None:
        """Remember where the plan and the spool are."""
        self.plan, self.spool = plan, spool
        super().__init__(*rest)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        """Send a file of the page, or the plan."""
        file, kind = (
            (self.plan, "application/json") if self.path == "/plan.json" else PAGES.get(self.path, (None, ""))
        )
        if file is None:
            self._send(404, b"no such page", "text/plain")
            return
        self._send(200, file.read_bytes(), kind)

    def do_POST(self) -> None:
        """Spool one report that names the plan."""
        length = self.headers.get("Content-Length", "")
        size = int(length) if length.isascii() and length.isdecimal() and len(length) < 9 else 0
        if self.path != "/report" or not 0 < size <= LARGEST_REPORT:
            self._send(400, b"not a report", "text/plain")
            return
        try:
            report = decode(self.rfile.read(size))
        except DataError:
            self._send(400, b"not a report", "text/plain")
            return
        if report.plan != read_plan(self.plan.read_bytes()).hash:
            self._send(409, b"another plan", "text/plain")
            return
        with _writing, self.spool.open("a") as spool:
            spool.write(to_json(report) + "\n")
            spool.flush()
            os.fsync(spool.fileno())
        self._send(204, b"", "text/plain")

    def log_message(self, format: str, *arguments: object) -> None:
        """Keep no log: addresses and times would undo what the reports hide."""

    def _send(self, code: int, body: bytes, kind: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    """Says nothing about requests that break off: what is printed by default holds the sender's address."""

    def handle_error(self, request: object, client_address: object) -> None:
        """Keep silent."""


def make_server(plan: Path, spool: Path, port: int) -> ThreadingHTTPServer:
    """A server on localhost; port 0 takes any free one."""
    return Server(("127.0.0.1", port), partial(Handler, plan, spool))


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plan", type=Path)
    parser.add_argument("spool", type=Path)
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args()
    try:
        read_plan(given.plan.read_bytes())
        server = make_server(given.plan, given.spool, given.port)
    except (OSError, Error) as error:  # no plan, or a port that is taken
        parser.exit(2, f"collector: {error}\n")
    with suppress(KeyboardInterrupt):
        print(
            f"http://localhost:{server.server_address[1]} asks; reports go to {given.spool}; stop with Ctrl-C",
            flush=True,
        )
        server.serve_forever()


if __name__ == "__main__":
    main()
