"""Does a request end at its limits at every interface? A cross join of 365 days and 730 items, with its errors.

    python -m benchmarks.answers.limits

Every interface runs in a process of its own. Seconds are those of a request over its limit (30 s), megabytes what the
process has held over a small statement. Then clients leave, and servers are told to end, in the middle of the errors:
seconds until the process works no more, and until it has ended. Linux alone tells these as they are read here. Ten
minutes of one core.
"""

from __future__ import annotations

import http.client
import io
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import dpsql
from benchmarks.figures import Figures
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
LEAVES = 3.0
"""Seconds after which a client leaves: the errors are being worked out."""
QUIET = 0.5
"""Seconds without work after which a process is done."""
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
    before, slowest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0.0
    for work in INTERFACES[interface](release, sql):
        start = time.monotonic()
        try:
            work()
        except Error as error:
            print(f"  {interface}: {error}", file=sys.stderr)
        slowest = max(slowest, time.monotonic() - start)
    return Seen(slowest, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)


def in_child(interface: str, release: Path, sql: str) -> Seen:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.answers.limits", interface, str(release), sql]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return Seen(*json.loads(done.stdout.splitlines()[-1]))


def at_command(release: Path, sql: str) -> Seen:
    """`dpsql query`, over what it takes for a small statement."""

    def ask(text: str) -> Seen:
        command = [sys.executable, "-m", "dpsql", "query", "--format", "csv", str(release), text]
        start = time.monotonic()
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            peak = 0.0
            while process.poll() is None:
                peak = max(peak, megabytes(process.pid))
                time.sleep(0.02)
        return Seen(time.monotonic() - start, peak)

    small, seen = ask(SMALL), ask(sql)
    return Seen(seen.seconds - small.seconds, seen.megabytes - small.megabytes)


def megabytes(pid: int) -> float:
    """The most that a process has held so far; 0 once it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)


def worked(pid: int) -> float:
    """CPU seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def seconds_until_quiet(pid: int) -> float:
    """Until a process works no more."""
    start = last = time.monotonic()
    before = worked(pid)
    while time.monotonic() - last < QUIET:
        time.sleep(0.05)
        if worked(pid) - before > 0.03:
            before, last = worked(pid), time.monotonic()
    return last - start


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
            client = entered(server)
            asked(client, SMALL)
            before = megabytes(server.process.pid)
            tell(figures, "wire", name, Seen(asked(client, sql), megabytes(server.process.pid) - before))
    with running(release) as server:
        client = entered(server)
        client.send("Q", LONG.encode() + b"\0")
        time.sleep(LEAVES)
        client.send("X", b"")  # as drivers do
        client.socket.close()
        figures.at_most(
            "limits: seconds of work after its reader left",
            seconds_until_quiet(server.process.pid),
            MOST_AFTER,
            "wire client",
        )
    held = ending(release, LONG) - ending(release, SMALL)
    figures.at_most("limits: seconds of work after its reader left", held, MOST_AFTER, "SIGTERM")


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
                before, start = megabytes(pid), time.monotonic()
                post(address, path, sql).getresponse().read()
                tell(
                    figures, f"explore {path}", name, Seen(time.monotonic() - start, megabytes(pid) - before)
                )
    with exploring(release) as (pid, address):
        connection = post(address, "csv", LONG)
        time.sleep(LEAVES)
        connection.close()
        figures.at_most(
            "limits: seconds of work after its reader left", seconds_until_quiet(pid), MOST_AFTER, "pipe"
        )


def tell(figures: Figures, interface: str, name: str, seen: Seen) -> None:
    """Two figures of an interface."""
    figures.at_most(
        "limits: seconds over the limit", seen.seconds - LIMIT, MOST_SECONDS, f"{interface}, {name}"
    )
    figures.at_most("limits: megabytes", seen.megabytes, MOST_MEGABYTES, f"{interface}, {name}")


def measure(folder: Path) -> int:
    """Print the figures; the exit code."""
    figures, release = Figures(), build(folder)
    for name, sql in STATEMENTS.items():
        for interface in INTERFACES:
            tell(figures, interface, name, in_child(interface, release, sql))
        tell(figures, "command", name, at_command(release, sql))
    at_wire(release, figures)
    at_page(release, figures)
    return figures.finish()


if __name__ == "__main__":
    if len(sys.argv) == 4:
        print(json.dumps(inside(sys.argv[1], Path(sys.argv[2]), sys.argv[3])))
        sys.exit()
    with tempfile.TemporaryDirectory(prefix="dpsql-limits-") as where:
        sys.exit(measure(Path(where)))
