"""One made-up star through every kind of source: rows that come may be of another type or spelling there.

    several files   whole numbers in one file, decimals and floats in the next, text in the last; halves among them
    DuckDB file     COLLATE NOCASE or NFC, a generated column, views, macros named like functions
    CSV, folders    text; a column in the names of folders
    frames          of pandas, polars, Arrow and DuckDB: a missing value makes whole numbers of pandas floats
    PostgreSQL      numeric, citext, ICU and non-deterministic collations, domains, enums, timestamptz, char(n)

A person's key may be text that an engine would take for somebody else's: another case, or another normal form.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import duckdb

from benchmarks.promises.stars import VICTIM, Pair, random_star
from dpsql.catalog import Catalog
from dpsql.curator.prove.layouts import (
    LAYOUTS,
    RawRows,
    SourceLayout,
    Tables,
    database_file,
    load_tables,
    several_files,
    stored_columns,
)
from dpsql.engines.frames import write_frames
from dpsql.row_expressions import identifier
from tests.privacy.loss import Loss, measure_sources

DSN = "DPSQL_STORED_DSN"
"""Environment variable of the server's address: a catalog holds no password."""

DIFFERING = (
    {"age": "", "amount": "BIGINT"},
    {"INTEGER": "DECIMAL(20,2)", "DATE": "TIMESTAMP"},
    {"INTEGER": "DOUBLE", "amount": "VARCHAR", "medium": "VARCHAR", "kind": "VARCHAR", "day": "VARCHAR"},
)
"""Types of three files: the first has no ages, halves of amounts lie in the second and, as text, in the third."""

KEYS_OF_NUMBERS = ("bigint", "numeric", "numeric(39,0)", "numeric(12,2)", "whole", "integer")
TYPES: Mapping[str, Sequence[str]] = {
    "INTEGER": ("bigint", "numeric(12,0)", "numeric(12,2)", "whole", "smallint", "double precision"),
    "key INTEGER": KEYS_OF_NUMBERS,
    "DECIMAL(9,2)": ("numeric(9,2)", "numeric(12,1)", "double precision"),
    "DATE": ("date", "timestamp", "timestamptz"),
    "VARCHAR": ("citext", "folded", "kinds", "text"),
    "key VARCHAR": ("text", "varchar(20)", "char(12)", "word", 'text COLLATE "en-x-icu"'),
}
"""Type of a made-up column -> those that it may have in PostgreSQL."""

PREPARED = """
CREATE EXTENSION IF NOT EXISTS citext SCHEMA public;
CREATE COLLATION IF NOT EXISTS public.blind (provider = icu, locale = 'und-u-ks-level1', deterministic = false);
"""
SCHEMAS = count()


@dataclass(frozen=True)
class Postgresql:
    """Tables of a schema of their own on a server.

    Args:
        seed: of the types.
    """

    seed: int
    name: ClassVar[str] = "PostgreSQL"

    def fits(self, catalog: Catalog) -> bool:
        """Rows are weighed by engines that store them; batches are files."""
        chooses = any(catalog.tables[of].chooses_rows for of in catalog.star.tables)
        return not chooses and catalog.stream is None

    def write(self, place: Path, tables: Tables, catalog: Catalog) -> dict[str, Any]:
        """See `SourceLayout`."""
        import os

        import psycopg

        place.mkdir(parents=True, exist_ok=True)
        schema, rng = f"side{next(SCHEMAS)}", random.Random(self.seed)
        with psycopg.connect(os.environ[DSN]) as server, duckdb.connect() as raw:
            load_tables(raw, tables)
            server.execute(PREPARED)
            server.execute(f"CREATE SCHEMA {schema}; SET search_path = {schema}, public")
            server.execute(
                "CREATE DOMAIN whole AS bigint; CREATE DOMAIN word AS text; CREATE TYPE kinds AS ENUM ('a', 'b')"
            )
            for name in tables:
                columns = stored_columns(raw, name)
                stored = [
                    f"{identifier(column)} {self._type(rng, catalog, name, column, kind)}"
                    for column, kind in columns
                ]
                server.execute(
                    f"CREATE TABLE {identifier(name)} ({', '.join(stored)})".replace(
                        " folded", ' text COLLATE "blind"'
                    )
                )
                rows = raw.execute(
                    f"SELECT {', '.join(f'CAST({identifier(c)} AS VARCHAR)' for c, _ in columns)} "
                    f"FROM {identifier(name)}"
                ).fetchall()
                with server.cursor().copy(f"COPY {identifier(name)} FROM STDIN") as copy:
                    for row in rows:
                        copy.write_row(row)
        root = f"${{{DSN}}} options='-c search_path={schema},public'"
        return {"kind": "postgresql", "root": root, "tables": {name: name for name in tables}}

    def _type(self, rng: random.Random, catalog: Catalog, table: str, column: str, kind: str) -> str:
        spec = catalog.tables[table]
        is_key = column in spec.foreign_keys or column == spec.key
        return rng.choice(TYPES[f"key {kind}" if is_key else kind])


@dataclass(frozen=True)
class DataFrames:
    """Tables as frames of one library, written as publishing writes them.

    Args:
        name: what makes a frame of a relation.
    """

    name: str

    def fits(self, catalog: Catalog) -> bool:
        return True

    def write(self, place: Path, tables: Tables, catalog: Catalog) -> dict[str, Any]:
        """See `SourceLayout`."""
        place.mkdir(parents=True, exist_ok=True)
        with duckdb.connect() as raw:
            load_tables(raw, tables)
            frames = {name: FRAMES[self.name](raw.table(identifier(name))) for name in tables}
            return {"root": str(place), "tables": write_frames(frames, place)}


