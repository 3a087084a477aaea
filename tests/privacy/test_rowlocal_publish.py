"""One person more changes the cells by at most M, whatever SQL the source and its derived columns hold."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import duckdb
import numpy as np
import pytest

from dpsql.catalog import Catalog, load_catalog
from dpsql.catalog.source import files_read
from dpsql.central.axes import axis_maker
from dpsql.central.central import publish_release
from dpsql.central.content import IntArray
from dpsql.central.placed_rows import exact_sums, place_rows, prepare_tables
from dpsql.central.plan import plan_release
from dpsql.engines import open_tables
from dpsql.errors import CatalogError, Error, SourceError
from dpsql.noise import ZeroNoise
from dpsql.release import open_release
from dpsql.row_expressions.expression import row_expression
from dpsql.row_expressions.rowlocal import Arm, checked_select, public_select
from tests.releases import write_tables
from tests.statements import sections

CATALOG = """
dpsql: 1
name: shop
source: {{kind: {kind}, root: data, {trusted}tables: {{sales: "{sql}", product: product.{kind}}}}}
privacy: {{lineage: shop, cap: 10, unit: row, epsilon: 1}}
tables:
  sales:
    role: fact
    {derive}
    columns: {{amount: {{type: int, lower: 0, upper: 9}}, code: {{type: string, categories: [a, b]}}{more}}}
  product: {{role: dimension, key: product_id, private: false, columns: {{price: {{type: int}}}}}}
views:
  counts: {{of: sales, axes: [{axis}]}}
