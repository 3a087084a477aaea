"""Delta and Iceberg tables are sources like files: one pinned snapshot, the same cells, no word of a log believed."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
import pytest
import sqlalchemy
from deltalake import DeltaTable, write_deltalake

from dpsql.catalog import Catalog, parse_catalog
from dpsql.central.central import publish_release
from dpsql.engines import open_tables
from dpsql.errors import LineageError, SourceError
from dpsql.noise import ZeroNoise
from dpsql.release import open_release
from tests.engines.test_frames import CATALOG, KEY, arrow, catalog_in, published, shop

PARTITIONS = {"sales": ["paid_on"], "person": ["region", "age"], "product": None}


def tables() -> dict[str, pa.Table]:
    decoded = {name: arrow(frame) for name, frame in shop().items()}
    region = decoded["person"].column("region").cast(pa.string())
    decoded["person"] = decoded["person"].set_column(2, "region", region)
    return decoded


def delta_lake(folder: Path) -> dict[str, str]:
    """Tables of three commits each, the pinned one in the middle, with files that were rewritten by a deletion."""
    pins = {}
    for name, rows in tables().items():
        place = folder / name
        write_deltalake(place, rows.slice(0, 40), partition_by=PARTITIONS[name])
        write_deltalake(place, rows.slice(40), mode="append", partition_by=PARTITIONS[name])
        pins[name] = f"{name}@{DeltaTable(place).version()}"
        DeltaTable(place).delete()
    return pins


def iceberg_lake(folder: Path) -> dict[str, str]:
    from pyiceberg.catalog.sql import SqlCatalog

    catalog, pins = SqlCatalog("lake", uri=f"sqlite:///{folder}/lake.db", warehouse=f"file://{folder}"), {}
    catalog.create_namespace("shop")
    for name, rows in tables().items():
        micro = [
            f.with_type(pa.timestamp("us", "UTC")) if pa.types.is_timestamp(f.type) else f
            for f in rows.schema
        ]
        rows = rows.cast(pa.schema(micro), safe=False)
        table = catalog.create_table(f"shop.{name}", schema=rows.schema)
        table.append(rows.slice(0, 40))
        if len(rows) > 40:
            table.append(rows.slice(40))
        pins[name] = f"shop/{name}@{table.current_snapshot().snapshot_id}"  # type: ignore[union-attr]
        table.delete()
    return pins


needs_sql = pytest.mark.skipif(sqlalchemy.__version__ < "2", reason="pyiceberg writes by SQLAlchemy 2 alone")
LAKES: dict[str, Callable[[Path], dict[str, str]]] = {"delta": delta_lake, "iceberg": iceberg_lake}


def lake_catalog(kind: str, folder: Path, pins: dict[str, str], **changes: str) -> Catalog:
    text = CATALOG.replace("LEDGER", str(folder / "ledger.duckdb"))
    written = text[text.index("source:") : text.index("ledger:")]
    source = {"kind": kind, "root": str(folder), "tables": pins}
    text = text.replace(written, f"source: {json.dumps(source)}\n")
    for before, after in changes.items():
        text = text.replace(f"{before}: shop", f"{before}: {after}")
    return parse_catalog(text, file=folder / "shop.yaml")


def exact_rows(catalog: Catalog, table: str) -> list[tuple[Any, ...]]:
    with closing(open_tables(catalog)) as raw:
        return sorted(raw.connection.execute(f"FROM raw.{table}").fetchall(), key=repr)


@pytest.fixture(scope="module", params=["delta", pytest.param("iceberg", marks=needs_sql)])
def lake(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path, dict[str, str]]:
    folder = tmp_path_factory.mktemp(request.param)
    return request.param, folder, LAKES[request.param](folder)


@pytest.mark.usefixtures("publishes")
def test_a_pinned_snapshot_is_the_release_of_its_rows(
    lake: tuple[str, Path, dict[str, str]], tmp_path: Path
) -> None:
    kind, folder, pins = lake
    for name, rows in tables().items():
        pa.parquet.write_table(rows, tmp_path / f"{name}.parquet")
    expected = published(catalog_in(tmp_path), tmp_path / "files.dpsql")
    release = published(lake_catalog(kind, folder, pins), folder / "lake.dpsql")
    assert release.keys() == expected.keys()
    assert [name for name in release if release[name] != expected[name]] == []
    assert sum(map(len, release.values())) > 100
    with closing(open_release(folder / "lake.dpsql", insecure=True)) as opened:
        pin = pins["sales"].rpartition("@")[2]
        assert f"{kind} snapshot {pin};" in (opened.meta.privacy.values or {})["sales"]


@pytest.mark.usefixtures("publishes")
def test_a_lake_has_one_lineage_whatever_the_snapshot(
    lake: tuple[str, Path, dict[str, str]], tmp_path: Path
) -> None:
    kind, folder, pins = lake
    ledger = {"ledger": str(tmp_path / "ledger.duckdb")}
    catalog = lake_catalog(kind, folder, pins).model_copy(update=ledger)
    publish_release(catalog, tmp_path / "first.dpsql", noise=ZeroNoise(), key=KEY)
    earlier = {"sales": "sales@0", "person": "person@0", "product": "product@0"} if kind == "delta" else pins
    others = lake_catalog(kind, folder, earlier, lineage="others").model_copy(update=ledger)
    with pytest.raises(LineageError):
        publish_release(others, tmp_path / "second.dpsql", noise=ZeroNoise(), key=KEY)


def test_what_a_log_claims_of_values_is_not_believed(tmp_path: Path) -> None:
    pins = delta_lake(tmp_path)
    catalog = lake_catalog("delta", tmp_path, pins)
    truth = exact_rows(catalog, "sales")
    assert len({row[0] for row in truth}) > 50
    for log in (tmp_path / "sales" / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        for action in actions:
            if "add" in action:
                stats = json.loads(action["add"]["stats"])
                stats["nullCount"] = dict.fromkeys(stats["nullCount"], stats["numRecords"])
                action["add"]["stats"] = json.dumps(stats)
        log.write_text("\n".join(map(json.dumps, actions)) + "\n")
    version = int(pins["sales"].rpartition("@")[2])
    # the canary: the library's own table takes the log's word, and all values are gone
    believed = DeltaTable(tmp_path / "sales", version=version).to_pyarrow_table()
    assert believed.column("amount").null_count == len(believed) == len(truth)
    assert exact_rows(catalog, "sales") == truth


REFUSED = {
    "sales": "no snapshot is pinned", "sales@": "no snapshot is pinned", "sales@newest": "no snapshot is pinned",
    "@1": "no snapshot is pinned", "sales@77": "snapshot sales@77 cannot be read",
    "nowhere@0": "snapshot nowhere@0 cannot be read",
    "sales@99999999999999999999": "no snapshot is pinned",
}  # fmt: skip


@pytest.mark.parametrize("place", REFUSED)
@pytest.mark.parametrize("kind", LAKES)
def test_what_is_no_snapshot_is_one_sentence(kind: str, place: str, tmp_path: Path) -> None:
    write_deltalake(tmp_path / "sales", tables()["sales"])
    (tmp_path / "sales" / "metadata").mkdir()
    with pytest.raises(SourceError) as refused:
        open_tables(lake_catalog(kind, tmp_path, {"sales": place, "person": "-", "product": "-"}), ["sales"])
    assert REFUSED[place] in str(refused.value) and "source.tables.sales" in str(refused.value)


def test_what_a_variable_stands_for_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", "hunter-2@5")
    with pytest.raises(SourceError) as refused:
        open_tables(
            lake_catalog("delta", tmp_path, {"sales": "${PLACE}", "person": "-", "product": "-"}), ["sales"]
        )
    assert "hunter" not in str(refused.value) and "${PLACE}" in str(refused.value)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["delta", pytest.param("iceberg", marks=[needs_sql, pytest.mark.slow])])
def test_nobody_else_moves_when_one_person_goes(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who was alone in a partition, and who owned a file's least and largest values, included."""
    whole, gone = tables(), tables()
    for name, key in (("sales", "id"), ("person", "id")):
        gone[name] = gone[name].filter(pc.fill_null(pc.not_equal(gone[name].column(key), 7), True))
        assert len(gone[name]) < len(whole[name])
    rows = {}
    for side, content in (("whole", whole), ("gone", gone)):
        (tmp_path / side).mkdir()
        monkeypatch.setattr(f"{__name__}.tables", lambda content=content: content)
        catalog = lake_catalog(kind, tmp_path / side, LAKES[kind](tmp_path / side))
        rows[side] = {name: exact_rows(catalog, name) for name in ("sales", "person")}
    for name, others in rows["gone"].items():
        assert others == [row for row in rows["whole"][name] if row[0] != 7]


