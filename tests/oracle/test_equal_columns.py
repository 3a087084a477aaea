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
source: {kind: parquet, root: ROOT, tables: {loan: loan.parquet, film: film.parquet, genre: genre.parquet}}
privacy: {lineage: films, cap: 4, unit: row, epsilon: 4}
tables:
  loan: {role: fact, foreign_keys: {film_id: film, next_id: genre, last_id: genre}}
  film: {role: dimension, key: film_id, private: false, foreign_keys: {film_id: genre}, columns: {}}
  genre: {role: dimension, key: film_id, private: false, columns: {name: {type: string, categories: [drama, war]}}}
views:
  all: {of: loan, axes: [film_id.film_id.name], measures: [count]}
"""
TABLES = {
    "loan": "SELECT i % 9 AS film_id, i % 3 AS next_id, i // 3 % 3 AS last_id FROM range(200) t(i)",
    "film": "SELECT i AS film_id FROM range(8) t(i)",
    "genre": "SELECT i AS film_id, ['drama', 'war'][1 + i % 2] AS name FROM range(10) t(i)",
}
"""A film that is no row of its table has a genre; loans of it are in no inner join."""


@pytest.mark.parametrize("joins", [
    "loan JOIN film USING (film_id) JOIN genre USING (film_id)",
    "genre JOIN film USING (film_id) JOIN loan USING (film_id)",
    "loan l, film f, genre g WHERE l.film_id = g.film_id AND f.film_id = g.film_id",
    "loan l JOIN film f ON TRUE JOIN genre g ON (g.film_id = f.film_id AND f.film_id = l.film_id AND name < 'e')"
    " OR (f.film_id = l.film_id AND f.film_id = g.film_id AND name = 'war')",
    "loan LEFT JOIN film USING (film_id) LEFT JOIN genre USING (film_id)",
    "loan JOIN genre ON next_id = genre.film_id AND last_id = genre.film_id",
])  # fmt: skip
def test_joins_follow_equal_columns_or_are_refused(tmp_path, publishes, joins):
    release = published(write_catalog(tmp_path, CATALOG, TABLES), ZeroNoise())
    sql = f"SELECT name, COUNT(*) FROM {joins} GROUP BY name ORDER BY name"
    if "LEFT" in joins or "next_id" in joins:  # outer joins imply nothing; two keys of one row are compared
        with pytest.raises(
            NotSupportedError, match=r"off the declared keys|last_id and next_id are joined to one row"
        ):
            release.query(sql)
        return
    raw = duckdb.connect()
    for table, rows in TABLES.items():
        raw.execute(f"CREATE TABLE {table} AS {rows}")
    assert [row for row in release.query(sql).rows if row[1]] == raw.execute(sql).fetchall()
