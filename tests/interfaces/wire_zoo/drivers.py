"""What a Python driver does with a server: connect, reflect, parameters, cursors, COPY, errors, cancelling.

    python drivers.py DRIVER PORT

Prints a line of JSON for each step: its name, and an error or nothing. The same steps run against a PostgreSQL, whose
log gives the statements of `statements.json`, and against `dpsql serve`. Needs nothing of dpsql, so that drivers may
live in an environment of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import decimal
import io
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

COUNT = "SELECT COUNT(*) AS n FROM shop WHERE age >= {0} AND region = {1}"
DAYS = "SELECT COUNT(*) AS n FROM shop WHERE sold_on >= {0} AND sold_on < {1}"
LISTED = "SELECT COUNT(*) AS n FROM shop WHERE region = ANY({0})"
AGES = "SELECT COUNT(*) AS n FROM shop WHERE age = ANY({0})"
GROUPS = "SELECT region, COUNT(*) AS n FROM shop WHERE region IS NOT NULL GROUP BY region ORDER BY region"
SLOW = os.environ.get("SLOW", "SELECT pg_sleep(20)")
DAY, NEXT = datetime.date(2025, 2, 1), datetime.date(2025, 4, 1)
MOMENT = datetime.datetime(2025, 2, 1, 12, 30, tzinfo=datetime.UTC)
PRICE = decimal.Decimal("12345.6700")
CLIENTS = 32

Step = Callable[[int], Any]
DRIVERS: dict[str, list[Step]] = {}


def step(*drivers: str) -> Callable[[Step], Step]:
    """Register a step of some drivers."""

    def register(function: Step) -> Step:
        for driver in drivers:
            DRIVERS.setdefault(driver, []).append(function)
        return function

    return register


def same(value: object, wanted: object) -> None:
    """Fail unless two values are equal and of one type."""
    if value != wanted or type(value) is not type(wanted):
        raise AssertionError(f"{value!r} is not {wanted!r}")


def is_number(value: object) -> None:
    """Fail unless a value is a number."""
    if not isinstance(value, int | float | decimal.Decimal):
        raise AssertionError(f"{value!r} is no number")


@contextlib.contextmanager
def state(wanted: str) -> Iterator[None]:
    """Fail unless the block ends by an error with this SQLSTATE."""
    try:
        yield
    except Exception as error:  # every driver has its own
        codes = [getattr(error, name, None) for name in ("sqlstate", "pgcode")]
        codes += [value for part in error.args if isinstance(part, dict) for value in [part.get("C")]]
        codes += [part for part in error.args[:1] if isinstance(part, str) and len(part) == 5]
        if wanted not in codes:
            raise AssertionError(f"{wanted} is not among {codes}: {error}") from error
    else:
        raise AssertionError(f"no error; {wanted} was expected")


def columns_of(description: Any) -> list[str]:
    """Column names of a DB-API cursor."""
    return [column[0] if isinstance(column[0], str) else column[0].decode() for column in description]


# psycopg 3


def psycopg_connect(port: int, **options: Any) -> Any:
    import psycopg

    return psycopg.connect(host="127.0.0.1", port=port, user="psycopg3", dbname="shop", **options)


@step("psycopg3")
def psycopg_parameters(port: int) -> None:
    with psycopg_connect(port) as connection:
        for binary in (False, True):
            cursor = connection.cursor(binary=binary)
            is_number(cursor.execute(COUNT.format("%s", "%s"), (30, "east")).fetchone()[0])
            is_number(cursor.execute(DAYS.format("%s", "%s"), (DAY, NEXT)).fetchone()[0])
            is_number(cursor.execute(LISTED.format("%s"), (["east", "west"],)).fetchone()[0])
            is_number(cursor.execute(AGES.format("%s"), ([30, 31],)).fetchone()[0])
            same(cursor.execute("SELECT %s::numeric AS x", (PRICE,)).fetchone()[0], PRICE)
            same(cursor.execute("SELECT %b::numeric AS x", (PRICE,)).fetchone()[0], PRICE)
            same(cursor.execute("SELECT %s::timestamptz AS x", (MOMENT,)).fetchone()[0], MOMENT)
            same(cursor.execute("SELECT %b::timestamptz AS x", (MOMENT,)).fetchone()[0], MOMENT)
            same(cursor.execute("SELECT %s::int[] AS x", ([1, 2, 3],)).fetchone()[0], [1, 2, 3])
            same(cursor.execute("SELECT %b::text[] AS x", (["a", "b,c"],)).fetchone()[0], ["a", "b,c"])


@step("psycopg3")
def psycopg_prepared(port: int) -> None:
    with psycopg_connect(port, prepare_threshold=0) as connection:
        answers = [connection.execute(COUNT.format("%s", "%s"), (30, "east")).fetchone() for _ in range(3)]
        same(len(set(answers)), 1)


@step("psycopg3")
def psycopg_types(port: int) -> None:
    from psycopg.types import TypeInfo
    from psycopg.types.enum import EnumInfo

    with psycopg_connect(port) as connection:
        same(TypeInfo.fetch(connection, "numeric").oid, 1700)
        same(EnumInfo.fetch(connection, "mood"), None)


@step("psycopg3")
def psycopg_cursor(port: int) -> None:
    with psycopg_connect(port) as connection, connection.cursor(name="groups") as cursor:
        cursor.execute(GROUPS)
        same([row[0] for row in cursor], ["east", "west"])
    with psycopg_connect(port) as connection, connection.cursor(name="scrolled", scrollable=True) as cursor:
        cursor.execute(GROUPS)
        cursor.scroll(1)
        same(cursor.fetchone()[0], "west")


@step("psycopg3")
def psycopg_copy(port: int) -> None:
    with psycopg_connect(port) as connection, connection.cursor() as cursor:
        with cursor.copy(f"COPY ({GROUPS}) TO STDOUT") as copy:
            same([row[0] for row in copy.rows()], ["east", "west"])
        with cursor.copy(f"COPY ({GROUPS}) TO STDOUT (FORMAT BINARY)") as copy:
            copy.set_types(["text", "float8" if not os.environ.get("COUNTS") else os.environ["COUNTS"]])
            same([row[0] for row in copy.rows()], ["east", "west"])
        with cursor.copy(f"COPY ({GROUPS}) TO STDOUT WITH CSV HEADER") as copy:
            same(b"".join(bytes(block) for block in copy).splitlines()[0], b"region,n")


@step("psycopg3")
def psycopg_errors(port: int) -> None:
    for text, code in (
        ("SELECT COUNT(*) FROM nothing", "42P01"), ("SELECT COUNT(nothing) FROM sales", "42703"),
        ("SELECT COUNT(* FROM sales", "42601"), ("SHOW nothing", "42704"), ("FETCH 1 FROM nothing", "34000"),
    ):  # fmt: skip
        with psycopg_connect(port, autocommit=True) as connection, state(code):
            connection.execute(text)


@step("psycopg3")
def psycopg_explain(port: int) -> None:
    with psycopg_connect(port) as connection:
        same(bool(connection.execute(f"EXPLAIN {GROUPS}").fetchall()), True)


@step("psycopg3")
def psycopg_failed_transaction(port: int) -> None:
    with psycopg_connect(port) as connection:
        with state("42P01"):
            connection.execute("SELECT COUNT(*) FROM nothing")
        with state("25P02"):
            connection.execute("SELECT 1")
        connection.rollback()
        same(connection.execute("SELECT 1").fetchone()[0], 1)


@step("psycopg3")
def psycopg_timeout(port: int) -> None:
    with psycopg_connect(port, options="-c statement_timeout=300") as connection:
        same(connection.execute("SHOW statement_timeout").fetchone()[0], "300ms")
        with state("57014"):
            connection.execute(SLOW)


@step("psycopg3")
def psycopg_cancel(port: int) -> None:
    with psycopg_connect(port) as connection:
        threading.Timer(0.5, connection.cancel).start()
        with state("57014"):
            connection.execute(SLOW)


@step("psycopg3")
def psycopg_crowd(port: int) -> None:
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(psycopg_connect(port)) for _ in range(CLIENTS)]
        same(len({client.execute(GROUPS).fetchall()[0] for client in crowd}), 1)


# psycopg 2


def psycopg2_connect(port: int, **options: Any) -> Any:
    import psycopg2

    return psycopg2.connect(host="127.0.0.1", port=port, user="psycopg2", dbname="shop", **options)


@step("psycopg2")
def psycopg2_parameters(port: int) -> None:
    with contextlib.closing(psycopg2_connect(port)) as connection, connection.cursor() as cursor:
        for text, values in (
            (COUNT.format("%s", "%s"), (30, "east")), (DAYS.format("%s", "%s"), (DAY, NEXT)),
            (LISTED.format("%s"), (["east", "west"],)), (AGES.format("%s"), ([30, 31],)),
        ):  # fmt: skip
            cursor.execute(text, values)
            is_number(cursor.fetchone()[0])
        for text, value in (("SELECT %s::numeric", PRICE), ("SELECT %s::timestamptz", MOMENT),
                            ("SELECT %s::int[]", [1, 2])):  # fmt: skip
            cursor.execute(text, (value,))
            same(cursor.fetchone()[0], value)


@step("psycopg2")
def psycopg2_extras(port: int) -> None:
    from psycopg2 import extras

    with contextlib.closing(psycopg2_connect(port)) as connection:
        extras.HstoreAdapter.get_oids(connection)
        with connection.cursor(cursor_factory=extras.RealDictCursor) as cursor:
            cursor.execute(GROUPS)
            same(cursor.fetchone()["region"], "east")


@step("psycopg2")
def psycopg2_cursor_and_copy(port: int) -> None:
    with contextlib.closing(psycopg2_connect(port)) as connection:
        with connection.cursor(name="groups") as cursor:
            cursor.execute(GROUPS)
            same([row[0] for row in cursor], ["east", "west"])
        with connection.cursor() as cursor:
            target = io.StringIO()
            cursor.copy_expert(f"COPY ({GROUPS}) TO STDOUT", target)
            same([line.split("\t")[0] for line in target.getvalue().splitlines()], ["east", "west"])


@step("psycopg2")
def psycopg2_session(port: int) -> None:
    with contextlib.closing(psycopg2_connect(port, options="-c statement_timeout=300")) as connection:
        connection.set_session(isolation_level="REPEATABLE READ", readonly=True, autocommit=True)
        with connection.cursor() as cursor:
            with state("42P01"):
                cursor.execute("SELECT COUNT(*) FROM nothing")
            with state("57014"):
                cursor.execute(SLOW)


# asyncpg


async def _asyncpg(port: int, **options: Any) -> Any:
    import asyncpg

    return await asyncpg.connect(host="127.0.0.1", port=port, user="asyncpg", database="shop", **options)


def run_asyncpg(work: Callable[[Any], Any], **options: Any) -> Step:
    def run(port: int) -> None:
        async def main() -> None:
            connection = await _asyncpg(port, **options)
            try:
                await work(connection)
            finally:
                await connection.close(timeout=5)

        asyncio.run(main())

    run.__name__ = work.__name__
    return step("asyncpg")(run)


async def asyncpg_parameters(connection: Any) -> None:
    is_number(await connection.fetchval(COUNT.format("$1", "$2"), 30, "east"))
    is_number(await connection.fetchval(DAYS.format("$1", "$2"), DAY, NEXT))
    is_number(await connection.fetchval(LISTED.format("$1"), ["east", "west"]))
    is_number(await connection.fetchval(LISTED.format("$1::text[]"), ["east", "west"]))
    is_number(await connection.fetchval(AGES.format("$1"), [30, 31]))
    is_number(await connection.fetchval("SELECT COUNT(*) FROM shop WHERE age BETWEEN $1 AND $2", 30, 40))
    is_number(await connection.fetchval("SELECT COUNT(*) FROM shop WHERE region IN ($1, $2)", "east", "west"))
    same(len(await connection.fetch(GROUPS + " LIMIT $1", 1)), 1)


async def asyncpg_values(connection: Any) -> None:
    same(await connection.fetchval("SELECT $1::numeric", PRICE), PRICE)
    same(await connection.fetchval("SELECT $1::timestamptz", MOMENT), MOMENT)
    same(await connection.fetchval("SELECT $1::date", DAY), DAY)
    same(await connection.fetchval("SELECT $1::int[]", [1, 2]), [1, 2])
    same(await connection.fetchval("SELECT $1::text[]", ["a", 'b,"c']), ["a", 'b,"c'])
    same(await connection.fetchval("SELECT $1::bool", True), True)
    same(await connection.fetchval("SELECT $1::float8", 1.5), 1.5)
    same(await connection.fetchval("SELECT $1::time", datetime.time(12, 30)), datetime.time(12, 30))


async def asyncpg_prepared_and_cursor(connection: Any) -> None:
    prepared = await connection.prepare(COUNT.format("$1", "$2"))
    same([kind.name for kind in prepared.get_parameters()], ["int8", "text"])
    is_number(await prepared.fetchval(30, "east"))
    async with connection.transaction():
        same([row["region"] async for row in connection.cursor(GROUPS)], ["east", "west"])


async def asyncpg_copy(connection: Any) -> None:
    target = io.BytesIO()
    await connection.copy_from_query(GROUPS, output=target, format="csv", header=True)
    same(target.getvalue().splitlines()[0], b"region,n")
    target = io.BytesIO()
    await connection.copy_from_query(GROUPS, output=target, format="binary")
    same(target.getvalue()[:11], b"PGCOPY\n\xff\r\n\0")


async def asyncpg_types(connection: Any) -> None:
    rows = await connection.fetch("SELECT typname, oid FROM pg_type WHERE oid = ANY($1::oid[])", [25, 1700])
    same({row["typname"] for row in rows}, {"text", "numeric"})
    await connection.set_type_codec("json", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
    await connection.reload_schema_state()
    # an array's type that asyncpg does not have built in: it asks for the tree of types
    await connection.fetch("SELECT indkey, indoption FROM pg_index")


async def asyncpg_errors_and_cancel(connection: Any) -> None:
    with state("42P01"):
        await connection.fetch("SELECT COUNT(*) FROM nothing")
    with contextlib.suppress(asyncio.TimeoutError):
        await connection.fetch(SLOW, timeout=0.5)
        raise AssertionError("it was not cancelled")
    same(await connection.fetchval("SELECT 1"), 1)
    await connection.execute("SET statement_timeout = '300ms'")
    with state("57014"):
        await connection.fetch(SLOW)


for part in (asyncpg_parameters, asyncpg_values, asyncpg_prepared_and_cursor, asyncpg_copy, asyncpg_types,
             asyncpg_errors_and_cancel):  # fmt: skip
    run_asyncpg(part)


@step("asyncpg")
def asyncpg_pool(port: int) -> None:
    async def main() -> None:
        import asyncpg

        pool = await asyncpg.create_pool(
            host="127.0.0.1", port=port, user="asyncpg", database="shop", min_size=2, max_size=4
        )
        await asyncio.gather(*(pool.fetchval(COUNT.format("$1", "$2"), age, "east") for age in range(20, 40)))
        await pool.close()

    asyncio.run(main())


# pg8000


@step("pg8000")
def pg8000_parameters(port: int) -> None:
    import pg8000.native

    connection = pg8000.native.Connection("pg8000", host="127.0.0.1", port=port, database="shop")
    is_number(connection.run(COUNT.format(":a", ":b"), a=30, b="east")[0][0])
    is_number(connection.run(DAYS.format(":a", ":b"), a=DAY, b=NEXT)[0][0])
    is_number(connection.run(LISTED.format(":a"), a=["east", "west"])[0][0])
    is_number(connection.run(AGES.format(":a"), a=[30, 31])[0][0])
    same(connection.run("SELECT CAST(:a AS numeric)", a=PRICE)[0][0], PRICE)
    same(connection.run("SELECT CAST(:a AS timestamptz)", a=MOMENT)[0][0], MOMENT)
    prepared = connection.prepare(COUNT.format(":a", ":b"))
    is_number(prepared.run(a=30, b="east")[0][0])
    prepared.close()
    connection.close()


@step("pg8000")
def pg8000_dbapi(port: int) -> None:
    import pg8000.dbapi

    connection = pg8000.dbapi.connect(user="pg8000", host="127.0.0.1", port=port, database="shop")
    cursor = connection.cursor()
    cursor.execute(GROUPS)
    same([row[0] for row in cursor.fetchall()], ["east", "west"])
    target = io.BytesIO()
    cursor.execute(f"COPY ({GROUPS}) TO STDOUT WITH (FORMAT CSV)", stream=target)
    same(len(target.getvalue().splitlines()), 2)
    with state("42P01"):
        cursor.execute("SELECT COUNT(*) FROM nothing")
    connection.rollback()
    connection.close()


# ADBC and connectorx


@step("adbc")
def adbc_all(port: int) -> None:
    from adbc_driver_postgresql import dbapi

    with (
        dbapi.connect(f"postgresql://adbc@127.0.0.1:{port}/shop") as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(GROUPS)
        same(cursor.fetch_arrow_table().column_names, ["region", "n"])
        cursor.execute(COUNT.format("$1", "$2"), (30, "east"))
        is_number(cursor.fetchone()[0])
        cursor.execute("SELECT $1::numeric AS x, DATE '2025-02-01' AS d, ARRAY[1, 2] AS l", (1.5,))
        row = cursor.fetchone()
        same(row[1:], (DAY, [1, 2]))


@step("adbc")
def adbc_reflects(port: int) -> None:
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(f"postgresql://adbc@127.0.0.1:{port}/shop") as connection:
        objects = connection.adbc_get_objects(depth="all").read_all().to_pylist()
        tables = {
            table["table_name"]: [column["column_name"] for column in table["table_columns"]]
            for catalog in objects
            for schema in catalog["catalog_db_schemas"] or []
            if schema["db_schema_name"] == "public"
            for table in schema["db_schema_tables"] or []
        }
        same(tables["product"], ["product_id", "category"])
        schema = connection.adbc_get_table_schema("sales", db_schema_filter="public")
        same(schema.names, ["customer_id", "product_id", "amount", "sold_on"])
        connection.adbc_get_table_types()


@step("connectorx")
def connectorx_reads(port: int) -> None:
    import connectorx

    address = f"postgresql://connectorx@127.0.0.1:{port}/shop?sslmode=disable"
    for protocol in ("binary", "csv", "cursor", "simple"):
        frame = connectorx.read_sql(address, GROUPS, protocol=protocol)
        same(list(frame.columns), ["region", "n"])
        same(len(frame), 2)
    table = connectorx.read_sql(address, COUNT.format("30", "'east'"), return_type="arrow")
    same(table.num_rows, 1)


# SQLAlchemy and pandas


def reflects(url: str) -> None:
    """Reflection by SQLAlchemy's inspector, and a table as pandas reads it."""
    import sqlalchemy as sa

    engine = sa.create_engine(url)
    inspector = sa.inspect(engine)
    same(inspector.default_schema_name, "public")
    same("public" in inspector.get_schema_names(), True)
    same({"customer", "product", "sales"} <= set(inspector.get_table_names()), True)
    inspector.get_view_names()
    inspector.get_materialized_view_names()
    inspector.get_enums()
    inspector.get_domains() if hasattr(inspector, "get_domains") else None
    same([c["name"] for c in inspector.get_columns("product")], ["product_id", "category"])
    inspector.get_indexes("sales"), inspector.get_unique_constraints("sales")
    inspector.get_check_constraints("sales"), inspector.get_table_comment("sales")
    inspector.get_sequence_names(), inspector.has_table("sales"), inspector.has_schema("public")
    same(inspector.get_pk_constraint("product")["constrained_columns"], ["product_id"])
    keys = {key["referred_table"] for key in inspector.get_foreign_keys("sales")}
    same(keys, {"customer", "product"})
    meta = sa.MetaData()
    meta.reflect(engine)
    shop = sa.Table("shop", meta, autoload_with=engine)
    with engine.connect() as connection:
        query = (
            sa.select(shop.c.region, sa.func.count().label("n"))
            .where(shop.c.age >= 30)
            .group_by(shop.c.region)
        )
        same(len(connection.execute(query.where(shop.c.region.in_(["east", "west"]))).all()), 2)
        query = sa.select(sa.func.count()).select_from(shop).where(shop.c.sold_on.between(DAY, NEXT))
        is_number(connection.execute(query).scalar())
        import pandas

        frame = pandas.read_sql(sa.text("SELECT region, COUNT(*) AS n FROM shop GROUP BY region"), connection)
        same(list(frame.columns), ["region", "n"])
    engine.dispose()


