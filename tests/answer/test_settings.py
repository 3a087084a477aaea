"""`SET dp_nonnegative` and `RESET` through DB-API, the shell, SQLAlchemy and the wire."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import dpsql
from dpsql.errors import ProgrammingError, SqlSyntaxError, UnknownName
from dpsql.sql.settings import Change, read_change
from tests.command import dpsql_command
from tests.interfaces.wire_client import Wire, kinds, serving, state, values

pytestmark = pytest.mark.usefixtures("publishes")

BY_AGE = "SELECT age, COUNT(*) AS n FROM customer JOIN sales USING (customer_id) GROUP BY age ORDER BY age"


@pytest.fixture(scope="module")
def answers(shop: Path) -> tuple[list[tuple], list[tuple]]:
    """Unbiased and non-negative rows; they differ."""
    plain, other = (dpsql.connect(shop, nonnegative=on).execute(BY_AGE).fetchall() for on in (False, True))
    assert plain != other
    return plain, other


@pytest.mark.parametrize(
    ("statement", "verb", "value"),
    [
        ("set dp_nonnegative = false;", "SET", False),
        ("SET dp_nonnegative = true", "SET", True),
        ("SET SESSION dp_nonnegative TO off", "SET", False),
        ("-- first\n/* then */ SET dp_nonnegative = '1'", "SET", True),
        ("SET dp_nonnegative = DEFAULT", "SET", None),
        ("RESET dp_nonnegative", "RESET", None),
        ("SHOW dp_nonnegative", "SHOW", None),
    ],
)
def test_forms(statement: str, verb: str, value: bool | None) -> None:
    assert read_change(statement) == Change(verb, "dp_nonnegative", value)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 1",
        "SET threads = 4",
        "SET search_path TO a, b",
        "PRAGMA database_list",
        "SET TIME ZONE 'UTC'",
        "",
    ],
)
def test_other_statements_are_none_of_ours(statement: str) -> None:
    assert read_change(statement) is None


@pytest.mark.parametrize(
    ("statement", "kind", "hint"),
    [
        ("SET dp_nonnegativ = true", UnknownName, "did you mean dp_nonnegative?"),
        ("PRAGMA nonnegative", UnknownName, "did you mean dp_nonnegative?"),
        ("SET dp_level = 1", UnknownName, "the settings are dp_nonnegative, dp_min_relative_error"),
        ("PRAGMA DP_NONNEGATIVE", ProgrammingError, "SET dp_nonnegative = true"),
        ("pragma dp_nonnegative = false;", ProgrammingError, "SET dp_nonnegative = true"),
        ("PRAGMA dp_nonnegative(true)", ProgrammingError, "SET dp_nonnegative = true"),
        ("SET dp_nonnegative = 3", ProgrammingError, "SET dp_nonnegative = true"),
        ("SET dp_nonnegative", ProgrammingError, "SET dp_nonnegative = true"),
        ("SET LOCAL dp_nonnegative = on", ProgrammingError, "SET dp_nonnegative = true"),
        ("RESET dp_nonnegative = on", ProgrammingError, "RESET dp_nonnegative"),
    ],
)
def test_misspelt_ones_are_refused_by_name(
    shop: Path, statement: str, kind: type[Exception], hint: str
) -> None:
    with dpsql.connect(shop) as connection, pytest.raises(kind, match=r"dp_|nonnegative") as caught:
        connection.execute(statement)
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    "text", ["-- " * 20_000 + "x", "SET a = b" + " " * 60_000 + "x", "SET " + " " * 60_000]
)
def test_long_texts_are_read_in_linear_time(text: str) -> None:
    started = time.perf_counter()
    assert read_change(text) is None
    assert time.perf_counter() - started < 1.0  # a backtracking pattern takes hours


def test_dbapi(shop: Path, answers: tuple[list[tuple], list[tuple]]) -> None:
    plain, other = answers
    with dpsql.connect(shop) as connection, dpsql.connect(shop) as untouched:
        cursor = connection.cursor()
        cursor.execute("SET dp_nonnegative = true")
        assert (cursor.description, cursor.rowcount) == (None, -1)
        second = connection.cursor().execute(BY_AGE)
        assert second.fetchall() == other
        assert [flag.split(":")[1].strip() for flag in second.result.flags] == [
            "biased; errors are those of the unbiased ones"
        ]
        notes = second.result.provenance["notes"]
        *biased, beyond = [note for note in notes if "outside the catalog's domain" not in note]
        assert biased == list(second.result.flags)
        assert "hidden by noise, of up to 80 rows a unit lie beyond max_ids (20)" in beyond
        assert untouched.execute(BY_AGE).fetchall() == plain
        connection.execute("SET dp_nonnegative = off")
        again = connection.execute(BY_AGE)
        assert again.fetchall() == plain
        assert again.result.flags == ()
        assert again.result.components["noise"] == second.result.components["noise"]


def test_reset_goes_back_to_how_the_connection_began(
    shop: Path, answers: tuple[list[tuple], list[tuple]]
) -> None:
    plain, other = answers
    with dpsql.connect(shop, nonnegative=True) as connection:
        assert connection.execute(BY_AGE).fetchall() == other
        connection.execute("SET dp_nonnegative = ?", ["false"])
        assert connection.execute(BY_AGE).fetchall() == plain
        connection.execute("RESET ALL")
        assert connection.execute(BY_AGE).fetchall() == other


def test_one_question_has_no_session(shop: Path) -> None:
    with pytest.raises(SqlSyntaxError, match="nonnegative=True"):
        dpsql.query("SET dp_nonnegative = true", release=shop)


def test_sqlalchemy(shop: Path, answers: tuple[list[tuple], list[tuple]]) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    engine = sqlalchemy.create_engine(f"dpsql:///{shop}")
    with engine.connect() as connection:
        connection.execute(sqlalchemy.text("SET dp_nonnegative = true"))
        assert [tuple(row) for row in connection.execute(sqlalchemy.text(BY_AGE))] == answers[1]


def shell(shop: Path, text: str, style: str) -> tuple[str, str, int]:
    done = dpsql_command("shell", shop, "--format", style, text=text)
    return done.stdout, done.stderr, done.returncode


def test_shell(shop: Path) -> None:
    script = f"SET dp_nonnegative = true; {BY_AGE}; SET dp_nonnegative = false; {BY_AGE};"
    out, err, code = shell(shop, script, "table")
    assert code == 0
    assert out.count("non-negative estimates of view demand: biased") == 1
    assert "dp_nonnegative is on: counts are their non-negative (biased) estimates" in err
    assert "dp_nonnegative is off" in err
    csv, _, _ = shell(shop, f"SET dp_nonnegative = on; {BY_AGE}", "csv")
    head = "age,n,n_stderr,n_low,n_high,n_bound"
    assert csv.splitlines()[0] == head  # nothing but rows, so that programs can read it
    assert min(float(line.split(",")[1]) for line in csv.splitlines()[1:]) >= 0
    _, err, code = shell(shop, "SET dp_nonegative = on;", "csv")
    assert code == 1
    assert "did you mean dp_nonnegative?" in err
    out, _, _ = shell(shop, f"SET dp_nonnegative = on;\n\\explain {BY_AGE}\n", "csv")
    assert ".nonnegative" in out


@pytest.fixture(scope="module")
def port(shop: Path) -> Iterator[int]:
    with serving(shop) as number:
        yield number


def counts(messages: list[tuple[str, bytes]]) -> list[float]:
    return [float(values(body)[1] or b"nan") for kind, body in messages if kind == "D"]


def test_wire(port: int, answers: tuple[list[tuple], list[tuple]]) -> None:
    plain, other = ([row[1] for row in rows] for rows in answers)
    first, second = Wire(port), Wire(port)
    for client in (first, second):
        client.until_ready()
    got = first.ask("SET dp_nonnegative = true")
    assert kinds(got) == "NCZ"
    assert b"biased" in got[0][1]
    flagged = first.ask(BY_AGE)
    assert flagged[0][0] == "N"
    assert b"non-negative estimates of view demand: biased" in flagged[0][1]
    assert counts(flagged) == other
    again = first.ask(BY_AGE)
    assert counts(again) == other
    assert not any(b"biased" in body for kind, body in again if kind == "N"), "told once a connection"
    assert any(b"margin" in body for kind, body in again if kind == "N"), "margins are each answer's own"
    assert counts(second.ask(BY_AGE)) == plain  # a setting is one client's own
    assert [values(body) for kind, body in first.ask("SHOW dp_nonnegative") if kind == "D"] == [[b"on"]]
    assert kinds(first.ask("DISCARD ALL")) == "CZ"
    first.ask("SET dp_nonnegative = true")
    assert b"non-negative estimates" in first.ask(BY_AGE)[0][1], (
        "whoever a pool gives the connection to is told"
    )
    first.ask("DISCARD ALL")
    assert counts(first.ask(BY_AGE)) == plain
    (kind, body), _ = first.ask("SET dp_nonnegativ = true")
    assert (kind, state(body)) == ("E", "42703")
    assert b"did you mean dp_nonnegative?" in body
    assert kinds(first.ask("SET extra_float_digits = 3")) == "CZ"
    first.socket.close()
    second.socket.close()


def startup(**options: str) -> bytes:
    words = b"".join(f"{name}\0{value}\0".encode() for name, value in {"user": "me", **options}.items())
    body = (196608).to_bytes(4, "big") + words + b"\0"
    return (len(body) + 4).to_bytes(4, "big") + body


def test_wire_settings_of_the_start_up_message(port: int, answers: tuple[list[tuple], list[tuple]]) -> None:
    """What `PGOPTIONS`, JDBC's `options=` and connection strings of BI tools send."""
    client = Wire(port, startup=startup(options="-c geqo=off -c dp_nonnegative=on"))
    client.until_ready()
    assert counts(client.ask(BY_AGE)) == [row[1] for row in answers[1]]
    client.socket.close()
    refused = Wire(port, startup=startup(dp_nonegative="on"))
    kind, body = refused.receive()
    assert (kind, state(body)) == ("E", "42703")
    refused.socket.close()


def test_wire_prepared(port: int, answers: tuple[list[tuple], list[tuple]]) -> None:
    """Extended protocol: Describe tells no columns and does not run it."""
    client = Wire(port)
    client.until_ready()
    client.send("P", b"s\0SET dp_nonnegative = $1\0" + (0).to_bytes(2, "big"))
    client.send("D", b"Ss\0")
    client.send("B", b"\0s\0" + bytes(2) + b"\0\1" + b"\0\0\0\4true" + bytes(2))
    client.send("E", b"\0" + bytes(4))
    client.send("S", b"")
    assert kinds(client.until_ready()) == "1tn2NCZ"
    assert counts(client.ask(BY_AGE)) == [row[1] for row in answers[1]]
    client.socket.close()
