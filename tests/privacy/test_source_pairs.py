"""x = y by the join iff they are one unit iff a stream's counter takes them for one: their canonical texts are equal.

Over all pairs of hostile values of each stored type of files and DuckDB files, and of two stored types where a key
and a foreign key differ; what a pair should be is decided here, in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pytest

from dpsql.catalog import Catalog
from dpsql.engines.duck import RawSide
from dpsql.engines.values import FLOATS, canonical_text
from dpsql.row_expressions import literal
from tests.privacy.source_star import opened, star
from tests.thinned import by_default

EXACT = Context(prec=80)
EDGES = sorted({sign * (2**bits + d) for bits in (0, 1, 3, 7, 8, 15, 16, 31, 32, 52, 53, 54, 62, 63, 64, 126, 127)
                for d in (-2, -1, 0, 1, 2) for sign in (-1, 1)})  # fmt: skip


def whole(low: int, high: int) -> list[str]:
    """At least forty whole numbers of a range, its ends and those around powers of two among them."""
    near = [n for n in EDGES if low <= n <= high]
    return [str(n) for n in sorted({*near, *range(max(low, -20), 41), low, high})]


def decimals(digits: int, places: int) -> list[str]:
    most = Decimal("9" * digits).scaleb(-places, EXACT)
    small = [Decimal(n).scaleb(-places) for n in (-3, -2, -1, 0, 1, 2, 3, 10, 100)]
    others = [Decimal(n) for n in (-7, 7, 10, 100, 1000, 12345)] + [Decimal(n) / 2 for n in range(-40, 41)]
    listed = (*small, *others, most, most.copy_negate())
    found = {n.quantize(Decimal(1).scaleb(-places), context=EXACT) for n in listed if n.copy_abs() <= most}
    return [f"{n:f}" for n in sorted(found)]


FLOAT_TEXTS = [
    "0", "-0.0", "7", "7.5", "-7", "0.1", "0.2", "0.3", "1e-5", "0.00001", "1e-6", "1e-7", "1.5e-5", "2.5e-6", "-1e-5",
    "-2.5e-06", "1e-300", "5e-324", "1e15", "123456789", "4503599627370497.5", "9007199254740990", "9007199254740991",
    "9007199254740992", "9007199254740993", "-9007199254740992", "1e16", "1e21", "1e22", "1e30", "1e300", "-1e300",
    "1.7976931348623157e308", "inf", "-inf", "nan", "0.30000000000000004", "100", "1000000", "3.4e38", "1.17e-38",
]  # fmt: skip
TEXTS = [
    "", " ", "a", "A", "a ", " a", "á", "a\u0301", "Á", "ä", "ß", "ss", "SS", "ı", "i", "I", "İ", "ﬁ", "fi", "Å",
    "\u212b", "ＡＢ", "AB", "ab", "7", "07", "7.0", "7.00", "+7", "７", "1e3", "1000", "-", "--", "\t", "\u00a0",
    "\u200b", "a\u200b", "NULL", "null", "nan", "true", "x'y", "x\"y", "a\\b", "𝔞", "😀", "a\x01", "z" * 300,
]  # fmt: skip
MOMENTS = [
    "0001-01-01 00:00:00", "1582-10-04 00:00:00", "1582-10-15 00:00:00", "1899-12-31 23:59:59", "1969-12-31 23:59:59",
    "1969-12-31 23:59:59.999", "1970-01-01 00:00:00", "1970-01-01 00:00:00.001", "1999-12-31 23:59:59",
    "2000-02-29 00:00:00", "2024-02-29 12:00:00", "2024-03-31 01:30:00", "2024-10-27 02:30:00", "2038-01-19 03:14:07",
    "2038-01-19 03:14:08", "2100-03-01 00:00:00", "2261-12-31 00:00:00",
    *(f"2025-01-{d:02d} 00:00:00" for d in range(1, 29)),
]  # fmt: skip


class Stored(NamedTuple):
    """Hostile values of one stored type.

    Args:
        kind: the type.
        texts: literals that are cast to it.
        identity: what a text names as a key; None where it names nobody.
    """

    kind: str
    texts: Sequence[str]
    identity: Callable[[str], object]


def number(text: str) -> object:
    return Fraction(Decimal(text))


def real(text: str) -> object:
    value = float(text)
    return Fraction(value) if abs(value) < 2**53 else None


def single(text: str) -> object:
    import numpy as np

    with np.errstate(over="ignore"):
        value = float(np.float32(text))
    return Fraction(value) if abs(value) < 2**53 else None


def instant(text: str) -> object:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def second(text: str) -> object:
    """DuckDB's cast to seconds rounds."""
    moment = datetime.fromisoformat(text) + timedelta(milliseconds=500)
    return moment - timedelta(microseconds=moment.microsecond)


def uuid(text: str) -> object:
    return text.lower()