@step("sqlalchemy-psycopg2")
def sqlalchemy_psycopg2(port: int) -> None:
    reflects(f"postgresql+psycopg2://sqlalchemy-psycopg2@127.0.0.1:{port}/shop")


@step("sqlalchemy-psycopg3")
def sqlalchemy_psycopg3(port: int) -> None:
    reflects(f"postgresql+psycopg://sqlalchemy-psycopg3@127.0.0.1:{port}/shop")


@step("sqlalchemy-pg8000")
def sqlalchemy_pg8000(port: int) -> None:
    reflects(f"postgresql+pg8000://sqlalchemy-pg8000@127.0.0.1:{port}/shop")


@step("sqlalchemy-asyncpg")
def sqlalchemy_asyncpg(port: int) -> None:
    import sqlalchemy as sa
    from sqlalchemy.ext.asyncio import create_async_engine

    async def main() -> None:
        engine = create_async_engine(f"postgresql+asyncpg://sqlalchemy-asyncpg@127.0.0.1:{port}/shop")
        async with engine.connect() as connection:
            meta = sa.MetaData()
            await connection.run_sync(meta.reflect)
            same({"customer", "product", "sales"} <= set(meta.tables), True)
            sales = meta.tables["sales"]
            query = sa.select(sa.func.count()).select_from(sales).where(sales.c.sold_on >= DAY)
            is_number((await connection.execute(query)).scalar())
        await engine.dispose()

    asyncio.run(main())