def test_a_snapshot_whose_files_are_gone_is_one_sentence(lake: tuple[str, Path, dict[str, str]]) -> None:
    kind, folder, pins = lake
    hidden = [
        (file, file.with_suffix(".gone")) for file in folder.rglob("*.parquet") if "product" in str(file)
    ]
    assert hidden
    for file, away in hidden:
        file.rename(away)
    try:
        with pytest.raises(
            SourceError, match=r"source.tables.product: snapshot .*product@.* cannot be read"
        ) as refused:
            open_tables(lake_catalog(kind, folder, pins), ["product"])
        assert "c0" not in str(refused.value)
    finally:
        for file, away in hidden:
            away.rename(file)


def test_rows_of_a_lake_leave_no_file(
    lake: tuple[str, Path, dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, folder, pins = lake
    monkeypatch.setenv("DPSQL_TMPDIR", str(tmp_path))
    raw = open_tables(lake_catalog(kind, folder, pins))
    assert [file.stat().st_mode & 0o077 for file in tmp_path.iterdir()] == [0] * len(list(tmp_path.iterdir()))
    assert list(tmp_path.rglob("*.parquet"))
    raw.close()
    assert not list(tmp_path.iterdir())
    with pytest.raises(SourceError):
        open_tables(lake_catalog(kind, folder, {**pins, "sales": "sales@77"}))
    assert not list(tmp_path.iterdir())