UUIDS = [f"{n:032x}"[:8] + "-0000-4000-8000-" + f"{n:012x}" for n in (*range(40), 2**47)]
NANOS = [f"{moment}.000000{tail}" for moment in ("2025-01-01 00:00:00", "1969-12-31 23:59:59")
         for tail in [f"{n:03d}" for n in (*range(20), 500, 999)]]  # fmt: skip

STORED = (
    Stored("TINYINT", whole(-(2**7), 2**7 - 1), number),
    Stored("UTINYINT", whole(0, 2**8 - 1), number),
    Stored("SMALLINT", whole(-(2**15), 2**15 - 1), number),
    Stored("USMALLINT", whole(0, 2**16 - 1), number),
    Stored("INTEGER", whole(-(2**31), 2**31 - 1), number),
    Stored("UINTEGER", whole(0, 2**32 - 1), number),
    Stored("BIGINT", whole(-(2**63), 2**63 - 1), number),
    Stored("UBIGINT", whole(0, 2**64 - 1), number),
    Stored("HUGEINT", whole(-(2**127), 2**127 - 1), number),
    Stored("UHUGEINT", whole(0, 2**128 - 1), number),
    Stored("DECIMAL(18,0)", decimals(18, 0), number),
    Stored("DECIMAL(9,2)", decimals(9, 2), number),
    Stored("DECIMAL(38,9)", decimals(38, 9), number),
    Stored("FLOAT", FLOAT_TEXTS, single),
    Stored("DOUBLE", FLOAT_TEXTS, real),
    Stored("VARCHAR", TEXTS, str),
    Stored("ENUM", TEXTS, str),
    Stored("BLOB", TEXTS, str),
    Stored("UUID", [*UUIDS, UUIDS[7].upper()], uuid),
    Stored("BOOLEAN", ["true", "false"], str),
    Stored("DATE", sorted({text[:10] for text in MOMENTS}), str),
    Stored("TIMESTAMP", MOMENTS, instant),
    Stored("TIMESTAMP WITH TIME ZONE", MOMENTS, instant),
    Stored("TIMESTAMP_S", MOMENTS, second),
    Stored("TIMESTAMP_MS", MOMENTS, instant),
    Stored("TIMESTAMP_NS", NANOS, str),
)
BY_NAME = {stored.kind: stored for stored in STORED}
NO_PARQUET = ("HUGEINT", "UHUGEINT", "TIMESTAMP_S", "ENUM")
"""Types that DuckDB writes to Parquet as others."""


def expression(stored: Stored, text: str) -> str:
    if stored.kind == "BLOB":
        return f"encode({literal(text)})"
    if stored.kind == "ENUM":
        return f"CAST({literal(text)} AS spelling)"
    return f"CAST({literal(text)} AS {stored.kind})"


def make(folder: Path, kind: str, person: Stored, sales: Stored, collation: str = "") -> dict[str, Any]:
    """Both tables with a row for each value, numbered."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        database = kind == "duckdb"
        if database:
            connection.execute(f"ATTACH '{folder / 'star.duckdb'}' AS made")
            connection.execute("USE made")
        connection.execute(f"CREATE TYPE spelling AS ENUM ({', '.join(map(literal, TEXTS))})")
        for table, key, stored in (("person", "id", person), ("sales", "person_id", sales)):
            rows = " UNION ALL ".join(
                f"SELECT {expression(stored, text)} AS {key}, {n} AS n" for n, text in enumerate(stored.texts)
            )
            connection.execute(f"CREATE TABLE {table} AS SELECT *, 1 AS age, 2 AS amount FROM ({rows})")
            if collation:
                connection.execute(f"ALTER TABLE {table} ALTER {key} TYPE VARCHAR COLLATE {collation}")
            if not database:
                connection.execute(f"COPY {table} TO '{folder / table}.parquet' (FORMAT parquet)")
        if database:
            connection.execute("USE memory")
            connection.execute("DETACH made")
    if database:
        return {"kind": "duckdb", "root": "star.duckdb", "tables": {"person": "person", "sales": "sales"}}
    return {"kind": "parquet", "root": ".", "tables": {"person": "person.parquet", "sales": "sales.parquet"}}


class Equalities(NamedTuple):
    """Pairs (row of person, row of sales) that are equal, by each of the ways."""

    join: set[tuple[int, int]]
    unit: set[tuple[int, int]]
    counter: set[tuple[int, int]]


def equalities(raw: RawSide) -> Equalities:
    """What the engine's join, grouping and the canonical text take for equal."""
    run = raw.connection.execute
    join = run("SELECT p.n, s.n FROM raw.person AS p JOIN raw.sales AS s ON s.person_id = p.id").fetchall()
    both = "SELECT id AS k, n, 0 AS side FROM raw.person UNION ALL SELECT person_id, n, 1 FROM raw.sales"
    units = run(f"SELECT list(n) FILTER (side = 0), list(n) FILTER (side = 1) FROM ({both}) "
                "WHERE k IS NOT NULL GROUP BY k").fetchall()  # fmt: skip
    kinds = raw.columns["person"]["id"], raw.columns["sales"]["person_id"]
    assert kinds[0] == kinds[1]
    texts = [
        dict(run(f"SELECT n, {canonical_text(key, kind)} FROM raw.{table}").fetchall())
        for table, key, kind in (("person", "id", kinds[0]), ("sales", "person_id", kinds[1]))
    ]
    assert all(text is None or isinstance(text, str) for side in texts for text in side.values())
    return Equalities(
        set(join),
        {pair for left, right in units if left and right for pair in product(left, right)},
        {
            (i, j)
            for (i, left), (j, right) in product(texts[0].items(), texts[1].items())
            if left is not None and left == right
        },
    )


