"""Where features meet: one catalog for each pair of entries, with a person who comes and moves as much as she can.

    law        Laplace, Gaussian, joint rows, joint tree
    bounding   row, truncate, weight, auto
    axis       listed, private keys, summary, reported, public
    measures   count, sums with NULL, people, squares
    time       batch, stream
    source     files, DuckDB, PostgreSQL

What a pair leaves open is `DEFAULT`, or what one of its entries needs (`NEEDS`). Each catalog is refused by name when
it is loaded, or published with an exact loss of at most its claim; nothing else may become of it.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from itertools import combinations, product
from pathlib import Path
from typing import Any

import duckdb
import yaml

from dpsql.catalog import load_catalog
from dpsql.curator.prove.layouts import RawRows, write_tables
from dpsql.curator.prove.madeup import NeighbourSide, measure_pair
from dpsql.streams.publish import Arrival
from tests.central.test_hybrid import store
from tests.privacy.loss import LATER, Loss

ENTRIES = {
    "law": ("Laplace", "Gaussian", "joint rows", "joint tree"),
    "bounding": ("row", "truncate", "weight", "auto"),
    "axis": ("listed", "private keys", "summary", "reported", "public"),
    "measures": ("count", "sums with NULL", "people", "squares"),
    "time": ("batch", "stream"),
    "source": ("files", "DuckDB", "PostgreSQL"),
}
DEFAULT = {
    "law": "Laplace", "bounding": "truncate", "axis": "listed", "measures": "count", "time": "batch", "source": "files"
}  # fmt: skip
NEEDS: Mapping[str, Mapping[str, str]] = {
    "private keys": {"law": "Gaussian"},
    "joint rows": {"measures": "sums with NULL"},
}
"""What an entry brings along where the pair leaves it open: keys need a delta, a joint draw two numbers."""
SEVERAL = ("sums with NULL", "squares")
PAIRS = [
    ((left, one), (right, other))
    for left, right in combinations(ENTRIES, 2)
    for one, other in product(ENTRIES[left], ENTRIES[right])
]
PEOPLE, VICTIM = 60, 900
DAYS = tuple(f"2025-01-0{day}" for day in range(1, 5))
LABELS, KINDS = ("red", "green", "blue"), ("toys", "food")
Chosen = Mapping[str, str]


def chosen(pair: tuple[tuple[str, str], tuple[str, str]]) -> dict[str, str]:
    """An entry of each dimension, by which a catalog is made."""
    written = dict(pair)
    brought = {name: value for entry in written.values() for name, value in NEEDS.get(entry, {}).items()}
    made = DEFAULT | brought | written
    if set(written.values()) in ({"Laplace", measures} for measures in SEVERAL):
        made["bounding"] = "auto"  # else one draw has all of a row's numbers, which is another law
    return made


def catalog(entries: Chosen) -> dict[str, Any]:
    """The star with some entries, its source and its ledger left out."""
    unit = "row" if entries["bounding"] == "row" else "person.id"
    age: dict[str, Any] = {"type": "int", "lower": 0, "upper": 7}
    if entries["axis"] == "reported":
        age |= {"reported": {"epsilon": 2, "collection": "ages"}, "out_of_domain": "drop"}
    person: dict[str, Any] = {
        "role": "dimension",
        "key": "id",
        "private": True,
        "columns": {"id": {"type": "int"}, "age": age},
    }
    if entries["axis"] == "summary":
        person["summaries"] = {"first": {
            "of": "sales", "is": "min(size)", "type": "int", "lower": 0, "upper": 7, "nullable": True}}  # fmt: skip
    columns: dict[str, Any] = {
        "day": {"type": "date", "lower": DAYS[0], "upper": DAYS[-1]},
        "size": {"type": "int", "lower": 0, "upper": 7},
        "amount": {"type": "int", "lower": -3, "upper": 9, "measure": True, "nullable": True},
    }
    if entries["axis"] == "private keys":
        columns["label"] = {"type": "string", "categories": {"private": True, "per_unit": 2, "most": 9}}
    sales: dict[str, Any] = {
        "role": "fact",
        "foreign_keys": {"link": "person", "code": "product"},
        "columns": columns,
    }
    if unit != "row":
        sales["max_ids"] = "auto" if entries["bounding"] == "auto" else 4
    if entries["bounding"] == "weight":
        sales["bounding"] = "weight"
    delta = "1e-6" if entries["law"] == "Gaussian" else 0
    text: dict[str, Any] = {
        "dpsql": 1, "name": "meeting",
        "privacy": {"lineage": "meeting", "cap": 99, "unit": unit, "epsilon": 1, "delta": delta},
        "tables": {
            "person": person,
            "product": {"role": "dimension", "key": "code", "private": False,
                        "columns": {"kind": {"type": "string", "categories": list(KINDS)}}},
            "sales": sales,
        },
        "views": {"v": view(entries)},
    }  # fmt: skip
    if entries["time"] == "stream":
        text["stream"] = {
            "column": "sales.day",
            "grain": "day",
            "horizon": 4,
            "max_batches": 2,
            "strategy": "auto",
        }
    return text


def view(entries: Chosen) -> dict[str, Any]:
    """The one view; the tree is what `auto` takes for a pure axis alone, so there no mechanism is named."""
    axis = {
        "listed": "sales.size", "private keys": "sales.label", "summary": "person.first", "reported": "person.age",
        "public": {"axis": "product", "by": ["kind"]},
    }[entries["axis"]]  # fmt: skip
    measures: Any = {
        "count": ["count"], "sums with NULL": ["count", "sales.amount"], "people": {"count": 0.5, "people": 0.5},
        "squares": ["count", "sales.amount", "squares(sales.amount)"],
    }[entries["measures"]]  # fmt: skip
    axes = ["sales.day", axis] if entries["time"] == "stream" else [axis]
    made = {"of": "sales", "axes": axes, "measures": measures}
    return (
        made
        if entries["law"] == "joint tree" or entries["time"] == "stream"
        else made | {"mechanism": "identity"}
    )


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


def reports(*, victim: bool) -> list[tuple[str, int, int]]:
    """Everybody's stored report of the age."""
    return [(str(i), 0, i % 8) for i in range(PEOPLE)] + ([(str(VICTIM), 0, 7)] if victim else [])


