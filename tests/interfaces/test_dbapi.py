"""PEP 249: the compliance suite over a release, its writing tests replaced by read-only twins."""

from __future__ import annotations

import datetime
import decimal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dbapi20
import numpy as np
import pytest

import dpsql
from dpsql.interfaces.python.dbapi import bind, literal
from tests.interfaces_release import build, digest

pytestmark = pytest.mark.usefixtures("publishes")

REGIONS = "SELECT DISTINCT region FROM customer WHERE region IS NOT NULL ORDER BY region"
COUNT = "SELECT COUNT(*) FROM sales JOIN customer USING (customer_id) WHERE region = "
BEERS = ("Carlton Cold", "Carlton Draft", "Mountain Goat", "Redback", "Victoria Bitter", "XXXX")
NAMES = "SELECT * FROM (VALUES " + ", ".join(f"('{beer}')" for beer in BEERS) + ") AS booze(name)"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A release that must not change while the suite runs."""
    release = build(tmp_path_factory.mktemp("dbapi"))
    before = digest(release)
    yield release
    assert digest(release) == before
    assert [path.name for path in release.parent.glob("shop.dpsql*")] == ["shop.dpsql"]


@pytest.fixture
def connection(shop: Path) -> Iterator[dpsql.Connection]:
    with dpsql.connect(shop) as opened:
        yield opened


class TestCompliance(dbapi20.DatabaseAPI20Test):
    """22 tests run unchanged; each of the 14 below writes in the original and reads here."""

    driver = dpsql

    @pytest.fixture(autouse=True)
    def _release(self, shop: Path) -> None:
        self.connect_args = (shop,)

    def tearDown(self) -> None:
        """Nothing was made, so nothing is dropped."""

    def _cursor(self) -> Any:
        return self._connect().cursor()

    def test_cursor_isolation(self) -> None:
        connection = self._connect()
        one, two = connection.cursor(), connection.cursor()
        one.execute(COUNT + "'east'")
        two.execute(REGIONS)
        assert len(one.fetchall()) == 1
        assert two.fetchall() == [("east",), ("west",)]

    def test_description(self) -> None:
        cursor = self._cursor()
        assert cursor.description is None
        cursor.execute(REGIONS)
        assert len(cursor.description) == 1
        assert len(cursor.description[0]) == 7
        assert cursor.description[0][0] == "region"
        assert cursor.description[0][1] == self.driver.STRING
        with pytest.raises(dpsql.Error):
            cursor.execute("CREATE TABLE t (a int)")
        assert cursor.description is None

    def test_rowcount(self) -> None:
        cursor = self._cursor()
        assert cursor.rowcount == -1
        cursor.execute(REGIONS)
        assert cursor.rowcount == 2

    def test_execute(self) -> None:
        cursor = self._cursor()
        cursor.execute("SELECT 'thi%s :may ca%(u)se? troub:1e'")
        assert cursor.fetchall() == [("thi%s :may ca%(u)se? troub:1e",)]
        cursor.execute("SELECT ?, 'thi%s :may ca%(u)se? troub:1e'", ("Cooper's",))
        assert cursor.fetchall() == [("Cooper's", "thi%s :may ca%(u)se? troub:1e")]

    def test_executemany(self) -> None:
        cursor = self._cursor()
        cursor.executemany("SELECT ? AS beer", [("Cooper's",), ("Boag's",)])
        assert cursor.rowcount == 1
        assert cursor.fetchall() == [("Boag's",)]

    def test_fetchone(self) -> None:
        cursor = self._cursor()
        with pytest.raises(dpsql.Error):
            cursor.fetchone()
        cursor.execute(REGIONS + " LIMIT 1")
        assert cursor.fetchone() == ("east",)
        assert cursor.fetchone() is None

    def test_fetchmany(self) -> None:
        cursor = self._cursor()
        with pytest.raises(dpsql.Error):
            cursor.fetchmany(4)
        cursor.execute(NAMES)
        assert len(cursor.fetchmany()) == 1
        cursor.arraysize = 10
        assert len(cursor.fetchmany(3)) == 3
        assert len(cursor.fetchmany(4)) == 2
        assert cursor.fetchmany(4) == []
        cursor.arraysize = 4
        cursor.execute(NAMES)
        assert [len(cursor.fetchmany()) for _ in range(3)] == [4, 2, 0]
        cursor.execute(NAMES)
        assert sorted(row[0] for row in cursor.fetchmany(6)) == self.samples

    def test_fetchall(self) -> None:
        cursor = self._cursor()
        with pytest.raises(dpsql.Error):
            cursor.fetchall()
        cursor.execute(NAMES)
        assert sorted(row[0] for row in cursor.fetchall()) == self.samples
        assert cursor.fetchall() == []
        assert cursor.rowcount == 6

    def test_mixedfetch(self) -> None:
        cursor = self._cursor()
        cursor.execute(NAMES)
        rows = [cursor.fetchone(), *cursor.fetchmany(2), cursor.fetchone(), *cursor.fetchall()]
        assert sorted(row[0] for row in rows) == self.samples

    def test_nextset(self) -> None:
        assert not hasattr(self._cursor(), "nextset")  # optional; one statement has one result

    def test_setinputsizes(self) -> None:
        cursor = self._cursor()
        cursor.setinputsizes((25,))
        assert len(cursor.execute(REGIONS).fetchall()) == 2

    def test_setoutputsize_basic(self) -> None:
        cursor = self._cursor()
        cursor.setoutputsize(1000)
        cursor.setoutputsize(2000, 0)
        assert len(cursor.execute(REGIONS).fetchall()) == 2

    def test_setoutputsize(self) -> None:
        self._cursor().setoutputsize(2000, 0)  # nothing to reserve: rows are in memory

    def test_None(self) -> None:
        assert self._cursor().execute("SELECT NULL AS drink").fetchall() == [(None,)]


def test_22_tests_run_unchanged() -> None:
    inherited = {name for name in vars(dbapi20.DatabaseAPI20Test) if name.startswith("test")}
    replaced = {name for name in vars(TestCompliance) if name.startswith("test")}
    assert replaced <= inherited
    assert (len(inherited - replaced), len(replaced)) == (22, 14)


def test_iteration_and_column_types(connection: dpsql.Connection) -> None:
    cursor = connection.execute("SELECT 1 AS n, 'x' AS s, DATE '2025-01-31' AS d, 1.5 AS f")
    assert [column[1] for column in cursor.description] == [
        dpsql.NUMBER,
        dpsql.STRING,
        dpsql.DATETIME,
        dpsql.NUMBER,
    ]
    assert list(cursor) == [(1, "x", datetime.date(2025, 1, 31), decimal.Decimal("1.5"))]
    assert cursor.rownumber == 1


def test_counts_are_whole_until_a_session_asks_for_their_fractions(connection: dpsql.Connection) -> None:
    """What adds counts up is whole too; halves, averages and errors are as they were."""
    cursor = connection.execute("SELECT COUNT(*), COUNT(*) / 2, COUNT(*) - 1 FROM sales")
    rounded, ends = cursor.fetchall()[0], cursor.interval(0.95)
    cursor.execute("SET dp_round = off")
    cursor.execute("SELECT COUNT(*), COUNT(*) / 2, COUNT(*) - 1 FROM sales")
    exact = cursor.fetchall()[0]
    assert rounded == (round(exact[0]), exact[1], round(exact[2])) != exact
    assert [type(number) for number in rounded] == [int, float, int] and cursor.interval(0.95) == ends


def test_named_and_positional_parameters_agree(connection: dpsql.Connection) -> None:
    plain = connection.execute(COUNT + "'west' AND age >= 30").fetchall()
    assert connection.execute(COUNT + "? AND age >= ?", ["west", np.int64(30)]).fetchall() == plain
    assert connection.execute(COUNT + ":r AND age >= :a", {"r": "west", "a": 30}).fetchall() == plain


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "NULL"), (True, "TRUE"), (3, "3"), (-3, "(-3)"), (1.5, "1.5"), (decimal.Decimal("1E+2"), "100"),
        ("it's", "'it''s'"), ("\\'; --", "'\\''; --'"), (datetime.date(2025, 1, 2), "DATE '2025-01-02'"),
        (datetime.datetime(2025, 1, 2, 3, 4, 5), "TIMESTAMP '2025-01-02 03:04:05'"),
        (datetime.time(3, 4), "TIME '03:04:00'"),
        ([1, "a"], "(1, 'a')"), (np.float64(0.5), "0.5"),
    ],
)  # fmt: skip
def test_literals(value: Any, text: str) -> None:
    assert literal(value) == text


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "a\x00b", object(), [], b"x"])
def test_values_without_a_literal_are_refused(value: Any) -> None:
    with pytest.raises(dpsql.DataError):
        literal(value)


@pytest.mark.parametrize(
    ("sql", "values", "bound"),
    [
        ("a = ? AND b = '?' -- ?\n AND c = ?", [1, 2], "a = 1 AND b = '?' -- ?\n AND c = 2"),
        ('"?" = ? /* ? */', [1], '"?" = 1 /* ? */'),
        ("a::INT = :a AND t = '12:30:00'", {"a": 1}, "a::INT = 1 AND t = '12:30:00'"),
        ("x = $$ :a ? $$ AND y = :a", {"a": 1}, "x = $$ :a ? $$ AND y = 1"),
        ("'a''?' = ?", ["z"], "'a''?' = 'z'"),
        ("?", None, "?"),
    ],
)
def test_placeholders_stand_outside_of_quotes_only(sql: str, values: Any, bound: str) -> None:
    assert bind(sql, values) == bound


@pytest.mark.parametrize(
    ("sql", "values"), [("? ?", [1]), ("?", [1, 2]), (":a", {"b": 1}), ("?", "x"), ("?", 7)]
)
def test_wrong_parameters_are_refused(sql: str, values: Any) -> None:
    with pytest.raises(dpsql.ProgrammingError):
        bind(sql, values)


def test_closed_things_say_so(shop: Path) -> None:
    connection = dpsql.connect(shop)
    cursor = connection.cursor()
    cursor.close()
    with pytest.raises(dpsql.InterfaceError, match="cursor is closed"):
        cursor.execute("SELECT 1")
    connection.close()
    with pytest.raises(dpsql.InterfaceError, match="connection is closed"):
        connection.cursor()


def test_connect_refuses_what_is_no_release(tmp_path: Path) -> None:
    with pytest.raises(dpsql.InterfaceError):
        dpsql.connect()
    other = tmp_path / "notes.txt"
    other.write_text("hello")
    for path in (other, tmp_path / "absent.dpsql"):
        with pytest.raises(dpsql.ReleaseError):
            dpsql.connect(path)


def test_threads_share_a_connection(connection: dpsql.Connection) -> None:
    answers: list[Any] = []

    def ask(age: int) -> None:
        answers.append((age, connection.execute(COUNT + "'east' AND age < ?", [age]).fetchall()))

    threads = [threading.Thread(target=ask, args=(30 + i % 4,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 16
    assert len({repr(answer) for answer in answers}) == 4


def test_two_releases_of_one_population_the_smaller_error_answers(shop: Path, tmp_path: Path) -> None:
    other = build(tmp_path, seed=8, name="shop2")
    alone = [dpsql.connect(path).execute(COUNT + "'east'").stderr[0][0] for path in (shop, other)]
    with dpsql.connect(shop, other) as both:
        cursor = both.execute(COUNT + "'east'")
        assert cursor.stderr[0][0] == min(alone)
        assert both.execute("SELECT COUNT(*) FROM shop2.sales").rowcount == 1


ASKING = """
import sys, threading, dpsql
connection = dpsql.connect(sys.argv[1])
found = []
def ask(number):
    for age in range(20, 40):
        asked = f"SELECT COUNT(*) FROM shop WHERE age < {age + number}"
        found.append(connection.execute(asked).fetchall())
threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(len(found), hash(tuple(sorted(row[0][0] for row in found))))
"""


@pytest.mark.slow
def test_two_processes_with_four_threads_each_read_one_release(shop: Path) -> None:
    command = [sys.executable, "-c", ASKING, str(shop)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = {process.communicate(timeout=120)[0] for process in processes}
    assert len(said) == 1
    assert said.pop().startswith("80 ")
