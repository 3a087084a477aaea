"""Parquet files whose statistics are untrue: bounds hold for the rows, whatever the file says of itself."""

from __future__ import annotations

import struct
from pathlib import Path

import duckdb
import pytest

from dpsql.catalog import load_catalog
from dpsql.central.central import publish_release
from dpsql.engines.duck import private_connection
from dpsql.executor.engine import ReleaseEngine
from dpsql.noise import ZeroNoise
from dpsql.release import open_release

CATALOG = """
dpsql: 1
name: shop
ledger: LEDGER
source: {kind: parquet, root: ROOT, tables: {sales: sales.parquet}}
privacy: {lineage: people, cap: 9, unit: row, epsilon: 1.0}
tables:
  sales: {role: fact, columns: {day: {type: int, lower: 0, upper: 9},
    amount: {type: decimal, scale: 2, lower: 0, upper: 9, measure: true}}}
views:
  days: {of: sales, axes: [sales.day], measures: [count, sales.amount]}
"""
HONEST = "i % 5 AS day, 1 + i % 5 AS amount"
UNTRUE = {
    "of both": "i * 1000 AS day, i * 1000 AS amount",
    "of the amount": "i % 5 AS day, i * 1000 AS amount",
}


def written(path: Path, columns: str) -> bytes:
    """A file of plain numbers, so that files of as many rows have their parts at the same places."""
    kinds = "CAST(day AS BIGINT) AS day, CAST(amount AS DECIMAL(18, 2)) AS amount"
    with duckdb.connect() as raw:
        raw.execute(
            f"COPY (SELECT {kinds} FROM (SELECT {columns} FROM range(100) t(i))) TO '{path}' "
            "(FORMAT parquet, COMPRESSION uncompressed, DICTIONARY_SIZE_LIMIT 1)"
        )
    return path.read_bytes()


@pytest.fixture(params=UNTRUE)
def lying(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Rows up to 99,000 under a footer which says that none is above 5."""
    rows, said = (
        written(tmp_path / "rows.parquet", UNTRUE[request.param]),
        written(tmp_path / "said.parquet", HONEST),
    )
    (length,) = struct.unpack("<I", said[-8:-4])
    assert len(rows) == len(said)
    footer = len(said) - 8 - length
    (tmp_path / "sales.parquet").write_bytes(rows[:footer] + said[footer:])
    return tmp_path


def test_duckdb_itself_believes_the_file(lying: Path) -> None:
    """Why the raw side must not."""
    clip = f"SELECT sum(CASE WHEN amount > 9 THEN 9 ELSE amount END) FROM '{lying}/sales.parquet'"
    with duckdb.connect() as raw:
        assert raw.execute(clip).fetchone() == (4_950_000,)
    raw, spill = private_connection()
    assert raw.execute(clip).fetchone() == (99 * 9,)
    raw.close()
    spill.cleanup()


@pytest.mark.parametrize("privacy", ["unit: row, epsilon: 1.0", "unit: row, epsilon: 1.0, delta: 1e-6"])
def test_no_row_adds_more_than_its_bound(lying: Path, privacy: str) -> None:
    text = CATALOG.replace("ROOT", str(lying)).replace("LEDGER", f"{lying}/ledger")
    (lying / "shop.yaml").write_text(text.replace("unit: row, epsilon: 1.0", privacy))
    catalog = load_catalog(lying / "shop.yaml")
    path = publish_release(catalog, lying / "r.dpsql", noise=ZeroNoise(), key=bytes(32)).path
    found = (
        ReleaseEngine(open_release(path, insecure=True)).query("SELECT COUNT(*), SUM(amount) FROM sales").rows
    )
    assert found[0] == (100, 99 * 9)
