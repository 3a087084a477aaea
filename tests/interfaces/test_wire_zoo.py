"""What drivers and BI tools say to a PostgreSQL: recorded statements, and the clients that are installed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dpsql.federation.session import Settings, open_session
from dpsql.interfaces.pgwire.portals import bind
from tests.interfaces.test_shell import ENDLESS
from tests.interfaces.wire_client import serving
from tests.interfaces.wire_zoo.measure import Verdict, judge, verdicts
from tests.interfaces.wire_zoo.programs import PYTHON, clients, run_client
from tests.interfaces.wire_zoo.wire import Asker, Given
from tests.interfaces_release import build

LEAST = 130
CLIENTS = 12


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("zoo"))


@pytest.fixture(scope="module")
def port(shop: Path) -> Iterator[int]:
    with serving(shop, "--connections", "100") as number:
        yield number


@pytest.mark.long
def test_every_recorded_statement_is_answered(port: int) -> None:
    judged = verdicts(port)
    refused = [verdict for verdict in judged if verdict.reason]
    print(f"figure wire-statements-answered: {len(judged) - len(refused)} of {len(judged)} (all) "
          f"{'ok' if not refused else 'short'}")  # fmt: skip
    assert len(judged) >= LEAST
    assert refused == list[Verdict]()


def test_an_answer_without_the_star_is_none() -> None:
    entry = {"text": "SELECT 1", "columns": [["a", 25]], "rows": [["sales"]], "count": 1}
    assert judge(entry, Given((("a", 25),), (("sales",),), "")) == ""
    assert judge(entry, Given((("a", 25),), (("other",),), "")) == "rows without [('sales',)]"
    assert judge(entry, Given((("a", 25),), (), "")) == "no row instead of 1"
    assert judge(entry, Given((("b", 25),), (("sales",),), "")).startswith("columns")
    assert judge(entry, Given((), (), "0A000 no")) == "0A000 no"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_clients_connect_reflect_and_ask(port: int) -> None:
    outcomes = {client: run_client(client, port, ENDLESS) for client in clients()}
    wrong = [outcome for steps in outcomes.values() for outcome in steps if outcome.error]
    green = len(outcomes) - len({outcome.driver for outcome in wrong})
    enough = "ok" if green == len(outcomes) >= CLIENTS else "short"
    print(f"figure wire-clients-green: {green} of {len(outcomes)} (all of at least {CLIENTS}) {enough}")
    assert wrong == []


def test_only_the_catalogue_is_visible(port: int) -> None:
    asker = Asker(port, "me")
    for text in (
        "SELECT * FROM duckdb_tables, pg_class", "SELECT * FROM key_texts, pg_class",
        "SELECT * FROM type_names, pg_type",
        "SELECT * FROM main.sales, pg_class", "SELECT * FROM sqlite_master, pg_class",
        "SELECT * FROM temp.information_schema.tables, pg_class", "SELECT * FROM pragma_database_list(), pg_class",
        "SELECT * FROM pg_class, LATERAL (SELECT * FROM duckdb_settings()) AS s",
        "WITH pg_class AS (SELECT * FROM duckdb_columns) SELECT * FROM pg_class",
        "SELECT getvariable('x') FROM pg_class", "SELECT lpad('x', 1000000000) FROM pg_class",
    ):  # fmt: skip
        assert asker.ask(text).error[:5] in ("42P01", "0A000"), text


def test_intervals_stand_beside_their_columns(shop: Path, port: int) -> None:
    text = "SELECT region, COUNT(*) AS n FROM shop GROUP BY region ORDER BY region"
    plain, chosen = Asker(port, "me"), Asker(port, "me", options="-c dp_errors=on")
    assert [name for name, _ in plain.ask(text).columns] == ["region", "n"]
    wide = chosen.ask(text)
    assert [name for name, _ in wide.columns] == ["region", "n", "n_low", "n_high"]
    session = open_session([shop])
    settings = Settings()
    settings.take("SET dp_errors = on")
    answer = settings.query(session, text)
    low, high = session.query(text).interval_rows()
    assert [(row[2], row[3]) for row in answer.rows] == [(a[1], b[1]) for a, b in zip(low, high, strict=True)]
    assert [float(row[2] or "nan") for row in wide.rows] == [row[2] for row in answer.rows]
    assert all(len(row) == 4 for row in answer.stderr_rows)
    chosen.ask("SET dp_errors = off")
    assert len(chosen.ask(text).columns) == 2
    session.close()


PANDAS = """
import sys, pandas, sqlalchemy as sa
engine = sa.create_engine(f"postgresql+psycopg2://me@127.0.0.1:{sys.argv[1]}/shop")
text = sa.text("SELECT region, COUNT(*) AS n FROM shop GROUP BY region ORDER BY region")
with engine.connect() as connection:
    plain = pandas.read_sql(text, connection)
    connection.execute(sa.text("SET dp_errors = on"))
    wide = pandas.read_sql(text, connection)
assert list(plain.columns) == ["region", "n"] and list(wide.columns) == ["region", "n", "n_low", "n_high"]
assert (wide.n_low <= wide.n).all() and (wide.n <= wide.n_high).all() and (wide.n == plain.n).all()
"""


@pytest.mark.slow
@pytest.mark.skipif("sqlalchemy-psycopg2" not in clients(), reason="needs the clients of `make wire`")
def test_pandas_through_sqlalchemy_has_intervals(port: int) -> None:
    done = subprocess.run([PYTHON, "-c", PANDAS, str(port)], capture_output=True, text=True, check=False)
    print(
        f"figure wire-pandas-intervals: {done.returncode == 0:d} (1) {'short' if done.returncode else 'ok'}"
    )
    assert done.returncode == 0, done.stderr


def test_a_transaction_that_has_failed_refuses_until_it_ends(port: int) -> None:
    asker = Asker(port, "me")
    asker.ask("BEGIN")
    assert asker.ask("SELECT COUNT(*) FROM nothing").error.startswith("42P01")
    assert asker.ask("SELECT 1").error.startswith("25P02")
    assert asker.ask("ROLLBACK").error == ""
    assert asker.ask("SELECT 1").rows == (("1",),)


def test_cursors_go_both_ways(port: int) -> None:
    asker = Asker(port, "me")
    asker.ask("BEGIN; DECLARE c SCROLL CURSOR FOR SELECT * FROM (VALUES (1), (2), (3)) AS t(a)")
    steps = (("NEXT", "1"), ("2", "23"), ("NEXT", ""), ("PRIOR", "3"), ("BACKWARD 5", "21"), ("ABSOLUTE 2", "2"),
             ("ABSOLUTE -1", "3"), ("RELATIVE -2", "1"), ("LAST", "3"), ("FIRST", "1"), ("ALL", "23"))  # fmt: skip
    for way, wanted in steps:
        assert "".join(str(row[0]) for row in asker.ask(f"FETCH {way} FROM c").rows) == wanted, way
    asker.ask("COMMIT")
    assert asker.ask("FETCH 1 FROM c").error.startswith("34000")


@pytest.mark.slow
@pytest.mark.long
def test_bound_values_stay_values() -> None:
    assert bind("SELECT $1", ["x' OR 1=1 --"], [25]) == "SELECT 'x'' OR 1=1 --'"
    assert bind("SELECT $1", [["a'b", None]], [1009]) == "SELECT ARRAY['a''b', NULL]"
