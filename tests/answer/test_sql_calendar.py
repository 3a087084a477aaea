"""Hours, weekdays and months that a draft derives since questions ask for them: without noise they are DuckDB's own."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from sqlglot import exp

from dpsql.curator.confirm import confirm_tables
from dpsql.curator.draft import CuratorChoices, DraftWorkload, draft_from_source
from dpsql.errors import NoViewError
from dpsql.executor.engine import ReleaseEngine
from dpsql.noise import ZeroNoise
from dpsql.sql.dialects import map_fields
from dpsql.sql.parse import parse
from tests.answer.test_statements import Claim, as_duckdb
from tests.releases import Twins, published, write_catalog
from tests.thinned import by_default

pytestmark = pytest.mark.usefixtures("publishes")

RIDES = """
CREATE TABLE rides AS SELECT i AS ride_id, i % 5 AS zone, DATE '2023-01-01' + CAST(i % 200 AS INTEGER) AS day,
    CASE WHEN i % 11 > 0 THEN strftime(TIMESTAMP '2023-01-01' + INTERVAL (i * 37) MINUTE, '%Y-%m-%dT%H:%M:%S')
        || CASE WHEN i % 2 = 0 THEN 'Z' ELSE '+02:00' END END AS "at" FROM range(3000) AS r(i)
"""
ASKED = [
    'SELECT EXTRACT(HOUR FROM "at") AS h, zone, COUNT(*) FROM rides GROUP BY h, zone ORDER BY h, zone',
    "SELECT date_part('hour', r.\"at\") AS h, COUNT(*) FROM rides AS r GROUP BY 1 ORDER BY 1",
    'SELECT COUNT(*) FROM rides WHERE hour("at") BETWEEN 6 AND 9 AND zone = 3',
    'SELECT dayofweek("at") AS d, AVG(zone) FROM rides GROUP BY d ORDER BY d',
    "SELECT isodow(day) AS d, month(day) AS m, COUNT(*) FROM rides GROUP BY ALL ORDER BY ALL",
    "SELECT date_trunc('month', \"at\") AS m, COUNT(*) FROM rides GROUP BY m ORDER BY m",
    'WITH rides AS (SELECT hour("at") AS h, COUNT(*) AS n FROM rides GROUP BY h) SELECT SUM(n) FROM rides WHERE h > 20',
    "SELECT COUNT(*) FROM rides WHERE \"at\" >= TIMESTAMP '2023-02-01 00:00:00'",
    'SELECT COUNT(*) FROM rides WHERE EXTRACT(MINUTE FROM "at") = 7',  # hours have minute 0 alone
]


@pytest.fixture(scope="module")
def rides(tmp_path_factory: pytest.TempPathFactory) -> tuple[ReleaseEngine, duckdb.DuckDBPyConnection]:
    """A release without noise of a drafted catalog, and its rows."""
    folder = tmp_path_factory.mktemp("rides")
    (folder / "rides").mkdir()
    raw = duckdb.connect()
    raw.execute("SET TimeZone = 'UTC'")
    raw.execute(RIDES)
    raw.execute(f"COPY rides TO '{folder}/rides/rides.csv'")
    raw.execute(
        'ALTER TABLE rides ALTER "at" TYPE TIMESTAMP USING CAST("at" AS TIMESTAMPTZ) AT TIME ZONE \'UTC\''
    )
    choices = CuratorChoices("row", frozenset(), "5000", "5000")
    drafted = draft_from_source(
        folder / "rides", folder / "rides.yaml", None, lambda _: choices, DraftWorkload(ASKED)
    )
    assert drafted.design is not None and drafted.design.served == len(ASKED)
    text, _ = confirm_tables(drafted.text, {"rides": False})
    catalog = write_catalog(folder, text.replace("root: ", "root: ROOT/rides  # "))
    return published(catalog, ZeroNoise()), raw


@pytest.mark.parametrize("statement", by_default(ASKED, 3))
def test_fields_mean_what_they_mean_over_raw_rows(statement: str, rides: Twins) -> None:
    as_duckdb(Claim(*rides, statement, ""))


def test_the_calendar_says_what_a_field_may_be_so_nobody_confirms_it(rides: Twins) -> None:
    catalog = rides[0].release.catalog
    columns = catalog.tables["rides"].columns
    assert " ".join(sorted(catalog.tables["rides"].derive)) == "at_dow at_hour at_minute day_isodow day_month"
    fields = {name: columns[name] for name in ("at_hour", "day_isodow")}
    assert [(f.lower, f.upper, f.nullable) for f in fields.values()] == [("0", "23", True), ("1", "7", False)]


@pytest.mark.parametrize(
    "statement, mapped",
    [
        ('SELECT hour("at") FROM rides', True),
        ('SELECT hour(t."at") FROM rides AS t', True),
        ('SELECT hour("at") FROM rides WHERE "at" > DATE \'2023-02-01\'', False),  # few views have both
        ("SELECT hour(day) FROM rides", False),
        ('WITH t AS (SELECT 1 AS "at") SELECT hour("at") FROM t', False),
        ('WITH rides AS (SELECT "at" FROM other) SELECT hour("at") FROM rides', False),
        ('SELECT minute("at") FROM rides', False),
    ],
)
def test_a_field_is_a_column_only_where_it_is_surely_that(statement: str, mapped: bool, rides: Twins) -> None:
    tree = parse(statement, "")
    map_fields(tree, rides[0].schema)
    assert any(column.name == "at_hour" for column in tree.find_all(exp.Column)) is mapped


def test_times_themselves_answer_where_no_view_has_their_field(rides: Twins) -> None:
    answerer, raw = rides
    with pytest.raises(NoViewError, match="at_dow"):
        answerer.query('SELECT dayofweek("at"), zone, isodow(day), COUNT(*) FROM rides GROUP BY ALL')
    days = 'SELECT dayofweek("at") AS d, COUNT(*) FROM rides WHERE "at" >= DATE \'2023-02-01\' GROUP BY d'
    as_duckdb(Claim(answerer, raw, days, ""))


BOTH = """views:
  both: {of: rides, axes: [{axis: rides.day, cuts: {width: month}}, rides.day_isodow, rides.zone], measures: [count]}
