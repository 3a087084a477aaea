"""Cells of a messy star equal those of plain Python, however rows are stored and whatever units are called."""

from __future__ import annotations

import math
import random
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pytest

from dpsql.catalog import load_catalog
from dpsql.central.axes import axis_maker
from dpsql.central.bounding import OpenSource
from dpsql.central.placed_rows import prepare_tables
from dpsql.central.plan import plan_release
from dpsql.engines.counting import PRIME, coefficients
from dpsql.engines.registry import open_star
from dpsql.errors import CatalogError, OperationalError, SourceError
from dpsql.noise import ZeroNoise
from tests.releases import insert
from tests.strategies import declared_cells
from tests.thinned import by_default

pytestmark = pytest.mark.long

KEY = bytes(range(1, 33))
TAU = 4
CATALOG = """
dpsql: 1
name: messy
source: {kind: parquet, root: ., tables: {sales: SALES, PEOPLEshop: shop.parquet, kind: kind.parquet}}
privacy: {lineage: messy, cap: 9, unit: UNIT, epsilon: 1, delta: 0}
tables:
  person: {role: dimension, key: id, private: true}
  shop: {role: dimension, key: id, private: true, columns: {size: {type: int, lower: 0, upper: 4}}}
  kind: {role: dimension, key: id, private: false, columns: {name: {type: string}}}
  sales: {role: fact, foreign_keys: {FOREIGNshop: shop, kind: kind}, BOUND
    derive: {half: "100 / (quantity - 2)"},
    columns: {amount: {type: decimal, scale: 1, lower: -5, upper: 5, measure: true},
      quantity: {type: int, lower: 0, upper: 3}, half: {type: int, lower: 0, upper: 100, cuts: {width: 50}},
      sold_on: {type: date, lower: 2025-01-01, upper: 2025-04-30, cuts: {width: month}}}}
views:
  a: {of: sales, axes: [sales.quantity, shop.size], measures: [count, sales.amount]}
  b: {of: sales, axes: [sales.sold_on, {axis: kind, by: [name]}], measures: [count, sales.amount]}
  c: {of: sales, axes: [sales.half], measures: [count]}
"""
BOUNDS = {"row": "", "truncate": f"max_ids: {TAU},", "weight": f"max_ids: {TAU}, bounding: weight,"}
AMOUNTS = [None, math.nan, math.inf, -math.inf, -0.0, 1e300, 0.05, -0.05, 0.25, 4.99, -4.96, 2.0]
SHOPS = [(0, 3), (0, 1), (1, None), (2, 9), *((3, size) for size in (4, 2, 2, 3) * 13), (None, 0)]
IDS = {
    "INTEGER": [-3, 0, 1, 7, 2**31 - 1, -(2**31)],
    "BIGINT": [-(2**63), 2**63 - 1, 0, -1, PRIME, 5],
    "VARCHAR": ["a", "A", "a ", "Ω", "", "0"],
}


class Sale(NamedTuple):
    """A row of the fact table, as Python has it."""

    person: Any
    shop: int | None
    kind: int | None
    amount: float | None
    quantity: int | None
    sold_on: str | None


def sales_of(kind: str) -> list[Sale]:
    """Units with 1 to 30 rows, and rows of nobody."""
    rng, rows = random.Random(5), []
    days = [None, "2024-12-31", "2025-01-01", "2025-02-28", "2025-04-30", "2025-05-01", "infinity"]
    for person, n in zip([*IDS[kind], None], (1, 4, 5, 9, 30, 17, 6), strict=True):
        rows += [
            Sale(person, rng.choice([0, 1, 2, 3, 8, None]), rng.choice([0, 1, 2, 77, None]), rng.choice(AMOUNTS),
                 rng.choice([None, -1, 0, 1, 2, 3, 4]), rng.choice(days))
            for _ in range(n)
        ]  # fmt: skip
    return rows


