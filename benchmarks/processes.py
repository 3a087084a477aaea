"""Processes: CPU and memory as Linux tells them, and work that is done in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MEGABYTE = 1_000_000
QUIET = 0.5
"""Seconds without work after which a process is done."""


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


def peak_mib(pid: int | str = "self") -> float:
    """The most that a process has held so far; 0 once it has ended.

    Not `ru_maxrss`, which begins with what the parent of a process held.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)


def resident(pid: int) -> int:
    """Bytes of a process that lie in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def cpu_of(work: Callable[[], object]) -> float:
    """CPU seconds of some work in this process, all of its threads together."""
    start = time.process_time()
    work()
    return time.process_time() - start


def at_once(clients: int, work: Callable[[int], object]) -> float:
    """Do some work in so many threads, each with its number; seconds of the clock."""
    threads = [threading.Thread(target=work, args=(number,)) for number in range(clients)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - start


def alone(module: str, *words: object) -> Any:
    """What a module prints, in JSON in its last line, when it is run as a command in a process of its own."""
    command = [sys.executable, "-m", module, *map(str, words)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])
