"""Rows that no curator expects: whether one of them stops a publish, from files, CSV and PostgreSQL.

Two thousand mutants of a row, a hundred a publish; a publish that stops is repeated with each of its mutants alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb

from benchmarks.figures import Figures, main
from benchmarks.sources.stars import on_a_server, server_of_stars
from dpsql.catalog import load_catalog
from dpsql.catalog.source import Source
from dpsql.central.central import publish_release
from dpsql.errors import Error
from dpsql.noise import ZeroNoise
from tests.privacy.loss import KEY
from tests.privacy.test_source_pairs import FLOAT_TEXTS, MOMENTS, TEXTS

BATCH = 100
CATALOG = """
dpsql: 1
name: mutants
ledger: LEDGER
source: {kind: parquet, root: ROOT, tables: {sales: sales.parquet, person: person.parquet}}
privacy: {lineage: m, cap: 9, unit: person.id, epsilon: 1}
tables:
  person: {role: dimension, key: id, private: true, columns: {
    id: {type: int}, age: {type: int, lower: 0, upper: 99, nullable: true}}}
  sales: {role: fact, foreign_keys: {buyer: person}, max_ids: 3, columns: {
    day: {type: date, lower: 2025-01-01, upper: 2025-01-09, nullable: true},
    moment: {type: timestamp, grain: day, lower: 2025-01-01, upper: 2025-01-09, nullable: true},
    word: {type: string, categories: [a, b], nullable: true},
    size: {type: int, lower: 0, upper: 9, nullable: true},
    amount: {type: decimal, scale: 2, lower: 0, upper: 9, measure: true}}}
views:
  v: {of: sales, axes: [sales.day, sales.word], measures: [count, sales.amount]}
  w: {of: sales, axes: [sales.moment, person.age], measures: [count]}
  x: {of: sales, axes: [sales.size], measures: [count]}