def write(folder: Path, rows: list[Sale], kind: str, *, into: str = "sales.parquet") -> None:
    with duckdb.connect() as db:
        db.execute(f"CREATE TABLE sales (person {kind}, shop BIGINT, kind INTEGER, amount DOUBLE, quantity INTEGER, "
                   "sold_on DATE)")  # fmt: skip
        insert(db, "sales", rows)
        db.execute("CREATE TABLE shop (id BIGINT, size INTEGER)")
        insert(db, "shop", random.Random(len(into)).sample(SHOPS, len(SHOPS)))
        db.execute(
            "CREATE TABLE kind AS SELECT i AS id, chr((97 + i // 2)::INTEGER) AS name FROM range(3) t(i)"
        )
        db.execute(
            "CREATE TABLE person AS SELECT DISTINCT person AS id FROM sales WHERE hash(person) % 2 = 0"
        )
        for table in ("person", "shop", "kind"):
            db.execute(f"COPY {table} TO '{folder}/{table}.parquet' (FORMAT parquet)")
        options = "FORMAT parquet" if into.endswith(".parquet") else "FORMAT parquet, PARTITION_BY (quantity)"
        db.execute(f"COPY sales TO '{folder}/{into}' ({options})")


def counted(folder: Path, how: str, place: str = "sales.parquet") -> list[np.ndarray[Any, Any]]:
    """Cells of all statistics, by the statement that ships."""
    text = CATALOG.replace("SALES", place).replace("BOUND", BOUNDS[how])
    if place.startswith("by_"):
        text = text.replace("root: .,", f"root: ., hive: {{sales: [{place.removeprefix('by_')}]}},")
    if how == "row":
        text = text.replace("UNIT", "row").replace("FOREIGN", "")
        text = text.replace("  person: {role: dimension, key: id, private: true}\n", "")
        text = text.replace("PEOPLE", "")
    text = text.replace("UNIT", "person.id").replace("FOREIGN", "person: person, ")
    text = text.replace("PEOPLE", "person: person.parquet, ")
    (folder / "messy.yaml").write_text(text)
    catalog = load_catalog(folder / "messy.yaml")
    with closing(open_star(catalog)) as raw:
        plan = plan_release(catalog, axis_maker(catalog, raw))
        prepare_tables(catalog, raw, plan)
        cells = declared_cells(OpenSource(catalog, raw, plan, ZeroNoise(), KEY), "sales")
        return cells.of(*plan.statistics)