def wanted(person: Stored, sales: Stored) -> set[tuple[int, int]]:
    """Pairs that name one person."""
    left, right = ([stored.identity(text) if text not in ("nan", "inf", "-inf") or stored.kind not in FLOATS else None
                    for text in stored.texts] for stored in (person, sales))  # fmt: skip
    return {(i, j) for i, x in enumerate(left) for j, y in enumerate(right) if x is not None and x == y}


def compared(folder: Path, catalog: Catalog, want: set[tuple[int, int]]) -> None:
    with opened(catalog) as engine:
        got = equalities(engine.as_duckdb("test"))
    for name, pairs in got._asdict().items():
        assert pairs == want, (name, sorted(pairs ^ want)[:5])


@pytest.mark.parametrize(("name", "kind"), by_default(product(BY_NAME, ("parquet", "duckdb")), 27))
def test_one_equality_for_each_stored_type(tmp_path: Path, name: str, kind: str) -> None:
    stored = BY_NAME[name]
    if kind == "parquet" and stored.kind in NO_PARQUET:
        assert kind_in_parquet(tmp_path, stored) != stored.kind
        return
    assert len(stored.texts) >= 40 or stored.kind in ("BOOLEAN",)
    source = make(tmp_path, kind, stored, stored)
    compared(tmp_path, star(tmp_path, source, unit="person.id"), wanted(stored, stored))


def kind_in_parquet(folder: Path, stored: Stored) -> str:
    make(folder, "parquet", stored, stored)
    return str(duckdb.execute(f"DESCRIBE FROM '{folder}/person.parquet'").fetchall()[0][1])


@pytest.mark.parametrize("collation", ["NOCASE", "NOACCENT", "NFC", "de", "tr", "NOCASE.NOACCENT"])
def test_one_equality_under_each_collation(tmp_path: Path, collation: str) -> None:
    texts = BY_NAME["VARCHAR"]
    source = make(tmp_path, "duckdb", texts, texts, collation)
    compared(tmp_path, star(tmp_path, source, unit="person.id"), wanted(texts, texts))


MIXED = [
    ("BIGINT", "INTEGER"), ("BIGINT", "UBIGINT"), ("INTEGER", "HUGEINT"), ("BIGINT", "DECIMAL(18,0)"),
    ("BIGINT", "DECIMAL(9,2)"), ("BIGINT", "DOUBLE"), ("DECIMAL(9,2)", "DECIMAL(38,9)"), ("HUGEINT", "FLOAT"),
    ("VARCHAR", "ENUM"), ("TIMESTAMP", "DATE"), ("TIMESTAMP", "TIMESTAMP_NS"),
    ("TIMESTAMP WITH TIME ZONE", "TIMESTAMP"),
]  # fmt: skip


def equal_moments(left: Stored, right: Stored) -> set[tuple[int, int]]:
    """Pairs of one microsecond; what lies between two of them has no counterpart."""
    sides = [
        [datetime.fromisoformat(text[:26]) if set(text[26:]) <= {"0"} else None for text in stored.texts]
        for stored in (left, right)
    ]
    return {
        (i, j) for i, x in enumerate(sides[0]) for j, y in enumerate(sides[1]) if x is not None and x == y
    }


@pytest.mark.parametrize(("person", "sales"), MIXED)
def test_one_equality_where_the_types_of_keys_differ(tmp_path: Path, person: str, sales: str) -> None:
    """A float from 2^53 on and what the other type cannot hold name nobody; all else meets by value."""
    left, right = BY_NAME[person], BY_NAME[sales]
    source = make(tmp_path, "duckdb", left, right)
    want = wanted(left, right)
    if "DATE" in (person, sales) or "TIMESTAMP_NS" in (person, sales):
        want = equal_moments(left, right)
    if "FLOAT" in sales:
        assert want
    compared(tmp_path, star(tmp_path, source, unit="person.id"), want)
