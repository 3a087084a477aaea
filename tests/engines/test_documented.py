"""The commands that docs/engines.md prints are run as printed, over the `source:` that it prints above them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import dpsql
from benchmarks.local.simulated import one_row_each
from dpsql.client import read_plan
from dpsql.local.simulate import simulate_reports
from tests.command import dpsql_command
from tests.engines.servers import Server
from tests.engines.star import load_postgres

PAGE = Path(__file__).parents[2] / "docs" / "engines.md"
FACTS, PEOPLE = 5_000, 4_000
CATALOG = """
dpsql: 1
name: shop
privacy: {lineage: shop, cap: 4, unit: customer.customer_id, epsilon: 2}
tables:
  customer: {role: dimension, key: customer_id, private: true, columns: {age: {type: int, lower: 18, upper: 89}}}
  product: {role: dimension, key: product_id, private: true, columns: {
    price: {type: decimal, scale: 1, lower: 0, upper: 500, cuts: {width: 25}, nullable: true}}}
  sales: {role: fact, foreign_keys: {customer_id: customer, product_id: product}, max_ids: 4, columns: {
    amount: {type: decimal, scale: 2, lower: 0, upper: 500, measure: true}}}
views: {demand: {of: sales, axes: [customer.age, product.price], measures: [count, sales.amount]}}
"""
SURVEY = """
dpsql: 1
name: survey
privacy: {lineage: survey, cap: 3, unit: row, epsilon: 3}
collection: {epsilon: 3, participation: all}
tables: {answer: {role: fact, columns: {
  age: {type: int, lower: 0, upper: 15}, town: {type: string, categories: [a, b, c]}}}}
views: {both: {of: answer, axes: [answer.age, answer.town], measures: [count]}}
"""


class Printed(NamedTuple):
    """What a section of the page prints.

    Args:
        commands: of `dpsql`, as a shell takes them apart.
        variables: names that the section exports.
        source: its `source:`, if it has one.
    """

    commands: list[list[str]]
    variables: list[str]
    source: dict[str, Any]


def printed(title: str) -> Printed:
    """A section of the page, or what stands before the first one."""
    sections = re.split(r"^#+ (.*)$", PAGE.read_text(), flags=re.MULTILINE)
    text = dict(zip(sections[1::2], sections[2::2], strict=True))[title]
    blocks = dict(re.findall(r"```(console|yaml)\n(.*?)```", text, flags=re.DOTALL))
    lines = [shlex.split(line[2:]) for line in blocks["console"].splitlines()]
    exported = [word.split("=")[0] for line in lines if line[0] == "export" for word in line[1:]]
    return Printed(
        [line[1:] for line in lines if line[0] == "dpsql"], exported, yaml.safe_load(blocks.get("yaml", "{}"))
    )


class Spool(NamedTuple):
    """A folder with a survey's plan, reports of it, and the release of DuckDB's collector."""

    folder: Path
    reports: list[bytes]


@pytest.fixture(scope="module")
def survey(publishes: None, tmp_path_factory: pytest.TempPathFactory) -> Spool:
    """Reports with a token each, some of them twice."""
    folder = tmp_path_factory.mktemp("survey")
    (folder / "survey.yaml").write_text(SURVEY)
    dpsql.collection_plan(folder / "survey.yaml", folder / "plan.json", people=PEOPLE)
    rng = np.random.default_rng(3)
    leaves = np.stack([rng.integers(0, 16, PEOPLE), rng.integers(0, 3, PEOPLE)], axis=1)
    reports = simulate_reports(read_plan((folder / "plan.json").read_bytes()), one_row_each(leaves), rng)
    (folder / "reports").mkdir()
    twice = [*range(PEOPLE), *range(100)]
    columns = {"report": pa.array([reports[i] for i in twice], pa.binary()), "token": [str(i) for i in twice]}
    pq.write_table(pa.table(columns), folder / "reports" / "part-0.parquet")
    dpsql.collect(folder / "plan.json", folder / "reports", folder / "files.dpsql")
    return Spool(folder, reports)


@pytest.fixture(scope="module")
def loaded(shop: Path, survey: Spool, postgres: Server) -> Server:
    """PostgreSQL with both under the names that the page uses."""
    import psycopg

    load_postgres(postgres.dsn, shop, "documented")
    with psycopg.connect(postgres.dsn) as server:
        for table in ("sales", "customer", "product"):
            server.execute(
                f"DROP TABLE IF EXISTS public.{table}; ALTER TABLE documented.{table} SET SCHEMA public"
            )
        server.execute(
            "DROP TABLE IF EXISTS public.reports; CREATE TABLE public.reports (report bytea, token integer)"
        )
        with server.cursor() as cursor:
            rows = [(report, i) for i, report in enumerate(survey.reports)]
            cursor.executemany("INSERT INTO public.reports VALUES (%s, %s)", [*rows, *rows[:100]])
    return postgres


@pytest.fixture(scope="module")
def lake(shop: Path, survey: Spool, spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder, and a table of Spark's catalog, under the names that the page uses."""
    folder = tmp_path_factory.mktemp("lake")
    (folder / "customer").mkdir()
    for table, place in (("customer", "customer/part-0.parquet"), ("product", "product.parquet")):
        (folder / place).write_bytes((shop / f"{table}.parquet").read_bytes())
    (folder / "reports").symlink_to(survey.folder / "reports")
    spark.sql("CREATE DATABASE lake")
    spark.read.parquet(str(shop / "sales.parquet")).write.saveAsTable("lake.sales")
    yield folder
    spark.sql("DROP DATABASE lake CASCADE")


