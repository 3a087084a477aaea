"""A server in production: options from a file, reloads under clients, numbers to watch, its log, its end."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from dpsql.errors import CatalogError, OperationalError
from dpsql.interfaces.pgwire import PAUSE, read_config
from tests.interfaces.wire_client import (
    Server,
    Wire,
    free_port,
    kinds,
    log_in,
    password_file,
    running,
    state,
    values,
)
from tests.interfaces_release import build
from tests.thinned import by_default

pytestmark = pytest.mark.usefixtures("publishes")
SOON = 60.0
COUNT = "SELECT COUNT(*) FROM sales"


class Production(NamedTuple):
    """A server with its folder, the port of its numbers, and two releases of one name, of which it serves one."""

    folder: Path
    server: Server
    metrics: int
    releases: list[Path]

    def replaced(self) -> None:
        """The other release is in the place of the one that is served."""
        self.releases.reverse()
        shutil.copy(self.releases[0], self.folder / "next")
        (self.folder / "next").replace(self.folder / "shop.dpsql")

    def get(self, path: str) -> tuple[int, str]:
        asker = http.client.HTTPConnection("127.0.0.1", self.metrics, timeout=60)
        asker.request("GET", path)
        reply = asker.getresponse()
        return reply.status, reply.read().decode()

    def number(self, name: str) -> float:
        lines = (line for line in self.get("/metrics")[1].splitlines() if line.startswith(name + " "))
        return float(next(lines, "0").split()[-1])

    def events(self) -> list[dict[str, object]]:
        # the last line may be half written
        whole, _, _ = (self.folder / "log.jsonl").read_text().rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]

    def reloads(self, how: str) -> int:
        return sum(event.get("reload") == how for event in self.events())


@pytest.fixture(scope="module")
def production(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Production]:
    folder = tmp_path_factory.mktemp("production")
    releases = [build(folder / f"seed{seed}", seed=seed) for seed in (7, 8)]
    shutil.copy(releases[0], folder / "shop.dpsql")
    metrics = free_port()
    for role in ("ana", "board"):
        password_file(folder, role)
    (folder / "roles.yaml").write_text("ana: {password_file: ana.pw, releases: [shop.dpsql]}\n")
    (folder / "server.yaml").write_text(
        f"roles: roles.yaml\nlog: log.jsonl\nlog_statements: true\nmetrics: 127.0.0.1:{metrics}\nconnections: 20\n"
    )
    with running("--config", folder / "server.yaml") as server:
        yield Production(folder, server, metrics, releases)


def entered(port: int, role: str = "ana") -> Wire:
    client = log_in(port, role, "correct horse")
    assert client.greeting[-1] == "Z", client.greeting
    return client


def answer(client: Wire) -> bytes | None:
    return next(values(body)[0] for kind, body in client.ask(COUNT) if kind == "D")


def until(holds: Callable[[], bool], pause: float = 0.05) -> None:
    end = time.monotonic() + SOON
    while not holds():
        assert time.monotonic() < end
        time.sleep(pause)


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


def test_a_reload_meets_new_clients_and_leaves_old_ones(production: Production) -> None:
    port, before = production.server.port, entered(production.server.port)
    first, done = answer(before), production.reloads("done")
    production.replaced()
    (production.folder / "roles.yaml").write_text(
        "ana: {password_file: ana.pw, releases: [shop.dpsql]}\n"
        "board: {password_file: board.pw, releases: [shop.dpsql]}\n"
    )
    production.server.process.send_signal(signal.SIGHUP)
    until(lambda: production.reloads("done") > done)
    later = entered(port, "board")
    assert answer(before) == first != answer(later)
    assert answer(before) == first  # still


def test_a_changed_file_is_taken_by_itself_and_a_bad_one_is_not(production: Production) -> None:
    port = production.server.port
    first, failed, done = answer(entered(port)), production.reloads("failed"), production.reloads("done")
    (production.folder / "bad").write_bytes(b"no release")
    (production.folder / "bad").replace(production.folder / "shop.dpsql")
    until(lambda: production.reloads("failed") > failed)
    assert answer(entered(port)) == first
    production.replaced()
    until(lambda: production.reloads("done") > done)
    assert answer(entered(port)) != first
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
                time.sleep(0.02)
            client.send("X", b"")
            client.socket.close()

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for _ in range(reloads):
        done = production.reloads("done")
        production.server.process.send_signal(signal.SIGHUP)
        until(lambda done=done: production.reloads("done") > done)
    over.set()
    for thread in threads:
        thread.join()
    assert lost == []


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
