"""Does a role keep its speed, a server its memory, and an end its second, whatever other clients do?

Figures are ratios within one run, counts and bytes; seconds only where a limit protects. The hostile clients of one
role ask endless joins, keep portals open, and come back when they are refused.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import socket
import statistics
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.figures import Figures, main
from benchmarks.processes import MEGABYTE, resident
from dpsql.interfaces.pgwire.protocol import CANCEL_REQUEST
from tests.interfaces.crowd import logins_at_once
from tests.interfaces.test_shell import ENDLESS
from tests.interfaces.wire_client import Wire, kinds, log_in, running
from tests.interfaces_release import build

HOSTILE, SHORT = 64, "SELECT COUNT(*) FROM sales"
NUMBERS = ", ".join(f"({number})" for number in range(400))
ROWS = f"SELECT a.x, b.x FROM (VALUES {NUMBERS}) a(x), (VALUES {NUMBERS}) b(x)"
SENDERS, CROWD = 4, 256
LONG = f"{SHORT} WHERE amount < 1" + " OR amount < 1" * 28_000


def measure(figures: Figures, folder: Path) -> None:
    beside_hostile(figures, folder)
    beside_long(figures, folder)
    logins(figures, folder)


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
    title = "production: p99 of a short statement beside 64 hostile clients over its time alone"
    figures.at_most(title, ratio, 50)
    figures.table("production: MB of the server, whatever clients hold", most / MEGABYTE)
    figures.at_most("production: seconds from SIGTERM to the end, with 64 statements running", ended, 1.0)


@contextlib.contextmanager
def endless(work: Callable[[int], None]) -> Iterator[None]:
    """A process of some threads that do some work again and again while the block runs."""

    def repeat(number: int) -> None:
        while True:
            with contextlib.suppress(OSError):
                work(number)

    def run() -> None:
        with ThreadPoolExecutor(SENDERS) as threads:
            list(threads.map(repeat, range(SENDERS)))

    process = multiprocessing.get_context("fork").Process(target=run, daemon=True)
    process.start()
    time.sleep(2)
    yield
    process.kill()


def beside_long(figures: Figures, place: Path) -> None:
    """A short statement of one role beside statements of another that are refused by their length."""
    with production(place) as (port, _):
        client = entered(port, "ana")
        seconds(client, 20)
        alone = statistics.median(seconds(client, 100))
        senders = [entered(port, "board") for _ in range(SENDERS)]
        with endless(lambda number: senders[number].ask(LONG) and None):
            ratio = statistics.median(seconds(client, 100)) / alone
    title = "production: p50 of a short statement beside another role's of 400 kB over its time alone"
    figures.at_most(title, ratio, 3)


def logins(figures: Figures, place: Path) -> None:
    """Logins that come at one moment, and those beside cancel requests without end."""
    with production(place) as (port, _):
        at_once = logins_at_once(port, CROWD)
        figures.at_least(f"production: of {CROWD} logins at one moment, let in", at_once, CROWD)

        def cancel(number: int) -> None:
            with socket.create_connection(("127.0.0.1", port)) as stranger:
                stranger.sendall(struct.pack("!iiii", 16, CANCEL_REQUEST, number, 2))

        with endless(cancel):
            let_in = sum(log_in(port, "ana", "correct horse").greeting[-1:] == "Z" for _ in range(8))
    figures.at_least("production: of 8 logins beside cancel requests without end, let in", let_in, 8)


if __name__ == "__main__":
    main(measure)