def written_source(place: Path, entries: Chosen, server: str, *, victim: bool) -> dict[str, Any]:
    """Write one side's rows; the catalog's `source` that reads them."""
    rows = tables(entries, victim=victim)
    write_tables(place, rows)
    own = {"reports": {"person": str(place / "reports.parquet")}} if entries["axis"] == "reported" else {}
    if entries["source"] == "DuckDB":
        with duckdb.connect(place / "raw.duckdb") as raw:
            for name in rows:
                raw.execute(f"CREATE TABLE {name} AS SELECT * FROM '{place / name}.parquet'")
        return {
            "kind": "duckdb",
            "root": str(place / "raw.duckdb"),
            "tables": {name: name for name in rows},
        } | own
    if entries["source"] == "PostgreSQL":
        return _in_postgresql(rows, server) | own
    return {"kind": "parquet", "root": str(place), "tables": {name: f"{name}.parquet" for name in rows}} | own


def _in_postgresql(rows: Mapping[str, RawRows], server: str) -> dict[str, Any]:
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
            marks = ", ".join(["%s"] * len(content.rows[0]))
            with connection.cursor() as cursor:
                cursor.executemany(f"INSERT INTO {table} VALUES ({marks})", content.rows)
    os.environ[name.upper()] = own
    return {"kind": "postgresql", "root": f"${{{name.upper()}}}", "tables": {table: table for table in rows}}


def measured(entries: Chosen, folder: Path, server: str = "") -> Loss:
    """The exact loss of two neighbours.

    Args:
        entries: one of each dimension.
        folder: an empty folder.
        server: connection string of a PostgreSQL, where the rows shall lie there.

    Raises:
        CatalogError: it is refused, by name.
    """
    sides = []
    for name, victim in (("left", True), ("right", False)):
        place = folder / name
        place.mkdir(parents=True)
        source = written_source(place, entries, server, victim=victim)
        made = catalog(entries) | {"source": source, "ledger": str(place / "ledger.duckdb")}
        (place / "catalog.yaml").write_text(yaml.safe_dump(made, sort_keys=False))
        if entries["axis"] == "reported":
            store(place, reports(victim=victim))
        arrivals = tuple(Arrival(day, None, LATER) for day in DAYS) if entries["time"] == "stream" else ()
        sides.append(NeighbourSide(load_catalog(place / "catalog.yaml"), place / "release.dpsql", arrivals))
    return measure_pair(*sides, 0).loss
