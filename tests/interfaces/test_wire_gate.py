"""Who may come in: roles and their releases, waits after wrong passwords, places, time-outs, and the log of logins."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from benchmarks.processes import worked
from dpsql.errors import CatalogError, Error, InterfaceError, OperationalError
from dpsql.interfaces.pgwire import read_guests, read_tls
from dpsql.interfaces.pgwire.events import MOST_REFUSALS, EventLog, event_log
from dpsql.interfaces.pgwire.login import (
    BURST,
    FAMILIAR,
    FREE,
    GUESSES,
    MOST_REMEMBERED,
    NETWORKS,
    ConnectionSlots,
    Login,
    LoginBackoff,
    Options,
)
from dpsql.interfaces.pgwire.roles import make_verifier, read_password_file, read_roles, stand_in
from tests.interfaces.crowd import logins_at_once
from tests.interfaces.test_shell import ENDLESS
from tests.interfaces.wire_client import (
    Server,
    Wire,
    certificate,
    kinds,
    log_in,
    password_file,
    running,
    serving,
    state,
    values,
)
from tests.interfaces_release import build

pytestmark = pytest.mark.usefixtures("publishes")

CONNECTIONS, IDLE, LOGIN = 6, 3.0, 1.5
SOON = 60.0
"""Seconds within which a busy machine gets round to something that should take none."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two releases, of which one role may ask one and another both."""
    folder = tmp_path_factory.mktemp("roles")
    build(folder, name="shop")
    build(folder / "other", name="market").rename(folder / "market.dpsql")
    for role in ("ana", "board", "newcomer"):
        password_file(folder, role)
    (folder / "roles.yaml").write_text(
        "ana: {password_file: ana.pw, releases: [shop.dpsql]}\n"
        "board: {password_file: board.pw, releases: [shop.dpsql, market.dpsql]}\n"
        "newcomer: {password_file: newcomer.pw, releases: [shop.dpsql]}\n"
    )
    return folder


@pytest.fixture(scope="module")
def port(folder: Path) -> Iterator[int]:
    log = folder / "logins.jsonl"
    with serving("--roles", folder / "roles.yaml", "--log", log) as number:
        yield number
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert "SELECT" not in log.read_text() and "correct" not in log.read_text()
    assert {line["role"] for line in lines if line["login"] == "accepted"} <= {"ana", "board", "newcomer"}
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def words(rows: list[tuple[str, bytes]]) -> list[bytes | None]:
    return [values(body)[0] for kind, body in rows if kind == "D"]


def lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "logins.jsonl").read_text().splitlines()]


def test_a_role_sees_its_releases_and_no_other(port: int, folder: Path) -> None:
    asked = ("SHOW VIEWS", "SELECT table_name FROM information_schema.tables", "SELECT relname FROM pg_class")
    few, many = entered(port, "ana"), entered(port, "board")
    for sql in asked:
        mine = words(few.ask(sql))
        assert mine and b"market" not in mine
    assert {b"market", b"shop"} <= set(words(many.ask(asked[2])))
    assert kinds(few.ask("SELECT COUNT(*) FROM sales"))[-3:] == "DCZ"
    for sql in ("SELECT COUNT(*) FROM market", "SELECT COUNT(*) FROM market.sales"):
        error = next(body for kind, body in few.ask(sql) if kind == "E")
        assert state(error) in ("42703", "42P01") and error.count(b"market") == 1  # as she wrote it
        assert "D" in kinds(many.ask(sql))
    accepted = {line["role"]: line["releases"] for line in lines(folder) if line["login"] == "accepted"}
    assert accepted == {"ana": ["shop.dpsql"], "board": ["shop.dpsql", "market.dpsql"]}


def entered(port: int, user: str, password: str = "correct horse") -> Wire:
    """A client that has logged in."""
    client = log_in(port, user, password)
    assert client.greeting[-1] == "Z", client.greeting
    return client


