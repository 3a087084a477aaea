"""The process's own DuckDB: databases of one caller each, gone afterwards, what they forget, arrays as relations."""

from __future__ import annotations

import datetime
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from dpsql.federation.session import open_release
from dpsql.release import read
from dpsql.release.write import ARRAYS, column_types, registered
from dpsql.scratch import scratch
from tests.interfaces_release import build


def test_callers_do_not_see_each_other_and_nothing_stays() -> None:
    with scratch() as first, scratch() as second:
        first.execute("CREATE TABLE t AS SELECT 1 AS i")
        second.execute("CREATE TABLE t AS SELECT 2 AS i")
        assert first.execute("FROM t").fetchall() == [(1,)] and second.execute("FROM t").fetchall() == [(2,)]
    with scratch() as third:
        assert third.execute("FROM duckdb_tables()").fetchall() == []
        databases = "SELECT database_name FROM duckdb_databases() WHERE NOT internal"
        assert len(third.execute(databases).fetchall()) == 2  # the instance's own and this one


def test_a_file_is_closed_whole_and_a_failure_leaves_the_next_caller_alone(tmp_path: Path) -> None:
    file = tmp_path / "it's.db"
    with scratch(file, block_size=16384) as made:
        made.execute("CREATE TABLE t AS SELECT 1 AS i")
        made.execute("CHECKPOINT")
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    with duckdb.connect(str(file)) as other:  # as a second process would, with settings of its own
        assert other.execute("FROM t").fetchall() == [(1,)]
    with pytest.raises(KeyError), scratch(file) as failing:
        failing.execute("BEGIN; INSERT INTO t VALUES (2)")
        raise KeyError
    with scratch(file, read_only=True) as reader:
        assert reader.execute("FROM t").fetchall() == [(1,)]
        with pytest.raises(duckdb.Error, match="read-only"):
            reader.execute("INSERT INTO t VALUES (2)")
    with pytest.raises(duckdb.Error), scratch(tmp_path / "absent" / "x.db"):
        pass


def test_python_s_variables_are_no_tables() -> None:
    secret = {"a": [1]}
    with scratch() as connection, pytest.raises(duckdb.CatalogException):
        connection.execute("FROM secret")
    assert secret


def test_threads_and_forks_work(tmp_path: Path) -> None:
    def work(number: int) -> None:
        for round_ in range(5):
            with scratch(tmp_path / f"{number}-{round_}.db") as connection:
                connection.execute("CREATE TABLE t AS FROM range(100)")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(tmp_path.glob("*.db"))) == 20
    child = os.fork()
    if child == 0:
        with scratch() as connection:
            os._exit(0 if connection.execute("SELECT 1").fetchall() == [(1,)] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.usefixtures("publishes")
def test_drains_between_statements_of_many_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "READS", 5)
    drained: list[int] = []
    drain = read.Release._drain

    def counted(release: read.Release) -> None:
        drained.append(release._readers)
        drain(release)

    monkeypatch.setattr(read.Release, "_drain", counted)
    build(tmp_path)
    release = open_release(tmp_path / "shop.dpsql")

    def ask(_: int) -> list[int]:
        return [
            release.read(f"SELECT count(*) AS n{n} FROM node_combination_0", (), lambda c: c.fetchall())[0][0]
            for n in range(60)
        ]

    with ThreadPoolExecutor(4) as threads:
        assert all(min(counts) > 0 for counts in threads.map(ask, range(4)))
    assert drained and not any(drained)
    limit = release.connection.execute("SELECT current_setting('memory_limit')").fetchall()
    assert limit == [("1.8 GiB",)]
    with pytest.raises(read.duckdb.Error, match="locked"):
        release.connection.execute("SET threads = 2")


LARGE = [*range(3000), 2**40]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (np.array(["b", "a", "b"]), "VARCHAR"),
        (("b", None, "a"), "VARCHAR"),
        (LARGE, "BIGINT"),
        ([2**63, -1], "HUGEINT"),
        ([b"a\0", b"", None], "BLOB"),
        ([datetime.date(1500, 1, 1), None], "DATE"),
        ([Decimal("1.50"), Decimal("22.25")], "DECIMAL(4,2)"),
        ([True, None], "BOOLEAN"),
        (np.arange(10)[::2], "BIGINT"),
        ([], "BIGINT"),
    ],
)
def test_values_and_types(values: Any, kind: str) -> None:
    connection = duckdb.connect()
    with registered(connection, "incoming", {"a": values, "number": range(len(values))}):
        assert connection.execute("DESCRIBE incoming").fetchall()[0][1] == kind
        found = [row[0] for row in connection.execute("SELECT a FROM incoming ORDER BY number").fetchall()]
    assert found == list(values)
    with pytest.raises(duckdb.CatalogException):
        connection.execute("FROM incoming")


def test_a_failed_statement_leaves_no_relation_behind() -> None:
    connection = duckdb.connect()
    with pytest.raises(duckdb.Error), registered(connection, "incoming", {"a": [1]}):
        connection.execute("SELECT nothing FROM incoming")
    with pytest.raises(duckdb.CatalogException):
        connection.execute("FROM incoming")


ALIKE: list[Any] = [
    1, True, 1.0, Decimal("1"), Decimal("1.0"), Decimal("1.00"), "1", None, datetime.date(2025, 1, 1),
    datetime.datetime(2025, 1, 1), float("nan"),
]  # fmt: skip


"""First values of which many are equal, and of other types."""


def test_types_of_an_axis_are_those_of_its_first_values_whatever_came_before() -> None:
    arrays = [np.array([1, 2], kind) for kind in ("i4", "i8", "f8", "bool", "u8", "U1", "M8[us]", "M8[ns]")]
    arrays += [np.array([value, None], object) for value in ALIKE] + [np.zeros(0, np.int64)]
    select = f"SELECT v, [v] AS w FROM {ARRAYS}"
    for array in arrays * 2:
        with scratch() as connection, registered(connection, ARRAYS, {"v": array[:1]}):
            described = connection.execute(f"DESCRIBE {select}").fetchall()
        assert column_types({"v": array}, select) == {str(row[0]): str(row[1]) for row in described}
