"""What `max_ids: auto` asks of the rows is one number everywhere: histograms, totals, cells under weights.

On the shop (`tests.engines.star`), with an axis long enough for two levels, and given choices instead of drawn ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from dpsql.catalog import Catalog
from dpsql.central.axes import axis_maker
from dpsql.central.placed_rows import counted_rows, prepare_tables, row_value
from dpsql.central.plan import plan_release
from dpsql.contributions.constants import ROW_ENDS
from dpsql.contributions.histogram import doubling_edges
from dpsql.contributions.recipe import norm_views, pure_reach, whitened_parts
from dpsql.contributions.selection import RecipeTable, placed_table, sum_edges
from dpsql.contributions.statements import (
    UNIT,
    WeightedRows,
    clipped_total,
    make_norms,
    make_people,
    make_pure_weights,
    make_weights,
    people_per_bin,
    weighted_cells,
    whiten,
)
from dpsql.engines.dialect import DUCK, Dialect
from dpsql.engines.duck import RawSide, no_sources
from dpsql.engines.joined_rows import CommonRelations
from dpsql.engines.registry import Engine, open_engine
from dpsql.matrices.strategy import gathers
from dpsql.mechanisms.distribution import GAUSSIAN
from dpsql.noise import ZeroNoise
from tests.engines.catalogs import catalog, clickhouse_tables, files, server, spark_files
from tests.engines.star import load_clickhouse, load_postgres

pytestmark = pytest.mark.long

SCHEMA, FACTS = "userlevel", 4_000
LAWS = ("auto", "auto_pure")
TAU, DAYS = 3, 2
"""Given choices; the days of `sold_on` go two by two, so that the axis has more than a hundred leaves."""

AGAIN = replace(DUCK, materialised=None)
"""DuckDB's words, of an engine that may compute a common table again."""


@contextmanager
def opened(catalog: Catalog) -> Iterator[tuple[Engine, Any]]:
    """The engine of a catalog, and its placed table."""
    with closing(open_engine(catalog)) as raw:
        plan = plan_release(catalog, axis_maker(catalog, raw))
        prepare_tables(catalog, raw, plan)
        yield raw, plan


def table_of(catalog: Catalog, raw: Engine, plan: Any, relations: Any) -> RecipeTable:
    """The sales, their sums around given centres."""
    table = placed_table(relations, plan, "sales", counted_rows(catalog, raw, plan, "sales"), ZeroNoise())
    return table.centred({"sales.amount": 12_345, "sales.cost": -678})


def asked(catalog: Catalog) -> dict[str, Any]:
    """The answers of a catalog's engine."""
    with opened(catalog) as (raw, plan):
        return answers(table_of(catalog, raw, plan, raw.relations("testing")))


def answers(table: RecipeTable) -> dict[str, Any]:
    """What the recipe asks, by step."""
    relations, sums = table.relations, table.sums
    people = make_people(relations, table.rows, "sales", [table.columns[name] for name in sums])
    found: dict[str, Any] = {"rows": people_per_bin(relations, people, "n", ROW_ENDS).tolist()}
    for i, (name, statistic) in enumerate(sums.items()):
        edges = sum_edges(statistic)
        found[f"sums of {name}"] = people_per_bin(relations, people, f"abs(s{i})", edges).tolist()
    for bound in (1, 50_000, (1 << 62) - 1):
        found[f"totals at {bound}"] = [
            clipped_total(relations, people, each, bound) for each in ("n", "s0", "s1")
        ]
    if table.law == GAUSSIAN:
        whitening = whiten(whitened_parts(table, TAU))
        norms = make_norms(relations, table.rows, "sales", norm_views(table), whitening)
        edges = doubling_edges(1 << max(0, whitening.point - 8), 20)
        found["norms"] = people_per_bin(relations, norms, "norm", edges).tolist()
        weights = make_weights(relations, norms, "sales", (1 << whitening.point) + 1)
    else:
        values = [(row_value(s, table.columns), pure_reach(s, TAU)) for s in sums.values()]
        weights = make_pure_weights(relations, table.rows, "sales", TAU, values)
    found["cells"] = cells(table, weights)
    return found


def cells(table: RecipeTable, weights: str) -> list[Any]:
    """Those of all statistics."""
    bound = WeightedRows(table.rows, weights)
    found = weighted_cells(table.relations, table.plan, "sales", bound, table.columns)
    return [exact.tolist() for s in table.statistics.values() for exact in found.of(s)]


