"""The words of each engine give the same integers as Python on values that engines treat differently."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import pytest

from dpsql.catalog.base import LARGEST_UNITS
from dpsql.catalog.columns import Column
from dpsql.engines.clickhouse import CLICKHOUSE, FIRST_DATE, LAST_DATE, ClickHouseSession
from dpsql.engines.counting import PRIME, coefficients, hash_sql, is_kept, offset, unit_number
from dpsql.engines.dialect import DUCK, Dialect
from dpsql.engines.expressions import exact_units
from dpsql.engines.postgresql import POSTGRES
from dpsql.engines.spark import SPARK

pytestmark = pytest.mark.long

INTEGERS = [0, 1, -1, 7, -7, PRIME, PRIME - 1, -PRIME, 1 << 40, -(1 << 40) - 3, (1 << 63) - 1, -(1 << 63)]
FLOATS = [
    0.0,
    -0.0,
    0.5,
    1.5,
    2.5,
    -0.5,
    -2.5,
    4.35 * 100,
    2.675 * 100,
    0.49999999999999994,
    1e15 + 0.5,
    -17.5,
    2.0**51,
]
DECIMALS = ["0", "0.5", "2.5", "-0.5", "-2.5", "1.005", "-1.005", "99999999.499", "-99999999.500"]
TEXTS = [
    "", "web", "Web", "web ", " web", "café", "CAFÉ", "it's", "a\\b", "\\", "${x}", "$", '"', "`", "\\u0041",
    "%s", "日本", "😀"
]  # fmt: skip
DAYS = [0, -1, 1, 19000, 20089, -719162, 2932896]
MICROSECONDS = [
    0,
    -1,
    1,
    86_400_000_000 - 1,
    1_735_689_599_999_999,
    1_735_689_600_000_000,
    -62_135_596_800_000_000,
]


CLICKHOUSE_TYPES = {
    "DECIMAL(12,3)": "Decimal(38,3)",
    "DATE": "Date32",
    "TEXT": "String",
    "TIMESTAMP": "DateTime64(6, 'UTC')",
    "TIMESTAMP WITH TIME ZONE": "DateTime64(6, 'UTC')",
}
"""Types of columns as they leave ClickHouse; decimals have 38 digits."""


class Words:
    """An engine's dialect, and how it answers."""

    def __init__(
        self, dialect: Dialect, rows: Callable[[str], Sequence[tuple[Any, ...]]], double: str
    ) -> None:
        self.dialect, self.rows, self._double = dialect, rows, double

    def numbers(self, n: int) -> str:
        """A query of 1 .. n."""
        if self.dialect is CLICKHOUSE:
            return f"SELECT CAST(number + 1 AS BIGINT) AS i FROM numbers({n})"
        if self.dialect is SPARK:
            return f"SELECT id AS i FROM range(1, {n + 1})"
        return f"SELECT CAST(i AS BIGINT) AS i FROM generate_series(1, {n}) AS g(i)"

    def each(self, expression: Callable[[str], str], values: Sequence[str], kind: str) -> list[Any]:
        """An expression over a column of typed literals, NULL last."""
        kind = self._double if kind == "DOUBLE" else kind
        if self.dialect is CLICKHOUSE:  # a number with a point, or of more than 64 bits, is a float
            kind = f"Nullable({CLICKHOUSE_TYPES.get(kind, kind)})"
            values = [f"'{value}'" if re.fullmatch(r"-?[0-9.]+", value) else value for value in values]
        column = " UNION ALL ".join(
            f"SELECT {i} AS i, CAST({v} AS {kind}) AS x" for i, v in enumerate([*values, "NULL"])
        )
        found = self.rows(f"SELECT i, {expression('x')} AS y FROM ({column}) AS c ORDER BY i")
        return [row[1] for row in found]