# pgcli and ODBC


@step("pgcli")
def pgcli_completes(port: int) -> None:
    from pgcli.pgexecute import PGExecute
    from pgspecial.main import PGSpecial

    executor = PGExecute("shop", "pgcli", "", "127.0.0.1", str(port), "")
    same("public" in list(executor.schemata()), True)
    executor.search_path(), list(executor.views()), list(executor.databases()), list(executor.datatypes())
    same(("public", "sales") in [tuple(row) for row in executor.tables()], True)
    names = [row[2] for row in executor.table_columns() if row[1] == "product"]
    same(names, ["product_id", "category"])
    same(len(list(executor.foreignkeys())) >= 2, True)
    list(executor.functions()), list(executor.view_columns()), list(executor.casing())
    special = PGSpecial()
    for command in ("\\d", "\\dt", "\\d sales", "\\d+ sales", "\\l", "\\dn", "\\du", "\\df", "\\dv", "\\di", "\\dT",
                    "\\dp", "\\db", "\\ds"):  # fmt: skip
        with executor.conn.cursor() as cursor:
            list(special.execute(cursor, command))
    for answer in executor.run(GROUPS):
        same([row[0] for row in answer[1]], ["east", "west"])


@step("odbc")
def odbc_all(port: int) -> None:
    import pyodbc

    address = f"Driver={os.environ['ODBC']};Server=127.0.0.1;Port={port};Database=shop;Uid=odbc;"
    connection = pyodbc.connect(address + "ReadOnly=1")
    cursor = connection.cursor()
    same({"customer", "product", "sales"} <= {row.table_name for row in cursor.tables()}, True)
    same([row.column_name for row in cursor.columns("product", schema="public")], ["product_id", "category"])
    same([row.column_name for row in cursor.primaryKeys("product", schema="public")], ["product_id"])
    same({row.pktable_name for row in cursor.foreignKeys(foreignTable="sales", foreignSchema="public")},
         {"customer", "product"})  # fmt: skip
    cursor.statistics("product", schema="public").fetchall(), cursor.procedures().fetchall()
    cursor.getTypeInfo().fetchall(), cursor.rowIdColumns("product", schema="public").fetchall()
    is_number(cursor.execute(COUNT.format("?", "?"), 30, "east").fetchone()[0])
    is_number(cursor.execute(DAYS.format("?", "?"), DAY, NEXT).fetchone()[0])
    same(cursor.execute("SELECT CAST(? AS numeric(12, 4))", PRICE).fetchone()[0], PRICE)
    with state("42P01"):
        cursor.execute("SELECT COUNT(*) FROM nothing")
    connection.close()


def main(driver: str, port: int) -> int:
    """Run every step of a driver; the number of those that failed."""
    failed = 0
    for work in DRIVERS[driver]:
        reason = ""
        try:
            work(port)
        except BaseException as error:  # noqa: BLE001  # a step may fail in any way
            if os.environ.get("TRACE"):
                traceback.print_exc()
            reason = f"{type(error).__name__}: {error}"
            failed += 1
        print(json.dumps({"driver": driver, "step": work.__name__, "error": reason[:600]}), flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1], int(sys.argv[2])), 1))
