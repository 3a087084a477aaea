"""Where features meet: every pair is published with an exact loss of at most its claim, or refused by name when loaded.

One catalog for each pair of entries, with a person who comes and moves as much as she can. What a pair leaves open is
`DEFAULT`, or what one of its entries needs (`NEEDS`).
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping
from itertools import combinations, product
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
import pytest

from dpsql.catalog import load_catalog
from dpsql.curator.prove.layouts import RawRows, write_tables
from dpsql.curator.prove.madeup import LATER, NeighbourSide, measure_pair
from dpsql.errors import CatalogError
from dpsql.streams.publish import Arrival
from tests.central.test_hybrid import store
from tests.engines.servers import postgres_or_skip
from tests.privacy.loss import Loss

CATALOG = """
dpsql: 1
name: meeting
ledger: LEDGER
source: SOURCE
privacy: {lineage: meeting, cap: 99, unit: UNIT, epsilon: 1, delta: DELTA}
tables:
  person: {role: dimension, key: id, private: true, columns: {
    id: {type: int}, age: {type: int, lower: 0, upper: 7REPORTED}}SUMMARIES}
  product: {role: dimension, key: code, private: false, columns: {kind: {type: string, categories: [toys, food]}}}
  sales: {role: fact, foreign_keys: {link: person, code: product},BOUNDS columns: {
    day: {type: date, lower: 2025-01-01, upper: 2025-01-04}, size: {type: int, lower: 0, upper: 7}LABEL,
    amount: {type: int, lower: -3, upper: 9, measure: true, nullable: true}}}