def challenge(port: int, user: str) -> tuple[int, str, bytes]:
    """What the server shows of a role's password: the salt's length, the rounds, the salt."""
    client = Wire(port, user)
    client.receive()
    first = b"n,,n=,r=abc"
    client.send("p", b"SCRAM-SHA-256\0" + struct.pack("!i", len(first)) + first)
    _, salt, rounds = client.receive()[1][4:].decode().split(",")
    return len(salt), rounds, salt.encode()


def test_a_role_that_there_is_not_looks_like_a_wrong_password(port: int, folder: Path) -> None:
    known, unknown, again = challenge(port, "ana"), challenge(port, "eve"), challenge(port, "eve")
    assert known[:2] == unknown[:2] and unknown == again and known == challenge(port, "ana")
    assert unknown[2] not in (known[2], challenge(port, "eva")[2])
    assert log_in(port, "ana", "wrong").greeting == log_in(port, "eve", "wrong").greeting == "E"
    assert log_in(port, "ana", "wrong").last == log_in(port, "eve", "wrong").last
    refused = [line for line in lines(folder) if line["login"] == "refused"]
    assert [line["role"] for line in refused[-4:]] == ["ana", "eve", "ana", "eve"]
    assert {line["why"] for line in refused[-4:]} == {"wrong user or password"}


def test_a_stand_in_is_made_like_a_verifier() -> None:
    real, made = make_verifier("ana", "x").keys, stand_in("ana").keys
    assert [type(part) for part in made] == [type(part) for part in real]
    assert [len(part) for part in made[:3]] == [len(part) for part in real[:3]] and made[3] == real[3]


def test_wrong_passwords_wait_and_nobody_else_does(port: int) -> None:
    for _ in range(FREE + 1):
        last = log_in(port, "newcomer", "wrong").last
    assert b"too many wrong passwords; wait" in last and state(last) == "28P01"
    assert log_in(port, "newcomer", "correct horse").greeting == "E"  # not even the right one, until then
    assert log_in(port, "ana", "correct horse").greeting[-1] == "Z"
    end = time.monotonic() + SOON
    while log_in(port, "newcomer", "correct horse").greeting[-1] != "Z":
        assert time.monotonic() < end
        time.sleep(0.2)
    assert log_in(port, "newcomer", "wrong").last.count(b"wrong user or password") == 1  # counted anew


@pytest.mark.slow
def test_several_processes_keep_the_same_interface(folder: Path, tmp_path: Path) -> None:
    given = ("--roles", folder / "roles.yaml", "--log", tmp_path / "log", "--idle-timeout", "2")
    with serving(*given, "--processes", "2") as port:
        clients = [entered(port, role) for role in ("ana", "board") * 4]
        assert log_in(port, "ana", "wrong").greeting == "E"
        assert all(left(client)[0] == "57P05" for client in clients)
    assert (tmp_path / "log").read_text().count("\n") == 9


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_waits_grow_and_end_and_are_bounded() -> None:
    clock = Clock()
    waits, seen = LoginBackoff(clock), []
    for _ in range(FREE + 8):
        waits.wrong("192.0.2.1", "ana")
        seen.append(waits.seconds("192.0.2.1", "ana"))
    assert seen[FREE - 1 :] == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert max(seen[: FREE - 1]) <= 0
    clock.now += 59
    assert waits.seconds("192.0.2.2", "ana") <= 0
    assert waits.seconds("192.0.2.1", "ana") == 1
    clock.now += 2
    assert waits.seconds("192.0.2.1", "ana") <= 0
    waits.wrong("192.0.2.1", "ana")
    assert waits.seconds("192.0.2.1", "ana") == 60
    clock.now += 10_000
    waits.wrong("192.0.2.1", "ana")
    assert waits.seconds("192.0.2.1", "ana") <= 0  # forgotten by then


def test_who_tries_one_name_after_another_waits_too_and_takes_no_memory() -> None:
    clock = Clock()
    waits = LoginBackoff(clock)
    for number in range(3 * MOST_REMEMBERED):
        waits.wrong("2001:db8::1", f"role {number}")
        clock.now += 0.001
    assert len(waits._wrong) == MOST_REMEMBERED
    assert waits.seconds("2001:db8::2", "another") > 50  # of the same network
    assert waits.seconds("2001:db8:1::1", "another") <= 0
    assert NETWORKS[0] > FREE
    waits.right("2001:db8::1", "another")
    assert waits.seconds("2001:db8::1", "another") <= 0 < waits.seconds("2001:db8::1", "yet another")


