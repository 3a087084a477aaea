"""Releases stay open between calls; the least asked are forgotten, and their answers still tell their errors."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.errors import InterfaceError
from dpsql.federation.session import ReleaseCache
from tests.release_fixture import make_rows, write_fixture

SQL = "SELECT COUNT(*) FROM sales"


def files(folder: Path, count: int) -> list[Path]:
    rows = make_rows(sales=30)
    return [write_fixture(folder / f"r{i}.dpsql", rows) for i in range(count)]


def test_the_least_asked_is_forgotten(tmp_path: Path) -> None:
    opened = ReleaseCache(2)
    first, second, third = files(tmp_path, 3)
    kept = weakref.ref(opened.answerer(first).release)
    assert opened.answerer(first).release is kept()
    forgotten = weakref.ref(opened.answerer(second).release)
    result = opened.answerer(second).query(SQL)
    opened.answerer(first)
    opened.answerer(third)
    gc.collect()
    assert kept() is not None
    assert forgotten() is not None, "an answer of it is left"
    assert result.stderr_rows[0][0] > 0
    del result
    gc.collect()
    assert forgotten() is None


def test_closing_forgets_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DPSQL_RELEASE", raising=False)
    opened = ReleaseCache(2)
    (file,) = files(tmp_path, 1)
    release = opened.answerer(file).release
    opened.default = file
    assert opened.answerer(None).release is release
    opened.close()
    with pytest.raises(duckdb.ConnectionException):
        release.connection.execute("SELECT 1")
    with pytest.raises(InterfaceError, match="no release is named"):
        opened.answerer(None)


def test_a_file_that_changed_is_opened_anew(tmp_path: Path) -> None:
    (file,) = files(tmp_path, 1)
    before = dpsql.query(SQL, release=file).scalar()
    write_fixture(tmp_path / "new.dpsql", make_rows(sales=60)).replace(file)
    assert dpsql.query(SQL, release=file).scalar() != before