views: {v: {of: sales, axes: [TIMEAXIS], measures: MEASURESMECHANISM}}
STREAM
"""
WORDS = {
    "UNIT": "person.id", "DELTA": "0", "REPORTED": "", "SUMMARIES": "", "BOUNDS": "", "LABEL": "", "TIME": "",
    "AXIS": "", "MEASURES": "", "MECHANISM": ", mechanism: identity", "STREAM": "",
}  # fmt: skip
ENTRIES: dict[str, dict[str, dict[str, str]]] = {
    "law": {
        "Laplace": {}, "Gaussian": {"DELTA": "1e-6"}, "joint rows": {},
        "joint tree": {"MECHANISM": ""},  # the tree is what `auto` takes for a pure axis alone
    },
    "bounding": {
        "row": {"UNIT": "row"}, "truncate": {"BOUNDS": " max_ids: 4,"},
        "weight": {"BOUNDS": " max_ids: 4, bounding: weight,"}, "auto": {"BOUNDS": " max_ids: auto,"},
    },
    "axis": {
        "listed": {"AXIS": "sales.size"},
        "private keys": {"AXIS": "sales.label", "LABEL": ", label: {type: string, categories: {private: true, "
                         "per_unit: 2, most: 9}}"},
        "summary": {"AXIS": "person.first", "SUMMARIES": ", summaries: {first: {of: sales, is: min(size), type: int, "
                    "lower: 0, upper: 7, nullable: true}}"},
        "reported": {"AXIS": "person.age", "REPORTED": ", reported: {epsilon: 2, collection: ages}, "
                     "out_of_domain: drop"},
        "public": {"AXIS": "{axis: product, by: [kind]}"},
    },
    "measures": {
        "count": {"MEASURES": "[count]"}, "sums with NULL": {"MEASURES": "[count, sales.amount]"},
        "people": {"MEASURES": "{count: 0.5, people: 0.5}"},
        "squares": {"MEASURES": "[count, sales.amount, squares(sales.amount)]"},
    },
    "time": {
        "batch": {},
        "stream": {"TIME": "sales.day, ", "MECHANISM": "", "STREAM": "stream: {column: sales.day, grain: day, "
                   "horizon: 4, max_batches: 2, strategy: auto}"},
    },
    "source": {"files": {}, "DuckDB": {}, "PostgreSQL": {}},
}  # fmt: skip
"""What each entry puts for words of the catalog."""
DEFAULT = {
    "law": "Laplace", "bounding": "truncate", "axis": "listed", "measures": "count", "time": "batch", "source": "files"
}  # fmt: skip
NEEDS: Mapping[str, Mapping[str, str]] = {
    "private keys": {"law": "Gaussian"},
    "joint rows": {"measures": "sums with NULL"},
}
"""What an entry brings along where the pair leaves it open: keys need a delta, a joint draw two numbers."""
PAIRS = [
    ((left, one), (right, other))
    for left, right in combinations(ENTRIES, 2)
    for one, other in product(ENTRIES[left], ENTRIES[right])
]
REFUSED: dict[frozenset[str], str] = {
    frozenset({"Laplace", "private keys"}): "private keys need a delta",
    frozenset({"joint rows", "private keys"}): "private keys need a delta",
    frozenset({"joint tree", "private keys"}): "private keys need a delta",
    frozenset({"row", "summary"}): "under `unit: row` one row more would move a person",
    frozenset({"row", "reported"}): "only a column of the table that",
    frozenset({"row", "people"}): "each row of `sales` is a unit",
    frozenset({"auto", "reported"}): "a reported column needs a declared `max_ids`",
    frozenset({"auto", "stream"}): "a stream cannot choose it",
    frozenset({"weight", "stream"}): "streams bound rows by `truncate` alone",
    frozenset({"private keys", "stream"}): "a stream does not find private keys",
    frozenset({"summary", "stream"}): "a person's row would change with each batch",
    frozenset({"reported", "stream"}): "goes with neither `collection:` nor `stream:`",
    frozenset({"reported", "PostgreSQL"}): "reports are joined to rows in files or in DuckDB",
    frozenset({"people", "stream"}): "a stream does not count `people`",
    frozenset({"stream", "PostgreSQL"}): "a stream's batches are files or in DuckDB",
}
"""Pairs that no catalog has, and the words that say so."""
DRAWN_APART = ("auto", "count", "people", "stream")
"""Entries with which numbers of a row are drawn apart, or are one."""
PEOPLE, VICTIM = 60, 900
DAYS = tuple(f"2025-01-0{day}" for day in range(1, 5))
LABELS = ("red", "green", "blue")
Chosen = Mapping[str, str]


def chosen(pair: tuple[tuple[str, str], tuple[str, str]]) -> dict[str, str]:
    """An entry of each dimension, by which a catalog is made."""
    written = dict(pair)
    brought = {name: value for entry in written.values() for name, value in NEEDS.get(entry, {}).items()}
    made = DEFAULT | brought | written
    if set(written.values()) in ({"Laplace", several} for several in ("sums with NULL", "squares")):
        made["bounding"] = "auto"  # else one draw has all of a row's numbers, which is another law
    return made


def tables(entries: Chosen, *, victim: bool) -> dict[str, RawRows]:
    """Sixty people with four sales each, and perhaps one more whose rows all lie in the last cell."""
    sales: list[tuple[object, ...]] = [
        (i, i % 3, DAYS[j], (i * j) % 8, LABELS[(i + j) % 3], (i + j) % 14 - 3 if (i + j) % 5 else None)
        for i in range(PEOPLE) for j in range(4)
    ]  # fmt: skip
    people: list[tuple[object, ...]] = [(i, i % 8) for i in range(PEOPLE)]
    if victim and entries["bounding"] == "row":
        sales.append((3, 1, DAYS[-1], 7, LABELS[0], 9))
    elif victim:
        people.append((VICTIM, 7))
        sales += [(VICTIM, 1, day, 7, LABELS[0], 9) for day in DAYS[2:] for _ in range(20)]
    return {
        "person": RawRows("id INT, age INT", people),
        "product": RawRows("code INT, kind VARCHAR", [(0, "toys"), (1, "food"), (2, None)]),
        "sales": RawRows("link INT, code INT, day DATE, size INT, label VARCHAR, amount INT", sales),
    }


def in_postgresql(rows: Mapping[str, RawRows], server: str) -> dict[str, Any]:
    """A database of its own for each side: a release states how its source calls its tables."""
    import psycopg
    from psycopg import conninfo

    name = f"side_{secrets.token_hex(8)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    own = conninfo.make_conninfo(server, dbname=name)
    with psycopg.connect(own, autocommit=True) as connection:
        for table, content in rows.items():
            connection.execute(f"CREATE TABLE {table} ({content.columns})")
            with connection.cursor() as cursor:
                marks = ", ".join(["%s"] * len(content.rows[0]))
                cursor.executemany(f"INSERT INTO {table} VALUES ({marks})", content.rows)
    os.environ[name.upper()] = own
    return {"kind": "postgresql", "root": f"${{{name.upper()}}}", "tables": {table: table for table in rows}}


def measured(entries: Chosen, folder: Path, server: str) -> Loss:
    """The exact loss of two neighbours; CatalogError where the catalog is refused."""
    words = WORDS | {
        word: text for name, entry in entries.items() for word, text in ENTRIES[name][entry].items()
    }
    sides = []
    for name, victim in (("left", True), ("right", False)):
        place, rows = folder / name, tables(entries, victim=victim)
        write_tables(place, rows)
        source = {"kind": "parquet", "root": str(place), "tables": {name: f"{name}.parquet" for name in rows}}
        if entries["source"] == "DuckDB":
            with duckdb.connect(place / "raw.duckdb") as raw:
                for table in rows:
                    raw.execute(f"CREATE TABLE {table} AS FROM '{place / table}.parquet'")
            source = {
                "kind": "duckdb",
                "root": str(place / "raw.duckdb"),
                "tables": {name: name for name in rows},
            }
        elif entries["source"] == "PostgreSQL":
            source = in_postgresql(rows, server)
        reported = entries["axis"] == "reported"
        source |= {"reports": {"person": str(place / "reports.parquet")}} if reported else {}
        text = CATALOG.replace("SOURCE", json.dumps(source)).replace("LEDGER", str(place / "ledger.duckdb"))
        for word, value in words.items():
            text = text.replace(word, value)
        (place / "catalog.yaml").write_text(text)
        if reported:
            store(place, [(str(i), 0, i % 8) for i in range(PEOPLE)] + [(str(VICTIM), 0, 7)] * victim)
        arrivals = tuple(Arrival(day, None, LATER) for day in DAYS) if entries["time"] == "stream" else ()
        sides.append(NeighbourSide(load_catalog(place / "catalog.yaml"), place / "release.dpsql", arrivals))
    return measure_pair(*sides, 0).loss


def cases() -> Iterator[object]:
    """Each catalog once; PostgreSQL, and most of the others, in `make slow`."""
    catalogs: dict[tuple[str, ...], Chosen] = {tuple(chosen(pair).values()): chosen(pair) for pair in PAIRS}
    for number, (name, entries) in enumerate(catalogs.items()):
        dear = "stream" in name or "PostgreSQL" in name or number % 20
        yield pytest.param(entries, id=" + ".join(name), marks=[pytest.mark.slow] if dear else [])


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A PostgreSQL's connection string."""
    with postgres_or_skip() as running, mock.patch.dict(os.environ):  # each side's address is put there
        yield running.dsn