"""


def test_a_field_with_an_axis_of_its_own_is_not_read_off_months_of_the_same_view(
    rides: Twins, tmp_path: Path
) -> None:
    """The axis of days holds what is derived from days; months were cut by it, and each statement refused."""
    text = rides[0].release.path.with_name("catalog.yaml").read_text().split("views:")[0] + BOTH
    answerer = published(write_catalog(tmp_path, text.replace("lineage: ", "lineage: both_")), ZeroNoise())
    for statement in (
        "SELECT isodow(day) AS d, COUNT(*) FROM rides GROUP BY d ORDER BY d",
        "SELECT day_isodow AS d, zone, COUNT(*) FROM rides GROUP BY ALL ORDER BY ALL",
        "SELECT COUNT(*) FROM rides WHERE isodow(day) = 6 AND day >= DATE '2023-03-01' AND day < DATE '2023-05-01'",
        "SELECT date_trunc('month', day) AS m, isodow(day) AS d, COUNT(*) FROM rides GROUP BY ALL ORDER BY ALL",
    ):
        as_duckdb(Claim(answerer, rides[1], statement, statement.replace("day_isodow", "isodow(day)")))


OPENING = """
dpsql: 1
name: openings
source: {{kind: parquet, root: ROOT, tables: {{visit: visit.parquet}}}}
privacy: {{lineage: openings, cap: 9, unit: row, epsilon: 1}}
tables: {{visit: {{role: fact, derive: {{h: "hour(t)"}}, columns: {{
  t: {{type: timestamp, grain: hour, lower: 2025-01-01, upper: 2025-01-02}},
  h: {{type: int, lower: {0}, upper: {1}}}}}}}}}
views:
  hours: {{of: visit, axes: [visit.h], measures: [count]}}
  times: {{of: visit, axes: [visit.t], measures: [count]}}
"""


@pytest.mark.parametrize(("low", "high", "view"), [(0, 23, "hours"), (8, 18, "times")])
def test_hours_of_a_column_that_lacks_some_are_not_all_hours(
    tmp_path: Path, low: int, high: int, view: str
) -> None:
    """An answer of 0 people at 22 o'clock would be about the column's opening hours, not about the times."""
    rows = "SELECT TIMESTAMP '2025-01-01' + INTERVAL (i % 48) HOUR AS t FROM range(480) AS r(i)"
    answerer = published(write_catalog(tmp_path, OPENING.format(low, high), {"visit": rows}), ZeroNoise())
    result = answerer.query("SELECT COUNT(*) FROM visit WHERE EXTRACT(HOUR FROM t) = 22")
    assert (result.scalar(), result.provenance["views"]) == (20, [view])
