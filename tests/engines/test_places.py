"""One table of a server has one cap: by whichever spelling, road and user, renamed, moved or loaded anew."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import yaml

from dpsql.catalog import load_catalog
from dpsql.central.central import Published, publish_release
from dpsql.curator.audit import AuditReport
from dpsql.curator.certificate import certify
from dpsql.engines.spark import SparkSession
from dpsql.errors import LineageError
from dpsql.ledger.store import budget_report, ledger_entries
from dpsql.noise import ZeroNoise
from dpsql.release import open_release
from tests.engines.servers import DATABASE, USER, Server, postgres_programs, running_postgres
from tests.thinned import by_default

pytestmark = pytest.mark.usefixtures("publishes")

KEY = bytes(32)
SCHEMA = "h"
ROWS = "SELECT i % 10 AS age, i AS id FROM generate_series(1, 200) AS t(i)"
READER = "reader"
"""A role that may not read the identifier of the cluster."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Server]:
    """A PostgreSQL that listens on 127.0.0.1 too."""
    programs = postgres_programs()
    if programs is None or find_spec("psycopg") is None:
        pytest.skip("there is no PostgreSQL server or no psycopg here")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with running_postgres(programs, port) as server:
        prepare(server)
        yield server


def prepare(server: Server) -> None:
    """Make the role `READER`."""
    run(
        server.dsn,
        "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC",
        f"CREATE ROLE {READER} LOGIN PASSWORD '{server.password}'",
        f"GRANT pg_read_all_data TO {READER}",
    )


def run(dsn: str, *statements: str) -> None:
    """Run statements as the server's owner."""
    import psycopg

    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


class Shop(NamedTuple):
    """A table `h.s` that the lineage `first` has published.

    Args:
        server: where it is.
        folder: of catalogs and their ledger.
        environment: sets a variable.
    """

    server: Server
    folder: Path
    environment: Callable[[str, str], None]

    def publish(
        self, place: str, *, lineage: str = "second", dsn: str = "", trusted: bool = False, **tables: str
    ) -> Published:
        """Publish a table under a lineage."""
        self.environment("DPSQL_TEST_DSN", dsn or self.server.dsn)
        source: dict[str, Any] = {"kind": "postgresql", "root": "${DPSQL_TEST_DSN}", "trusted": trusted}
        if dsn == "-":  # libpq's own variables
            del source["root"]
        written = {
            "dpsql": 1,
            "name": "shop",
            "ledger": str(self.folder / "ledger.duckdb"),
            "source": source | {"tables": {"sales": place, **tables}},
            "privacy": {"lineage": lineage, "cap": 1, "unit": "row", "epsilon": 1},
            "tables": {
                "sales": {"role": "fact", "columns": {"age": {"type": "int", "lower": 0, "upper": 9}}},
                **{
                    name: {"role": "dimension", "key": "shop", "private": False, "columns": {"shop": {"type": "int"}}}
                    for name in tables
                },
            },
            "views": {"ages": {"of": "sales", "axes": ["sales.age"]}},
        }  # fmt: skip
        file = self.folder / f"{lineage}.yaml"
        file.write_text(yaml.safe_dump(written), encoding="utf-8")
        target = self.folder / f"{lineage}.dpsql"
        return publish_release(load_catalog(file), target, noise=ZeroNoise(), key=KEY)

    def run(self, *statements: str) -> None:
        """Run statements as the server's owner."""
        run(self.server.dsn, *statements)

    def road(self, **changed: object) -> str:
        """A connection string by TCP."""
        parts: dict[str, object] = {
            "host": "127.0.0.1", "port": self.server.port, "dbname": DATABASE, "user": USER,
            "password": self.server.password,
        }  # fmt: skip
        return " ".join(f"{key}='{value}'" for key, value in (parts | changed).items() if value)


