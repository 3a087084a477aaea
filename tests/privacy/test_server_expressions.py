"""`derive`, `expr` and a SELECT over PostgreSQL: the exact loss of neighbours aimed at them is what is charged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from dpsql.engines import postgresql
from dpsql.engines.dialect import Dialect
from dpsql.errors import EngineLost
from dpsql.row_expressions import typed
from tests.engines.servers import Server, postgres_or_skip
from tests.privacy.loss import Loss, Written, measure_sources
from tests.privacy.source_cases import HEAD

CATALOG = (
    HEAD
    + """
  person: {role: dimension, key: id, private: true, columns: {born: {type: date}, age: {type: int, lower: 0, upper: 7}},
    derive: {age: "(DATE '2025-01-01' - born) // 3650"}}
  sales: {role: fact, foreign_keys: {buyer: person}, max_ids: 2, columns: {
    price: {type: int}, pieces: {type: int}, said: {type: string},
    region: {type: string, categories: [north, south], nullable: true}},
    derive: {region: "CASE WHEN said LIKE 'n%' THEN 'north' WHEN length(said) > 3 THEN 'south' END"},
    measures: {paid: {expr: price * pieces, lower: 0, upper: 9, scale: 0}}}
views:
  v: {of: sales, axes: [person.age, sales.region], measures: [count, sales.paid], mechanism: identity}
"""
)
SELECT = "SELECT buyer, said, price, pieces FROM sales WHERE coalesce(price * pieces, 1) > -10 AND NOT said = 'void'"
EVERYBODY = [(n, "1990-05-05") for n in range(30)]
SALES = [(n, "north", 2, 3) for n in range(30)] + [(n, "southern", 1, 1) for n in range(30)]
LARGEST = 2**63 - 1
HOSTILE = [
    (99, "north", LARGEST, 2), (99, "void", LARGEST, LARGEST), (99, "", -LARGEST - 1, -1), (99, None, None, 0),
    (99, "n" * 5000, 9, 1), (99, "souffl\u0301e", 3, 3), (99, "south", -LARGEST, LARGEST),
]  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres_or_skip() as server:
        yield server


def loss(folder: Path, server: Server, person: list[tuple[Any, ...]], sales: list[tuple[Any, ...]]) -> Loss:
    """The loss of a star with these rows and the star without them."""
    import psycopg

    def side(schema: str, people: list[tuple[Any, ...]], rows: list[tuple[Any, ...]]) -> Written:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
            connection.execute(f"CREATE SCHEMA {schema}")
            connection.execute(f"CREATE TABLE {schema}.person (id bigint, born date)")
            connection.execute(
                f"CREATE TABLE {schema}.sales (buyer bigint, said text, price bigint, pieces bigint)"
            )
            with connection.cursor() as cursor:
                cursor.executemany(f"INSERT INTO {schema}.person VALUES (%s, %s)", people)
                cursor.executemany(f"INSERT INTO {schema}.sales VALUES (%s, %s, %s, %s)", rows)
        root = f"${{DPSQL_TEST_DSN}} options='-c search_path={schema}'"
        return lambda *_: {
            "kind": "postgresql",
            "root": root,
            "tables": {"person": "person", "sales": SELECT},
        }

    more, fewer = side("more", [*EVERYBODY, *person], [*SALES, *sales]), side("fewer", EVERYBODY, SALES)
    with mock.patch.dict("os.environ", DPSQL_TEST_DSN=server.dsn):
        return measure_sources(CATALOG, more, fewer, folder)


AIMED = [HOSTILE, HOSTILE[:2], HOSTILE[2:4], HOSTILE[4:6], [HOSTILE[0]] * 5]


@pytest.mark.parametrize(("rows", "born"), [
    pytest.param(rows, born, marks=[] if (rows, born) == (HOSTILE, "infinity") else pytest.mark.slow)
    for rows in AIMED for born in ("infinity", "2020-02-29")
])  # fmt: skip
def test_a_person_whose_rows_are_hostile_costs_what_is_charged(rows, born, server, tmp_path):
    measured = loss(tmp_path, server, [(99, born)], rows)
    assert 0 < measured.share <= 1


def test_a_person_without_rows_costs_no_more(server: Server, tmp_path: Path) -> None:
    assert loss(tmp_path, server, [(99, "-infinity")], []).share <= 1


def test_an_operation_without_its_guard_is_found(server: Server, tmp_path: Path) -> None:
    """The planted defect: a product as the engine computes it stops the publish at one row, and so tells of it."""

    def unguarded(operation: typed.Arithmetic) -> str:
        return f"({operation.left} {operation.sign} {operation.right})"

    planted = {name: getattr(postgresql.POSTGRES, name) for name in Dialect.__dataclass_fields__} | {
        "exact": unguarded
    }
    with (
        mock.patch.object(postgresql.PostgresSession, "dialect", Dialect(**planted)),
        pytest.raises(EngineLost),
    ):
        loss(tmp_path, server, [(99, "1990-01-01")], HOSTILE[:1])


def test_a_condition_over_other_rows_is_refused(server: Server, tmp_path: Path) -> None:
    """The planted defect of a SELECT: one person's row that moves others has a loss above what is charged."""
    lax = SELECT.replace("> -10", "> (SELECT 10 * count(*) FROM more.sales WHERE buyer = 99)")
    with pytest.raises(Exception, match=r"SUBQUERY|subquery|one row"), mock.patch(f"{__name__}.SELECT", lax):
        loss(tmp_path, server, [(99, "1990-01-01")], HOSTILE[:1])
