"""Values of a table that the catalog alone tells: the table's own rows, whatever other paths reach it."""

from __future__ import annotations

import duckdb
import pytest

from dpsql.errors import NotSupportedError
from dpsql.noise import ZeroNoise
from tests.oracle.star import make_shop, publish_shop
from tests.releases import published, write_catalog

CATALOG = """
privacy: {lineage: films, cap: 4, unit: row, epsilon: 4, delta: 0}
tables:
  rental:
    role: fact
    foreign_keys: {customer_id: customer, store_id: store}
    columns: {fee: {type: int, lower: 0, upper: 100, measure: true}}
  customer:
    role: dimension
    key: customer_id
    private: true
    foreign_keys: {country_id: country}
    columns: {age: {type: int, lower: 18, upper: 39}}
  store:
    role: dimension
    key: store_id
    private: false
    foreign_keys: {country_id: country}
    columns: {size: {type: int}}
  country:
    role: dimension
    key: country_id
    private: false
    columns: {country: {type: string}, continent: {type: string}}
views:
  by_store: {of: rental, axes: [{axis: store, by: [country.country, store_id]}], measures: [count, rental.fee]}
  by_home: {of: rental, axes: [{axis: customer_id.country_id, by: [BY]}, customer.age], measures: [count]}
"""
TABLES = {
    "country": "SELECT i AS country_id, 'c' || i AS country, 'k' || (i % 5) AS continent FROM range(109) t(i)",
    "store": "SELECT i AS store_id, 7 * i + 1 AS country_id, 10 * i AS size FROM range(2) t(i)",
    "customer": "SELECT i AS customer_id, i % 109 AS country_id, 18 + i % 22 AS age FROM range(300) t(i)",
    "rental": "SELECT i AS rental_id, i % 300 AS customer_id, i % 2 AS store_id, i % 101 AS fee FROM range(900) t(i)",
}
"""Two stores reach 2 of the 109 countries, customers reach all."""


def films(folder, by, catalog=CATALOG):
    raw = duckdb.connect()
    for table, rows in TABLES.items():
        raw.execute(f"CREATE TABLE {table} AS {rows}")
    return raw, published(write_catalog(folder, catalog.replace("BY", by), TABLES), ZeroNoise())


@pytest.fixture(scope="module")
def by_country(tmp_path_factory, publishes):
    return films(tmp_path_factory.mktemp("films"), "country")


OWN_ROWS = (
    "SELECT COUNT(DISTINCT country) FROM country",
    "SELECT COUNT(DISTINCT continent), MIN(country), MAX(country) FROM country",
    "SELECT DISTINCT continent FROM country ORDER BY 1",
    "SELECT continent FROM country GROUP BY continent ORDER BY 1",
    "SELECT continent, COUNT(DISTINCT country) FROM country GROUP BY continent ORDER BY 1",
    "SELECT COUNT(DISTINCT country) FROM country WHERE continent = 'k1'",
    "SELECT COUNT(DISTINCT country) FROM store JOIN country USING (country_id)",
    "SELECT COUNT(DISTINCT country) FROM customer JOIN country USING (country_id)",
    "SELECT COUNT(DISTINCT size) FROM store WHERE size > 5",
)


@pytest.mark.parametrize("sql", OWN_ROWS)
def test_a_table_on_two_paths_lists_its_own_rows(by_country, sql):
    raw, answerer = by_country
    assert answerer.query(sql).rows == tuple(raw.execute(sql).fetchall())


def test_how_many_are_listed_is_not_how_many_occur(by_country):
    _, answerer = by_country
    rows = "FROM rental JOIN customer USING (customer_id) JOIN country USING (country_id)"
    answer = answerer.query(f"SELECT COUNT(DISTINCT age) {rows} WHERE age < 30")
    assert answer.rows == ((12,),)
    assert any(
        "of the values that the catalog lists, not of those that occur" in note for note in answer.notes
    )
    assert answerer.query(f"SELECT age < 30, COUNT(DISTINCT age) {rows} GROUP BY 1").rows == (
        (True, 12),
        (False, 10),
    )
    for sql in (
        f"SELECT COUNT(DISTINCT age) {rows} WHERE country = 'c1'",
        f"SELECT COUNT(DISTINCT age), COUNT(*) {rows} WHERE country = 'c1'",
        f"SELECT COUNT(DISTINCT age) {rows} WHERE country = 'c1' OR age < 30",
        f"SELECT country, COUNT(DISTINCT age) {rows} GROUP BY 1",
        f"SELECT country, COUNT(DISTINCT age), COUNT(*) {rows} GROUP BY 1",
    ):
        with pytest.raises(NotSupportedError, match=r"how many values the catalog lists.*country"):
            answerer.query(sql)


def test_an_axis_of_another_table_lists_what_its_rows_reach(tmp_path, publishes):
    """Where the release has no row of the table itself, a list is said to be of some, and nothing is counted in it."""
    stores = CATALOG[: CATALOG.index("  by_home")]
    _, answerer = films(tmp_path, "", stores)
    listed = answerer.query("SELECT DISTINCT country FROM country")
    assert listed.rows == (("c1",), ("c8",))
    assert any("the values that some row of store has" in flag for flag in listed.flags)
    for sql in ("SELECT COUNT(DISTINCT country) FROM country", "SELECT MAX(country) FROM country"):
        with pytest.raises(NotSupportedError, match="not an axis of the release"):
            answerer.query(sql)


def test_the_bundled_shop(tmp_path, publishes):
    raw, answerer = make_shop(tmp_path), publish_shop(tmp_path, ZeroNoise())
    for sql in (
        "SELECT COUNT(DISTINCT category), COUNT(DISTINCT brand) FROM product",
        "SELECT DISTINCT category FROM product ORDER BY 1",
        "SELECT DISTINCT brand FROM product WHERE category = 'books' ORDER BY 1",
    ):
        assert answerer.query(sql).rows == tuple(raw.execute(sql).fetchall()), sql


# Joins follow equal columns, in whichever order USING, ON, WHERE and OR name them.


LOANS_CATALOG = """
privacy: {lineage: films, cap: 4, unit: row, epsilon: 4}
tables:
  loan: {role: fact, foreign_keys: {film_id: film, next_id: genre, last_id: genre}}
  film: {role: dimension, key: film_id, private: false, foreign_keys: {film_id: genre}, columns: {}}
  genre: {role: dimension, key: film_id, private: false, columns: {name: {type: string, categories: [drama, war]}}}
views:
  all: {of: loan, axes: [film_id.film_id.name], measures: [count]}
"""
LOANS_TABLES = {
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
    release = published(write_catalog(tmp_path, LOANS_CATALOG, LOANS_TABLES), ZeroNoise())
    sql = f"SELECT name, COUNT(*) FROM {joins} GROUP BY name ORDER BY name"
    if "LEFT" in joins or "next_id" in joins:  # outer joins imply nothing; two keys of one row are compared
        with pytest.raises(
            NotSupportedError, match=r"off the declared keys|last_id and next_id are joined to one row"
        ):
            release.query(sql)
        return
    raw = duckdb.connect()
    for table, rows in LOANS_TABLES.items():
        raw.execute(f"CREATE TABLE {table} AS {rows}")
    assert [row for row in release.query(sql).rows if row[1]] == raw.execute(sql).fetchall()