"""

ROWS = 1000


def star(folder: Path, sql: str, *, derive: str = "", axis: str = "sales.amount", trusted: bool = False,
         kind: str = "parquet", extra: str = "", more: str = "") -> Catalog:  # fmt: skip
    """A shop whose sales are 1,000 rows (and `extra` ones), a row the unit."""
    columns = "i AS id, CAST(i % 10 AS BIGINT) AS amount, 'a' AS code, i % 5 AS product_id"
    product = "SELECT i AS product_id, i AS price FROM range(5) AS r(i)"
    sales = f"SELECT {columns} FROM range({ROWS}) AS r(i) {extra}"
    write_tables(folder / "data", {"sales": sales, "product": product}, kind)
    trust = "trusted: true, " if trusted else ""
    text = CATALOG.format(sql=sql, derive=derive, axis=axis, trusted=trust, kind=kind, more=more)
    (folder / "shop.yaml").write_text(text, encoding="utf-8")
    return load_catalog(folder / "shop.yaml")


def cells(catalog: Catalog) -> IntArray:
    """Exact cells of the one view."""
    with closing(open_tables(catalog)) as raw:
        plan = plan_release(catalog, axis_maker(catalog, raw))
        prepare_tables(catalog, raw, plan)
        table, _ = place_rows(catalog, raw, plan, "sales", bytes(32))
        statistic = plan.statistics[0]
        return exact_sums(raw.connection, table, statistic.axes, plan.shape(statistic), ["1"])[0]


ONE_MORE = "UNION ALL SELECT -1, 3, 'a', 1"

HOSTILE = [
    "SELECT CASE WHEN min(id) OVER () < 0 THEN 9 ELSE 0 END AS amount, code FROM 'sales.parquet'",
    "SELECT amount, code, row_number() OVER (ORDER BY id) AS n FROM 'sales.parquet' QUALIFY n % 2 = 0",
    "SELECT (amount + (SELECT count(*) FROM 'sales.parquet')) % 10 AS amount, code FROM 'sales.parquet'",
    "SELECT s.amount, s.code FROM 'sales.parquet' AS s JOIN 'sales.parquet' AS t ON s.amount = t.amount",
    "SELECT amount, code FROM 'sales.parquet' WHERE (SELECT min(id) FROM 'sales.parquet') = 0",
]


@pytest.mark.parametrize("sql", HOSTILE)
def test_hostile_sources_are_refused_at_load(sql: str, tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match=r"shop\.yaml:\d+: source\.tables\.sales: "):
        star(tmp_path, sql)


def test_without_the_checker_one_row_moves_many(tmp_path: Path) -> None:
    """What is refused would have broken the promise: `trusted` takes the statement as it is."""
    near = cells(star(tmp_path / "a", HOSTILE[0], trusted=True))
    far = cells(star(tmp_path / "b", HOSTILE[0], trusted=True, extra=ONE_MORE))
    assert np.abs(near - far).sum() == 2 * ROWS + 1


@pytest.mark.parametrize("sql", [
    "SELECT * FROM 'sales.parquet' WHERE 10 // (amount - 3) > 0",
    "SELECT (amount * 7) % 10 AS amount, code FROM 'sales.parquet' WHERE code = 'a'",
    "SELECT p.price + 1 AS amount, s.code FROM 'sales.parquet' AS s JOIN product AS p ON s.product_id = p.product_id",
    "SELECT s.* FROM 'sales.parquet' AS s LEFT JOIN product AS p USING (product_id)",
])  # fmt: skip
def test_accepted_sources_move_one_row(sql: str, tmp_path: Path) -> None:
    near, far = (cells(star(tmp_path / x, sql, extra=e)) for x, e in (("a", ""), ("b", ONE_MORE)))
    assert np.abs(near - far).sum() <= 1


DERIVED = [
    "amount) AS x, TRY((SELECT count(*) FROM raw.sales) % 10",
    "0) + (SELECT count(*) FROM raw.sales) + TRY(0",
    "(amount + count(*) OVER ()) % 10",
    "amount + (SELECT max(amount) FROM sales)",
    "amount + random()",
    "missing + 1",
]


@pytest.mark.parametrize("expression", DERIVED)
def test_a_derived_column_is_one_expression_of_declared_columns(expression: str, tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match=r"tables\.sales\.derive\.twice: "):
        star(tmp_path, "sales.parquet", derive=f'derive: {{twice: "{expression}"}}')


def test_a_row_on_which_derived_columns_fail_stops_nothing(tmp_path: Path) -> None:
    """Both share CAST(code AS INT), which the engine would have taken out of TRY."""
    derive = "derive: {low: CAST(code AS INT) + 1, high: CAST(code AS INT) + 2}"
    more = "".join(f", {name}: {{type: int, lower: 0, upper: 9, nullable: true}}" for name in ("low", "high"))
    catalog = star(tmp_path, "sales.parquet", derive=derive, axis="sales.low, sales.high", more=more)
    assert cells(catalog)[10, 10] == cells(catalog).sum() == ROWS


def test_text_is_read_as_the_declared_type(tmp_path: Path) -> None:
    derive = "derive: {half: amount / 2}"
    for kind in ("csv", "parquet"):
        catalog = star(tmp_path / kind, f"SELECT * FROM 'sales.{kind}'", derive=derive, kind=kind)
        assert cells(catalog)[:10].tolist() == [100] * 10


def test_keys_that_are_joined_are_unique_and_of_one_type(tmp_path: Path) -> None:
    sql = "SELECT s.amount, s.code FROM 'sales.parquet' AS s JOIN product AS p ON {} = p.product_id"
    with pytest.raises(SourceError, match=r"source\.tables\.sales: product is joined by a VARCHAR"):
        cells(star(tmp_path / "a", sql.format("s.code")))
    catalog = star(tmp_path / "b", sql.format("s.product_id"))
    write_tables(tmp_path / "b" / "data", {"product": "SELECT 1 AS product_id, 1 AS price FROM range(2)"})
    with pytest.raises(SourceError, match=r"tables\.product\.key: product_id is NULL or repeated"):
        cells(catalog)


def test_a_trusted_source_is_told_in_the_release(tmp_path: Path) -> None:
    catalog = star(tmp_path, HOSTILE[0], trusted=True)
    assert catalog.vouched == ("sales",)
    publish_release(catalog, tmp_path / "shop.dpsql", noise=ZeroNoise(), key=b"k" * 32)
    with closing(open_release(tmp_path / "shop.dpsql", insecure=True)) as release:
        assert release.meta.privacy.vouched == ("sales",) and release.meta.catalog["vouched"] == ["sales"]


def test_trusted_says_nothing_where_all_is_checked(tmp_path: Path) -> None:
    assert star(tmp_path, "SELECT * FROM 'sales.parquet'", trusted=True).vouched == ()


def test_public_tables_do_not_read_private_files(tmp_path: Path) -> None:
    star(tmp_path, "sales.parquet")
    text = (tmp_path / "shop.yaml").read_text(encoding="utf-8")
    text = text.replace(
        "product: product.parquet", "product: SELECT DISTINCT product_id FROM './sales.parquet'"
    )
    (tmp_path / "shop.yaml").write_text(text.replace(", columns: {price: {type: int}}", ""), encoding="utf-8")
    with pytest.raises(CatalogError, match=r"is public and reads `sales.parquet`"):
        load_catalog(tmp_path / "shop.yaml")


def test_files_that_a_table_reads(tmp_path: Path) -> None:
    sql = "SELECT s.* FROM './sales.parquet' AS s LEFT JOIN product AS p USING (product_id)"
    catalog = star(tmp_path, sql)
    source, tables = catalog.raw_source(), catalog.tables
    assert files_read(source, tables, "sales") == ("sales.parquet",)
    assert files_read(source, tables, "product") == ("product.parquet",)


def test_a_private_table_is_no_view_of_a_database(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as connection:
        connection.execute("CREATE TABLE base AS SELECT 1 AS amount, 'a' AS code")
        connection.execute(
            "CREATE VIEW windowed AS SELECT amount + count(*) OVER () AS amount, code FROM base"
        )
        connection.execute("CREATE TABLE product AS SELECT 1 AS product_id, 1 AS price")
    text = CATALOG.format(sql="windowed", derive="", axis="sales.amount", trusted="", kind="duckdb", more="")
    text = text.replace("root: data", "root: shop.duckdb").replace("product.duckdb", "product")
    for name, place in (
        ("view", "windowed"),
        ("select", "SELECT * FROM windowed"),
        ("table", "SELECT * FROM base"),
    ):
        (tmp_path / f"{name}.yaml").write_text(text.replace("windowed", place), encoding="utf-8")
    for name in ("view", "select"):
        with pytest.raises(Error, match="is a view of the database"):
            open_tables(load_catalog(tmp_path / f"{name}.yaml"))
    open_tables(load_catalog(tmp_path / "table.yaml")).close()


# SQL over private rows is row-local: what looks at a second row, at the clock or at another file is refused.


ARMS = {"product": Arm("product", "product_id"), "product.parquet": Arm("product", "product_id")}

FILE = sections(Path(__file__).with_name("rowlocal.sql"))


@pytest.mark.parametrize("sql", [text for text, _ in FILE["accepted"]])
def test_row_local_statements_are_taken(sql: str) -> None:
    query = checked_select(sql, ARMS)
    assert query.reads == ("sales.parquet",) and not query.trusted


@pytest.mark.parametrize("sql", [text for text, _ in FILE["refused"]])
def test_statements_over_several_rows_are_refused(sql: str) -> None:
    with pytest.raises(CatalogError):
        checked_select(sql, ARMS)


@pytest.mark.parametrize("text", [text for text, _ in FILE["expressions beyond one row"]])
def test_expressions_beyond_one_row_are_refused(text: str) -> None:
    with pytest.raises(CatalogError):
        row_expression(text)


def test_a_comment_does_not_reach_the_engine() -> None:
    assert row_expression("a -- ) AS x").sql == '"a"'
    assert row_expression("a /* ) */ + 1").sql == '"a" + 1'


def test_public_statements_may_look_at_many_rows_and_stay_pure() -> None:
    digits = "(SELECT unnest(range(3)) AS x)"
    query = public_select(f"SELECT DISTINCT zone, max(x) OVER () AS m FROM 'zone.parquet', {digits}")
    assert query.reads == ("zone.parquet",) and 'FROM "read"."zone.parquet"' in query.sql
    for sql in (
        "SELECT random() AS a",
        "SELECT * FROM glob('*')",
        "SELECT user AS a",
        "SELECT * FROM read_text('a')",
    ):
        with pytest.raises(CatalogError):
            public_select(sql)


SQL_HOSTILE = [
    "'a'",
    "''",
    "'1'",
    "'-1e400'",
    "'9999-12-31'",
    "'x('",
    "NULL",
    "'\u0661'",
    "'inf'",
    "'2020-02-30'",
]
NUMBERS = [
    "9223372036854775807", "(-9223372036854775807 - 1)", "0", "NULL", "1e308::DOUBLE", "'nan'::DOUBLE",
    "'-inf'::DOUBLE",
]  # fmt: skip


@pytest.mark.parametrize("call", [text for text, _ in FILE["calls"]])
def test_no_row_makes_an_accepted_expression_fail(call: str) -> None:
    """Twice the same part with other ends: the engine must not take what is common out of TRY."""
    checked = row_expression(call.format(s="s", n="n")).sql
    with duckdb.connect() as connection:
        connection.execute("SET disabled_optimizers = 'common_subexpressions'")
        for number in NUMBERS:
            connection.execute(
                f"CREATE OR REPLACE TABLE t AS SELECT s, {number} AS n FROM (VALUES {rows()}) AS v(s)"
            )
            try:
                described = connection.execute(f"DESCRIBE SELECT {checked} FROM t").fetchall()
            except duckdb.BinderException:
                continue  # a type that the function does not take; refused before a row is read
            assert described
            connection.execute(
                f"CREATE OR REPLACE TABLE got AS SELECT TRY(concat({checked}, 'a')), TRY(concat({checked}, 'b')), "
                f"TRY({checked}) FROM t"
            )


def rows() -> str:
    return ", ".join(f"({value})" for value in SQL_HOSTILE)
