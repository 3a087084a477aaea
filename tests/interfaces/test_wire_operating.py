"""A server in production: options from a file, reloads under clients, numbers to watch, its log, its end."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from dpsql.errors import CatalogError, OperationalError
from dpsql.interfaces.pgwire import PAUSE, read_config
from tests.interfaces.test_shell import ENDLESS
from tests.interfaces.wire_client import Server, Wire, free_port, kinds, log_in, running, state, values
from tests.interfaces_release import build
from tests.thinned import by_default

pytestmark = pytest.mark.usefixtures("publishes")
SOON = 60.0
COUNT = "SELECT COUNT(*) FROM sales"


class Production(NamedTuple):
    folder: Path
    server: Server
    metrics: int

    @property
    def release(self) -> Path:
        return self.folder / "shop.dpsql"

    def get(self, path: str) -> tuple[int, str]:
        asker = http.client.HTTPConnection("127.0.0.1", self.metrics, timeout=60)
        asker.request("GET", path)
        reply = asker.getresponse()
        return reply.status, reply.read().decode()

    def number(self, name: str) -> float:
        line = next(line for line in self.get("/metrics")[1].splitlines() if line.startswith(name + " "))
        return float(line.split()[-1])

    def events(self) -> list[dict[str, object]]:
        # the last line may be half written
        whole, _, _ = (self.folder / "log.jsonl").read_text().rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A second release of the same name, of other rows."""
    return build(tmp_path_factory.mktemp("others"), seed=8)


@pytest.fixture
def production(shop_of_operating: Path, tmp_path: Path) -> Iterator[Production]:
    shutil.copy(shop_of_operating, tmp_path / "shop.dpsql")
    metrics = free_port()
    for role in ("ana", "board"):
        (tmp_path / f"{role}.pw").write_text(f"{role}:correct horse\n")
        (tmp_path / f"{role}.pw").chmod(0o600)
    (tmp_path / "roles.yaml").write_text("ana: {password_file: ana.pw, releases: [shop.dpsql]}\n")
    (tmp_path / "server.yaml").write_text(
        f"roles: roles.yaml\nlog: log.jsonl\nlog_statements: true\nmetrics: 127.0.0.1:{metrics}\nconnections: 20\n"
    )
    with running("--config", tmp_path / "server.yaml") as server:
        yield Production(tmp_path, server, metrics)


@pytest.fixture(scope="module")
def shop_of_operating(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("operating"))


def entered(port: int, role: str = "ana") -> Wire:
    client = log_in(port, role, "correct horse")
    assert client.greeting[-1] == "Z", client.greeting
    return client


def answer(client: Wire) -> bytes | None:
    return next(values(body)[0] for kind, body in client.ask(COUNT) if kind == "D")


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + SOON
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_reload_meets_new_clients_and_leaves_old_ones(production: Production, others: Path) -> None:
    port, before = production.server.port, entered(production.server.port)
    first = answer(before)
    shutil.copy(others, production.folder / "next")
    (production.folder / "next").replace(production.release)
    (production.folder / "roles.yaml").write_text(
        "ana: {password_file: ana.pw, releases: [shop.dpsql]}\n"
        "board: {password_file: board.pw, releases: [shop.dpsql]}\n"
    )
    production.server.process.send_signal(signal.SIGHUP)
    until(lambda: any(event.get("reload") == "done" for event in production.events()))
    later = entered(port, "board")
    assert answer(before) == first != answer(later)
    assert answer(before) == first  # still


def test_a_changed_file_is_taken_by_itself_and_a_bad_one_is_not(production: Production, others: Path) -> None:
    first = answer(entered(production.server.port))
    production.release.chmod(0o644)
    production.release.write_bytes(b"no release")
    until(lambda: any(event.get("reload") == "failed" for event in production.events()))
    assert answer(entered(production.server.port)) == first
    shutil.copy(others, production.folder / "next")
    (production.folder / "next").replace(production.release)
    until(lambda: answer(entered(production.server.port)) != first)
    assert PAUSE < SOON / 4


@pytest.mark.parametrize(("clients", "reloads"), by_default([(2, 1), (4, 3)], 1))
def test_statements_under_a_reload_are_all_answered(
    production: Production, clients: int, reloads: int
) -> None:
    port, lost, over = production.server.port, [], threading.Event()

    def ask() -> None:
        while not over.is_set():
            client = entered(port)
            for _ in range(5):
                if "D" not in kinds(client.ask(COUNT)):
                    lost.append(client)
            client.send("X", b"")
            client.socket.close()

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for number in range(reloads):
        production.server.process.send_signal(signal.SIGHUP)
        until(
            lambda number=number: sum(event.get("reload") == "done" for event in production.events()) > number
        )
    over.set()
    for thread in threads:
        thread.join()
    assert lost == []


def test_numbers_and_log_name_no_statement(production: Production) -> None:
    assert production.get("/healthz") == (200, "OK\n") and production.get("/else")[0] == 404
    client = entered(production.server.port)
    assert "D" in kinds(client.ask(COUNT))
    (refused,) = [body for kind, body in client.ask("SELECT nothing FROM sales") if kind == "E"]
    number = re.search(rb"Drequest ([0-9a-f]{16})\0", refused)
    assert number is not None and state(refused) == "42703"
    until(lambda: production.number('dpsql_statements_total{state="42703"}') == 1)
    assert production.number('dpsql_statements_total{state="00000"}') == 1
    assert production.number("dpsql_connections") == 1
    assert production.number('dpsql_logins_total{outcome="accepted"}') == 1
    (event,) = [event for event in production.events() if event.get("request") == number[1].decode()]
    assert event["statement"] == "42703" and event["role"] == "ana" and 0 <= float(str(event["seconds"])) < 60
    shown = (production.folder / "log.jsonl").read_text() + production.get("/metrics")[1]
    assert "SELECT" not in shown and "nothing" not in shown and "correct horse" not in shown
    assert "ana" not in production.get("/metrics")[1]


def test_the_end_says_so_to_every_client_and_comes_soon(shop_of_operating: Path) -> None:
    command = [sys.executable, "-m", "dpsql", "serve", "--json", "--port", "0", str(shop_of_operating)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = json.loads(process.stdout.readline())["port"]
        idle, busy = Wire(port), Wire(port)
        for client in (idle, busy):
            client.until_ready()
        busy.send("Q", ENDLESS.encode() + b"\0")
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        for client in (idle, busy):
            kind, body = client.receive()
            while kind not in ("E", ""):
                kind, body = client.receive()
            assert kind == "E" and state(body) == "57P01"
        assert process.wait(SOON) == 0


def test_options_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "server.yaml"
    file.write_text("releases: [a.dpsql]\ntls_key: k.pem\nidle_timeout: 5\n")
    assert read_config(file) == {
        "releases": [str(tmp_path / "a.dpsql")], "key": str(tmp_path / "k.pem"), "idle": "5", "log_statements": False,
    }  # fmt: skip
    file.write_text("release: [a.dpsql]\n")
    with pytest.raises(CatalogError, match="releases"):
        read_config(file)
    with pytest.raises(OperationalError, match="cannot read"):
        read_config(tmp_path / "absent.yaml")
