"""PostgreSQL's values: join, unit and text agree over all pairs of hostile keys; what the server folds is no key."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from dpsql.engines import values
from dpsql.engines.registry import Engine
from dpsql.errors import SourceError
from dpsql.row_expressions import literal
from tests.engines.servers import Server, new_schema
from tests.privacy.source_star import cells, opened, star
from tests.privacy.test_source_pairs import FLOAT_TEXTS, MOMENTS, TEXTS, UUIDS, decimals, whole

SCHEMA = "spelt"


@pytest.fixture(scope="module")
def folding(postgres: Server) -> Server:
    """PostgreSQL with an extension, collations and domains of its own."""
    run(
        postgres,
        new_schema(SCHEMA),
        f"CREATE EXTENSION citext SCHEMA {SCHEMA}",
        f"CREATE COLLATION {SCHEMA}.folded (provider = icu, locale = 'und-u-ks-level1', deterministic = false)",
        f"CREATE COLLATION {SCHEMA}.icu (provider = icu, locale = 'de')",
        f"CREATE DOMAIN {SCHEMA}.digits AS numeric(39,0)",
        f"CREATE DOMAIN {SCHEMA}.ids AS {SCHEMA}.digits",
        f"CREATE DOMAIN {SCHEMA}.mail AS {SCHEMA}.citext",
        f"CREATE TYPE {SCHEMA}.mood AS ENUM ({', '.join(map(literal, ENUMS))})",
    )
    return postgres


ENUMS = [text for text in TEXTS if 0 < len(text) < 60]


def run(server: Server, *statements: str) -> None:
    import psycopg

    with psycopg.connect(server.dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def load(server: Server, person: str, sales: str, *, kinds: tuple[str, str]) -> dict[str, Any]:
    """Both tables from SELECTs of (key, n); the server is told that sales name people where that can be."""
    run(
        server,
        f"DROP TABLE IF EXISTS {SCHEMA}.sales, {SCHEMA}.person",
        f"CREATE TABLE {SCHEMA}.person (id {kinds[0]}, n integer, age integer)",
        f"CREATE TABLE {SCHEMA}.sales (person_id {kinds[1]}, n integer, amount integer)",
        f"INSERT INTO {SCHEMA}.person SELECT *, 3 FROM ({person}) AS p",
        f"INSERT INTO {SCHEMA}.sales SELECT *, 2 FROM ({sales}) AS s",
    )
    tables = {name: f"{SCHEMA}.{name}" for name in ("person", "sales")}
    return {"kind": "postgresql", "root": "${DPSQL_TEST_DSN}", "tables": tables}


@pytest.fixture(autouse=True)
def _address(folding: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPSQL_TEST_DSN", folding.dsn)


@pytest.mark.parametrize(
    "kind", ["numeric(39,0)", "numeric", f"{SCHEMA}.digits", f"{SCHEMA}.ids", "numeric(45,5)"]
)
def test_long_numbers_stay_apart(folding: Server, tmp_path: Path, kind: str) -> None:
    """They were clamped to 1e28: one unit, and 1 of 300 rows counted."""
    ids = "SELECT 10::numeric ^ 38 + i AS k, i FROM generate_series(1, 300) AS t(i)"
    source = load(folding, ids, ids, kinds=(kind, kind))
    assert cells(star(tmp_path, source, unit="person.id")).rows == 300


@pytest.mark.parametrize(
    "kind",
    [
        f"{SCHEMA}.citext",
        f"{SCHEMA}.mail",
        f"text COLLATE {SCHEMA}.folded",
        f"varchar(9) COLLATE {SCHEMA}.folded",
    ],
)
def test_what_the_server_folds_is_no_key(folding: Server, tmp_path: Path, kind: str) -> None:
    """The server took 200 spellings for one person, and each was a unit by its bytes."""
    source = load(folding, "SELECT 'ann', 1", "SELECT 'ANN', 1", kinds=(kind, kind))
    run(folding, f"ALTER TABLE {SCHEMA}.person ADD UNIQUE (id)",
        f"ALTER TABLE {SCHEMA}.sales ADD FOREIGN KEY (person_id) REFERENCES {SCHEMA}.person (id)")  # fmt: skip
    with pytest.raises(SourceError, match=r"tables.*: .* treats several texts as one, so") as refused:
        cells(star(tmp_path, source, unit="person.id"))
    assert "CAST(lower(" in str(refused.value)


def test_what_the_server_folds_is_a_value_by_its_bytes(folding: Server, tmp_path: Path) -> None:
    source = load(
        folding, "SELECT 1, 1", "SELECT 1, i FROM generate_series(1, 8) AS t(i)", kinds=("integer", "integer")
    )
    for kind in (
        f"{SCHEMA}.citext",
        f"text COLLATE {SCHEMA}.folded",
        f"text COLLATE {SCHEMA}.icu",
        f"{SCHEMA}.mood",
    ):
        run(folding, f"ALTER TABLE {SCHEMA}.sales DROP COLUMN IF EXISTS word, ADD COLUMN word {kind}",
            f"UPDATE {SCHEMA}.sales SET word = CAST(chr(CASE WHEN n < 4 THEN 97 ELSE 65 END) AS {kind.split()[0]})",
        )  # fmt: skip
        word = {"word": {"type": "string", "categories": ["A", "a"]}}
        assert cells(star(tmp_path, source, columns=word)).arrays[0].sum(axis=0).tolist()[:2] == [5, 3], kind


@pytest.mark.parametrize(
    "kind",
    [
        "json",
        "jsonb",
        "bytea",
        "time",
        "interval",
        "integer[]",
        "inet",
        "bit(3)",
        "money",
        "varchar(9)[]",
        f"text[] COLLATE {SCHEMA}.folded",
        '"char"',
    ],
)
def test_a_type_without_a_rule_is_refused_where_it_is_named(
    folding: Server, tmp_path: Path, kind: str
) -> None:
    none = f"SELECT NULL::{kind.split(' COLLATE')[0]}, 1 WHERE false"
    source = load(folding, none, none, kinds=(kind, kind))
    with pytest.raises(SourceError, match=r"tables.*id: a column stored as .* has no rule"):
        cells(star(tmp_path, source, unit="person.id"))


KEYS: dict[str, list[str]] = {
    "smallint": whole(-(2**15), 2**15 - 1),
    "integer": whole(-(2**31), 2**31 - 1),
    "bigint": whole(-(2**63), 2**63 - 1),
    "numeric(9,2)": decimals(9, 2),
    "numeric(38,0)": whole(-(10**38) + 1, 10**38 - 1),
    "numeric(39,0)": whole(-(10**39) + 1, 10**39 - 1),
    "numeric": [*FLOAT_TEXTS, "7.0", "7.00", "0.70", "1e100"],
    f"{SCHEMA}.ids": whole(-(10**39) + 1, 10**39 - 1),
    "real": [
        *(f"{n}.25" for n in range(12)),
        *(
            text
            for text in FLOAT_TEXTS
            if text == "inf" or (abs(float(text)) < 1e38 and not 0 < abs(float(text)) < 1e-37)
        ),
    ],
    "double precision": FLOAT_TEXTS,
    "text": TEXTS,
    "varchar(400)": TEXTS,
    f"text COLLATE {SCHEMA}.icu": TEXTS,
    "bpchar": TEXTS,
    "char(8)": [text for text in TEXTS if len(text) <= 8],
    "name": [text for text in TEXTS if len(text) < 60],
    f"{SCHEMA}.mood": ENUMS,
    "uuid": [*UUIDS, UUIDS[7].upper()],
    "boolean": ["true", "false"],
    "date": [*sorted({text[:10] for text in MOMENTS}), "infinity", "-infinity"],
    "timestamp": [*MOMENTS, "infinity", "-infinity"],
    "timestamptz": [*(f"{text}+00" for text in MOMENTS), "2025-01-01 01:00:00+01", "infinity"],
}
MIXED = [
    ("bigint", "smallint"),
    ("bigint", "numeric(9,2)"),
    ("numeric(38,0)", "numeric(9,2)"),
    ("numeric", "integer"),
]


def equalities(engine: Engine, catalog: Any) -> list[set[tuple[int, int]]]:
    """Pairs of rows of people and sales that are equal by the join, as a unit, and by their text."""
    session = engine._session  # type: ignore[attr-defined]
    person, sales = (engine.rows(catalog, table) for table in ("person", "sales"))
    join = session.rows(f"SELECT p.n, s.n FROM {person} AS p JOIN {sales} AS s ON p.id = s.person_id", "join")
    both = (
        f"SELECT id AS k, n, 0 AS side FROM {person} AS p UNION ALL SELECT person_id, n, 1 FROM {sales} AS s"
    )
    pairs = [{(int(i), int(j)) for i, j in join}]
    for key in ("k", engine.dialect.text("k")):
        grouped = f"SELECT json_agg(json_build_array(side, n)) FROM ({both}) AS b WHERE k IS NOT NULL GROUP BY {key}"
        same = set()
        for (members,) in session.rows(grouped, "units"):
            listed = members if isinstance(members, list) else json.loads(members)
            sides = [[n for side, n in listed if side == wanted] for wanted in (0, 1)]
            same |= set(product(*sides))
        pairs.append(same)
    return pairs


@pytest.mark.parametrize(("person", "sales"), [*((kind, kind) for kind in KEYS), *MIXED], ids=str)
def test_one_equality_for_each_stored_type(folding: Server, tmp_path: Path, person: str, sales: str) -> None:
    assert len(KEYS[person]) >= 40 or person == "boolean"
    selects = [
        " UNION ALL ".join(
            f"SELECT {literal(text)}::{kind.split(' COLLATE')[0]}, {n}" for n, text in enumerate(KEYS[kind])
        )
        for kind in (person, sales)
    ]
    source = load(folding, selects[0], selects[1], kinds=(person, sales))
    catalog = star(tmp_path, source, unit="person.id")
    with opened(catalog) as engine:
        join, unit, text = equalities(engine, catalog)
    assert join == unit == text
    if person == sales and person not in ("numeric", "real", "double precision"):
        assert len(join) >= len(KEYS[person])
        assert {(n, n) for n in range(len(KEYS[person]))} <= join


@pytest.mark.parametrize(
    ("stored", "key", "want"),
    [
        ("int", True, ("INTEGER", "`x`")),
        ("decimal(10,2)", True, ("DECIMAL(10,2)", "`x`")),
        ("char(5)", True, ("VARCHAR", "rtrim(`x`)")),
        ("timestamp", False, ("TIMESTAMP WITH TIME ZONE", "`x`")),
        ("timestamp_ntz", False, ("TIMESTAMP", "`x`")),
        (
            "double",
            True,
            ("DOUBLE", f"CASE WHEN abs(CAST(`x` AS DOUBLE)) < {2**53} THEN CAST(`x` AS DOUBLE) + 0 END"),
        ),
        ("string collate UTF8_LCASE", False, ("VARCHAR", "(`x` COLLATE UTF8_BINARY)")),
        ("string collate UTF8_LCASE", True, None),
        ("array<int>", False, None),
        ("binary", True, None),
    ],
)
def test_types_of_a_lake(stored: str, key: bool, want: tuple[str, str] | None) -> None:
    assert values.leaving(values.SPARK, stored, "`x`", key=key) == want
