"""`dpsql rehearse`: releases of made-up rows, where no private file and no ledger exists."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from dpsql.catalog import load_catalog, parse_catalog
from dpsql.curator import rehearse
from dpsql.curator.prove.madeup import made_up
from dpsql.curator.rehearse import RehearsedColumn, _laws, _written, public_guess, rehearse_catalog
from dpsql.errors import CatalogError, InterfaceError, ReleaseError
from tests.command import dpsql_command

CATALOG = """
dpsql: 1
name: shop
source: {kind: parquet, root: data, tables: {person: person.parquet, item: item.parquet, sale: sale.parquet}}
privacy: {lineage: shop, cap: 4, unit: person.id, epsilon: 1, delta: 1e-6}
tables:
  person: {role: dimension, key: id, private: true, columns: {region: {type: string, categories: [n, s, e, w]}}}
  item: {role: dimension, key: item_id, private: false, columns: {kind: {type: string}}}
  sale: {role: fact, max_ids: 5, foreign_keys: {id: person, item_id: item}, CLIPPED
    columns: {price: {type: decimal, scale: 2, lower: 0, upper: 50, measure: true, cuts: {width: 10}}}}
views:
  by_region: {of: sale, axes: [person.region], measures: [count, sale.price]}
  by_kind: {of: sale, axes: [{axis: item, by: [kind]}], measures: [count]}
  by_price: {of: sale, axes: [sale.price], measures: [count]}
"""
WORKLOAD = """
SELECT COUNT(*) AS n FROM sale;
SELECT region, SUM(price) AS s FROM sale JOIN person USING (id) GROUP BY region;
SELECT kind, COUNT(*) AS n FROM sale JOIN item USING (item_id) GROUP BY kind;
SELECT MEDIAN(price) AS m FROM sale;
SELECT * FROM sale;
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A folder with a catalog, questions, and the public table alone."""
    (tmp_path / "data").mkdir()
    item = "SELECT i AS item_id, 'kind ' || i % 3 AS kind FROM range(9) AS t(i)"
    duckdb.sql(f"COPY ({item}) TO '{tmp_path}/data/item.parquet'")
    (tmp_path / "shop.yaml").write_text(CATALOG.replace("CLIPPED", ""))
    (tmp_path / "q.sql").write_text(WORKLOAD)
    return tmp_path


def test_rows_are_made_up_where_no_private_file_and_no_ledger_is(shop: Path, publishes: None) -> None:
    before = sorted(shop.rglob("*"))
    done = dpsql_command(
        "rehearse", shop / "shop.yaml", "--workload", shop / "q.sql", "--units", 200, "--rows", 600,
        "--releases", 2,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "200 units, 600 rows" in done.stdout and "covered 6 of 6" in done.stdout
    assert "refused: the statement asks for rows of sale" in done.stdout
    assert sorted(shop.rglob("*")) == before


def test_exact_answers_read_made_up_rows_alone(shop: Path) -> None:
    """The database that runs a question's own text opens no file, and its settings are final."""
    for table, columns in (
        ("person", "1 AS id, 'n' AS region"),
        ("sale", "1 AS id, 2 AS item_id, 3.5 AS price"),
    ):
        duckdb.sql(f"COPY (SELECT {columns}) TO '{shop}/data/{table}.parquet'")
    exact = rehearse._exact_database(shop / "data", load_catalog(shop / "shop.yaml"))
    assert exact.execute("SELECT COUNT(*), SUM(price) FROM sale").fetchall() == [(1, 3.5)]
    for text in (f"FROM '{shop}/data/item.parquet'", "SET enable_external_access = true"):
        with pytest.raises(duckdb.Error):
            exact.execute(text)
    exact.close()


@pytest.mark.slow
def test_rows_beyond_a_bound_that_nothing_measures_are_found(shop: Path, publishes: None) -> None:
    """The curator says that nobody owns more than five rows, and states fifty to the rehearsal."""
    catalog = shop / "shop.yaml"
    catalog.write_text(CATALOG.replace("CLIPPED", "clipped_share: 0,"))
    star = load_catalog(catalog)
    workload = ["SELECT COUNT(*) AS n FROM sale"]
    (question,) = rehearse_catalog(
        star, workload, replace(public_guess(star, 200, 3_000), most=50), releases=2
    ).questions
    assert question.columns[0].loud == (1, 1)
    (sound,) = rehearse_catalog(star, workload, public_guess(star, 200, 400), releases=2).questions
    assert sound.columns[0].loud == (0, 1)


