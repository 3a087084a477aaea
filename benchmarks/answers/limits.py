"""Does a request end at its limits at every interface? A cross join of 365 days and 730 items, with its errors.

Every interface runs in a process of its own. Seconds are those of a request over its limit (30 s), megabytes what the
process has held over a small statement. Then clients leave, and servers are told to end, in the middle of the errors:
seconds until the process works no more, and until it has ended. Linux alone tells these as they are read here. Ten
minutes of one core.
"""

from __future__ import annotations

import http.client
import io
import json
import signal
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import dpsql
from benchmarks.figures import Figures, main
from benchmarks.processes import alone, peak_mib, seconds_until_quiet
from dpsql.errors import Error
from dpsql.federation.session import open_session
from dpsql.interfaces.python.dbapi import InputPiece
from dpsql.interfaces.shell import ShellState, evaluate
from dpsql.release.request import LIMIT
from dpsql.results.render import render
from tests.interfaces.wire_client import Server, Wire, running
from tests.interfaces_release import unstamp
from tests.releases import published, seeded, write_catalog

MOST_SECONDS, MOST_MEGABYTES, MOST_AFTER = 2.0, 350.0, 1.0
AFTER = "limits: seconds of work after its reader left"
LEAVES = 3.0
"""Seconds after which a client leaves: the errors are being worked out."""
CATALOG = """
dpsql: 1
name: grid
source: {kind: parquet, root: ".", tables: {sales: sales.parquet}}
privacy: {lineage: grid, cap: 100, unit: row, epsilon: 8, delta: 0}
tables:
  sales:
    role: fact
    columns:
      day: {type: date, lower: 2025-01-01, upper: 2025-12-31}
      item: {type: int, lower: 1, upper: 730}
      amount: {type: int, lower: 0, upper: 100, measure: true}
views:
  days: {of: sales, axes: [sales.day], measures: {count: 0.5, sales.amount: 0.5}, share: 0.5}
  items: {of: sales, axes: [sales.item], measures: {count: 0.5, sales.amount: 0.5}, share: 0.5}
"""
PAIRS = (
    "FROM (SELECT day, COUNT(*) AS n, AVG(amount) AS m FROM sales GROUP BY day) AS a, "
    "(SELECT item, COUNT(*) AS n, AVG(amount) AS m FROM sales GROUP BY item) AS b"
)
STATEMENTS = {
    "differences": f"SELECT a.day, b.item, a.n - b.n AS d {PAIRS}",
    "ratios": f"SELECT a.day, b.item, a.n / b.n AS r, a.m - b.m AS d {PAIRS}",
    "running sums": f"SELECT a.day, b.item, SUM(a.n - b.n) OVER (ORDER BY a.day, b.item) AS s {PAIRS}",
    "error functions": f"SELECT a.day, b.item, DP_STDERR(a.n - b.n) AS e {PAIRS}",
}
"""266,450 rows each."""
SMALL = "SELECT COUNT(*) AS n FROM sales"
LONG = STATEMENTS["error functions"]


class Seen(NamedTuple):
    """What an interface took: seconds of its longest request, and megabytes over the small statement."""

    seconds: float
    megabytes: float


def build(folder: Path) -> Path:
    """Publish the star into a folder; the release."""
    sales = (
        "SELECT DATE '2025-01-01' + (hash(range) % 365)::INT AS day, 1 + hash(range + 1) % 730 AS item, "
        "hash(range + 2) % 101 AS amount FROM range(200000)"
    )
    release = published(write_catalog(folder, CATALOG, {"sales": sales}), seeded(5), "grid").release
    release.close()
    unstamp(release.path)
    return release.path


def in_dbapi(release: Path, sql: str) -> Iterator[Callable[[], object]]:
    """Requests of a DB-API user: the rows, their errors, their intervals."""
    cursor = dpsql.connect(release).cursor()
    yield lambda: cursor.execute(sql)
    yield lambda: cursor.stderr
    yield cursor.interval


def in_api(release: Path, sql: str) -> Iterator[Callable[[], object]]:
    """Requests of `dpsql.query`: the rows, then a table with errors."""
    results: list[dpsql.Result] = []
    yield lambda: results.append(dpsql.query(sql, release=release))
    yield lambda: [render(result, "json", 0.95) for result in results]


def in_shell(release: Path, sql: str) -> Iterator[Callable[[], object]]:
    """A statement in the shell."""
    state = ShellState(open_session([release]), "table", output=io.StringIO())
    yield lambda: evaluate(InputPiece(sql, False), state)


INTERFACES = {"dbapi": in_dbapi, "api": in_api, "shell": in_shell}


def inside(interface: str, release: Path, sql: str) -> Seen:
    """Ask at an interface of this process."""
    for work in INTERFACES[interface](release, SMALL):
        work()
    before, slowest = peak_mib(), 0.0
    for work in INTERFACES[interface](release, sql):
        start = time.monotonic()
        try:
            work()
        except Error as error:
            print(f"  {interface}: {error}", file=sys.stderr)
        slowest = max(slowest, time.monotonic() - start)
    return Seen(slowest, peak_mib() - before)


