"""Answers in other programs: `dpsql export` writes every cell of a view as SQL answers it, and Arrow has all types."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import yaml

import dpsql
from dpsql.errors import InterfaceError, MachineFault, NotSupportedError
from dpsql.examples.retail import make_star, write_star
from dpsql.federation.session import OpenReleases, open_session
from dpsql.progress import silent
from dpsql.results import export as exporting
from dpsql.results.export import export
from tests.command import dpsql_command as run
from tests.people_star import make_people
from tests.release_fixture import make_rows, write_fixture
from tests.thinned import by_default

pytestmark = pytest.mark.usefixtures("publishes")

ROOT = Path(__file__).parents[2]
Table = list[tuple[Any, ...]]


@pytest.fixture(scope="module")
def fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenReleases]:
    """A star without noise, with NULL, MISSING and OTHER leaves and a nullable measure."""
    opened = open_session([write_fixture(tmp_path_factory.mktemp("export") / "fixture.dpsql", make_rows())])
    yield opened
    opened.close()


def written(folder: Path, sql: str) -> Table:
    """Rows of exported files, which the statement names without their folder."""
    return duckdb.sql(sql.replace("FROM '", f"FROM '{folder}/")).fetchall()


def same(left: Table, right: Table) -> None:
    """Tables are equal, numbers up to the last digits."""
    assert len(left) == len(right) > 0
    for one, other in zip(left, right, strict=True):
        for a, b in zip(one, other, strict=True):
            assert a == (pytest.approx(b, rel=1e-9, abs=1e-9) if isinstance(b, float) else b), (one, other)


def named(rows: Iterable[tuple[Any, ...]]) -> Table:
    """Groups with two keys; NULL and OTHER are one group in SQL."""
    return [row for row in rows if None not in row[:2]]


def errors(value: str) -> str:
    """A value and what SQL says of its error."""
    return f"{value}, DP_STDERR({value}), DP_INTERVAL_LOW({value}), DP_INTERVAL_HIGH({value})"


def test_dbt_finds_the_files_and_runs_no_word_of_a_catalog(opened: OpenReleases, tmp_path: Path) -> None:
    folder = tmp_path / "it's here"
    schema = export(opened, folder, ("trend",), 0.9, silent, dbt=True)
    (source,) = yaml.safe_load((folder / "sources.yml").read_text())["sources"]
    assert source["name"] == schema["release"] and source["meta"]["level"] == 0.9
    (table,) = source["tables"]
    assert [column["name"] for column in table["columns"]] == [
        column["name"] for column in schema["views"][0]["columns"]
    ]
    place = table["meta"]["external_location"].format_map({"name": "trend"})  # as dbt-duckdb does
    counted = duckdb.sql(f"SELECT count(*) FROM {place}").fetchall()
    assert counted == [(schema["views"][0]["rows"],)]
    hostile = {**schema, "description": "{{ env_var('KEY') }}{% raw %}{{{", "read_first": ["{# x #}"]}
    text = exporting.dbt_sources(hostile, folder)
    assert "env_var" in text and not re.search(r"\{[{%#]", text)
    with pytest.raises(InterfaceError, match="braces"):
        export(opened, tmp_path / "{{ x }}", ("trend",), 0.9, silent, dbt=True)


@pytest.mark.slow
def test_the_models_of_the_examples_read_an_export(tmp_path: Path) -> None:
    """dbt itself runs them in `make bench TOPIC=production`; here DuckDB runs what dbt would have it run."""
    write_star(tmp_path / "data", make_star(7, 2000, 50))
    shutil.copy(ROOT / "catalog" / "retail.yaml", tmp_path / "retail.yaml")
    for words in (
        ["publish", "retail.yaml", "-o", "retail.dpsql"],
        ["export", "retail.dpsql", "-o", "tables", "--dbt"],
    ):
        assert run(*words, cwd=tmp_path).returncode == 0
    (source,) = yaml.safe_load((tmp_path / "tables" / "sources.yml").read_text())["sources"]
    assert source["name"] == "retail"
    places = {
        table["name"]: str(tmp_path / "tables" / f"{table['name']}.parquet") for table in source["tables"]
    }
    models = {file.stem: file.read_text() for file in (ROOT / "examples" / "dbt" / "models").glob("*.sql")}
    assert len(models) == 10
    database, rows = duckdb.connect(), dict[str, int]()
    while models:
        built = {
            name
            for name, text in models.items()
            if not set(re.findall(r"ref\('(\w+)'\)", text)) & models.keys()
        }
        assert built
        for name in built:
            text = re.sub(r"{{ ref\('(\w+)'\) }}", r"\1", models.pop(name))
            text = re.sub(r"{{ source\('retail', '(\w+)'\) }}", lambda match: f"'{places[match[1]]}'", text)
            database.execute(f"CREATE TABLE {name} AS {text}")
            rows[name] = len(database.sql(f"FROM {name}").fetchall())
    assert rows["months"] == 12 * 5 and rows["days"] == 365 and rows["leaders"] > 0


def test_a_file_says_itself_what_it_holds(opened: OpenReleases, tmp_path: Path) -> None:
    schema = export(opened, tmp_path / "out", ("trend",), 0.95, silent)
    ((value,),) = duckdb.sql(
        f"SELECT value FROM parquet_kv_metadata('{tmp_path}/out/trend.parquet')"
    ).fetchall()
    about = json.loads(value)
    assert {**about, "views": [], "left_out": []} == {
        **schema,
        **schema["views"][0],
        "views": [],
        "left_out": [],
    }
    assert about["release_id"] and about["promise"] and about["columns"]


def test_cells_are_those_of_sql(opened: OpenReleases, tmp_path: Path) -> None:
    schema = export(opened, tmp_path / "out", (), 0.95, silent)
    assert [each["view"] for each in schema["views"]] == ["demand", "people", "trend"]
    numbers = ", ".join(n + end for n in ("count", "sum_amount") for end in ("", "_stderr", "_low", "_high"))
    values = f"{errors('COUNT(*)')}, {errors('SUM(amount)')}"
    joined = "FROM shop WHERE age IS NOT NULL AND region <> '(other)' GROUP BY 1, 2 ORDER BY 1, 2"
    demand = opened.query(f"SELECT age, region, {values} {joined}").rows
    known = "WHERE age_low IS NOT NULL AND region NOT LIKE '(%' ORDER BY 1, 2"
    same(
        written(tmp_path / "out", f"SELECT age_low, region, {numbers} FROM 'demand.parquet' {known}"),
        named(demand),
    )
    joined = "FROM shop GROUP BY 1, 2 ORDER BY 1, 2"
    trend = opened.query(f"SELECT DATE_TRUNC('month', sold_on), category, {values} {joined}").rows
    known = "WHERE sold_on_low IS NOT NULL AND category NOT LIKE '(%' ORDER BY 1, 2"
    found = f"SELECT sold_on_low, category, {numbers} FROM 'trend.parquet' {known}"
    plain = [(str(row[0])[:10], *row[1:]) for row in named(trend)]
    same([(str(row[0]), *row[1:]) for row in written(tmp_path / "out", found)], plain)
    people = written(tmp_path / "out", "SELECT age, age_low, age_high FROM 'people.parquet' ORDER BY age_low")
    assert people.pop() == ("(OTHER)", None, None)
    assert people == [("20 to 29", 20, 29), ("30 to 39", 30, 39), ("40 to 49", 40, 49), ("50 to 59", 50, 59)]


def test_parts_and_a_whole_are_the_same(
    opened: OpenReleases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A view that is worked out a few rows at a time gives the file that it gives at once."""
    export(opened, tmp_path / "whole", ("trend",), 0.9, silent)
    monkeypatch.setattr(exporting, "MOST_ROWS", 7)
    assert len(list(exporting._parts((12, 5)))) == 12
    assert sum(len(a) * len(b) for a, b in exporting._parts((12, 5))) == 60
    export(opened, tmp_path / "parts", ("trend",), 0.9, silent)
    whole, parts = (written(tmp_path / name, "SELECT * FROM 'trend.parquet'") for name in ("whole", "parts"))
    same(parts, whole)