@pytest.fixture(scope="session", params=["duckdb", "postgresql", "spark", "clickhouse"])
def words(request: pytest.FixtureRequest) -> Any:
    """Every engine in turn."""
    if request.param == "duckdb":
        connection = duckdb.connect()
        connection.execute("SET TimeZone = 'UTC'")
        yield Words(DUCK, lambda sql: connection.execute(sql).fetchall(), "DOUBLE")
    elif request.param == "postgresql":
        psycopg = pytest.importorskip("psycopg")
        server = request.getfixturevalue("postgres")
        with psycopg.connect(server.dsn, options="-c TimeZone=UTC") as connection:
            yield Words(POSTGRES, lambda sql: connection.execute(sql).fetchall(), "DOUBLE PRECISION")
    elif request.param == "clickhouse":
        folder = str(request.getfixturevalue("clickhouse"))

        def rows(sql: str) -> list[tuple[Any, ...]]:
            with closing(ClickHouseSession(folder, 60)) as session:  # other tests open it in between
                return session.rows(sql, "testing")

        yield Words(CLICKHOUSE, rows, "Float64")
    else:
        session = request.getfixturevalue("spark").newSession()
        session.conf.set("spark.sql.session.timeZone", "UTC")
        yield Words(SPARK, lambda sql: [tuple(row) for row in session.sql(sql).collect()], "DOUBLE")