def test_guesses_at_one_role_are_few_from_however_many_addresses() -> None:
    clock = Clock()
    waits, guessed = LoginBackoff(clock), 0
    waits.right("198.51.100.1", "ana")
    for number in range(15_000):  # a quarter of a minute
        address = f"192.0.2.{number % 1000 // 4}" if number % 2 else f"2001:db8:{number % 1000:x}::1"
        if waits.seconds(address, "ana") <= 0:
            waits.wrong(address, "ana")
            guessed += 1
        clock.now += 0.001
    assert 0 < guessed <= GUESSES * 15 + BURST
    assert waits.seconds("198.51.100.1", "ana") <= 0  # she has come from there before
    assert waits.seconds("198.51.100.1", "board") <= 0


def test_a_stale_password_locks_nobody_out_who_shares_its_address() -> None:
    clock = Clock()
    waits, taken = LoginBackoff(clock), 0
    for role in ("ana", "board", "etl"):
        waits.right("192.0.2.1", role)
    for second in range(7200):
        if waits.seconds("192.0.2.1", "etl") <= 0:
            waits.wrong("192.0.2.1", "etl")  # a program whose password was changed
        if waits.seconds("192.0.2.1", "stale") <= 0:
            waits.wrong("192.0.2.1", "stale")  # and one whose role is gone
        if second % 10 == 0:
            taken += all(waits.seconds("192.0.2.1", role) <= 0 for role in ("ana", "board", "etl"))
            for role in ("ana", "board", "etl"):
                waits.right("192.0.2.1", role)
        clock.now += 1
    assert taken == 720
    clock.now += FAMILIAR
    assert waits.seconds("192.0.2.1", "ana") <= 0


def test_a_familiar_address_cannot_guess_faster_than_others() -> None:
    clock = Clock()
    waits, guessed = LoginBackoff(clock), 0
    waits.right("192.0.2.1", "ana")
    for _ in range(60_000):
        if waits.seconds("192.0.2.1", "ana") <= 0:
            waits.wrong("192.0.2.1", "ana")
            guessed += 1
        clock.now += 0.001
    assert guessed <= GUESSES * 60 + BURST


def test_a_role_without_a_name_has_waits_of_its_own() -> None:
    clock = Clock()
    waits = LoginBackoff(clock)
    for _ in range(FREE + 5):
        waits.wrong("192.0.2.1", "")
    assert waits.seconds("192.0.2.1", "") > 0 >= waits.seconds("192.0.2.1", "ana")


def test_a_customer_with_many_networks_is_one_sender() -> None:
    clock = Clock()
    waits = LoginBackoff(clock)
    for number in range(2 * NETWORKS[2]):
        waits.wrong(f"2001:db8:1:{number:x}::1", f"role {number}")
    assert waits.seconds("2001:db8:1:ffff::1", "ana") > 0 >= waits.seconds("2001:db8:2::1", "ana")


def login(address: str, silent: float, *, spoke: bool = False) -> Login:
    """A login from an address that has been silent for so many seconds."""
    mine = Login(cast(Any, None), cast(Any, None), cast(Any, None), address)
    mine.spoke, mine.since = spoke, time.monotonic() - silent
    return mine


async def pushed_out(*logins: Login) -> list[str]:
    """Addresses of those that are pushed out of sixteen places; who finds no room for half a second does not come."""
    places, gone = ConnectionSlots(Options(connections=8)), list[str]()

    async def come(mine: Login) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(60) as time_left:
                places.arrive(time_left, mine)
                try:
                    await asyncio.Event().wait()
                finally:
                    if places.pushed_out(time_left):
                        gone.append(mine.address)

    tasks = []
    for mine in logins:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(places.room(), 0.5)
            tasks.append(asyncio.create_task(come(mine)))
            await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    return gone