@pytest.fixture(scope="module")
def by_duckdb(shop: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """DuckDB's answers by law."""
    folder = tmp_path_factory.mktemp("duckdb")
    return {law: asked(catalog(folder / law, files(shop), law, days=DAYS)) for law in LAWS}


@pytest.mark.parametrize("law", LAWS)
def test_blocks_of_units(
    law: str,
    shop: Path,
    by_duckdb: dict[str, dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Norms in blocks of units are those of all at once."""
    monkeypatch.setattr("dpsql.engines.duck.BLOCK", 300)
    assert asked(catalog(tmp_path, files(shop), law, days=DAYS)) == by_duckdb[law]


@pytest.mark.parametrize("key", ["u", "'k' || u", "DATE '2025-01-01' + u::INTEGER", "u::DECIMAL(30, 2)"])
def test_every_unit_is_in_one_block(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpsql.engines.duck.BLOCK", 20)
    with closing(no_sources()) as raw:
        relations = raw.relations("testing")
        source = f"SELECT {key} AS unit, i FROM (SELECT i, i * i % 97 AS u FROM range(1000) AS r(i)) AS r"
        rows = relations.make("rows", source, order="unit")
        made = relations.make_by_unit(
            "sums", "SELECT unit, sum(i) AS total FROM {} GROUP BY unit".format, rows
        )
        assert len(raw.connection.execute("SELECT getvariable('edges')").fetchone()[0]) > 5
        both = f"SELECT unit, sum(i) FROM {rows} GROUP BY unit EXCEPT ALL SELECT * FROM {made}"
        assert raw.connection.execute(both).fetchall() == []
        assert raw.connection.execute(f"SELECT count(*) FROM {made}").fetchone() == (49,)


def test_steps_hold_something(shop: Path, by_duckdb: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    """People in several bins, weights below 1, and rows that gather leaves."""
    for law in LAWS:
        found = by_duckdb[law]
        assert sum(count > 0 for count in found["rows"]) > 4
        weighted = sum(np.sum(each) for each in found["cells"][:1])
        assert 0 < weighted < FACTS * UNIT and weighted % UNIT
    with opened(catalog(tmp_path, files(shop), "auto", days=DAYS)) as (_, plan):
        assert any(gathers(axis.strategy) for axis in plan.axes)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("engine", ["postgres", "spark", "clickhouse"])
def test_engines_answer_alike(
    engine: str, law: str, shop: Path, by_duckdb: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    """Every integer of every step is that of DuckDB; a session of PostgreSQL may only read, and leaves nothing."""
    there, schema = request.getfixturevalue(engine), f"{SCHEMA}_{LAWS.index(law)}"
    if engine == "postgres":
        load_postgres(there.dsn, shop, schema)
        monkeypatch.setenv("DPSQL_TEST_DSN", there.dsn)
        source = server(schema)
    elif engine == "spark":
        source = spark_files(shop)
    else:
        load_clickhouse(there, shop, SCHEMA)
        source = clickhouse_tables(there, SCHEMA)
    assert asked(catalog(tmp_path, source, law, days=DAYS)) == by_duckdb[law]


@pytest.mark.parametrize("law", LAWS)
def test_windows_answer_alike(law: str, shop: Path, by_duckdb: dict[str, Any], tmp_path: Path) -> None:
    """The text for engines that may compute a common table again, run by DuckDB."""
    here = catalog(tmp_path, files(shop), law, days=DAYS)
    with opened(here) as (raw, plan):
        assert isinstance(raw, RawSide)
        stored = raw.relations("testing")
        relations = CommonRelations(AGAIN, stored.fetch, stored.batches)
        assert answers(table_of(here, raw, plan, relations)) == by_duckdb[law]


@dataclass
class Watched:
    """DuckDB's answers to questions in an engine's form; `scans` is how often each reads the placed rows."""

    MOST_GROUPS: ClassVar[int] = 0
    inner: CommonRelations
    queries: dict[str, str] = field(default_factory=dict)
    scans: list[int] = field(default_factory=list)

    @property
    def dialect(self) -> Dialect:
        return self.inner.dialect

    def make(self, name: str, query: str, order: str = "") -> str:
        table = self.inner.make(name, query)
        self.queries[table] = query
        return table

    def make_by_unit(self, name: str, query: Callable[[str], str], rows: str) -> str:
        return self.make(name, query(rows))

    def fetch(self, statement: str) -> Any:
        self.scans.append(self.scans_of(statement) * max(1, statement.count("FROM x ")))
        return self.inner.fetch(statement)

    def scans_of(self, text: str) -> int:
        """Of the placed rows, where every common table is computed as often as it is read."""
        below = {name: query for name, query in self.queries.items() if name in text}
        return sum(
            text.count(name) * (1 if name == '"bounded sales"' else self.scans_of(query))
            for name, query in below.items()
        )


@pytest.mark.parametrize("law", LAWS)
def test_a_unit_is_weighed_in_the_scan_that_counts_it(law: str, shop: Path, tmp_path: Path) -> None:
    """Where a common table may be computed again every question reads the rows once; elsewhere some read them twice."""
    here, most = catalog(tmp_path, files(shop), law, days=DAYS), {}
    for dialect in (AGAIN, DUCK):
        with opened(here) as (raw, plan):
            stored = raw.relations("testing")
            relations = Watched(CommonRelations(dialect, stored.fetch, stored.batches))
            answers(table_of(here, raw, plan, relations))
        most[dialect.materialised] = max(relations.scans)
        assert min(relations.scans) == 1
    assert most[None] == 1
    assert most[DUCK.materialised] > 1
