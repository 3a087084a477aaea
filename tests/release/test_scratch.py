"""The process's own DuckDB: databases of one caller each, gone or closed afterwards, also after an error."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import duckdb
import pytest

from dpsql.scratch import scratch


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
