"""Workers behind one port: they end with their parent, are replaced when they die, and share the port with nobody."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interfaces.wire_client import Wire, kinds, running

pytestmark = pytest.mark.usefixtures("publishes")
SOON = 60.0


def served(port: int) -> bool:
    client = Wire(port)
    client.until_ready()
    answered = "D" in kinds(client.ask("SELECT COUNT(*) FROM sales"))
    client.socket.close()
    return answered


def children(parent: int) -> set[int]:
    """Processes that a process has started and that have not ended."""
    listed = subprocess.run(["ps", "-o", "pid=,stat=", "--ppid", str(parent)], capture_output=True, text=True)
    rows = [line.split() for line in listed.stdout.splitlines()]
    return {int(pid) for pid, state in rows if not state.startswith("Z")}


def until(holds: Callable[[], bool]) -> float:
    """Seconds until something holds."""
    begun = time.monotonic()
    while not holds():
        assert time.monotonic() - begun < SOON
        time.sleep(0.05)
    return time.monotonic() - begun


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_dead_worker_is_replaced_and_all_end_with_their_parent_and_free_its_port(shop: Path) -> None:
    command = [sys.executable, "-m", "dpsql", "serve", "--json", "--processes", "2", str(shop)]
    with subprocess.Popen([*command, "--port", "0"], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        port = json.loads(parent.stdout.readline())["port"]
        before = children(parent.pid)
        assert len(before) == 2 and served(port)
        os.kill(min(before), signal.SIGKILL)
        until(lambda: len(children(parent.pid) - before) == 1)
        until(lambda: served(port))
        workers = children(parent.pid)
        beside = subprocess.run([*command, "--port", str(port)], capture_output=True, text=True, timeout=120)
        assert beside.returncode == 2 and "is the port taken?" in beside.stderr
        parent.send_signal(signal.SIGKILL)  # nothing of its own can run
        parent.wait(SOON)
        seconds = until(lambda: not any(map(alive, workers)))
    assert seconds < 10  # .1 s on a machine with nothing else to do
    with running(shop, "--port", str(port)):
        assert served(port)