def test_special_leaves_and_twins_have_names_of_their_own(fixture: OpenReleases, tmp_path: Path) -> None:
    schema = export(fixture, tmp_path / "out", ("demand", "prices"), 0.95, silent)
    columns = {each["view"]: [column["name"] for column in each["columns"]] for each in schema["views"]}
    assert columns["demand"][:6] == ["age", "age_low", "age_high", "region", "category", "department"]
    assert columns["demand"][6::4] == ["count", "sum_amount", "sum_qty", "count_qty"]
    assert columns["prices"][:4] == ["price", "price_low", "price_high", "region"]
    found = "SELECT region, sum(count), sum(sum_amount) FROM 'demand.parquet' GROUP BY 1 ORDER BY 1"
    asked = fixture.query(
        "SELECT region, COUNT(*), SUM(amount) FROM sales JOIN customer USING (customer_id) GROUP BY 1"
    )
    regions = {row[0]: row[1:] for row in written(tmp_path / "out", found)}
    assert set(regions) == {"(MISSING)", "(NULL)", "east", "north", "south", "west"}
    for name, *numbers in asked.rows:
        assert regions[name or "(NULL)"] == pytest.approx(tuple(numbers))
    assert written(tmp_path / "out", "SELECT DISTINCT age FROM 'demand.parquet' WHERE age_low IS NULL ORDER BY 1") == [
        ("(MISSING)",), ("(OTHER)",)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("bound", "privacy"), by_default([("auto", "epsilon: 5, delta: 1e-6"), ("3", "epsilon: 5")], 1)
)
def test_people_and_scaled_cells(tmp_path: Path, bound: str, privacy: str) -> None:
    """People are counted on axes of their own; scaled shapes have spread and tail in their intervals."""
    dpsql.publish(make_people(tmp_path, bound=bound, privacy=privacy), tmp_path / "people.dpsql")
    opened = open_session([tmp_path / "people.dpsql"])
    schema = export(opened, tmp_path / "out", (), 0.95, silent)
    told = {each["file"]: " ".join(each["notes"]) for each in schema["views"]}
    assert "each unit of customer counts once" in told["months.parquet"]
    values = f"{errors('COUNT(*)')}, {errors('COUNT(DISTINCT id)')}"
    cells = opened.query(
        f"SELECT month, store, region, {values} FROM sales JOIN customer USING (id) GROUP BY ALL"
    )
    columns = "count, count_stderr, count_low, count_high, people, people_stderr, people_low, people_high"
    found = "WHERE month_low IS NOT NULL AND store_low IS NOT NULL AND region NOT LIKE '(%' ORDER BY ALL"
    wanted = sorted(row for row in cells.rows if not {None, "(other)"} & set(row[:3]))
    same(
        written(
            tmp_path / "out", f"SELECT month_low, store_low, region, {columns} FROM 'stores.parquet' {found}"
        ),
        wanted,
    )
    assert len(wanted) == 6 * 5 * 3
    opened.close()


