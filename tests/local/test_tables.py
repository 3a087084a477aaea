"""Reports in tables: the statement that servers run, run here by DuckDB, gives the integers of reports in files."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings

from dpsql.engines.dialect import DUCK
from dpsql.engines.joined_rows import IntArray
from dpsql.engines.server import StoredTable
from dpsql.errors import SourceError
from dpsql.local.collector import CollectionManifest, add_spool, close_collection, tally_tables
from dpsql.local.files import open_state
from dpsql.local.tallies import CountedCollection
from tests.local.test_counting import KEY, PLAN, ROWS, SOUND, one_a_token, parquet, wanted

pytestmark = pytest.mark.long


class DuckSession:
    """A session on DuckDB: places are Parquet files. It keeps what it was asked."""

    name, dialect = "DuckDB", DUCK

    def __init__(self) -> None:
        self.connection = duckdb.connect()
        self.connection.execute("SET disabled_optimizers = 'common_subexpressions'")
        self.found: list[Mapping[str, IntArray]] = []

    def table(self, place: str) -> StoredTable | None:
        if not Path(place).exists():
            return None
        described = self.connection.execute(f"DESCRIBE FROM '{place}'").fetchall()
        return StoredTable(f"'{place}'", {row[0]: row[1] for row in described}, True)

    def columns(self, sql: str, step: str) -> Mapping[str, IntArray]:
        found = self.connection.execute(sql).fetchnumpy()
        self.found.append({name: np.asarray(column, np.int64) for name, column in found.items()})
        return self.found[-1]

    def rows(self, sql: str, step: str) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def places(self, name: str) -> tuple[str, ...]:
        raise NotImplementedError

    def lookup(self, keys: str, kind: str) -> str:
        raise NotImplementedError

    def row_hash(self, columns: Any) -> str:
        raise NotImplementedError

    def close(self) -> None:
        self.connection.close()


def by_files(*paths: Path) -> tuple[CountedCollection, CollectionManifest]:
    """The collector's own."""
    state = open_state(PLAN)
    for path in paths:
        add_spool(state, PLAN, path, KEY)
    return close_collection(state, PLAN)


def by_table(*paths: Path) -> tuple[CountedCollection, CollectionManifest]:
    """The statement's."""
    with closing(DuckSession()) as session:
        return tally_tables(session, PLAN, [str(path) for path in paths], KEY)


def total(collection: CountedCollection) -> list[list[int]]:
    """Support of all folds."""
    return [tally.support.sum(axis=0).tolist() for tally in collection.tallies]


def folds(collection: CountedCollection) -> list[Any]:
    """Support and reports by fold."""
    return [(tally.support.tolist(), tally.reports.tolist()) for tally in collection.tallies]


@settings(max_examples=settings.default.max_examples // 2)
@given(rows=ROWS)
def test_any_rows_count_as_in_files(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[bytes, str | None, int]]
) -> None:
    """Sound reports and damaged ones of all oracles, with tokens and without."""
    path = parquet(tmp_path_factory.mktemp("t") / "a.parquet", [*rows, (None, "x", 0), (None, None, None)])
    (found, manifest), (expected, told) = by_table(path), by_files(path)
    assert (total(found), manifest) == (total(expected), told)
    kept, repeated = one_a_token(rows)
    assert manifest.rejected.get("repeated token", 0) == repeated
    assert manifest.accepted == wanted(kept, {})[2] == sum(tally.total for tally in found.tallies)


def test_tokens_give_the_same_folds(tmp_path: Path) -> None:
    """Every integer of every fold, over two tables whose tokens meet."""
    rows = [(report, f"person {i % 250}", i % 2) for i, report in enumerate(SOUND)]
    paths = [parquet(tmp_path / f"{i}.parquet", rows[i::2]) for i in range(2)]
    (found, manifest), (expected, told) = by_table(*paths, paths[0]), by_files(*paths)
    assert folds(found) == folds(expected)
    assert manifest == told
    assert manifest.rejected == {"repeated token": 50}


def test_only_counts_leave_the_engine(tmp_path: Path) -> None:
    """However many people report, lines are for bytes and numbers: of one bit vector no two bytes stay together."""
    bits = next(
        report for report in SOUND if PLAN.views[int.from_bytes(report[10:12], "big")].oracle == "OUE"
    )
    number = next(
        report for report in SOUND if PLAN.views[int.from_bytes(report[10:12], "big")].oracle == "GRR"
    )
    path = parquet(tmp_path / "a.parquet", [(report, None, 0) for report in [bits, number] * 1000])
    session = DuckSession()
    collection, manifest = tally_tables(session, PLAN, [str(path)], KEY)
    (found,) = session.found
    assert sorted(found) == ["failed", "fold", "n", "people", "place", "tokens", "value", "view", "width"]
    assert len(found["people"]) == 4 * (len(bits) - 13 + 1)
    assert found["value"].max() < 1 << 28
    assert total(collection) == total(by_files(path)[0])
    reports = sum(tally.reports for tally in collection.tallies)
    assert manifest.accepted == reports.sum() == 2000
    assert ((reports - 500) ** 2 / 500).sum() < 25, reports.tolist()


def test_an_empty_table_and_many_tables(tmp_path: Path) -> None:
    """No row is no report; tables named twice count once."""
    empty = parquet(tmp_path / "empty.parquet", [(SOUND[0], "a", 0)])
    duckdb.sql(f"COPY (FROM '{empty}' LIMIT 0) TO '{tmp_path}/none.parquet'")
    collection, manifest = by_table(tmp_path / "none.parquet")
    assert manifest == CollectionManifest(1, 0, 0, {}, 0)
    assert not sum(tally.total for tally in collection.tallies)
    rows = [(report, None, 0) for report in SOUND]
    paths = [parquet(tmp_path / f"{i}.parquet", rows[i::3]) for i in range(3)]
    found, told = by_table(tmp_path / "none.parquet", *paths, *paths)
    assert told == CollectionManifest(4, len(SOUND), len(SOUND), {}, 0)
    assert total(found) == total(by_files(*paths)[0])


def test_a_table_that_holds_no_reports_is_refused(tmp_path: Path) -> None:
    """By its place and column alone."""
    session = DuckSession()
    with pytest.raises(SourceError, match=r"has no table .*none"):
        tally_tables(session, PLAN, [str(tmp_path / "none")], KEY)
    for columns, message in (("'a' AS report", "no column `report` of bytes"), ("1 AS token", "no column `report`"),
                             ("'a'::BLOB AS report, 'x' AS epoch", "`epoch` of .* contain whole numbers")):  # fmt: skip
        session.connection.execute(f"COPY (SELECT {columns}) TO '{tmp_path}/a.parquet'")
        with pytest.raises(SourceError, match=message):
            tally_tables(session, PLAN, [str(tmp_path / "a.parquet")], KEY)
