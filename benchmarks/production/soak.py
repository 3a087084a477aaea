"""An hour of 64 clients: does the server's memory stand still?

Each client connects anew every minute and asks once a second: shapes that come again with other constants, shapes that
never come again, wide results, refused statements, and portals that it leaves open. Resident memory is that of all the
server's processes after a quarter of the time and at its end.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from pathlib import Path

import psycopg

from benchmarks.figures import Figures, main
from benchmarks.processes import MEGABYTE, resident
from benchmarks.production.serving import production

CLIENTS = 64
WIDE = "SELECT age, region, COUNT(*) FROM sales JOIN customer USING (customer_id) GROUP BY ALL"


def statement(chance: random.Random) -> str:
    number = chance.randrange(1 << 30)
    return chance.choice((
        f"SELECT COUNT(*) FROM customer WHERE age < {20 + number % 60}",
        f"SELECT region, COUNT(*) AS n{number} FROM sales JOIN customer USING (customer_id) GROUP BY region",
        f"SELECT age, AVG(amount) FROM sales JOIN customer USING (customer_id) WHERE age > {number % 60} GROUP BY age",
        WIDE, f"SELECT nothing{number} FROM sales", f"SELECT COUNT(* FROM x{number}",
    ))  # fmt: skip


def client(port: int, end: float, counts: dict[str, int]) -> None:
    chance = random.Random()
    while time.monotonic() < end:
        with contextlib.suppress(psycopg.Error):
            dsn = f"host=127.0.0.1 port={port} user=ana password='correct horse' dbname=shop"
            with psycopg.connect(dsn, autocommit=True) as connection:
                minute = min(end, time.monotonic() + 60)
                connection.execute("BEGIN")
                connection.execute("DECLARE kept CURSOR FOR SELECT COUNT(*) FROM sales")
                connection.execute("COMMIT")
                while time.monotonic() < minute:
                    try:
                        connection.execute(statement(chance)).fetchall()
                        counts["answered"] += 1
                    except psycopg.Error:
                        counts["refused"] += 1
                    time.sleep(1)


def server_memory(parent: int) -> float:
    """Megabytes of a process and its children."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    pids = (parent, *map(int, children))
    return sum(resident(pid) for pid in pids if Path(f"/proc/{pid}").exists()) / MEGABYTE


def measure(figures: Figures, folder: Path, minutes: float = 60.0) -> None:
    """Serve so many minutes."""
    counts = {"answered": 0, "refused": 0}
    with production(folder) as (port, process):
        begun = time.monotonic()
        end = begun + 60 * minutes
        threads = [threading.Thread(target=client, args=(port, end, counts)) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        time.sleep(max(0.0, begun + 15 * minutes - time.monotonic()))
        quarter = server_memory(process.pid)
        while time.monotonic() < end - 5:
            time.sleep(min(300, max(0.1, end - 5 - time.monotonic())))
            passed, memory = (time.monotonic() - begun) / 60, server_memory(process.pid)
            print(f"{passed:.0f} min: {memory:.0f} MB, {counts}", flush=True)
        last = server_memory(process.pid)
        for thread in threads:
            thread.join()
    figures.at_least("production: answers of an hour at 64 clients", counts["answered"], 1000 * minutes)
    figures.at_most("production: resident memory after 60 minutes over that after 15", last / quarter, 1.05)


if __name__ == "__main__":
    main(measure)