def test_releases_bear_the_mark_of_test_entropy(
    shop: Path, monkeypatch: pytest.MonkeyPatch, publishes: None
) -> None:
    opened, open_session = [], rehearse.open_session

    def strict(paths: list[Path], *, insecure: bool) -> object:
        with pytest.raises(ReleaseError, match="entropy"):
            open_session(paths)
        opened.append(paths)
        return open_session(paths, insecure=insecure)

    monkeypatch.setattr(rehearse, "open_session", strict)
    star = load_catalog(shop / "shop.yaml")
    rehearse_catalog(star, [], public_guess(star, 50, 100), releases=1)
    assert len(opened) == 4, "three laws and a loud release"


def test_a_guess_is_needed_and_streams_are_refused(shop: Path) -> None:
    star = load_catalog(shop / "shop.yaml")
    with pytest.raises(InterfaceError, match="--units and --rows"):
        public_guess(star, None, None)
    with pytest.raises(InterfaceError, match="at most"):
        rehearse_catalog(star, [], public_guess(star, 10, 10**7))
    stream = star.model_copy(update={"stream": object()})
    with pytest.raises(CatalogError, match="streams and collections"):
        rehearse_catalog(stream, [], public_guess(star, 10, 20))


def column(*by_law: float | None) -> RehearsedColumn:
    halves = [half for half in by_law if half is not None]
    return RehearsedColumn("n", max(halves, default=None), by_law, 1_000.0, 9, 9, (0, 1), 1.0)


def test_lights_follow_the_width_and_what_the_laws_agree_on() -> None:
    assert [column(10, 12, 20).light, column(60, 70, 90).light, column(510, 600, 700).light] == [
        "green", "yellow", "red",
    ]  # fmt: skip
    assert column(10, 20, 31).light == column(10, 20, None).light == "unclear"
    assert column(None, None, None).light == "red"


def test_misses_are_chance_until_they_are_many() -> None:
    assert rehearse._chance(0, 10) == pytest.approx(1)
    assert rehearse._chance(10, 10) == pytest.approx(0.05**10)


@pytest.mark.slow
def test_changes_that_help_are_rehearsed_and_no_private_file_is_opened(shop: Path, publishes: None) -> None:
    (shop / "shop.yaml").write_text(
        CATALOG.replace("CLIPPED", "")
        .replace("max_ids: 5", "max_ids: auto")
        .replace("epsilon: 1,", "epsilon: 0.2,")
    )
    before = sorted(shop.rglob("*"))
    done = dpsql_command(
        "rehearse", shop / "shop.yaml", "--workload", shop / "q.sql", "--units", 300, "--rows", 900,
        "--releases", 1, "--offers", "--json",
    )  # fmt: skip
    report = json.loads(done.stdout)
    assert sorted(shop.rglob("*")) == before
    assert 4 not in report["usable"], "a refused question is no usable one"
    offers = dict(report["offers"])
    assert 0 < len(offers) <= rehearse.OFFERS
    assert all(len(report["usable"]) < len(usable) <= 3 for usable in offers.values())
    assert [*map(len, offers.values())] == sorted(map(len, offers.values()), reverse=True)
    assert any("`max_ids: 6, clipped_share: 0` in sale" in words for words in offers)


def test_made_up_rows_follow_each_table_s_guess_and_the_means(shop: Path, tmp_path: Path) -> None:
    """Where visits had a mean of 3 of at most 200, 90 were rehearsed; a small table had the rows of the largest."""
    text = (
        (shop / "shop.yaml")
        .read_text()
        .replace("sale: sale.parquet}", "sale: sale.parquet, back: back.parquet}")
    )
    text = text.replace("foreign_keys: {id: person, item_id", "guess: {units: 200, rows: 2000, means: {price: 2}}, "
                        "foreign_keys: {id: person, item_id")  # fmt: skip
    text = text.replace("views:", "  back: {role: fact, max_ids: 2, foreign_keys: {id: person}, guess: {units: 50, "
                        "rows: 60, means: {fee: 9}},\n    columns: {fee: {type: int, lower: 0, upper: 10, measure: "
                        "true}}}\nviews:\n  fees: {of: back, axes: [back.fee], measures: [count]}")  # fmt: skip
    star = parse_catalog(text, "shop.yaml", shop / "shop.yaml")
    guess = public_guess(star, None, None)
    for law, amounts in _laws(guess).items():
        place = tmp_path / law
        _written(made_up(star), amounts, place)
        for table, column, rows, mean in (("sale", "price", 2000, 2), ("back", "fee", 60, 9)):
            found, middle = duckdb.sql(
                f"SELECT COUNT(*), AVG({column}) FROM '{place}/{table}.parquet'"
            ).fetchall()[0]
            assert rows / 1.5 < found < rows * 1.5 and mean / 1.3 < float(middle) < mean * 1.3, (law, table)
