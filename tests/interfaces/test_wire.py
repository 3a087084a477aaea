"""The PostgreSQL server: frames, login, both protocols, hostile input; psql, psycopg and JDBC as slow tests."""

from __future__ import annotations

import base64
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import dpsql
from dpsql.errors import InterfaceError
from dpsql.interfaces.pgwire import protocol as forms
from dpsql.interfaces.pgwire.client import MOST_PORTALS
from dpsql.interfaces.pgwire.roles import Exchange, LoginRefused, make_verifier
from dpsql.interfaces.pgwire.statements import MOST_PREPARED_TEXT
from tests.command import dpsql_command
from tests.interfaces.wire_client import (
    Wire,
    certificate,
    kinds,
    log_in,
    password_file,
    serving,
    state,
    values,
)

pytestmark = pytest.mark.usefixtures("publishes")

MEANT = struct.pack("!ii", 16, 196608) + b"user\0me\0"
JDBC = Path("/usr/share/java/postgresql.jar")


@pytest.fixture
def wire(port: int) -> Iterator[Wire]:
    client = Wire(port)
    assert kinds(client.until_ready())[-1] == "Z"
    yield client
    client.socket.close()


def test_simple_queries(shop: Path, wire: Wire) -> None:
    got = wire.ask("SELECT COUNT(*) AS n FROM sales; SELECT 1, NULL, true")
    assert kinds(got) == "NTDCTDCZ"
    n = dpsql.connect(shop).execute("SELECT COUNT(*) AS n FROM sales").fetchall()[0][0]
    assert values(got[2][1]) == [repr(n).encode()]
    assert values(got[5][1]) == [b"1", None, b"t"]
    assert kinds(wire.ask("")) == "IZ"
    assert kinds(wire.ask("SET x = 1; BEGIN")) == "CCZ"
    assert wire.ask("COMMIT")[-1] == ("Z", b"I")


def test_errors_have_a_state_a_place_and_a_hint(wire: Wire) -> None:
    (kind, body), ready = wire.ask("SELECT * FROM sales")
    assert (kind, state(body), ready) == ("E", "0A000", ("Z", b"I"))
    (_, body), _ = wire.ask("SELECT COUNT(*) FROM sale")
    assert state(body) == "42P01"
    assert b"\0P22\0" in body
    assert b"did you mean sales?" in body
    for sql in ("DELETE FROM sales", "CREATE TABLE t (a int)", "COPY sales TO STDOUT", "DROP TABLE pg_class"):
        assert wire.ask(sql)[0][0] == "E"
    assert kinds(wire.ask("SELECT 1")) == "TDCZ"


def test_information_schema_lists_the_star_however_it_is_asked(wire: Wire) -> None:
    names = [b"customer", b"product", b"sales", b"shop"]
    for condition in ("table_schema = 'public'", "table_catalog = current_database()"):
        asked = f"SELECT table_name FROM information_schema.tables WHERE {condition} ORDER BY table_name"
        assert [values(body)[0] for kind, body in wire.ask(asked) if kind == "D"] == names
    asked = "SELECT column_name, data_type FROM information_schema.columns WHERE table_catalog = current_database()"
    rows = [values(body) for kind, body in wire.ask(asked + " AND table_name = 'product'") if kind == "D"]
    assert rows == [[b"product_id", b"integer"], [b"category", b"text"]]


def extended(
    wire: Wire,
    sql: str,
    oids: list[int],
    parameters: list[bytes | None],
    formats: list[int] | None = None,
    rows: int = 0,
) -> None:
    """Parse, Bind, Describe, Execute, Sync."""
    wire.send("P", b"\0" + sql.encode() + b"\0" + struct.pack(f"!h{len(oids)}i", len(oids), *oids))
    body = b"\0\0" + struct.pack("!h", 0) + struct.pack("!h", len(parameters))
    for value in parameters:
        body += struct.pack("!i", -1) if value is None else struct.pack("!i", len(value)) + value
    body += struct.pack(f"!h{len(formats or [])}h", len(formats or []), *(formats or []))
    wire.send("B", body)
    wire.send("D", b"P\0")
    wire.send("E", b"\0" + struct.pack("!i", rows))
    wire.send("S", b"")