@pytest.mark.parametrize("entries", list(cases()))
def test_where_two_features_meet(entries: Chosen, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    where = request.getfixturevalue("server") if entries["source"] == "PostgreSQL" else ""
    refused = [words for pair, words in REFUSED.items() if pair <= set(entries.values())]
    if refused:
        with pytest.raises(CatalogError) as refusal:
            measured(entries, tmp_path, where)
        assert any(words in str(refusal.value) for words in refused)
        assert "catalog.yaml" in str(refusal.value)  # while it was loaded, before any row was read
        return
    loss = measured(entries, tmp_path, where)
    assert 0 < loss.share <= 1
    if entries["law"] == "joint rows" and not set(entries.values()) & set(DRAWN_APART):
        assert any(purpose.endswith("together") for purpose, _ in loss.lines)


def test_the_table_is_whole() -> None:
    """199 pairs; each is in a catalog that is published, or is refused under its own name."""
    assert len(PAIRS) == 199 == len({frozenset(pair) for pair in PAIRS})
    made = [set(chosen(pair).values()) for pair in PAIRS]
    published = [entries for entries in made if not any(names <= entries for names in REFUSED)]
    for (_, one), (_, other) in PAIRS:
        assert frozenset({one, other}) in REFUSED or any({one, other} <= entries for entries in published)
    assert all(len(entries) == len(ENTRIES) for entries in published)
