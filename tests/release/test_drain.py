"""What many statements leave in DuckDB is forgotten, and no statement meets the limit by which it is."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dpsql.federation.session import open_release
from dpsql.release import read
from tests.interfaces_release import build

pytestmark = pytest.mark.usefixtures("publishes")


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