def test_schema_says_what_to_know(opened: OpenReleases, tmp_path: Path) -> None:
    schema = export(opened, tmp_path / "out", ("people",), 0.95, silent)
    assert json.loads((tmp_path / "out" / "schema.json").read_text("utf-8")) == json.loads(json.dumps(schema))
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["people.parquet", "schema.json"]
    told = " ".join(schema["read_first"])
    assert "does not follow" in told and "epsilon = 80" in schema["promise"][0]
    described = {column["name"]: column for column in schema["views"][0]["columns"]}
    kinds = duckdb.sql(f"DESCRIBE FROM '{tmp_path}/out/people.parquet'").fetchall()
    assert [(name, kind) for name, kind, *_ in kinds] == [(n, c["type"]) for n, c in described.items()]


def test_refusals_say_what_to_write(
    opened: OpenReleases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InterfaceError, match="no view nothing; there are demand, people, trend"):
        export(opened, tmp_path / "out", ("nothing",), 0.95, silent)
    with pytest.raises(InterfaceError, match="exists"):
        export(opened, tmp_path, (), 0.95, silent)
    monkeypatch.setattr(exporting, "MOST_WORK", 10_000)
    with pytest.raises(NotSupportedError, match=r"view demand has 210 cells.*--view NAME"):
        export(opened, tmp_path / "out", (), 0.95, silent)
    assert not list(tmp_path.iterdir())
    monkeypatch.undo()
    (tmp_path / "file").touch()
    with pytest.raises(MachineFault, match="the tables were not written"):
        export(opened, tmp_path / "file" / "out", (), 0.95, silent)
    (tmp_path / "file").unlink()
    two = open_session([opened.releases[0].path] * 2)
    with pytest.raises(InterfaceError, match="a folder of its own"):
        export(two, tmp_path / "out", (), 0.95, silent)
    two.close()