@pytest.fixture
def shop(publishes: None, cluster: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    return charged_shop(cluster, tmp_path, monkeypatch.setenv)


def charged_shop(cluster: Server, folder: Path, environment: Callable[[str, str], None]) -> Shop:
    """A table `h.s` that the lineage `first` has published, and that has lost a row since."""
    made = Shop(cluster, folder, environment)
    made.run(
        f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE", "DROP SCHEMA IF EXISTS elsewhere CASCADE",
        f"CREATE SCHEMA {SCHEMA}", "CREATE SCHEMA elsewhere", f"CREATE TABLE {SCHEMA}.s AS {ROWS}",
    )  # fmt: skip
    made.publish(f"{SCHEMA}.s", lineage="first")
    made.run(f"DELETE FROM {SCHEMA}.s WHERE id = 7")  # so that the digest of its rows tells nothing
    return made


def service(shop: Shop) -> dict[str, str]:
    lines = [f"host={shop.server.folder}", f"port={shop.server.port}", f"dbname={DATABASE}", f"user={USER}",
             f"password={shop.server.password}"]  # fmt: skip
    (shop.folder / "services").write_text("[shop]\n" + "\n".join(lines) + "\n", encoding="utf-8")
    shop.environment("PGSERVICEFILE", str(shop.folder / "services"))
    return {"place": "h.s", "dsn": "service=shop"}


def variables(shop: Shop) -> dict[str, str]:
    named = {"HOST": "localhost", "PORT": shop.server.port, "DATABASE": DATABASE, "USER": USER,
             "PASSWORD": shop.server.password}  # fmt: skip
    for name, value in named.items():
        shop.environment(f"PG{name}", str(value))
    return {"place": "h.s", "dsn": "-"}


def after(*statements: str, place: str = "h.s") -> Callable[[Shop], dict[str, Any]]:
    """What a table is called once somebody has changed the database."""

    def changed(shop: Shop) -> dict[str, Any]:
        shop.run(*statements)
        return {"place": place, "trusted": place.endswith("v")}

    return changed


SPELLINGS: dict[str, Callable[[Shop], dict[str, Any]]] = {
    "as before": lambda shop: {"place": "h.s"},
    "schema quoted": lambda shop: {"place": '"h".s'},
    "table quoted": lambda shop: {"place": 'h."s"'},
    "both quoted": lambda shop: {"place": '"h"."s"'},
    "capitals": lambda shop: {"place": "H.S"},
    "blanks": lambda shop: {"place": " h . s "},
    "with its database": lambda shop: {"place": f"{DATABASE}.h.s"},
    "search path": lambda shop: {"place": "s", "dsn": shop.server.dsn + " options='-csearch_path=h'"},
    "longer search path": lambda shop: {
        "place": '"s"', "dsn": shop.server.dsn + " options='-csearch_path=elsewhere,h'"},
    "127.0.0.1": lambda shop: {"place": "h.s", "dsn": shop.road()},
    "localhost": lambda shop: {"place": "h.s", "dsn": shop.road(host="localhost")},
    "host's address": lambda shop: {"place": "h.s", "dsn": shop.road(host="db", hostaddr="127.0.0.1")},
    "address of the loopback": lambda shop: {"place": "h.s", "dsn": shop.road(host="127.1")},
    "URI": lambda shop: {
        "place": "h.s", "dsn": f"postgresql:///{DATABASE}?{shop.road().replace(' ', '&').replace(chr(39), '')}"},
    "service": service,
    "variables": variables,
    "renamed": after("ALTER TABLE h.s RENAME TO t", place="h.t"),
    "another schema": after("ALTER TABLE h.s SET SCHEMA elsewhere", place="elsewhere.s"),
    "schema renamed": after("DROP SCHEMA elsewhere", "ALTER SCHEMA h RENAME TO elsewhere", place="elsewhere.s"),
    "loaded anew": after("DROP TABLE h.s", f"CREATE TABLE h.s AS {ROWS} WHERE i > 3"),
    "loaded into a table of the same name": after(
        f"CREATE TABLE h.fresh AS {ROWS} WHERE i > 3", "ALTER TABLE h.s RENAME TO old",
        "ALTER TABLE h.fresh RENAME TO s"),
    "its old rows under another name": after(
        f"CREATE TABLE h.fresh AS {ROWS} WHERE i > 3", "ALTER TABLE h.s RENAME TO old",
        "ALTER TABLE h.fresh RENAME TO s", place="h.old"),
    "a view of it": after("CREATE VIEW h.v AS SELECT age FROM h.s WHERE id > 9", place="h.v"),
    "a view of a view": after(
        "CREATE VIEW h.w AS SELECT * FROM h.s", "CREATE VIEW h.v AS SELECT age FROM h.w", place="h.v"),
    "truncated and filled": after("TRUNCATE h.s", f"INSERT INTO h.s {ROWS} WHERE i > 3"),
    "rewritten": after("VACUUM FULL h.s"),
}  # fmt: skip


@pytest.mark.parametrize("spelling", by_default(SPELLINGS.values(), 3), ids=SPELLINGS)
def test_one_table_has_one_cap(shop: Shop, spelling: Callable[[Shop], dict[str, Any]]) -> None:
    with pytest.raises(LineageError, match="'sales' belongs to lineage 'first'"):
        shop.publish(**spelling(shop))
    report = budget_report(shop.folder / "ledger.duckdb")
    assert [lineage.lineage.name for lineage in report.lineages] == ["first"]


def test_other_tables_and_other_databases_have_their_own_cap(shop: Shop) -> None:
    """A table of the same name elsewhere is another one; capitals in quotes are, too."""
    for number, (schema, table) in enumerate((("elsewhere", "s"), ("h", '"S"'))):
        shop.run(f"CREATE TABLE {schema}.{table} AS {ROWS} WHERE i > {10 + number}")
        assert shop.publish(f"{schema}.{table}", lineage=f"other{number}").receipt.drawn
    shop.run("DROP DATABASE IF EXISTS restored", "CREATE DATABASE restored")
    copy = shop.road(dbname="restored")
    run(copy, "CREATE SCHEMA h", f"CREATE TABLE h.s AS {ROWS} WHERE i > 30")
    assert shop.publish("h.s", lineage="restored", dsn=copy).receipt.drawn


def test_partitions_are_part_of_their_table(shop: Shop) -> None:
    shop.run(
        "CREATE TABLE h.all_sales (age int, id int) PARTITION BY RANGE (id)",
        "CREATE TABLE h.early PARTITION OF h.all_sales FOR VALUES FROM (0) TO (100)",
        "CREATE TABLE h.late PARTITION OF h.all_sales FOR VALUES FROM (100) TO (1000)",
        f"INSERT INTO h.all_sales {ROWS} WHERE i > 5",
    )
    assert shop.publish("h.all_sales", lineage="third").receipt.drawn
    with pytest.raises(LineageError, match="'sales' belongs to lineage 'third'"):
        shop.publish("h.late")


def test_a_public_table_that_views_join_is_nobodys(shop: Shop) -> None:
    shop.run("CREATE TABLE h.shops AS SELECT i AS shop FROM generate_series(0, 2) AS t(i)")
    for number in (1, 2):
        shop.run(
            f"CREATE TABLE h.s{number} AS {ROWS} WHERE i > {20 + number}",
            f"CREATE VIEW h.v{number} AS SELECT age FROM h.s{number} JOIN h.shops ON shop = id % 3",
        )
        made = shop.publish(f"h.v{number}", lineage=f"joined{number}", trusted=True, shops="h.shops")
        assert made.receipt.drawn
    shop.run("CREATE VIEW h.all_v AS SELECT id AS shop FROM h.s1")
    with pytest.raises(LineageError, match="'sales' belongs to lineage 'joined1'"):
        shop.publish("h.s1", trusted=True, shops="h.all_v")


def test_without_the_identifier_the_resolved_address_stands_in(shop: Shop) -> None:
    """By socket, name and number of one server, and the certificate says what that cannot know."""
    shop.run("CREATE TABLE h.t AS SELECT age, id FROM h.s WHERE id > 11")
    roads = {
        "socket": shop.server.dsn.replace(f"user={USER}", f"user={READER}"),
        "number": shop.road(user=READER),
        "name": shop.road(user=READER, host="localhost"),
    }
    made = shop.publish("h.t", lineage="socket", dsn=roads["socket"])
    for name in ("number", "name"):
        shop.run("DELETE FROM h.t WHERE id IN (SELECT min(id) FROM h.t)")
        with pytest.raises(LineageError, match="belongs to lineage 'socket'"):
            shop.publish("h.t", lineage=name, dsn=roads[name])
    assert sentences(shop, made, "socket") == [True, False]


def sentences(shop: Shop, made: Published, lineage: str) -> list[bool]:
    """Whether the certificates of a lineage and of `first` say that an address stands in."""
    said = []
    for name, path in ((lineage, made.path), ("first", shop.folder / "first.dpsql")):
        catalog = load_catalog(shop.folder / f"{name}.yaml")
        release = open_release(path, insecure=True)
        certificate = certify(release, AuditReport(path, ()), catalog, None)
        release.close()
        said.append(any("identifier of their database cluster" in line for line in certificate.not_promised))
    return said


def test_places_hold_no_password_and_no_user(shop: Shop) -> None:
    entries = ledger_entries(shop.folder / "ledger.duckdb")
    places = [place for entry in entries for table in entry.charged_tables() for place in table.places]
    assert len(places) == 2
    assert not any(word in place for place in places for word in (shop.server.password, USER))


class ResolvedTable(NamedTuple):
    """What Spark's catalog says of a table."""

    catalog: str | None
    namespace: list[str] | None
    name: str


class DefaultCatalog:
    """Spark's catalog with one current database."""

    def getTable(self, name: str) -> ResolvedTable:
        return ResolvedTable("spark_catalog", ["default"], name.split(".")[-1].strip("`"))


def test_names_and_paths_without_an_identifier_are_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -m tests.engines` publishes by a real one; what is asked here is that spelling decides nothing."""
    session = object.__new__(SparkSession)
    session._address, session._failures = "spark local[2]", (OSError,)
    monkeypatch.setattr(session, "_session", SimpleNamespace(catalog=DefaultCatalog()), raising=False)
    names = ["sales", "default.sales", "spark_catalog.default.sales", "SALES", "`sales`"]
    assert {session.places(name) for name in names} == {("spark local[2]#`spark_catalog`.`default`.`sales`",)}
    paths = ["/lake/sales", "file:/lake/sales", "file:///lake/sales", "/lake//sales/", "/lake/x/../sales"]
    assert {session.places(path) for path in paths} == {("spark local[2]#/lake/sales",)}
