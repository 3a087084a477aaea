"""No raw value reaches a release, a ledger or what lies beside them: canaries of every raw column, planted leaks."""

from __future__ import annotations

import random
import shutil
import string
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pytest

from dpsql.catalog import load_catalog
from dpsql.central.central import publish_release
from dpsql.curator.prove.layouts import RawRows
from dpsql.noise import ExactNoise, os_entropy
from tests.releases import write_catalog
from tests.thinned import by_default

CATALOG = """
privacy: {lineage: people, cap: 9, unit: customer.customer_id, epsilon: 1.0, DELTA}
tables:
  customer: {role: dimension, key: customer_id, private: true, columns: {
    age: {type: int, lower: 18, upper: 89}, region: {type: string, categories: [north, south], nullable: true}}}
  sales: {role: fact, foreign_keys: {customer_id: customer}, max_ids: TAU, columns: {
    amount: {type: decimal, scale: 2, lower: 0, upper: 500, measure: true},
    sold_on: {type: date, lower: 2025-01-01, upper: 2025-03-31}}}
views:
  who: {of: sales, axes: [customer.age, customer.region], measures: [count, sales.amount]}
  when: {of: sales, axes: [sales.sold_on], measures: [count], DATA}
"""
ROWS = 300


@dataclass(frozen=True)
class Canaries:
    """Raw values that no chance puts into a file: 20 letters, or integers above 10^14."""

    texts: frozenset[str]
    numbers: frozenset[int]


def plant(draw: random.Random) -> tuple[dict[str, RawRows], Canaries]:
    """A star in which every column holds canaries, beside values that count."""
    texts, numbers = set(), set()

    def text() -> str:
        made = "".join(draw.choices(string.ascii_lowercase, k=20))
        texts.add(made)
        return made

    def number() -> int:
        made = draw.randrange(10**14, 9 * 10**17)
        numbers.add(made)
        return made

    def some(ordinary: object, canary: Callable[[], object]) -> object:
        return ordinary if draw.random() < 0.7 else canary()

    people = [number() for _ in range(60)]
    customers = [
        (key, some(draw.randrange(18, 90), number), some(draw.choice(["north", "south", None]), text), text())
        for key in people
    ]
    sales = [
        (some(draw.choice(people), number), str(some(draw.randrange(500), number)), text(),
         some(f"2025-02-{draw.randrange(1, 28):02d}", text), number())
        for _ in range(ROWS)
    ]  # fmt: skip
    tables = {
        "customer": RawRows("customer_id BIGINT, age BIGINT, region VARCHAR, email VARCHAR", customers),
        "sales": RawRows(
            "customer_id BIGINT, amount VARCHAR, note VARCHAR, sold_on VARCHAR, card BIGINT", sales
        ),
    }
    return tables, Canaries(frozenset(texts), frozenset(numbers))


def leaks(path: Path, canaries: Canaries) -> set[str]:
    """Canaries that a full SELECT of every table or a scan of all bytes finds."""
    words = [*canaries.texts, *(str(number) for number in canaries.numbers)]
    with duckdb.connect(str(path), read_only=True) as release:
        tables = release.execute("SELECT schema_name, table_name FROM duckdb_tables()").fetchall()
        cells = {
            str(value)
            for schema, table in tables
            for row in release.execute(f'SELECT * FROM "{schema}"."{table}"').fetchall()
            for value in row
        }
    long = " ".join(cell for cell in cells if len(cell) >= 14)
    found = {word for word in words if word in long}
    return found | in_bytes(path.read_bytes(), canaries)


def in_bytes(data: bytes, canaries: Canaries) -> set[str]:
    """Canaries that occur as text or as a number; one pass looks for their first eight bytes at every offset."""
    patterns = {str(value).encode(): str(value) for value in (*canaries.texts, *canaries.numbers)}
    for number in canaries.numbers:
        patterns |= {struct.pack(order, number): str(number) for order in ("<q", ">q")}
    heads = np.array([int.from_bytes(pattern[:8], "little") for pattern in patterns], np.uint64)
    windows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(data, np.uint8), 8)
    seen: set[int] = set()
    for begin in range(0, len(windows), 1 << 20):
        here = np.ascontiguousarray(windows[begin : begin + (1 << 20)]).view(np.uint64).ravel()
        seen.update(np.intersect1d(here, heads).tolist())
    likely = (pattern for pattern in patterns if int.from_bytes(pattern[:8], "little") in seen)
    return {patterns[pattern] for pattern in likely if pattern in data}


VARIANTS = {
    "pure": ("delta: 0", "3", "share: 0.5"),
    "zCDP": ("delta: 1e-6", "3", "share: 0.5"),
    "rows per unit chosen": ("delta: 1e-6", "auto", "share: 0.5"),
    "data-dependent": ("delta: 0", "3", "mechanism: diffhr"),
}


def published(folder: Path, variant: str) -> tuple[Path, Canaries]:
    tables, canaries = plant(random.Random(variant))
    delta, tau, data = VARIANTS[variant]
    catalog = load_catalog(write_catalog(folder, CATALOG, tables, DELTA=delta, TAU=tau, DATA=data))
    noise = ExactNoise(os_entropy())
    return publish_release(catalog, folder / "r.dpsql", noise=noise, key=b"k" * 32).path, canaries


@pytest.mark.parametrize("variant", by_default(VARIANTS, 2))
def test_no_canary_is_in_a_release(tmp_path: Path, variant: str):
    path, canaries = published(tmp_path, variant)
    assert len(canaries.texts) > 300
    assert len(canaries.numbers) > 300
    assert leaks(path, canaries) == set()
    files = {file.name: file for file in tmp_path.rglob("*") if file.is_file()}
    assert {"r.dpsql", "ledger"} <= files.keys()
    seen = {name: in_bytes(file.read_bytes(), canaries) for name, file in files.items()}
    assert [name for name in seen if seen[name]] == [name for name in files if name.endswith(".parquet")]


LEAKS = {
    "a text in meta": "INSERT INTO meta VALUES ('note', '\"{text}\"')",
    "a text inside a longer one": "UPDATE meta SET value = value || ' {text}' WHERE key = 'format'",
    "a name as a column": "ALTER TABLE axis_0 ADD COLUMN email VARCHAR; UPDATE axis_0 SET email = '{text}'",
    "a number among noisy ones": "UPDATE measurement_0 SET value = {number} WHERE r1 = 1 AND r2 = 1",
    "a table of its own": "CREATE TABLE raw AS SELECT {number} AS card FROM range(3)",
    "a dropped table": "PRAGMA force_compression = 'uncompressed'; CREATE TABLE raw AS SELECT '{text}' || i AS note "
    "FROM range(4000) t(i); CHECKPOINT; CREATE TABLE kept AS SELECT i FROM range(60000) t(i); CHECKPOINT; "
    "DROP TABLE raw",
}


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Canaries]:
    return published(tmp_path_factory.mktemp("canaries"), "pure")


@pytest.mark.parametrize("leak", LEAKS)
def test_a_planted_leak_is_found(clean: tuple[Path, Canaries], tmp_path: Path, leak: str):
    path, canaries = clean
    copy = tmp_path / "copy.dpsql"
    shutil.copyfile(path, copy)
    planted = {"text": min(canaries.texts), "number": min(canaries.numbers)}
    with duckdb.connect(str(copy)) as release:
        release.execute(LEAKS[leak].format(**planted))
    assert leaks(copy, canaries) <= {str(value) for value in planted.values()}
    assert leaks(copy, canaries) != set()