def digits(sale: Sale) -> tuple[int, int, int, int, int, int]:
    """Leaves (special ones last) and the clamped amount; -1 stands for the NULL that sorts last."""
    quantity = 4 if sale.quantity is None or not 0 <= sale.quantity <= 3 else sale.quantity
    sizes = [6 if size is None or not 0 <= size <= 4 else size for key, size in SHOPS if key == sale.shop]
    size = min(sizes) if sizes and sale.shop is not None else 5
    month = 4
    if sale.sold_on and "2025-01-01" <= sale.sold_on <= "2025-04-30":
        month = int(sale.sold_on[5:7]) - 1
    name = 2 if sale.kind is None or sale.kind > 2 else sale.kind // 2
    half = 2
    if sale.quantity is not None and sale.quantity != 2:
        value = math.floor(100 / (sale.quantity - 2) + 0.5)
        half = min(value // 50, 1) if 0 <= value <= 100 else 2
    amount = 10**9
    if sale.amount is not None and not math.isnan(sale.amount):
        amount = 50 if sale.amount >= 5 else -50 if sale.amount <= -5 else math.floor(sale.amount * 10 + 0.5)
    return quantity, size, month, name, half, amount


def offset(unit: int, n: int, c: tuple[int, ...] = coefficients(KEY)) -> int:
    """r of the method page."""
    quotient = abs(unit) // PRIME
    x, sign = unit % PRIME if unit >= 0 else (-(-unit % PRIME) + PRIME) % PRIME, unit < 0
    c0 = (c[0] + quotient % PRIME * c[4] % PRIME + (c[5] if sign else 0)) % PRIME
    h = (((c[3] * x + c[2]) % PRIME * x + c[1]) % PRIME * x + c0) % PRIME
    return h * n // PRIME


def expected(rows: list[Sale], how: str) -> list[Counter[tuple[int, ...]]]:
    """Counts, sums around the middle and so on of each view, by Python alone."""
    weighted: list[tuple[tuple[int, ...], int]] = []
    units: dict[Any, list[tuple[int, ...]]] = {}
    for i, sale in enumerate(rows):
        owner = i if how == "row" else sale.person
        if owner is not None:
            units.setdefault(owner, []).append(digits(sale))
    for unit, own in units.items():
        n = len(own)
        if how == "weight":
            weighted += [(row, (1 << 20) if n <= TAU else (TAU << 20) // n) for row in own]
        elif how == "row" or n <= TAU:
            weighted += [(row, 1) for row in own]
        else:
            r = offset(unit, n)
            weighted += [(row, 1) for i, row in enumerate(sorted(own), 1) if (i * TAU + r) % n < TAU]
    views: list[Counter[tuple[int, ...]]] = [Counter() for _ in range(5)]
    for (quantity, size, month, name, half, amount), w in weighted:
        value = 0 if amount == 10**9 else amount
        for view, cell, times in zip(views, ((quantity, size), (quantity, size), (month, name), (month, name), (half,)),
                                     (1, value, 1, value, 1), strict=True):  # fmt: skip
            view[cell] += w * times
    return views


def agree(found: list[np.ndarray[Any, Any]], wanted: list[Counter[tuple[int, ...]]]) -> bool:
    kept = [cells for cells in found if cells.ndim < 3]
    pairs = [{c: int(v) for c, v in np.ndenumerate(cells) if v} for cells in kept]
    return all(any(pair == {c: v for c, v in view.items() if v} for pair in pairs) for view in wanted)


@pytest.mark.parametrize("how", BOUNDS)
@pytest.mark.parametrize("kind", ["INTEGER", "BIGINT"])
def test_cells_equal_plain_python(tmp_path: Path, kind: str, how: str) -> None:
    rows = sales_of(kind)
    write(tmp_path, rows, kind)
    assert agree(counted(tmp_path, how), expected(rows, how))


@pytest.mark.parametrize("how", by_default(BOUNDS, 1))
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind == "BIGINT" else pytest.mark.slow) for kind in IDS]
)
def test_storage_changes_no_cell(tmp_path: Path, kind: str, how: str) -> None:
    """Shuffled rows, many files, and folders by value, whose column is text then."""
    rows = sales_of(kind)
    write(tmp_path, rows, kind)
    whole = counted(tmp_path, how)
    random.Random(2).shuffle(rows)
    write(tmp_path, rows, kind, into="shuffled.parquet")
    assert all(map(np.array_equal, counted(tmp_path, how, "shuffled.parquet"), whole))
    (tmp_path / "parts").mkdir()
    for i in range(3):
        write(tmp_path, rows[i::3], kind, into=f"parts/{i}.parquet")
    (tmp_path / "parts" / "_temporary").mkdir()
    write(tmp_path, rows, kind, into="parts/_temporary/9.parquet")
    assert all(map(np.array_equal, counted(tmp_path, how, "parts/*.parquet"), whole))
    assert all(map(np.array_equal, counted(tmp_path, how, "parts"), whole))
    write(tmp_path, rows, kind, into="by_quantity")
    assert all(map(np.array_equal, counted(tmp_path, how, "by_quantity"), whole))


def test_a_place_without_files_is_refused(tmp_path: Path) -> None:
    write(tmp_path, sales_of("INTEGER"), "INTEGER")
    (tmp_path / "empty").mkdir()
    for place in ("empty", "none/*.parquet", "missing.parquet"):
        with pytest.raises((SourceError, CatalogError), match="there is no file"):
            counted(tmp_path, "row", place)


def test_a_place_without_files_is_named_as_the_catalog_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, sales_of("INTEGER"), "INTEGER")
    (tmp_path / "hidden").mkdir()
    monkeypatch.setenv("PLACE", "hidden")
    for place in ("${PLACE}", "${PLACE}/*.parquet"):
        with pytest.raises((SourceError, CatalogError), match="there is no file") as refusal:
            counted(tmp_path, "row", f'"{place}"')
        assert place in str(refusal.value) and "hidden" not in str(refusal.value)


def test_a_memory_limit_is_kept_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, sales_of("INTEGER"), "INTEGER")
    monkeypatch.setenv("DPSQL_MEMORY", "200MiB")
    whole = counted(tmp_path, "truncate")
    monkeypatch.setenv("DPSQL_MEMORY", "much")
    with pytest.raises(OperationalError, match="DPSQL_MEMORY"):
        counted(tmp_path, "truncate")
    assert sum(cells.sum() for cells in whole if cells.ndim == 1) == 1 + 4 * 5