FRAMES: Mapping[str, Callable[[duckdb.DuckDBPyRelation], object]] = {
    "pandas": lambda relation: relation.df(),
    "polars": lambda relation: relation.pl(),
    "Arrow": lambda relation: relation.to_arrow_table(),
    "relations": lambda relation: relation,
}

SOURCES: dict[str, Callable[[int], SourceLayout]] = {
    **{layout.name: lambda seed, layout=layout: layout for layout in LAYOUTS},  # type: ignore[misc]
    "several files": lambda seed: SourceLayout("several files", partial(several_files, types=DIFFERING)),
    "DuckDB file": lambda seed: LAYOUTS[2]._replace(
        write=partial(database_file, collation=("NOCASE", "NFC", "NOACCENT")[seed % 3])
    ),
    **{name: lambda seed, name=name: DataFrames(name) for name in FRAMES},  # type: ignore[misc]
    "PostgreSQL": Postgresql,
}
"""By name: seed -> layout."""


class StarPair(NamedTuple):
    """A random star as rows, before it is stored.

    Args:
        pair: its catalog and both sides.
        tight: whether the person who comes uses up all that the proof allows.
    """

    pair: Pair
    tight: bool


def random_stored(seed: int) -> StarPair:
    """A star with halves among its amounts, and in every other star keys of text; every third is tight."""
    pair, tight = random_star(seed), False
    rng = random.Random(f"stored {seed}")
    text = pair.catalog.replace("upper: 3}}}", "upper: 3, nullable: true}}}", 1)
    left, right = dict(pair.left), dict(pair.right)
    if seed % 3 == 0:
        text, left, right, tight = *_tight(rng, text, left, right), True
    left, right = _with_halves(left), _with_halves(right)
    if rng.random() < 0.5:
        spell = _speller(rng)
        left, right = _with_words(left, spell), _with_words(right, spell)
    return StarPair(pair._replace(catalog=text, left=left, right=right), tight)


CELL = ("2025-01-02", 1, 1, 9)


def _tight(
    rng: random.Random, text: str, left: dict[str, Any], right: dict[str, Any]
) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Declared bounds, and a person with hundreds of rows, each as dear as any, who claims nobody else's keys."""
    words = text.split("neighbours: ")
    text = words[0] + "neighbours: add_remove" + words[1][words[1].index("}") :]
    text = text.replace(" max_ids: auto,", f" max_ids: {rng.randrange(1, 5)},")
    text = "\n".join(line for line in text.split("\n") if not line.startswith("stream:"))
    way = [name for name in ("orders", "account") if name in right]
    base = {name: _without(table, (VICTIM, 901)) for name, table in right.items()}
    if "unit: row" in text:
        return text, base | {"sales": base["sales"].plus((0, *CELL))}, base
    mine = {"sales": [(VICTIM, *CELL)] * 80, "person": [(VICTIM, 1)]}
    mine |= {name: [(VICTIM, VICTIM, 1)] for name in way}
    mine |= {"returns": [(VICTIM, 3)] * 80} if "returns" in base else {}
    return text, base | {name: base[name].plus(*rows) for name, rows in mine.items()}, base


def _without(table: RawRows, units: tuple[int, ...]) -> RawRows:
    return RawRows(table.columns, [row for row in table.rows if not set(row[:2]) & set(units)])


def _with_halves(tables: Mapping[str, RawRows]) -> dict[str, RawRows]:
    """Amounts as decimals; every seventh has a half more."""
    sales = tables["sales"]
    rows = [(*row[:-1], row[-1] if i % 7 else f"{row[-1]}.5") for i, row in enumerate(sales.rows)]  # type: ignore[misc]
    return {**tables, "sales": RawRows(sales.columns.replace("amount INT", "amount DECIMAL(9,2)"), rows)}


KEYS = {"id", "link", "key"}


def _speller(rng: random.Random) -> Callable[[object], object]:
    """Keys as words; the person who comes is called like somebody else, but for a case or a normal form."""
    other = rng.randrange(4)
    names = {VICTIM: rng.choice([f"P{other}é", f"p{other}E\u0301", f"p{other}e\u0301", f"p{other}e"])}
    return lambda key: None if key is None else names.get(key, f"p{key}é")  # type: ignore[call-overload]


def _with_words(tables: Mapping[str, RawRows], spell: Callable[[object], object]) -> dict[str, RawRows]:
    made = {}
    for name, table in tables.items():
        columns = [column.split() for column in table.columns.split(", ")]
        keys = [place for place, (column, _) in enumerate(columns) if column in KEYS]
        kinds = ", ".join(f"{column} {'VARCHAR' if column in KEYS else kind}" for column, kind in columns)
        made[name] = RawRows(
            kinds, [tuple(spell(v) if i in keys else v for i, v in enumerate(row)) for row in table.rows]
        )
    return made


def measure_stored(pair: Pair, layout: SourceLayout, folder: Path, seed: int) -> Loss:
    """The loss of a pair whose rows are stored in some way."""
    left, right = (
        lambda place, catalog, tables=tables: layout.write(place / "rows", tables, catalog)
        for tables in (pair.left, pair.right)
    )
    return measure_sources(pair.catalog, left, right, folder, batches=pair.batches, seed=seed)