def test_command(opened: OpenReleases, tmp_path: Path) -> None:
    done = run(
        "export", opened.releases[0].path, "-o", tmp_path / "out", "--view", "people", "--level", "0.5"
    )
    assert (done.returncode, done.stdout) == (0, "") and "people.parquet: 5 rows" in done.stderr
    low, high, error = written(
        tmp_path / "out", "SELECT count_low, count_high, count_stderr FROM 'people.parquet'"
    )[0]
    assert 0 < high - low < 2 * error  # at a level of one half
    told = json.loads(run("export", opened.releases[0].path, "-o", tmp_path / "more", "--json").stdout)
    assert [each["file"] for each in told["views"]] == ["demand.parquet", "people.parquet", "trend.parquet"]
    assert np.prod([42, 5]) == told["views"][0]["rows"]


GROUPED = """SELECT region, DATE '2025-01-31' AS day, 1.50 AS price, COUNT(*) > 0 AS b, COUNT(*) AS n
FROM sales JOIN customer USING (customer_id)"""
KINDS = {"region": "string", "day": "date32[day]", "price": "decimal128(3, 2)", "b": "bool", "n": "double"}


@pytest.mark.parametrize("having", ["", " HAVING COUNT(*) > 1e12"])
def test_types_are_the_statements_with_and_without_rows(opened: OpenReleases, having: str) -> None:
    result = opened.query(f"{GROUPED} GROUP BY region{having}")
    table = result.arrow()
    assert {field.name: str(field.type) for field in table.schema} == KINDS
    assert [tuple(row.values()) for row in table.to_pylist()] == [tuple(row) for row in result.rows]
    assert bool(result.rows) is not bool(having)
    errors = result.arrow(errors=True)
    assert errors.num_rows == len(result.rows)
    assert {str(errors.schema.field(name).type) for name in errors.column_names if name.startswith("n_")} <= {
        "double"
    }


@pytest.mark.parametrize("read", [pa.table, pl.DataFrame], ids=["pyarrow", "polars"])
def test_whatever_reads_streams_takes_a_result(opened: OpenReleases, read: Any) -> None:
    result = opened.query(f"{GROUPED} GROUP BY region")
    taken = read(result)
    rows = (
        taken.rows()
        if isinstance(taken, pl.DataFrame)
        else [tuple(row.values()) for row in taken.to_pylist()]
    )
    assert rows == [tuple(row) for row in result.rows]
    assert len(rows) > 1


def test_a_table_says_which_release_it_is_of(opened: OpenReleases) -> None:
    result = opened.query("SELECT COUNT(*) FROM sales")
    about = json.loads(result.arrow().schema.metadata[b"dpsql"])
    assert about["release"] == result.provenance["release"]
    assert about["notes"] == list(result.notes)


def test_values_that_do_not_fit_their_type_are_kept() -> None:
    from dpsql.results.render import arrow_column

    assert arrow_column([1.5, None], pa.int64()).to_pylist() == [1.5, None]
    assert arrow_column([1 << 40, None], pa.int32()).to_pylist() == [1 << 40, None]