def test_extended_queries_with_parameters(wire: Wire) -> None:
    extended(
        wire,
        "SELECT $1 AS a, '$1' AS b, $2 + 1 AS c, $3 AS d",
        [25, 23, 1082],
        [b"it's -- $2", b"41", b"2025-01-31"],
    )
    got = wire.until_ready()
    assert kinds(got) == "12TDCZ"
    assert values(got[3][1]) == [b"it's -- $2", b"$1", b"42", b"2025-01-31"]


def test_binary_results(wire: Wire) -> None:
    extended(
        wire,
        "SELECT 7::BIGINT AS a, 1.5::DOUBLE AS b, DATE '2000-01-03' AS c, 2.50::DECIMAL(9,2) AS d",
        [],
        [],
        [1],
    )
    row = values(wire.until_ready()[3][1])
    assert row[0] == struct.pack("!q", 7)
    assert row[1] == struct.pack("!d", 1.5)
    assert row[2] == struct.pack("!i", 2)
    assert row[3] == struct.pack("!hhHhhh", 2, 0, 0, 2, 2, 5000)


def test_portals_give_rows_in_parts_and_errors_skip_to_sync(wire: Wire) -> None:
    extended(wire, "SELECT * FROM (VALUES (1), (2), (3)) AS t(a)", [], [], rows=2)
    assert kinds(wire.until_ready()) == "12TDDsZ"
    extended(wire, "SELECT nothing FROM sales", [], [])
    assert kinds(wire.until_ready()) == "1EZ"
    wire.send("D", b"Snothing\0")
    wire.send("S", b"")
    assert kinds(wire.until_ready()) == "EZ"


