"""Data frames are sources like files: the same release, refusals by name, and rows that the ledger knows again."""

from __future__ import annotations

import datetime
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dpsql
from dpsql.catalog import Catalog, load_catalog, parse_catalog
from dpsql.central.central import publish_release
from dpsql.engines.frames import Frames, framed, written_frames
from dpsql.errors import CatalogError, InterfaceError, LineageError
from dpsql.noise import ZeroNoise
from tests.thinned import by_default

CATALOG = """
dpsql: 1
name: shop
source: {kind: parquet, root: ROOT, tables: {sales: sales.parquet, person: person.parquet, product: product.parquet}}
ledger: LEDGER
privacy: {lineage: shop, cap: 90, unit: person.id, epsilon: 1}
tables:
  product: {role: dimension, key: code, private: false}
  person: {role: dimension, key: id, private: true, columns: {
    age: {type: int, lower: 0, upper: 9, nullable: true},
    region: {type: string, categories: [north, south], nullable: true},
    member: {type: bool, nullable: true}}}
  sales: {role: fact, foreign_keys: {id: person, code: product}, max_ids: 3, columns: {
    amount: {type: decimal, scale: 2, lower: -5, upper: 5, cuts: {width: 1}, measure: true, nullable: true},
    paid_on: {type: date, lower: 1969-12-01, upper: 1970-02-28, nullable: true},
    at: {type: timestamp, grain: hour, lower: 1969-12-30, upper: 1970-01-02, nullable: true},
    big: {type: int, lower: 0, upper: 5, nullable: true}}}
views:
  people: {of: person, axes: [person.age, person.region, person.member]}
  sold: {of: sales, axes: [sales.amount, {axis: product, by: [kind]}], measures: [count, sales.amount]}
  days: {of: sales, axes: [sales.paid_on, sales.big]}
  hours: {of: sales, axes: [sales.at]}
"""
KEY = bytes(32)


def shop() -> dict[str, pd.DataFrame]:
    """Tables with what frames are known for: NaN among whole numbers, instants before 1970, categoricals, objects."""
    n = 240
    numbers = np.arange(n)
    instants = pd.Timestamp("1970-01-01", tz="UTC") + pd.to_timedelta(
        (numbers - 120) * 1_234_567_891, unit="us"
    )
    instants = instants.where(numbers % 11 > 0).tz_convert("Europe/Berlin")
    days = [
        None if i % 9 == 0 else datetime.date(1970, 1, 1) + datetime.timedelta(i % 80 - 30) for i in range(n)
    ]
    person = pd.DataFrame({
        "id": np.arange(60), "age": np.where(np.arange(60) % 7 == 0, np.nan, np.arange(60) % 10),
        "region": pd.Categorical(["north", "south", None, "north"] * 15),
        "member": pd.array([True, False, None] * 20, dtype="boolean"),
    })  # fmt: skip
    sales = pd.DataFrame({
        "id": np.where(numbers % 13 == 0, np.nan, numbers % 60),
        "code": pd.array([f"c{i % 4}" for i in range(n)], dtype="string"),
        "amount": np.where(numbers % 5 == 0, np.nan, (numbers % 900 - 100) / 20), "paid_on": days, "at": instants,
        "big": pd.array([None if i % 3 == 0 else i % 6 for i in range(n)], dtype="Int64"),
    })  # fmt: skip
    product = pd.DataFrame({"code": [f"c{i}" for i in range(4)], "kind": ["a", "b", "a", None]})
    return {"sales": sales, "person": person, "product": product}


def arrow(frame: pd.DataFrame) -> pa.Table:
    return pa.Table.from_pandas(frame, preserve_index=False)


KINDS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "pandas": lambda frame: frame,
    "polars": lambda frame: pl.from_arrow(arrow(frame)),
    "Arrow": arrow,
    "relation": lambda frame: duckdb.connect().from_arrow(arrow(frame)),
}


def catalog_in(folder: Path) -> Catalog:
    text = CATALOG.replace("ROOT", str(folder)).replace("LEDGER", str(folder / "ledger.duckdb"))
    return parse_catalog(text, file=folder / "shop.yaml")


