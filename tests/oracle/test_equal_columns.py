"""Joins follow equal columns, in whichever order USING, ON, WHERE and OR name them."""

from __future__ import annotations

import duckdb
import pytest

from dpsql.errors import NotSupportedError
from dpsql.noise import ZeroNoise
from tests.releases import published, write_catalog

CATALOG = """
dpsql: 1
name: films
source: {kind: parquet, root: ROOT, tables: {loan: loan.parquet, film: film.parquet, genre: genre.parquet,
  town: town.parquet}}
privacy: {lineage: films, cap: 10000, unit: row, epsilon: 10000}
tables:
  loan: {role: fact, foreign_keys: {film_id: film, lent: town, back: town},
    columns: {week: {type: int, lower: 0, upper: 3}}}
  film: {role: dimension, key: film_id, private: false, foreign_keys: {film_id: genre}, columns: {}}
  genre: {role: dimension, key: film_id, private: false, columns: {name: {type: string, categories: [drama, war]}}}
  town: {role: dimension, key: town_id, private: false, columns: {size: {type: int, lower: 0, upper: 2}}}
views:
  all: {of: loan, axes: [genre.name, loan.week], measures: [count]}
  towns: {of: loan, axes: [lent.size, back.size], measures: [count]}
"""
TABLES = {
    "loan": "SELECT i % 9 AS film_id, i % 4 AS week, i % 3 AS lent, i // 3 % 3 AS back FROM range(200) t(i)",
    "film": "SELECT i AS film_id FROM range(8) t(i)",
    "genre": "SELECT i AS film_id, ['drama', 'war'][1 + i % 2] AS name FROM range(10) t(i)",
    "town": "SELECT i AS town_id, i AS size FROM range(3) t(i)",
}
"""A film that is no row of its table has a genre; loans of it are in no inner join."""


@pytest.fixture(scope="module")
def twins(tmp_path_factory, publishes):
    folder, raw = tmp_path_factory.mktemp("films"), duckdb.connect()
    for table, rows in TABLES.items():
        raw.execute(f"CREATE TABLE {table} AS {rows}")
    return published(write_catalog(folder, CATALOG, TABLES), ZeroNoise()), raw


@pytest.mark.parametrize("joins", [
    "loan JOIN film USING (film_id) JOIN genre USING (film_id)",
    "genre JOIN film USING (film_id) JOIN loan USING (film_id)",
    "loan l, film f, genre g WHERE l.film_id = g.film_id AND f.film_id = g.film_id",
    "loan l JOIN film f ON TRUE JOIN genre g ON (g.film_id = f.film_id AND f.film_id = l.film_id AND week < 2)"
    " OR (f.film_id = l.film_id AND f.film_id = g.film_id AND (week = 3 OR name = 'war'))",
])  # fmt: skip
def test_joins_follow_equal_columns(twins, joins):
    release, raw = twins
    sql = f"SELECT name, COUNT(*) FROM {joins} GROUP BY name ORDER BY name"
    assert [row for row in release.query(sql).rows if row[1]] == raw.execute(sql).fetchall()


def test_what_a_join_does_not_imply_is_refused(twins):
    release, _ = twins
    with pytest.raises(NotSupportedError, match="back and lent are joined to one row of town"):
        release.query(
            "SELECT size, COUNT(*) FROM loan JOIN town ON lent = town_id AND back = town_id GROUP BY 1"
        )
    with pytest.raises(NotSupportedError, match="loan and genre are joined off the declared keys"):
        release.query(
            "SELECT COUNT(*) FROM loan LEFT JOIN film USING (film_id) LEFT JOIN genre USING (film_id)"
        )
