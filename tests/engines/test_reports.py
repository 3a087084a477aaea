"""Reports of people counted by each engine: the same tallies as DuckDB's collector, and the command that says so."""

from __future__ import annotations

from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import array as arrow
from pyarrow import binary, table
from pyarrow.parquet import write_table

from benchmarks.local.simulated import one_row_each
from dpsql.client.plan import Plan
from dpsql.engines.postgresql import PostgresSession
from dpsql.engines.server import ServerSession
from dpsql.engines.spark import SparkSession
from dpsql.errors import SourceError
from dpsql.local.collector import CollectionManifest, add_spool, close_collection, tally_tables
from dpsql.local.files import open_state
from dpsql.local.plan import PlannedAxis
from dpsql.local.simulate import simulate_reports
from dpsql.local.tallies import CountedCollection
from tests.engines.servers import Server, new_schema
from tests.local.test_collector import plan_of

KEY = b"k" * 32
SCHEMA = "reports"
TOKENS = ["", "a", "a ", "A", "ü", "日本", "it's", "\\", "0" * 200]


def planned() -> Plan:
    """A plan that asks by every oracle."""
    axes = (PlannedAxis("age", 20, 20), PlannedAxis("zip", 2100, 0))
    return plan_of(
        axes=axes, together=(), joint=(), measures=(), epsilon=Fraction(1), wave_share=Fraction(1, 4)
    )


PLAN = planned()


def rows() -> list[tuple[bytes | None, str | None, int | None]]:
    """Sound reports of every oracle and damaged ones; with tokens, repeated ones, without, and none at all."""
    rng = np.random.default_rng(11)
    leaves = np.stack([rng.integers(0, 20, 3000), rng.integers(0, 2100, 3000)], axis=1)
    sound = simulate_reports(PLAN, one_row_each(leaves), rng)
    damaged = []
    for report in sound[:1200]:
        changed = bytearray(report)
        changed[rng.integers(len(changed))] ^= 1 << int(rng.integers(8))
        cut = int(rng.integers(len(changed) + 1)) if rng.random() < 0.3 else len(changed)
        tail = [b"", b"", b"\0", b"\xff" * 70][rng.integers(4)]
        damaged.append(bytes(changed[:cut]) + tail)
    told: list[tuple[bytes | None, str | None, int | None]] = [
        (report, f"person {i % 2500}" if i >= len(TOKENS) else TOKENS[i], [0, 1, -1, None][i % 4])
        for i, report in enumerate([*sound, *damaged])
    ]
    return [*told, *((report, None, None) for report in sound[:500]), (None, "x", 1), (None, None, None)]


@pytest.fixture(scope="module")
def spool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rows as a Parquet file."""
    reports, tokens, epochs = (list(column) for column in zip(*rows(), strict=True))
    path = tmp_path_factory.mktemp("reports") / "reports.parquet"
    write_table(table({"report": arrow(reports, binary()), "token": tokens, "epoch": epochs}), path)
    return path


@pytest.fixture(scope="module")
def loaded(postgres: Server) -> Server:
    """PostgreSQL with the same rows in a table."""
    import psycopg

    with psycopg.connect(postgres.dsn) as server:
        server.execute(new_schema(SCHEMA))
        server.execute(f"CREATE TABLE {SCHEMA}.spool (report bytea, token text, epoch bigint)")
        with server.cursor() as cursor:
            cursor.executemany(f"INSERT INTO {SCHEMA}.spool VALUES (%s, %s, %s)", rows())
        server.execute(f"CREATE VIEW {SCHEMA}.tokens AS SELECT * FROM {SCHEMA}.spool WHERE token IS NOT NULL")
        server.execute(
            f"CREATE TABLE {SCHEMA}.texts AS SELECT encode(report, 'hex') AS report FROM {SCHEMA}.spool"
        )
    return postgres


def by_files(spool: Path) -> tuple[CountedCollection, CollectionManifest]:
    """DuckDB's collector."""
    state = open_state(PLAN)
    add_spool(state, PLAN, spool, KEY)
    return close_collection(state, PLAN)


def integers(collection: CountedCollection) -> list[Any]:
    """Totals of each view: support of each item, and reports."""
    return [(tally.support.sum(axis=0).tolist(), tally.total) for tally in collection.tallies]


def compared(session: ServerSession, place: str, tokens: str, spool: Path) -> None:
    """Print the figure of an engine; totals are equal, and of reports with tokens every fold's."""
    expected, told = by_files(spool)
    found, manifest = tally_tables(session, PLAN, [place], KEY)
    assert manifest == told
    assert len(told.rejected) == 9, told.rejected
    pairs = [
        (mine, theirs)
        for a, b in zip(integers(found), integers(expected), strict=True)
        for mine, theirs in zip((*a[0], a[1]), (*b[0], b[1]), strict=True)
    ]
    equal = sum(mine == theirs for mine, theirs in pairs)
    ok = equal == len(pairs) and len({view.oracle for view in PLAN.views}) == 4
    print(
        f"figure {session.name}, reports of people: {equal} of {len(pairs)} integers as DuckDB's (all) "
        f"{'ok' if ok else 'short'}"
    )
    assert ok
    alone = spool.with_name("tokens.parquet")
    import duckdb

    duckdb.sql(f"COPY (FROM '{spool}' WHERE token IS NOT NULL) TO '{alone}'")
    expected, told = by_files(alone)
    found, manifest = tally_tables(session, PLAN, [tokens or str(alone)], KEY)
    assert manifest == told
    for mine, theirs in zip(found.tallies, expected.tallies, strict=True):
        assert np.array_equal(mine.support, theirs.support)
        assert np.array_equal(mine.reports, theirs.reports)


@pytest.mark.long
def test_postgresql_counts_reports_alike(loaded: Server, spool: Path) -> None:
    """From a table, and from a view of those with a token."""
    with closing(PostgresSession(loaded.dsn, 60)) as session:
        compared(session, f"{SCHEMA}.spool", f"{SCHEMA}.tokens", spool)
        with pytest.raises(SourceError, match="no column `report` of bytes"):
            tally_tables(session, PLAN, [f"{SCHEMA}.texts"], KEY)


def test_spark_counts_reports_alike(spark: Any, spool: Path) -> None:
    """From the same file."""
    with closing(SparkSession("", 600)) as session:
        compared(session, str(spool), "", spool)