def test_whole_numbers(words: Words) -> None:
    """Remainders keep the dividend's sign; quotients of what is not negative are floors."""
    least = [f"(-{(1 << 63) - 1} - 1)" if x == -(1 << 63) else str(x) for x in INTEGERS]
    found = words.each(lambda x: words.dialect.remainder(x, str(PRIME)), least, "BIGINT")
    assert found == [
        *(
            int(math.fmod(x, PRIME)) if abs(x) < 1 << 50 else (abs(x) % PRIME) * (1 if x > 0 else -1)
            for x in INTEGERS
        ),
        None,
    ]
    positive = [x for x in INTEGERS if x >= 0]
    for divisor in (1, 3, 1 << 20, PRIME):
        found = words.each(
            lambda x, d=divisor: words.dialect.quotient(x, str(d)), [str(x) for x in positive], "BIGINT"
        )
        assert found == [*(x // divisor for x in positive), None]


def test_a_weight_is_a_floor(words: Words) -> None:
    """2^20 tau div n rounds down for every n, so that W n never exceeds 2^20 tau."""
    for tau in (1, 2, 3, 7):
        sizes = [tau + 1, tau + 2, 3 * tau, 1000, 999_983, (1 << 20) * tau - 1, (1 << 20) * tau + 1, 1 << 33]
        found = words.each(
            lambda n, t=tau: words.dialect.quotient(f"{(1 << 20) * t}", n), [str(n) for n in sizes], "BIGINT"
        )
        assert found == [*((1 << 20) * tau // n for n in sizes), None]
        assert all(w * n <= (1 << 20) * tau for w, n in zip(found, sizes, strict=False))


def test_wide_quotients_are_floors(words: Words) -> None:
    """Of numbers up to 2^126, by powers of two, norms up to 2^86 and their neighbours."""
    wide = words.dialect.wide
    pairs = [
        (1 << 126, (1 << 86) - 1),
        (1 << 126, 1 << 86),
        ((1 << 99) - 1, 1),
        ((1 << 126) - 1, 1 << 27),
        (0, 7),
    ]
    pairs += [((1 << 100) - 1, 1 << 16), (10**38 - 1 >> 1, 3**40), (3**60, 3**40), (3**60 - 1, 3**40), (5, 6)]
    for dividend, divisor in pairs:
        found = words.each(
            lambda x, d=divisor: words.dialect.wide_quotient(x, f"CAST('{d}' AS {wide})"),
            [str(dividend)],
            wide,
        )
        assert found == [dividend // divisor, None]


def test_the_nearest_integer(words: Words) -> None:
    """Halves go up, of floats and of decimals, on both sides of zero."""
    found = words.each(words.dialect.nearest, [repr(x) for x in FLOATS], "DOUBLE")
    assert found == [*(math.floor(x + 0.5) for x in FLOATS), None]
    found = words.each(words.dialect.nearest, DECIMALS, "DECIMAL(12,3)")
    assert found == [*(math.floor(Decimal(x) + Decimal("0.5")) for x in DECIMALS), None]
    found = words.each(lambda x: words.dialect.nearest(f"{x} * 100"), DECIMALS, "DECIMAL(12,3)")
    assert found == [*(math.floor(Decimal(x) * 100 + Decimal("0.5")) for x in DECIMALS), None]


def test_nan_is_told_from_numbers(words: Words) -> None:
    """Infinities and huge numbers are no NaN."""
    values = ["'NaN'", "'Infinity'", "'-Infinity'", "1e300", "-0.0", "0.0"]
    found = words.each(lambda x: f"CASE WHEN {words.dialect.is_nan(x)} THEN 1 ELSE 0 END", values, "DOUBLE")
    assert found == [1, 0, 0, 0, 0, 0, 0]


def test_texts_are_bytes(words: Words) -> None:
    """A literal is the text it stands for, and equal to no other; its digest is that of its UTF-8 bytes."""
    kind = "STRING" if words.dialect is SPARK else "TEXT"
    written = [words.dialect.literal(text) for text in TEXTS]
    assert words.each(lambda x: x, written, kind) == [*TEXTS, None]
    found = words.each(
        lambda x: f"CASE {words.dialect.text(x)} "
        + " ".join(f"WHEN {text} THEN {i}" for i, text in enumerate(written)) + " ELSE -1 END", written, kind,
    )  # fmt: skip
    assert found == [*range(len(TEXTS)), -1]
    listed = TEXTS[3:]
    found = words.each(lambda x: words.dialect.position(x, listed), written, kind)
    assert found == [None] * 3 + [*range(len(listed)), None]
    for digits in (1, 7, 14):
        found = words.each(
            lambda x, n=digits: words.dialect.number(
                f"substr({words.dialect.md5(words.dialect.text(x))}, 1, {n})"
            ),
            written,
            kind,
        )
        hashes = [hashlib.md5(text.encode()).hexdigest() for text in TEXTS]
        assert found == [*(int(digest[:digits], 16) for digest in hashes), None]
    found = words.each(lambda x: words.dialect.sha256("00ff27", words.dialect.text(x)), written, kind)
    assert found == [*(hashlib.sha256(b"\0\xff'" + text.encode()).hexdigest() for text in TEXTS), None]


def test_dates_and_instants(words: Words) -> None:
    """Literals mean UTC whatever the machine's zone, and turn back into the numbers they were made of."""
    dialect = words.dialect
    days = DAYS if dialect is not CLICKHOUSE else [FIRST_DATE, *DAYS[:-2], LAST_DATE]
    assert words.each(lambda x: x, [dialect.date(d) for d in days], "DATE") == [
        *(date(1970, 1, 1) + timedelta(days=d) for d in days), None
    ]  # fmt: skip
    assert words.each(dialect.days, [dialect.date(d) for d in days], "DATE") == [*days, None]
    assert words.each(dialect.months, [dialect.date(d) for d in days], "DATE") == [
        *(day.year * 12 + day.month - 1 for day in (date(1970, 1, 1) + timedelta(days=d) for d in days)), None
    ]  # fmt: skip
    for bound in (*DAYS, -25_568, 120_530):  # literals beyond a column's years are compared all the same
        less = f"CASE WHEN {{}} < {dialect.date(bound)} THEN 1 WHEN {{}} >= {dialect.date(bound)} THEN 0 END"
        found = words.each(lambda x, c=less: c.format(x, x), [dialect.date(d) for d in days], "DATE")
        assert found == [*(int(d < bound) for d in days), None]
    plain, zoned = (
        ("TIMESTAMP_NTZ", "TIMESTAMP") if dialect is SPARK else ("TIMESTAMP", "TIMESTAMP WITH TIME ZONE")
    )
    for kind, name in ((plain, "TIMESTAMP"), (zoned, "TIMESTAMP WITH TIME ZONE")):
        literals = [dialect.instant(m, name) for m in MICROSECONDS]
        assert words.each(dialect.microseconds, literals, kind) == [*MICROSECONDS, None]
    zone = "'2024-12-31 23:59:59.999999-01:30'"
    found = words.each(dialect.microseconds, [zone], zoned)
    assert found[0] == (
        datetime(2025, 1, 1, 1, 29, 59, 999999, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    ) // timedelta(microseconds=1)


def test_sums_are_wider_than_64_bits(words: Words) -> None:
    """A wide sum of what fills 64 bits does not overflow."""
    values = [str((1 << 62) - 1)] * 5
    rows = " UNION ALL ".join(f"SELECT CAST({v} AS BIGINT) AS x" for v in values)
    ((total,),) = words.rows(f"SELECT {words.dialect.total('x', True)} AS s FROM ({rows}) AS r")
    assert int(total) == 5 * ((1 << 62) - 1)


def python_hash(unit: int, c: tuple[int, ...]) -> int:
    """The cubic hash in Python's integers."""
    sign = -1 if unit < 0 else 1
    x, rest = unit % PRIME, abs(unit) // PRIME % PRIME
    c0 = (c[0] + rest * c[4] + (c[5] if sign < 0 else 0)) % PRIME
    return (((c[3] * x + c[2]) * x + c[1]) * x + c0) % PRIME


@pytest.mark.parametrize("seed", [0, 1, 255])
def test_the_hash_of_a_unit(words: Words, seed: int) -> None:
    """The cubic polynomial of integer keys, negative and of 64 bits among them, and of texts."""
    c = coefficients(bytes((seed + 37 * i) % 256 for i in range(32)))
    units = [*INTEGERS, *range(-3, 30), (1 << 62) + 12345, -(1 << 62) - 98765]
    written = [f"(-{(1 << 63) - 1} - 1)" if x == -(1 << 63) else str(x) for x in units]
    found = words.each(lambda x: hash_sql(x, "BIGINT", c, words.dialect), written, "BIGINT")
    assert found == [*(python_hash(unit, c) for unit in units), None]
    kind = "STRING" if words.dialect is SPARK else "TEXT"
    texts = [words.dialect.literal(text) for text in TEXTS]
    found = words.each(
        lambda x: hash_sql(unit_number(x, "VARCHAR", c, words.dialect), "VARCHAR", c, words.dialect),
        texts,
        kind,
    )
    digests = [int(hashlib.md5(f"{c[4]} {c[5]} {text}".encode()).hexdigest()[:7], 16) for text in TEXTS]
    assert found == [*((((c[3] * x + c[2]) * x + c[1]) * x + c[0]) % PRIME for x in digests), None]


def test_tau_rows_are_kept(words: Words) -> None:
    """Of n rows exactly tau are kept, those that Python keeps."""
    for n, tau, h in ((1000, 10, 0), (1000, 10, PRIME - 1), (37, 5, 123_456_789), (11, 10, 99), (3, 5, 7)):
        r = h * n // PRIME
        condition = f"CASE WHEN {is_kept(tau, 'r', words.dialect)} THEN 1 ELSE 0 END"
        rows = f"SELECT i, CAST({n} AS BIGINT) AS n FROM ({words.numbers(n)}) AS c"
        placed = f"SELECT i, n, {offset(f'CAST({h} AS BIGINT)', words.dialect)} AS r FROM ({rows}) AS a"
        found = words.rows(f"SELECT i, {condition} AS kept FROM ({placed}) AS b ORDER BY i")
        kept = [int(i) for i, yes in found if yes]
        assert kept == [i for i in range(1, n + 1) if n <= tau or (i * tau + r) % n < tau]
        assert len(kept) == min(n, tau)


def decimal_cases() -> list[tuple[str, str, int, int | None]]:
    """(type, value, digits of the column, units) at the ends of every decimal type that is computed with as it is."""
    cases: list[tuple[str, str, int, int | None]] = []
    for places in range(10):
        for digits in range(places, 10):
            for width in {max(places, 1), min(places + 3, 18 - digits + places), 18 - digits + places}:
                for units in (0, 1, -1, 10**width - 1, 1 - 10**width, 10**places, -(10**places) - 1):
                    if abs(units) < 10**width:
                        value = f"{Decimal(units).scaleb(-places):f}"
                        cases.append(
                            (f"DECIMAL({width},{places})", value, digits, units * 10 ** (digits - places))
                        )
    least = (0, LARGEST_UNITS - 1, LARGEST_UNITS, -LARGEST_UNITS, 2**63 - 1, -(2**63))
    cases += [("BIGINT", str(v), 0, v if abs(v) < LARGEST_UNITS else None) for v in least]
    return [*cases, ("SMALLINT", "-32768", 0, -32768)]


def test_units_of_decimals_are_exact(words: Words) -> None:
    """Nothing overflows or is rounded at the ends of a type; integers of 60 bits and more are NULL."""
    cases = decimal_cases()
    selects = []
    for number, (kind, value, digits, _) in enumerate(cases):
        column = Column(type="decimal", scale=digits) if digits else Column(type="int")
        units = exact_units("x", column, kind, words.dialect)
        stored = re.sub(r"\(\d+", "(38", kind) if words.dialect is CLICKHOUSE else kind
        selects.append(
            f"SELECT {number} AS n, {units} AS u FROM (SELECT CAST('{value}' AS {stored}) AS x) AS t"
        )
    rows = [
        row for i in range(0, len(cases), 100) for row in words.rows(" UNION ALL ".join(selects[i : i + 100]))
    ]
    assert [unit for _, unit in sorted(rows)] == [units for *_, units in cases]