"""
COLUMNS = ("buyer", "day", "moment", "word", "size", "amount")
SANE = ("7", "2025-01-02", "2025-01-02 10:00:00", "a", "5", "4.25")
ODD = [
    *TEXTS,
    *FLOAT_TEXTS,
    *MOMENTS,
    "infinity",
    "-infinity",
    "9" * 60,
    "1e999",
    "2025-02-30",
    "24:00",
    "0x10",
    "1_0",
    "½",
]
BYTES = "\x01\t\"',\\é\u202f"
"""What a field grows by."""

Row = list[str]


def mutant(rng: random.Random) -> Row:
    """A sane row with one to three odd fields, or with a field cut, doubled or grown by a byte."""
    row = list(SANE)
    for place in rng.sample(range(len(row)), rng.randrange(1, 4)):
        text = row[place]
        at = rng.randrange(len(text) + 1)
        row[place] = rng.choice([
            rng.choice(ODD), text[:at], text * 2, text[:at] + rng.choice(BYTES) + text[at:],
        ])  # fmt: skip
    return row


def in_files(place: Path, rows: Sequence[Row], rng: random.Random) -> dict[str, Any]:
    """Two Parquet files of differing types; what a mutant is not in a type is NULL there."""
    with duckdb.connect() as raw:
        raw.execute(f"CREATE TABLE sales ({', '.join(f'{name} VARCHAR' for name in COLUMNS)})")
        raw.executemany(
            f"INSERT INTO sales VALUES ({', '.join('?' * len(COLUMNS))})", [list(row) for row in rows]
        )
        (place / "sales").mkdir()
        for number in range(2):
            kinds = {name: rng.choice(KINDS[name]) for name in COLUMNS}
            casts = ", ".join(f"TRY_CAST({name} AS {kind}) AS {name}" for name, kind in kinds.items())
            rest = f"SELECT {casts} FROM sales WHERE rowid % 2 = {number}"
            raw.execute(f"COPY ({rest}) TO '{place / 'sales' / f'{number}.parquet'}'")
        raw.execute(f"COPY (SELECT i AS id, i AS age FROM range(30) t(i)) TO '{place / 'person.parquet'}'")
    return {"root": str(place), "tables": {"sales": "sales/*.parquet", "person": "person.parquet"}}


NUMBERS = ("VARCHAR", "DOUBLE", "DECIMAL(38,9)", "HUGEINT", "BIGINT", "FLOAT", "DECIMAL(9,2)", "UBIGINT")
TIMES = ("VARCHAR", "TIMESTAMP", "DATE", "TIMESTAMP WITH TIME ZONE", "TIMESTAMP_NS", "TIMESTAMP_S")
KINDS = {
    "buyer": NUMBERS,
    "size": NUMBERS,
    "amount": NUMBERS,
    "day": TIMES,
    "moment": TIMES,
    "word": ("VARCHAR",),
}
"""Types of a column in files."""


def in_csv(place: Path, rows: Sequence[Row], rng: random.Random) -> dict[str, Any]:
    """Lines as they come: some quoted, some with bytes that are no UTF-8, with fields too many or too few."""
    lines = [",".join(COLUMNS).encode()]
    for row in rows:
        line = ",".join(row if rng.random() < 0.5 else [f'"{text}"' for text in row]).encode()
        at = rng.randrange(len(line))
        change = rng.choice([b"", b"", b"\xff", b'"', b",", b"\0", b"\r", b"\n"])
        lines.append(line[:at] + change + line[at:])
    (place / "sales.csv").write_bytes(rng.choice([b"\n", b"\r\n"]).join(lines))
    (place / "person.csv").write_text("id,age\n" + "".join(f"{i},{i}\n" for i in range(30)))
    return {"kind": "csv", "root": str(place), "tables": {"sales": "sales.csv", "person": "person.csv"}}


SERVER_KINDS = {
    "buyer": ("numeric", "bigint", "numeric(39,0)", "numeric(12,2)"),
    "size": ("bigint", "numeric(12,0)", "double precision", "real", "smallint"),
    "amount": ("numeric(12,2)", "double precision", "real", "numeric(9,1)"),
    "day": ("date", "timestamp", "timestamptz"), "moment": ("timestamp", "timestamptz", "date"),
    "word": ("text", "citext", "varchar(400)", "char(12)"),
}  # fmt: skip


READ = """CREATE FUNCTION pg_temp.read(text, text) RETURNS text LANGUAGE plpgsql AS $$ DECLARE made text;
BEGIN EXECUTE format('SELECT CAST(CAST(%L AS %s) AS text)', $1, $2) INTO made; RETURN made;
EXCEPTION WHEN others THEN RETURN NULL; END $$"""


def on_server(place: Path, rows: Sequence[Row], rng: random.Random) -> dict[str, Any]:
    """A table of some types; what the server does not take a mutant for is NULL there."""
    kinds = {name: rng.choice(SERVER_KINDS[name]) for name in COLUMNS}
    columns = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
    fields = [
        ", ".join(
            f"CAST(pg_temp.read({_quoted(text)}, '{kind}') AS {kind})"
            for text, kind in zip(row, kinds.values(), strict=True)
        )
        for row in rows
    ]
    return on_a_server(
        READ,
        f"CREATE TABLE sales ({columns})",
        "CREATE TABLE person (id numeric(39,0), age integer)",
        "INSERT INTO person SELECT i, i FROM generate_series(0, 29) AS t(i)",
        f"INSERT INTO sales VALUES {', '.join(f'({row})' for row in fields)}",
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("\0", "").replace("'", "''") + "'"


WRITERS: dict[str, Callable[[Path, Sequence[Row], random.Random], dict[str, Any]]] = {
    "files": in_files,
    "CSV": in_csv,
    "PostgreSQL": on_server,
}


def stops(place: Path, rows: Sequence[Row], kind: str, seed: int) -> str:
    """What stops the publish of some rows; empty if nothing does."""
    place.mkdir()
    (place / "catalog.yaml").write_text(
        CATALOG.replace("ROOT", str(place)).replace("LEDGER", str(place / "ledger.duckdb"))
    )
    source = Source.model_validate(WRITERS[kind](place, rows, random.Random(seed)))
    catalog = load_catalog(place / "catalog.yaml").model_copy(update={"source": source})
    try:
        publish_release(catalog, place / "release.dpsql", noise=ZeroNoise(), key=KEY)
    except Error as error:
        return f"{type(error).__name__}: {error}"
    return ""


def stopping_mutants(number: int, kind: str, folder: Path) -> int:
    """How many of so many mutants stop a publish; the same rows without mutants do not."""
    rng, stopping = random.Random(f"mutants {kind}"), 0
    for begin in range(0, number, BATCH):
        rows = [mutant(rng) for _ in range(min(BATCH, number - begin))]
        reason = stops(folder / f"{kind} {begin}", rows, kind, begin)
        if not reason:
            continue
        print(f"{kind}, mutants from {begin} on: {reason}", flush=True)
        alone = [
            bool(stops(folder / f"{kind} {begin} {i}", [row], kind, begin)) for i, row in enumerate(rows)
        ]
        stopping += max(sum(alone), 1)
    return stopping


def measure(figures: Figures, folder: Path, *, mutants: int = 2_000) -> None:
    """Publish so many mutants."""
    stopping = 0
    with server_of_stars():
        for i, kind in enumerate(WRITERS):
            part = mutants // len(WRITERS) + (i < mutants % len(WRITERS))
            stopping += stopping_mutants(part, kind, folder)
    names = ", ".join(WRITERS)
    figures.at_most(f"sources: mutants of {mutants} that stop a publish, from {names}", stopping, 0)


if __name__ == "__main__":
    main(measure)