def test_strangers_push_out_the_longest_waiting_of_the_largest_crowd() -> None:
    crowd = [login("many", 60.0) for _ in range(12)] + [login("few", 90.0) for _ in range(8)]
    assert asyncio.run(pushed_out(*crowd)) == ["many"] * 4


def test_who_says_nothing_is_pushed_out_before_who_is_logging_in() -> None:
    talking = [login("many", 60.0, spoke=True) for _ in range(15)]
    assert asyncio.run(pushed_out(*talking, login("mute", 30.0), login("new", 0.0))) == ["mute"]


def test_who_logs_in_now_is_not_pushed_out() -> None:
    assert asyncio.run(pushed_out(*[login("many", -60.0, spoke=True) for _ in range(18)])) == []


def test_logins_that_come_at_one_moment_are_all_let_in(port: int) -> None:
    crowd = Options().strangers + 20  # the others wait in the kernel's backlog
    assert logins_at_once(port, crowd) == crowd


def test_clients_that_go_at_once_do_not_end_the_accepting(port: int) -> None:
    for _ in range(50):
        with socket.create_connection(("127.0.0.1", port), timeout=SOON) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
    assert log_in(port, "ana", "correct horse").greeting[-1:] == "Z"


def test_places_of_clients_come_back() -> None:
    places = ConnectionSlots(Options(connections=1))
    with places.client() as first:
        with places.client() as second:
            assert (first, second) == (True, False)
        with places.client() as third:
            assert not third
    with pytest.raises(KeyError), places.client() as fourth:
        assert fourth
        raise KeyError
    assert places.inside == 0


TWENTY = "(VALUES " + ", ".join(f"({n})" for n in range(20)) + ")"


@pytest.fixture(scope="module")
def few_places(folder: Path) -> Iterator[Server]:
    """A server with few places and little patience."""
    log = folder / "small.jsonl"
    given = (
        "--connections",
        CONNECTIONS,
        "--idle-timeout",
        IDLE,
        "--login-timeout",
        LOGIN,
        "--log",
        log,
    )
    with running(folder / "shop.dpsql", *map(str, given)) as server:
        yield server


@pytest.fixture(scope="module")
def small(few_places: Server) -> int:
    return few_places.port


def come(port: int) -> Wire:
    """A client of that server, once there is a place."""
    end = time.monotonic() + SOON
    while kinds((client := Wire(port)).until_ready())[-1] != "Z":
        assert time.monotonic() < end
    return client


def left(client: Wire) -> tuple[str, bytes]:
    """The message with which the server ended a connection."""
    messages = client.until_ready()
    assert kinds(messages) == "E", kinds(messages)
    return state(messages[0][1]), messages[0][1]


def test_clients_find_their_places_taken_by_clients_alone(small: int, folder: Path) -> None:
    clients = [come(small) for _ in range(CONNECTIONS)]
    assert left(Wire(small))[0] == "53300"
    told = [json.loads(line) for line in (folder / "small.jsonl").read_text().splitlines()]
    assert {line["login"] for line in told} == {"accepted", "refused"}
    assert "too many clients; try again later" in {line.get("why") for line in told}
    clients.pop().socket.close()
    clients.append(come(small))

    # who never logs in is told so, and those who come after push out the ones before
    slow = [socket.create_connection(("127.0.0.1", small), timeout=SOON) for _ in range(40)]
    assert "D" in kinds(clients[0].ask("SELECT COUNT(*) FROM sales"))
    ends = [each.recv(400) for each in slow]
    assert all(end[:1] == b"E" for end in ends)
    assert sum(b"C53300\0" in end for end in ends) == 40 - Options(connections=CONNECTIONS).strangers
    assert (
        sum(b"the login took more than 1.5 s" in end for end in ends)
        == Options(connections=CONNECTIONS).strangers
    )

    # a client that is silent leaves; one that has a statement running is not silent
    clients[1].send("Q", ENDLESS.encode() + b"\0")
    assert [left(client)[0] for client in clients[2:]] == ["57P05"] * (CONNECTIONS - 2)
    clients[1].socket.settimeout(0.5)
    with pytest.raises(TimeoutError):
        clients[1].socket.recv(1)
    for client in clients:
        client.socket.close()