def published(catalog: Catalog, file: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Every table of a release without noise, but `meta`."""
    publish_release(catalog, file, noise=ZeroNoise(), key=KEY)
    with duckdb.connect(str(file), read_only=True) as release:
        names = [
            row[0] for row in release.execute("SELECT table_name FROM duckdb_tables() ORDER BY 1").fetchall()
        ]
        return {
            name: sorted(release.execute(f'FROM "{name}"').fetchall(), key=repr)
            for name in names
            if name != "meta"
        }


@pytest.fixture(scope="module")
def from_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[Any, ...]]]:
    """The release of the same rows as Parquet files."""
    folder = tmp_path_factory.mktemp("files")
    for name, frame in shop().items():
        frame.to_parquet(folder / f"{name}.parquet", index=False)
    return published(catalog_in(folder), folder / "files.dpsql")


@pytest.mark.usefixtures("publishes")
@pytest.mark.parametrize("kind", by_default(KINDS, 1))
def test_frames_equal_files_release_for_release(
    kind: str, from_files: dict[str, list[tuple[Any, ...]]], tmp_path: Path
) -> None:
    frames = {name: KINDS[kind](frame) for name, frame in shop().items()}
    with framed(catalog_in(tmp_path), frames) as catalog:
        release = published(catalog, tmp_path / "frames.dpsql")
    assert release.keys() == from_files.keys()
    for name, rows in release.items():
        assert rows == from_files[name], name
    assert sum(map(len, release.values())) > 100


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a named index": (lambda: pd.DataFrame({"a": [1]}, index=pd.Index([7], name="who")), "index `who` is not a column"),
    "an index of texts": (lambda: pd.DataFrame({"a": [1]}, index=["x"]), "its index is not a column"),
    "mixed types": (lambda: pd.DataFrame({"a": [1, "x"]}, dtype=object), "`a` contains values of several types"),
    "mixed zones": (
        lambda: pd.DataFrame({"a": [pd.Timestamp(1, tz=zone) for zone in ("UTC", "Asia/Tokyo")]}, dtype=object),
        "`a` contains times of several zones",
    ),
    "objects of another class": (lambda: pd.DataFrame({"a": [object()]}), "`a` contains objects of the class object"),
    "durations": (lambda: pd.DataFrame({"a": pd.to_timedelta([1])}), "`a` has the type timedelta64"),
    "periods": (lambda: pd.DataFrame({"a": pd.period_range("2025", periods=1, freq="D")}), "`a` has the type period"),
    "capitals": (lambda: pd.DataFrame({"a": [1], "A": [2]}), "two columns are called `a`"),
    "numbers as names": (lambda: pd.DataFrame({0: [1]}), "the name of a column is not text"),
    "Python objects": (lambda: pl.DataFrame({"a": pl.Series([object()], dtype=pl.Object)}),
        "`a` contains Python objects"),
    "a list": (lambda: [1, 2], "list is not a table"),
}  # fmt: skip


@pytest.mark.parametrize("why", REFUSED)
def test_what_has_no_one_type_is_refused_by_name(why: str) -> None:
    make, message = REFUSED[why]
    with pytest.raises(InterfaceError) as refused, written_frames({"sales": make()}):
        pass
    assert message in str(refused.value) and "tables['sales']" in str(refused.value)


def test_objects_of_one_kind_keep_their_values() -> None:
    frame = pd.DataFrame({
        "day": pd.Series([datetime.date(2025, 1, 2), None], dtype=object),
        "sum": pd.Series([Decimal("1.50"), None], dtype=object),
        "whole": pd.Series([3, None], dtype=object), "long": pd.Series([1 << 70, None], dtype=object),
        "truth": pd.Series([True, None], dtype=object), "who": pd.Series([UUID(int=7), None], dtype=object),
        "empty": pd.Series([None, None], dtype=object),
    })  # fmt: skip
    with written_frames({"t": frame[frame["day"].notna() | True]}) as source:
        rows = duckdb.sql(f"FROM '{source.root}/t.parquet'")
        kinds = dict(zip(rows.columns, map(str, rows.types), strict=True))
        assert kinds == {
            "day": "DATE",
            "sum": "VARCHAR",
            "whole": "BIGINT",
            "long": "VARCHAR",
            "truth": "BOOLEAN",
            "who": "UUID",
            "empty": "VARCHAR",
        }
        assert rows.fetchall() == [
            (datetime.date(2025, 1, 2), "1.50", 3, str(1 << 70), True, UUID(int=7), None),
            (None,) * 7,
        ]
    assert not Path(source.root).exists()


def test_every_table_is_given_and_no_other(tmp_path: Path) -> None:
    frames: Frames = {name: frame for name, frame in shop().items() if name != "product"}
    with pytest.raises(InterfaceError, match="`product` is missing"), framed(catalog_in(tmp_path), frames):
        pass
    with (
        pytest.raises(InterfaceError, match="no table prodct"),
        framed(catalog_in(tmp_path), {**frames, "prodct": 1}),
    ):
        pass


@pytest.mark.usefixtures("publishes")
def test_a_catalog_of_frames_is_confirmed_published_and_known_again(tmp_path: Path) -> None:
    frames = {"sales": shop()["sales"], "person": shop()["person"]}
    drafted = dpsql.Catalog.from_frames(frames, unit="person.id", epsilon="1", cap="4")
    assert {mark.group for mark in drafted.marks} == {"sales", "person"}
    ledger = tmp_path / "ledger.duckdb"
    with pytest.raises(CatalogError, match="not confirmed"):
        dpsql.publish(drafted, tmp_path / "r.dpsql", tables=frames, ledger=ledger)
    with pytest.raises(InterfaceError, match="the person who confirms is not named"):
        drafted.confirm(by=" ")
    catalog = drafted.confirm(by="ada", rounder=True, tables=["sales"]).confirm(by="bob")
    assert catalog.marks == ()
    assert dpsql.publish(catalog, tmp_path / "r.dpsql", tables=frames, ledger=ledger).receipt.drawn
    assert dpsql.query("SELECT COUNT(*) FROM person", release=tmp_path / "r.dpsql").scalar() is not None
    file = catalog.write(tmp_path / "shop.yaml")
    assert load_catalog(file).tables == catalog.tables
    assert (tmp_path / "shop.confirmed.jsonl").read_text().count("\n") == 2
    other = catalog.model_copy(update={"privacy": catalog.privacy.model_copy(update={"lineage": "others"})})
    shuffled = {name: frame.sample(frac=1, random_state=3) for name, frame in frames.items()}
    with pytest.raises(LineageError, match="has the same rows"):
        dpsql.publish(other, tmp_path / "s.dpsql", tables=shuffled, ledger=ledger)


def test_a_promise_is_not_confirmed_in_passing() -> None:
    frames = {"person": shop()["person"]}
    drafted = dpsql.Catalog.from_frames(frames, unit="row")
    assert [mark.group for mark in drafted.confirm(by="ada").marks] == ["privacy"]
    assert drafted.confirm(by="ada", tables=["person", "privacy"]).marks == ()


@pytest.mark.long
def test_no_library_of_frames_is_imported_before_a_frame_is_wanted() -> None:
    program = "import sys, dpsql; dpsql.query, dpsql.publish; print({'pandas', 'polars', 'pyarrow'} & set(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "set()"