def test_what_is_prepared_is_bounded_and_portals_end_with_their_transaction(wire: Wire) -> None:
    for number in range(MOST_PREPARED_TEXT // 2**16 + 1):
        wire.send("P", b"%d\0" % number + b"x" * 2**16 + b"\0\0\0")
    wire.send("S", b"")
    assert kinds(wire.until_ready()) == "1" * (MOST_PREPARED_TEXT // 2**16) + "EZ"
    wire.send("C", b"S0\0")
    wire.send("P", b"\0SELECT 1\0\0\0")
    for number in range(MOST_PORTALS + 1):
        wire.send("B", b"%d\0" % number + bytes(7))
    wire.send("S", b"")
    assert kinds(wire.until_ready()) == "31" + "2" * MOST_PORTALS + "EZ"
    wire.send("E", b"0\0" + bytes(4))
    wire.send("S", b"")
    messages = wire.until_ready()
    assert kinds(messages) == "EZ" and b"there is no portal" in messages[0][1]


@pytest.mark.parametrize(
    "raw",
    [
        b"\x00\x00\x00\x08\x00\x00\x00\x01", b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"GET / HTTP/1.1\r\n\r\n",
        struct.pack("!ii", 50_000_000, 196608), b"\x00\x00\x00\x10\x04\xd2\x16\x2e\x00\x00\x00\x01\x00\x00\x00\x02",
    ],
)  # fmt: skip
def test_broken_startups_close_the_connection(port: int, raw: bytes) -> None:
    client = Wire(port, startup=raw)
    client.socket.shutdown(socket.SHUT_WR)
    assert kinds(client.until_ready()) in ("", "E")
    assert kinds(Wire(port).until_ready())[-1] == "Z"


@pytest.mark.parametrize(
    ("kind", "length", "body"),
    [
        ("Q", 1 << 30, b"x"), ("Q", 3, b""), ("Q", -1, b""), ("?", 4, b""), ("Q", 8, b"abcd"), ("Q", 6, b"\xff\0"),
        ("B", 5, b"x"), ("P", 8, b"\0\0\0\x09"), ("y", 4, b""),
    ],
)  # fmt: skip
def test_broken_frames_close_the_connection_and_nothing_else(
    port: int, kind: str, length: int, body: bytes
) -> None:
    client = Wire(port)
    client.until_ready()
    client.socket.sendall(kind.encode() + struct.pack("!i", length) + body)
    messages = client.until_ready()
    assert kinds(messages) == "E"[: len(messages) - 1]
    assert state(messages[0][1]) == "08P01"
    assert kinds(Wire(port).until_ready())[-1] == "Z"


@pytest.mark.parametrize(
    ("raw", "oid", "binary"),
    [
        (b"abc", forms.NUMERIC, False), (b"\x7f\xff\xff\xff", forms.DATE, True), (b"\0", forms.INT4, True),
        (b"x", 1186, True), (b"\xff", forms.TEXT, False), (b"\x7f" + b"\xff" * 7, forms.TIMESTAMP, True),
    ],
)  # fmt: skip
def test_parameters_that_are_no_values_are_refused(raw: bytes, oid: int, binary: bool) -> None:
    with pytest.raises(ValueError):
        forms.parameter_value(raw, oid, binary)


def test_ssl_is_declined_and_cancel_is_harmless(port: int) -> None:
    client = Wire(port, startup=struct.pack("!ii", 8, 80877103))
    assert client.socket.recv(1) == b"N"


def test_passwords(shop: Path, tmp_path: Path) -> None:
    secret = password_file(tmp_path, "ana")
    with serving(shop, "--password-file", secret) as port:
        assert log_in(port, "ana", "correct horse").greeting.startswith("RRS")
        assert log_in(port, "ana", "wrong").greeting == "E"
        assert log_in(port, "bob", "correct horse").greeting == "E"
        assert log_in(port, "ana", "correct horse").greeting[-1] == "Z"
        unasked = Wire(port, "ana")
        unasked.receive()
        unasked.send("Q", b"SELECT 1\0")
        assert kinds(unasked.until_ready()) == "E"


def test_rfc_7677_example() -> None:
    verifier = make_verifier("user", "pencil", base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="))
    exchange = Exchange(verifier, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    assert exchange.first(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    nonce = b"rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    final = b"c=biws,r=" + nonce + b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert exchange.final(final) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    altered = Exchange(verifier, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    altered.first(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    with pytest.raises(LoginRefused):
        altered.final(final.replace(b"p=dHz", b"p=dHy"))
    with pytest.raises(LoginRefused):
        Exchange(verifier, "x").final(final)


@pytest.mark.parametrize(
    "first", [b"", b"\xff", b"p=tls-unique,,n=,r=abc", b"n,,n=,m=x,r=abc", b"n,,r=abc", b"n,,n=,r="]
)
def test_broken_first_messages_are_refused(first: bytes) -> None:
    with pytest.raises(LoginRefused):
        Exchange(make_verifier("user", "pencil")).first(first)


def test_a_password_needs_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scramp", None)
    with pytest.raises(InterfaceError, match=r'^scramp is not installed; pip install "dpsql\[password\]"$'):
        make_verifier("user", "pencil")


@pytest.mark.slow
def test_psql_logs_in(shop: Path, tmp_path: Path) -> None:
    """libpq leaves the user's name in the exchange empty, and says why it was not let in."""
    secret = password_file(tmp_path, "me")
    with serving(shop, "--password-file", secret, "--connections", "1") as port:
        assert psql(port, "SELECT 1", PGPASSWORD="correct horse") == "1\n"
        assert "wrong user or password" in psql(port, "SELECT 1", PGPASSWORD="wrong")
        taken = log_in(port, "me", "correct horse")
        assert "too many clients; try again later" in psql(port, "SELECT 1", PGPASSWORD="correct horse")
        taken.socket.close()


def test_a_readable_password_file_is_refused(shop: Path, tmp_path: Path) -> None:
    done = dpsql_command("serve", shop, "--password-file", password_file(tmp_path, "ana", mode=0o644))
    assert done.returncode == 2
    assert "chmod 600" in done.stderr


def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"needs {name}")
    return found


def psql(port: int, *commands: str, **environment: str) -> str:
    words = [word for command in commands for word in ("-c", command)]
    command = [tool("psql"), "-X", "-h", "127.0.0.1", "-p", str(port), "-U", "me", "shop", "-A", "-t", *words]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**os.environ, **environment}
    )
    return done.stdout + done.stderr


@pytest.mark.slow
def test_psql(port: int) -> None:
    assert psql(port, "SELECT region, 1 AS one FROM shop WHERE region = 'east' GROUP BY region") == "east|1\n"
    assert psql(port, "\\dt").splitlines() == [
        f"public|{name}|table|dpsql" for name in ("customer", "product", "sales", "shop")
    ]
    shown = psql(port, "\\d sales")
    assert "amount|double precision||not null|" in shown
    assert "ERROR" not in shown
    for command in ("\\d+ shop", "\\l", "\\dn", "\\du", "\\df", "\\dv", "\\di", "\\conninfo", "\\dt+"):
        assert "ERROR" not in psql(port, command), command
    print("figure wire psql: 12 commands (12) ok")


@pytest.mark.slow
def test_psql_over_tls_with_a_password(shop: Path, tmp_path: Path) -> None:
    tool("openssl")
    pem, key = certificate(tmp_path, "2")
    secret = password_file(tmp_path, "me", "four blue herons")
    given = ("--host", "0.0.0.0", "--password-file", secret, "--tls-certificate", pem, "--tls-key", key)
    with serving(shop, *given) as port:
        assert psql(port, "SELECT 1", PGPASSWORD="four blue herons", PGSSLMODE="require") == "1\n"
        assert "wrong user or password" in psql(port, "SELECT 1", PGPASSWORD="nope", PGSSLMODE="require")
        assert "TLS" in psql(port, "SELECT 1", PGPASSWORD="four blue herons", PGSSLMODE="disable")
        added = Wire(port, startup=struct.pack("!ii", 8, 80877103) + MEANT)  # by somebody on the way
        assert kinds(added.until_ready()) == "E"


@pytest.mark.slow
def test_psycopg(port: int) -> None:
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(host="127.0.0.1", port=port, user="me", dbname="shop") as connection:
        statement = "SELECT COUNT(*) FROM shop WHERE age >= %s AND region = %s"
        answers = {
            connection.execute(statement, (30, "east"), prepare=kind).fetchone()[0]
            for kind in (True, False, None)
        }
        assert len(answers) == 1
        with connection.cursor(binary=True) as cursor:
            assert cursor.execute(statement, (30, "east")).fetchone()[0] in answers
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            connection.execute("SELECT * FROM sales")
    print("figure wire psycopg: 4 ways to ask agree (4) ok")


@pytest.mark.slow
def test_jdbc(port: int) -> None:
    if not JDBC.exists():
        pytest.skip("needs the PostgreSQL JDBC driver")
    source = Path(__file__).with_name("Jdbc.java")
    command = [
        tool("java"),
        "-cp",
        str(JDBC),
        str(source),
        f"jdbc:postgresql://127.0.0.1:{port}/shop",
        "me",
        "x",
    ]
    lines = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=True
    ).stdout.splitlines()
    assert lines[0] == "tables customer product sales shop"
    assert lines[1] == "columns customer_id:int8 product_id:int4 amount:float8 sold_on:date"
    assert lines[2] == lines[3]
    assert lines[4:] == ["refused 0A000", "one 1"]
    print("figure wire jdbc: 6 checks (6) ok")


@pytest.mark.slow
@pytest.mark.parametrize("fresh", [False, True])
def test_many_clients_at_once(shop: Path, fresh: bool) -> None:
    times: list[float] = []

    def ask(port: int, number: int, seen: list[float]) -> None:
        client = Wire(port)
        client.until_ready()
        for i in range(50):
            # another text is not in the cache of answers
            note = f" -- {number} {i} {id(seen)}" if fresh else ""
            begun = time.perf_counter()
            asked = f"SELECT COUNT(*) FROM shop WHERE age >= {20 + i % 10} AND age < {31 + i % 19}{note}"
            assert kinds(client.ask(asked)) == "NTDCZ"
            seen.append(time.perf_counter() - begun)

    def all_at_once(port: int, seen: list[float]) -> float:
        threads = [threading.Thread(target=ask, args=(port, number, seen)) for number in range(16)]
        begun = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.perf_counter() - begun

    with serving(shop, "--processes", "2") as port:
        all_at_once(port, [])
        elapsed = all_at_once(port, times)
    rate, worst = len(times) / elapsed, sorted(times)[int(len(times) * 0.99)]
    assert len(times) == 800
    name, bound = (
        ("new questions", "reported") if fresh else ("a dashboard's 50 questions", ">= 500, p99 < 100 ms")
    )
    good = "ok" if fresh or (rate >= 500 and worst < 0.1) else "short"
    print(f"figure wire 16 clients, {name}: {rate:.0f}/s, p99 {worst * 1000:.0f} ms ({bound}) {good}")