def test_a_login_drop_by_drop_is_cut_off(small: int) -> None:
    body = struct.pack("!i", 196608) + b"user\0" + b"x" * 5000
    begun = time.monotonic()
    with socket.create_connection(("127.0.0.1", small)) as slow, contextlib.suppress(ConnectionError):
        for byte in struct.pack("!i", len(body) + 4) + body:
            slow.sendall(bytes([byte]))
            time.sleep(0.02)
    assert LOGIN * 0.9 < time.monotonic() - begun < SOON


def test_what_nobody_takes_is_thrown_away(small: int) -> None:
    """A client that asks for much and reads nothing is cut off; it takes memory for so long only."""
    greedy = come(small)
    greedy.send("Q", f"SELECT REPEAT('x', 60000), a FROM {TWENTY} AS t(a), {TWENTY} AS u(b)".encode() + b"\0")
    time.sleep(IDLE + 2.5)
    taken = 0
    with contextlib.suppress(ConnectionError):
        while piece := greedy.socket.recv(2**20):
            taken += len(piece)
    assert 0 < taken < 400 * 60000


@pytest.mark.skipif(sys.platform != "linux", reason="a process's work is read from /proc")
def test_a_client_that_leaves_stops_what_it_asked(few_places: Server) -> None:
    small, pid = few_places.port, few_places.process.pid
    for number in range(8):  # more than compute at a time
        client = come(small)
        client.send("Q", ENDLESS.replace("> 7", f"> {number}").encode() + b"\0")
        time.sleep(0.1)
        client.socket.close()
    before, asks = worked(pid), come(small)
    assert "D" in kinds(asks.ask("SELECT COUNT(*) FROM sales WHERE sold_on >= DATE '2025-03-01'"))
    assert worked(pid) - before < 15  # half of what a single one of them would take
    asks.socket.close()


def test_the_log_escapes_names_and_leaves_out_what_is_too_much() -> None:
    clock, (reads, writes) = Clock(), os.pipe()
    log = EventLog(writes, now=clock)
    log.accepted('a"\x1b[2J\x7f\u202e\n', "192.0.2.1:5", ["shop.dpsql"])
    for _ in range(MOST_REFUSALS + 7):
        log.refused("x" * 1000, "192.0.2.1:6", "wrong")
    clock.now += 1
    log.refused("x", "192.0.2.1:6", "wrong")
    raw = os.read(reads, 2**20).decode("ascii")
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f]", raw)
    first, *others = [json.loads(line) for line in raw.splitlines()]
    assert first == {
        "time": "1970-01-01T00:16:40Z", "login": "accepted", "role": 'a"\\x1b[2J\\x7f\\u202e\\n', "from": "192.0.2.1:5",
        "releases": ["shop.dpsql"],
    }  # fmt: skip
    assert len(others) == MOST_REFUSALS + 1 and others[-1]["left_out"] == 7
    assert {len(line["role"]) for line in others[:-1]} == {64}
    for _ in range(2000):  # nobody reads: the server goes on
        log.accepted("ana", "192.0.2.1:5", ["shop.dpsql"])
    os.read(reads, 2**20)
    log.accepted("ana", "192.0.2.1:5", ["shop.dpsql"])
    assert json.loads(os.read(reads, 2**20).decode().splitlines()[-1])["left_out"] > 0
    os.close(reads)
    log.accepted("ana", "192.0.2.1:5", [])  # nobody is there: the server goes on
    os.close(writes)


