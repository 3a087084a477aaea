"""Does a role keep its speed, a server its memory, and an end its second, whatever other clients do?

    python -m benchmarks.production.serving

Figures are ratios within one run, counts and bytes; seconds only where a limit protects. The hostile clients of one
role ask endless joins, keep portals open, and come back when they are refused.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import Figures
from dpsql.interfaces.pgwire.admission import LoginBackoff
from tests.interfaces.test_shell import ENDLESS
from tests.interfaces.test_wire import Wire, kinds, log_in, running
from tests.interfaces_release import build

HOSTILE, SHORT = 64, "SELECT COUNT(*) FROM sales"
NUMBERS = ", ".join(f"({number})" for number in range(400))
ROWS = f"SELECT a.x, b.x FROM (VALUES {NUMBERS}) a(x), (VALUES {NUMBERS}) b(x)"
MEGABYTE = 1_000_000


def main() -> int:
    """Measure and print."""
    figures = Figures()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        beside_hostile(figures, place)
        reloads(figures, place)
        orphans(figures, place)
    guesses(figures)
    return figures.finish()


@contextlib.contextmanager
def production(place: Path) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """A server of two roles."""
    if not (place / "shop.dpsql").exists():
        build(place)
    for role in ("ana", "board"):
        (place / f"{role}.pw").write_text(f"{role}:correct horse\n")
        (place / f"{role}.pw").chmod(0o600)
    (place / "roles.yaml").write_text(
        "ana: {password_file: ana.pw, releases: [shop.dpsql]}\n"
        "board: {password_file: board.pw, releases: [shop.dpsql]}\n"
    )
    with running("--roles", place / "roles.yaml", "--log", place / "log.jsonl") as server:
        yield server.port, server.process


def entered(port: int, role: str) -> Wire:
    client = log_in(port, role, "correct horse")
    if client.greeting[-1:] != "Z":
        raise ConnectionError("not let in")
    return client


def seconds(client: Wire, times: int) -> list[float]:
    """Clock seconds of a short statement, each with another constant."""
    taken = []
    for number in range(times):
        begun = time.perf_counter()
        if "D" not in kinds(client.ask(f"{SHORT} WHERE amount < {number + 1}")):
            client.ask(SHORT)
        taken.append(time.perf_counter() - begun)
    return taken


def resident(pid: int) -> int:
    """Bytes of a process that lie in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def hostile(port: int, over: threading.Event) -> None:
    """One client that takes what it can get, until it is over."""
    while not over.is_set():
        with contextlib.suppress(OSError, AssertionError, IndexError, ValueError):
            client = entered(port, "board")
            client.ask("BEGIN")
            client.send("P", b"big\0" + ROWS.encode() + b"\0\0\0")
            for number in range(64):
                client.send("B", f"p{number}".encode() + b"\0big\0" + bytes(6))
            client.send("S", b"")
            client.until_ready()
            while not over.is_set():
                client.ask(ENDLESS)


def beside_hostile(figures: Figures, place: Path) -> None:
    """A short statement of one role beside 64 clients of another; memory; the end."""
    over = threading.Event()
    # `running` would have the server still there
    with contextlib.suppress(AssertionError), production(place) as (port, process):
        client = entered(port, "ana")
        seconds(client, 20)
        alone = seconds(client, 200)
        attackers = [threading.Thread(target=hostile, args=(port, over), daemon=True) for _ in range(HOSTILE)]
        for attacker in attackers:
            attacker.start()
        time.sleep(20)
        beside, most = [], 0
        for _ in range(20):
            beside += seconds(client, 10)
            most = max(most, resident(process.pid))
        over.set()
        begun = time.perf_counter()
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        ended = time.perf_counter() - begun
    p99 = statistics.quantiles(beside, n=100)[98]
    ratio = p99 / statistics.median(alone)
    print(f"alone {statistics.median(alone) * 1000:.1f} ms, beside p99 {p99 * 1000:.0f} ms")
    figures.at_most(
        "production: p99 of a short statement beside 64 hostile clients over its time alone", ratio, 50
    )
    figures.table("production: MB of the server, whatever clients hold", most / MEGABYTE)
    figures.at_most("production: seconds from SIGTERM to the end, with 64 statements running", ended, 1.0)


def guesses(figures: Figures) -> None:
    """Ten minutes of guesses from 1,000 addresses, and right passwords beside a stale one, by a clock of ours."""
    now = 0.0
    waits, guessed = LoginBackoff(lambda: now), 0
    for number in range(600_000):
        address = f"10.0.{number % 1000 // 250}.{number % 250}"
        if waits.seconds(address, "ana") <= 0:
            waits.wrong(address, "ana")
            guessed += 1
        now += 0.001
    figures.table("production: guesses a second at one role from 1,000 addresses", guessed / 600)
    waits, taken = LoginBackoff(lambda: now), 0
    waits.right("192.0.2.1", "ana")
    for second in range(7200):
        for role in ("etl", "ana"):  # a stale password of another role, and of her own in another program
            if waits.seconds("192.0.2.1", role) <= 0:
                waits.wrong("192.0.2.1", role)
        if second % 10 == 0 and waits.seconds("192.0.2.1", "ana") <= 0:
            waits.right("192.0.2.1", "ana")
            taken += 1
        now += 1
    figures.table("production: right passwords taken beside a stale one, of 720", taken)


def reloads(figures: Figures, place: Path) -> None:
    """Statements of 32 clients under five reloads; processes of a dead parent."""
    lost, asked, over = [0], [0], threading.Event()

    def ask(port: int) -> None:
        while not over.is_set():
            try:
                client = entered(port, "ana")
                for _ in range(5):
                    asked[0] += 1
                    lost[0] += "D" not in kinds(client.ask(SHORT))
                client.send("X", b"")
                client.socket.close()
            except (OSError, AssertionError, IndexError, ConnectionError):
                lost[0] += 1

    (place / "server.yaml").write_text("roles: roles.yaml\nlog: log.jsonl\n")
    with running("--config", place / "server.yaml") as server:
        clients = [threading.Thread(target=ask, args=(server.port,)) for _ in range(32)]
        for client in clients:
            client.start()
        for number in range(5):
            server.process.send_signal(signal.SIGHUP)
            end = time.monotonic() + 120
            while _done(place / "log.jsonl") <= number and time.monotonic() < end:
                time.sleep(0.2)
        over.set()
        for client in clients:
            client.join()
    print(f"{asked[0]} statements under {_done(place / 'log.jsonl')} reloads")
    figures.table("production: statements lost under five reloads, 32 clients", lost[0])


def _done(log: Path) -> int:
    return sum(json.loads(line).get("reload") == "done" for line in log.read_text().splitlines())


def orphans(figures: Figures, place: Path) -> None:
    """Processes that serve two seconds after their parent was killed."""
    command = [sys.executable, "-m", "dpsql", "serve", "--json", "--port", "0", "--processes", "4"]
    with subprocess.Popen([*command, str(place / "shop.dpsql")], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        listed = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(parent.pid)], capture_output=True, text=True, check=True
        )
        workers = list(map(int, listed.stdout.split()))
        parent.kill()
        parent.wait()
    time.sleep(2)
    alive = sum(Path(f"/proc/{worker}").exists() for worker in workers)
    figures.table("production: processes of a dead parent after two seconds, of 4", alive)


if __name__ == "__main__":
    sys.exit(main())