def at_command(release: Path, sql: str) -> Seen:
    """`dpsql query`, over what it takes for a small statement."""

    def ask(text: str) -> Seen:
        command = [sys.executable, "-m", "dpsql", "query", "--format", "csv", str(release), text]
        start = time.monotonic()
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            peak = 0.0
            while process.poll() is None:
                peak = max(peak, peak_mib(process.pid))
                time.sleep(0.02)
        return Seen(time.monotonic() - start, peak)

    small, seen = ask(SMALL), ask(sql)
    return Seen(seen.seconds - small.seconds, seen.megabytes - small.megabytes)


READY = b"Z\0\0\0\5I"


def asked(client: Wire, sql: str) -> float:
    """Seconds until a client of the wire, who looks at nothing but its end, has its whole answer."""
    client.socket.settimeout(LIMIT + 60)
    start, last = time.monotonic(), b""
    client.send("Q", sql.encode() + b"\0")
    while not last.endswith(READY):
        last = last[-len(READY) :] + client.socket.recv(1 << 20)
    return time.monotonic() - start


def entered(server: Server) -> Wire:
    """A client of the wire that has logged in."""
    client = Wire(server.port)
    client.until_ready()
    return client


def at_wire(release: Path, figures: Figures) -> None:
    """`dpsql serve`: limits, a client that leaves, the end of the server."""
    for name, sql in STATEMENTS.items():
        with running(release) as server:
            client, pid = entered(server), server.process.pid
            asked(client, SMALL)
            before = peak_mib(pid)
            tell(figures, "wire", name, Seen(asked(client, sql), peak_mib(pid) - before))
    with running(release) as server:
        client = entered(server)
        client.send("Q", LONG.encode() + b"\0")
        time.sleep(LEAVES)
        client.send("X", b"")  # as drivers do
        client.socket.close()
        figures.at_most(AFTER, seconds_until_quiet(server.process.pid), MOST_AFTER, "wire client")
    figures.at_most(AFTER, ending(release, LONG) - ending(release, SMALL), MOST_AFTER, "SIGTERM")


def ending(release: Path, sql: str) -> float:
    """Seconds until a server has ended that is told to while a client waits, or has its answer."""
    command = [sys.executable, "-m", "dpsql", "serve", "--json", "--port", "0", str(release)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        client = entered(Server(process, json.loads(process.stdout.readline())["port"]))
        client.send("Q", sql.encode() + b"\0")
        time.sleep(LEAVES)
        start = time.monotonic()
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        return time.monotonic() - start


@contextmanager
def exploring(release: Path) -> Iterator[tuple[int, urllib.parse.SplitResult]]:
    """A page: its process and its address."""
    command = [sys.executable, "-m", "dpsql", "explore", "--json", str(release)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.pid, urllib.parse.urlsplit(json.loads(process.stdout.readline())["url"])
        finally:
            process.send_signal(signal.SIGTERM)


def at_page(release: Path, figures: Figures) -> None:
    """`dpsql explore`: limits, and a reader who leaves."""

    def post(address: urllib.parse.SplitResult, name: str, sql: str) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(address.netloc, timeout=LIMIT + 60)
        body = json.dumps({"sql": sql, "level": 0.95})
        connection.request("POST", f"{address.path}{name}", body, {"content-type": "application/json"})
        return connection

    for name, sql in STATEMENTS.items():
        for path in ("ask", "csv"):
            with exploring(release) as (pid, address):
                post(address, path, SMALL).getresponse().read()
                before, start = peak_mib(pid), time.monotonic()
                post(address, path, sql).getresponse().read()
                seen = Seen(time.monotonic() - start, peak_mib(pid) - before)
                tell(figures, f"explore {path}", name, seen)
    with exploring(release) as (pid, address):
        connection = post(address, "csv", LONG)
        time.sleep(LEAVES)
        connection.close()
        figures.at_most(AFTER, seconds_until_quiet(pid), MOST_AFTER, "pipe")


def tell(figures: Figures, interface: str, name: str, seen: Seen) -> None:
    """Two figures of an interface."""
    cell = f"{interface}, {name}"
    figures.at_most("limits: seconds over the limit", seen.seconds - LIMIT, MOST_SECONDS, cell)
    figures.at_most("limits: megabytes", seen.megabytes, MOST_MEGABYTES, cell)


def measure(figures: Figures, folder: Path) -> None:
    """Ask at every interface."""
    release = build(folder)
    for name, sql in STATEMENTS.items():
        for interface in INTERFACES:
            seen = Seen(*alone("benchmarks.answers.limits", interface, release, sql))
            tell(figures, interface, name, seen)
        tell(figures, "command", name, at_command(release, sql))
    at_wire(release, figures)
    at_page(release, figures)


if __name__ == "__main__":
    if len(sys.argv) == 4:
        print(json.dumps(inside(sys.argv[1], Path(sys.argv[2]), sys.argv[3])))
    else:
        main(measure)