def test_a_log_is_added_to(tmp_path: Path) -> None:
    for _ in range(2):
        with event_log(tmp_path / "log") as log:
            log.refused("ana", "", "wrong")
    assert (tmp_path / "log").read_text().count("\n") == 2
    with pytest.raises(OperationalError, match="cannot write"), event_log(tmp_path / "none" / "log"):
        pass


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        ("", CatalogError, "contains no keys; write `ana: "), ("{}", CatalogError, "names no role"),
        ("ana: {password_file: ana.pw}", CatalogError, r"roles.yaml:1: ana: `releases` is missing"),
        ("ana: {password_file: ana.pw, releases: []}", CatalogError, r"roles.yaml:1: ana.releases: "),
        ("\nana: {pasword_file: ana.pw, releases: [a]}", CatalogError, "roles.yaml:2: .*did you mean `password_file`"),
        ("ana: {password_file: ana.pw, releases: [a]}\nana: {}", CatalogError, "roles.yaml:2: ana: `ana` is repeated"),
        ("bob: {password_file: ana.pw, releases: [a]}", InterfaceError, "write one line bob:PASSWORD"),
        ("ana: {password_file: none.pw, releases: [a]}", OperationalError, "cannot read the password file"),
        ("ana: [", CatalogError, "invalid YAML"),
    ],
)  # fmt: skip
def test_roles_that_are_not_right(tmp_path: Path, text: str, kind: type[Error], reason: str) -> None:
    password_file(tmp_path, "ana")
    (tmp_path / "roles.yaml").write_text(text)
    with pytest.raises(kind, match=reason) as refused:
        read_roles(tmp_path / "roles.yaml")
    assert "\n" not in str(refused.value)


def test_roles_or_releases(folder: Path) -> None:
    with pytest.raises(InterfaceError, match="name releases, or give --roles"):
        read_guests(Options(), [])
    with pytest.raises(InterfaceError, match="a file of roles says who may ask what"):
        read_guests(Options(roles=folder / "roles.yaml"), [folder / "shop.dpsql"])
    (one,) = read_guests(Options(password_file=folder / "ana.pw"), [Path("a")])
    assert one.verifier is not None and one.verifier.user == "ana" and one.releases == (Path("a"),)


def dated(folder: Path, pem: Path, key: Path, begins: str, ends: str) -> None:
    """A self-signed certificate of some days: `openssl req` takes none in the past."""
    (folder / "index.txt").write_text("")
    (folder / "serial").write_text("01")
    (folder / "ca.cnf").write_text(
        "[ca]\ndefault_ca = d\n[d]\ndatabase = index.txt\nnew_certs_dir = .\nserial = serial\ndefault_md = sha256\n"
        "policy = p\n[p]\ncommonName = supplied\n[req]\ndistinguished_name = n\n[n]\n"
    )
    days = ["-startdate", f"{begins}000000Z", "-enddate", f"{ends}000000Z"]
    config = ["-config", "ca.cnf", "-in", "r.csr", "-keyfile", key, "-out", pem]
    for words in (
        ["req", "-new", "-key", key, "-subj", "/CN=x", "-config", "ca.cnf", "-out", "r.csr"],
        ["ca", "-batch", "-selfsign", *config, *days],
    ):
        subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, cwd=folder)


def test_a_certificate_must_be_valid_and_its_key_private(tmp_path: Path) -> None:
    pem, key = certificate(tmp_path, "90")
    assert read_tls(pem, key)[1] == ""
    key.chmod(0o640)
    with pytest.raises(InterfaceError, match="others can read"):
        read_tls(pem, key)
    certificate(tmp_path, "3")
    key.chmod(0o600)
    assert read_tls(pem, key)[1] == "the TLS certificate ends in 3 days; renew it"
    for begins, ends in (("20200101", "20200102"), ("20990101", "20990102")):
        dated(tmp_path, pem, key, begins, ends)
        with pytest.raises(InterfaceError, match="not valid now"):
            read_tls(pem, key)
    key.write_text("no key")
    with pytest.raises(OperationalError, match="cannot be read"):
        read_tls(pem, key)


def test_a_short_password_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InterfaceError, match="fewer than 12 characters"):
        read_password_file(password_file(tmp_path, "ana", "correcthors"))


def test_another_role_is_refused(port: int) -> None:
    client = entered(port, "ana")
    for statement in ("SET ROLE board", "set session authorization 'board'", "SET LOCAL ROLE TO board"):
        assert state(client.ask(statement)[0][1]) == "0A000"
    for statement in (
        "SET ROLE NONE",
        "SET SESSION AUTHORIZATION DEFAULT",
        "SET SESSION CHARACTERISTICS AS x",
    ):
        assert kinds(client.ask(statement))[-2:] == "CZ"