def published(title: str, folder: Path, places: Mapping[str, str] | None = None) -> None:
    """Run a section's commands in a folder, some of its paths moved; the release answers."""
    (folder / "catalog").mkdir()
    told = printed(title)
    text = yaml.safe_dump({**yaml.safe_load(CATALOG), **told.source})
    for printed_place, place in (places or {}).items():
        text = text.replace(printed_place, place)
    (folder / "catalog" / "shop.yaml").write_text(text)
    assert told.commands
    for command in told.commands:
        done = dpsql_command(*command, cwd=folder)
        assert done.returncode == 0, done.stderr
    found = dpsql.query("SELECT COUNT(*) FROM sales JOIN customer USING (customer_id)", folder / "shop.dpsql")
    assert found.scalar() > 20 * found.noise_rows[0][0]


def collected(command: list[str], survey: Spool, folder: Path) -> None:
    """Run a command of the reports' section; the release answers as that of files does."""
    (folder / "plan.json").write_bytes((survey.folder / "plan.json").read_bytes())
    done = dpsql_command(*command, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "4000 of 4100 reports accepted" in done.stderr
    assert "rejected 100: repeated token" in done.stderr
    sql = "SELECT town, COUNT(*) FROM answer GROUP BY town ORDER BY town"
    found, expected = (
        dpsql.query(sql, release).rows for release in (folder / "survey.dpsql", survey.folder / "files.dpsql")
    )
    assert found == expected
    assert len(found) == 4


@pytest.mark.usefixtures("publishes")
def test_postgresql_as_printed(loaded: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first commands of the page, over the tables that it names."""
    (variable,) = printed("Engines: publish where the rows are").variables
    monkeypatch.setenv(variable, loaded.dsn)
    published("Engines: publish where the rows are", tmp_path)


def test_spark_as_printed(lake: Path, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of Spark's catalog, a folder and a file."""
    assert printed("Spark").variables == ["SPARK_MASTER", "LAKE"]
    monkeypatch.setenv("SPARK_MASTER", "local[2]")
    monkeypatch.setenv("LAKE", str(lake))
    published("Spark", tmp_path)


@pytest.mark.usefixtures("publishes")
def test_a_lake_as_printed(shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The snapshots that the page names, in a folder of the test's own; later rows are not read."""
    from deltalake import write_deltalake

    assert printed("Lakes").variables == ["SALES_VERSION"]
    monkeypatch.setenv("SALES_VERSION", "12")
    root = printed("Lakes").source["source"]["root"]
    for table, commits in (("sales", 13), ("customer", 4), ("product", 1)):
        rows = pq.read_table(shop / f"{table}.parquet")
        size = -(-len(rows) // commits)
        for first in range(0, len(rows), size):
            write_deltalake(tmp_path / "lake" / table, rows.slice(first, size), mode="append")
        write_deltalake(tmp_path / "lake" / table, rows.slice(0, 1), mode="overwrite")
    published("Lakes", tmp_path, {root: str(tmp_path / "lake")})


@pytest.mark.usefixtures("publishes")
def test_reports_in_postgresql_as_printed(
    loaded: Server, survey: Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One command; without the server it is one line, and no file is left."""
    command, _ = printed("Reports of people").commands
    monkeypatch.setenv("SHOP_DSN", loaded.dsn)
    collected(command, survey, tmp_path)
    (tmp_path / "survey.dpsql").unlink()
    before = sorted(tmp_path.rglob("*"))  # the plan, and the key that signed the release
    monkeypatch.setenv("SHOP_DSN", loaded.dsn.replace(loaded.password, "hunter-2"))
    done = dpsql_command(*command, cwd=tmp_path)
    assert done.returncode == 4
    assert "PostgreSQL: connecting failed" in done.stderr.splitlines()[-1]
    assert "hunter" not in done.stdout + done.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_reports_in_spark_as_printed(
    lake: Path, spark: Any, survey: Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of Parquet files."""
    _, command = printed("Reports of people").commands
    monkeypatch.setenv("SPARK_MASTER", "local[2]")
    monkeypatch.setenv("LAKE", str(lake))
    collected(command, survey, tmp_path)


def test_the_next_round_is_planned_from_a_table(
    loaded: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One table holds the reports of all rounds; the next plan is that from files."""
    import psycopg

    monkeypatch.setenv("SHOP_DSN", loaded.dsn)
    (tmp_path / "ahead.yaml").write_text(SURVEY.replace("epsilon: 3, part", "epsilon: 3, kind: ahead, part"))
    with psycopg.connect(loaded.dsn) as server:
        server.execute(
            "DROP TABLE IF EXISTS public.rounds; CREATE TABLE public.rounds (report bytea, token text)"
        )
    plan, rng = "0.json", np.random.default_rng(5)
    dpsql.collection_plan(tmp_path / "ahead.yaml", tmp_path / plan, people=PEOPLE)
    for number in range(1, 3):
        leaves = np.stack([rng.integers(0, 16, PEOPLE), rng.integers(0, 3, PEOPLE)], axis=1)
        reports = simulate_reports(read_plan((tmp_path / plan).read_bytes()), one_row_each(leaves), rng)
        rows = [(report, f"{number} {i}") for i, report in enumerate(reports)]
        with psycopg.connect(loaded.dsn) as server, server.cursor() as cursor:
            cursor.executemany("INSERT INTO public.rounds VALUES (%s, %s)", rows)
        file = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"report": pa.array(reports, pa.binary())}), file)
        told = ["collection-plan", "ahead.yaml", "--after", plan, "--people", PEOPLE]
        done = dpsql_command(*told, file.name, "-o", "files.json", cwd=tmp_path)
        plan = f"{number}.json"
        there = ["public.rounds", "--engine", "postgresql", "--root", "${SHOP_DSN}", "-o", plan]
        assert dpsql_command(*told, *there, cwd=tmp_path).returncode == done.returncode == 0, done.stderr
        assert (tmp_path / plan).read_bytes() == (tmp_path / "files.json").read_bytes()
        (tmp_path / "files.json").unlink()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--engine", "postgresql", "--root", "host=x password=hunter-2"], "contains a password"),
        (["--engine", "postgresql", "--state", "s"], "counted whole"),
        (["--engine", "postgresql", "--for", "a.b"], "from a file"),
    ],
)
def test_what_a_server_cannot_collect_is_refused(
    survey: Spool, tmp_path: Path, words: list[str], message: str
) -> None:
    """Before any server is asked."""
    done = dpsql_command(
        "collect", survey.folder / "plan.json", "t", "-o", tmp_path / "r.dpsql", *words, cwd=tmp_path
    )
    assert done.returncode == 2
    assert message in done.stderr
    assert "hunter" not in done.stderr
