"""Groups that no raw table has: what statements over groups count, average, rank, limit and join equals plain DuckDB

over the rows of the domain; sums are over all rows. On a star made for it, the bundled shop, and a fixture.
"""

from __future__ import annotations

import datetime
import random
from pathlib import Path

import pytest

from dpsql.curator.prove.layouts import RawRows
from dpsql.executor.engine import ReleaseEngine
from dpsql.noise import ZeroNoise
from dpsql.release import open_release
from tests.oracle.star import make_shop, publish_shop, same
from tests.release_fixture import make_rows, raw_star, write_fixture
from tests.releases import plain_tables, published, seeded, write_catalog, write_tables
from tests.statements import sections
from tests.thinned import by_default

CATALOG = """
dpsql: 1
name: clinic
source: {{kind: parquet, root: ".", tables: {{visits: visits.parquet}}}}
privacy: {{lineage: clinic, cap: 80, unit: row, epsilon: 4, delta: 0}}
tables:
  visits:
    role: fact
    columns:
      region: {{type: string, categories: [north, south, east, west]}}
      shade: {{type: string, categories: [red, green, blue], nullable: true}}
      seen: {{type: date, lower: 2025-01-01, upper: {upper}}}
      fee: {{type: int, lower: 0, upper: 100, measure: true}}
views:
  all: {{of: visits, axes: [visits.region, visits.shade, {{axis: visits.seen, cuts: {{width: month}}}}],
    measures: [count, visits.fee]}}
"""
REGIONS, SHADES = ("north", "south", "east", "west"), ("red", "green", "blue")
IN = {
    "region": "region IN ('north', 'south', 'east', 'west')",
    "shade": "(shade IS NULL OR shade IN ('red', 'green', 'blue'))",
    "DATE_TRUNC('month', seen)": "seen BETWEEN DATE '2025-01-01' AND DATE '2025-06-30'",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, publishes):
    """Rows of which a fifth have a region, a shade or a day that the catalog does not know, some of them NULL."""
    rng, rows = random.Random(11), []
    for _ in range(3000):
        region = rng.choice(REGIONS) if rng.random() < 0.8 else rng.choice(["Scotland", "Wales", None])
        shade = rng.choice(SHADES) if rng.random() < 0.7 else rng.choice(["pink", None])
        day = datetime.date(2025, 1, 1) + datetime.timedelta(
            rng.randrange(181 if rng.random() < 0.9 else 240)
        )
        rows.append((region, shade, day, rng.randrange(101)))
    folder = tmp_path_factory.mktemp("clinic")
    visits = RawRows("region VARCHAR, shade VARCHAR, seen DATE, fee INTEGER", rows)
    return write_tables(folder, {"visits": visits})


def publish(folder, noise, upper="2025-06-30", name="clinic", epsilon="4"):
    text = CATALOG.format(upper=upper).replace("epsilon: 4", f"epsilon: {epsilon}")
    return published(write_catalog(folder, text), noise, name, key=b"k" * 32)


@pytest.fixture(scope="module")
def clinic(folder):
    return publish(folder, ZeroNoise())


@pytest.fixture(scope="module")
def raw(folder):
    return plain_tables(folder)


FILE = sections(Path(__file__).with_name("groups_of_answers.sql"))
OVER_GROUPS, BY_NAME, SUMS, NESTED = (
    [text for text, _ in FILE[name]] for name in ("over groups", "by name", "sums", "nested")
)
"""Statements over groups g of one key k with their rows n and fees s; each is the same over the rows of the domain."""


def check(answerer, raw, sql, raw_sql, but=()):
    """The answer equals DuckDB's, in any order; rows whose first value is in `but` are the catalog's own."""
    answered = [row for row in answerer.query(sql).rows if row[0] not in but]
    expected = raw.execute(raw_sql).fetchall()
    assert len(answered) == len(expected), (sql, answered, expected)
    for row, truth in zip(sorted(answered, key=repr), sorted(expected, key=repr), strict=True):
        assert all(map(same, row, truth)), (sql, row, truth)


def shows_all(statement):
    """Whether it shows a row for each group, those of the catalog included."""
    return " OVER " in statement and "QUALIFY" not in statement and "r <=" not in statement


def of_the_domain(statement):
    """The statement without the row of `(other)`, if it shows a row for each group."""
    outside = f"SELECT * FROM ({statement}) AS v WHERE k <> '(other)' OR k IS NULL"
    return outside if shows_all(statement) else statement


@pytest.mark.parametrize("statement", OVER_GROUPS)
@pytest.mark.parametrize("key", list(IN))
def test_statements_over_groups_are_those_of_the_domain(clinic, raw, key, statement):
    groups = f"WITH g AS (SELECT {key} AS k, COUNT(*) AS n, SUM(fee) AS s FROM visits {{}} GROUP BY 1) "
    but = (None, "(other)") if shows_all(statement) and key != "shade" else ()
    sql = of_the_domain(statement) if key == "shade" else statement
    check(clinic, raw, groups.format("") + sql, groups.format(f"WHERE {IN[key]}") + statement, but)


@pytest.mark.parametrize("statement", BY_NAME)
@pytest.mark.parametrize("key", ["region", "shade"])
def test_groups_that_a_condition_or_a_list_names_are_groups_like_others(clinic, raw, key, statement):
    """A LIMIT dropped `(other)` from a list that named it."""
    listed = f"CASE WHEN {IN[key]} THEN {key} ELSE '(other)' END"
    over = "WITH g AS (SELECT {} AS k, COUNT(*) AS n FROM visits GROUP BY 1) "
    over += statement.replace("north", {"region": "north", "shade": "red"}[key])
    sql = over.replace("v WHERE k", f"visits WHERE {key}").replace("SELECT k,", f"SELECT {key} AS k,")
    raw_sql = over.replace("FROM v ", f"FROM (SELECT {listed} AS k FROM visits) AS v ").format(listed)
    check(clinic, raw, sql.format(key), raw_sql)


@pytest.mark.parametrize("statement", SUMS)
@pytest.mark.parametrize("key", ["region", "shade"])
def test_sums_keep_every_row(clinic, raw, key, statement):
    sql = statement.format(f"SELECT {key} AS k, COUNT(*) AS n, SUM(fee) AS s FROM visits GROUP BY 1")
    raw_sql = sql.replace("OVER (ORDER BY k)", "OVER (ORDER BY k NULLS FIRST)")
    if "MAX(c)" in statement:  # the largest running sum is of the last group of the domain
        assert clinic.query(sql).rows[0][0] <= raw.execute("SELECT COUNT(*) FROM visits").fetchone()[0]
        return
    check(clinic, raw, sql, raw_sql)


@pytest.mark.parametrize("statement", NESTED)
def test_groups_of_groups(clinic, raw, statement):
    groups = "WITH g AS (SELECT region, shade, COUNT(*) AS n FROM visits {} GROUP BY 1, 2) "
    where = f"WHERE {IN['region']} AND {IN['shade']}"
    if "SUM" in statement:  # rows of a region, whatever their shade
        by, expected = clinic.query(groups.format("") + statement).rows, raw.execute(
            f"SELECT region, COUNT(*) FROM visits WHERE {IN['region']} GROUP BY 1 ORDER BY 2 DESC LIMIT 2"
        ).fetchall()  # fmt: skip
        assert [row[:2] for row in by] == expected
        return
    sql = statement
    if statement.startswith("SELECT region"):
        sql = f"SELECT * FROM ({statement}) AS v WHERE region <> '(other)'"
        sql += " AND (shade IS NULL OR shade <> '(other)')" if "PARTITION" in statement else ""
    check(clinic, raw, groups.format("") + sql, groups.format(where) + statement)


def test_the_groups_inside_of_other_are_averaged_too(clinic, raw):
    answer = clinic.query(
        "SELECT region, AVG(n), COUNT(*) FROM (SELECT region, shade, COUNT(*) AS n FROM visits GROUP BY 1, 2) AS g "
        "GROUP BY 1"
    )
    other = next(row for row in answer.rows if row[0] == "(other)")
    outside = f"(region IS NULL OR NOT {IN['region']})"
    (total,) = raw.execute(f"SELECT COUNT(*) FROM visits WHERE {outside} AND {IN['shade']}").fetchone()
    assert other[1:] == (total / 4, 4)


def test_a_large_group_out_of_the_domain_is_said(clinic):
    sql = "SELECT AVG(n) FROM (SELECT {} AS k, COUNT(*) AS n FROM visits GROUP BY 1) AS g"
    assert any("region = (other), of" in flag for flag in clinic.query(sql.format("region")).flags)
    plain = clinic.query("SELECT region, COUNT(*) FROM visits GROUP BY 1")
    assert not any("left out" in note for note in plain.notes) and plain.rows[-1][0] == "(other)"


@pytest.fixture(scope="module")
def shop(tmp_path_factory, publishes):
    """The bundled shop with a catalog that does not list one of its regions."""
    folder = tmp_path_factory.mktemp("shop")
    raw, catalog = make_shop(folder), folder / "retail.yaml"
    text = catalog.read_text()
    catalog.write_text(
        text.replace("east, west], nullable: true, out_of_domain: drop", "east], nullable: true")
    )
    return raw, publish_shop(folder, ZeroNoise())


@pytest.mark.parametrize("statement", by_default(OVER_GROUPS, 3))
def test_a_shop_whose_catalog_lacks_a_region(shop, statement):
    raw, answerer = shop
    rows = "sales JOIN customer USING (customer_id)"
    groups = f"WITH g AS (SELECT region AS k, COUNT(*) AS n, SUM(amount) AS s FROM {rows} {{}} GROUP BY 1) "
    listed = (
        groups.format("WHERE region IS NULL OR region <> 'west'").replace("(amount)", "(amount::DOUBLE)")
        + statement
    )
    check(answerer, raw, groups.format("") + of_the_domain(statement), listed)


AGES = (
    "SELECT age AS k, COUNT(*) AS n, SUM(qty) AS s FROM sales JOIN customer USING (customer_id) {} GROUP BY 1"
)


@pytest.mark.parametrize("statement", by_default(OVER_GROUPS, 2))
def test_ages_and_customers_that_are_not_there(tmp_path, statement):
    rows = make_rows()
    answerer = ReleaseEngine(open_release(write_fixture(tmp_path / "f.dpsql", rows)))
    sql = f"WITH g AS ({AGES}) {statement}"
    check(answerer, raw_star(rows), sql.format(""), sql.format("WHERE age BETWEEN 18 AND 39"),
          (None,) if shows_all(statement) else ())  # fmt: skip
    answerer.release.close()


@pytest.fixture(scope="module")
def long_year(folder):
    """Thirteen months and more of which seven or so have rows, with noise."""
    return publish(folder, seeded(3), "2026-01-31", "year")


MONTHS = "SELECT DATE_TRUNC('month', seen) AS k, COUNT(*) AS n, SUM(fee) AS s FROM visits {} GROUP BY 1"


def test_intervals_hold_both_readings(long_year, raw):
    """All groups of the domain, and those that DuckDB finds among the rows."""
    statement = "SELECT AVG(n), COUNT(*), SUM(n) / COUNT(*), SUM(n) FROM ({}) AS g"
    answer = long_year.query(statement.format(MONTHS.format("")))
    assert any(flag.startswith("over all 13 groups of the domain, empty or not") for flag in answer.flags)
    low, high = answer.interval_rows()
    truth = raw.execute(statement.format(MONTHS.format(""))).fetchone()
    (all_rows,) = raw.execute("SELECT COUNT(*) FROM visits").fetchone()
    everywhere = (all_rows / 13, 13, all_rows / 13, all_rows)
    assert answer.rows[0][1] == 13 and answer.rows[0][0] == pytest.approx(all_rows / 13, rel=0.05)
    for c in range(4):
        assert low[0][c] <= min(truth[c], everywhere[c]) and max(truth[c], everywhere[c]) <= high[0][c], c
    assert answer.stderr_rows[0][1] == pytest.approx((high[0][1] - low[0][1]) / (2 * 1.959964))
    assert 1 in answer.noisy and not answer.undefined


def test_extremes_of_groups_have_an_interval(folder, raw):
    """MIN and MAX hold those of all groups of the domain, and of those that have rows; three releases."""
    statement = "SELECT MIN(n), MAX(n), MIN(s), MAX(s), MAX(s / n) FROM ({}) AS g"
    cells = "SELECT region, shade, COUNT(*) AS n FROM visits {} GROUP BY 1, 2"
    by_region = f"SELECT region, MIN(n), MAX(n) FROM ({cells}) AS g GROUP BY region"
    truth = raw.execute(statement.format(MONTHS.format(""))).fetchone()
    regions = {
        row[0]: row
        for row in raw.execute(by_region.format(f"WHERE {IN['region']} AND {IN['shade']}")).fetchall()
    }
    held = {"MIN": [], "MAX": [], "region": []}
    for seed in range(3):
        answerer = publish(folder, seeded(seed), "2026-01-31", f"extremes{seed}")
        answer = answerer.query(statement.format(MONTHS.format("")))
        (low,), (high,) = answer.interval_rows()
        for c, true in enumerate(truth):
            everywhere = 0 if c in (0, 2) else true
            held["MIN" if c in (0, 2) else "MAX"].append(
                low[c] <= min(true, everywhere) and max(true, everywhere) <= high[c]
            )
            assert low[c] <= answer.rows[0][c] <= high[c]
            assert answer.stderr_rows[0][c] == pytest.approx((high[c] - low[c]) / (2 * 1.959964))
        assert not answer.undefined
        answer = answerer.query(by_region.format(""))
        for row, low, high in zip(answer.rows, *answer.interval_rows(), strict=True):
            if row[0] in regions:
                held["region"] += [
                    a <= true <= b for a, true, b in zip(low[1:], regions[row[0]][1:], high[1:], strict=True)
                ]
    assert all(sum(each) >= 0.95 * len(each) for each in held.values()), {
        k: sum(v) / len(v) for k, v in held.items()
    }


def test_an_average_over_groups_of_which_none_is_seen_has_no_interval(folder):
    """Seven months may have rows and six have none: over those that are seen there is no average."""
    dim = publish(folder, seeded(3), "2026-01-31", "dim", "0.001")
    answer = dim.query(f"SELECT AVG(n), COUNT(*) FROM ({MONTHS.format('')}) AS g")
    low, high = answer.interval_rows()
    assert answer.rows[0][0] is not None and (low[0][0], high[0][0]) == (None, None)
    assert answer.undefined[answer.columns[0]].startswith("every group's interval includes 0")
    assert (low[0][1], high[0][1]) == (0, 13)


def test_an_error_inside_of_a_statement_holds_both_readings(long_year):
    inside = (
        "SELECT AVG(n), DP_INTERVAL_LOW(AVG(n)), DP_INTERVAL_HIGH(AVG(n)), DP_STDERR(AVG(n)) FROM ({}) AS g"
    )
    answer = long_year.query(inside.format(MONTHS.format("")))
    low, high = answer.interval_rows()
    assert answer.rows[0][1:3] == pytest.approx((low[0][0], high[0][0]))
    assert (
        answer.rows[0][3] is None
        and "depends on which groups are empty" in answer.undefined[answer.columns[3]]
    )


def test_where_every_group_is_seen_nothing_is_widened(long_year):
    sql = "SELECT AVG(n), COUNT(*) FROM (SELECT region, COUNT(*) AS n FROM visits GROUP BY 1) AS g"
    answer = long_year.query(sql)
    assert not any("empty or not" in note for note in answer.notes)
    low, high = answer.interval_rows()
    assert low[0][1] is None and high[0][0] - low[0][0] < 40


@pytest.mark.parametrize("value", ["COUNT(*)", "SUM(fee)", "AVG(fee)"])
def test_no_group_is_seen_by_chance(long_year, raw, value):
    """Of 52 intervals of 95% two or three leave out 0 by noise alone: a count of groups may start above the truth."""
    cells = f"SELECT region, DATE_TRUNC('month', seen) AS k, {value} AS n FROM visits GROUP BY 1, 2"
    sql = f"SELECT region, COUNT(*) FROM ({cells}) AS g GROUP BY 1"
    answer = long_year.query(sql)
    low, high = answer.interval_rows()
    truth = dict(raw.execute(sql).fetchall())
    ends = {row[0]: (a[1], b[1]) for row, a, b in zip(answer.rows, low, high, strict=True)}
    assert all(ends[region][0] <= truth[region] <= ends[region][1] for region in REGIONS)


def test_groups_with_their_own_empty_groups(long_year, raw):
    cells = "SELECT region, DATE_TRUNC('month', seen) AS k, COUNT(*) AS n FROM visits GROUP BY 1, 2"
    sql = f"SELECT region, AVG(n), COUNT(*) FROM ({cells}) AS g GROUP BY 1"
    answer = long_year.query(sql)
    low, high = answer.interval_rows()
    truth = {row[0]: row for row in raw.execute(sql).fetchall()}
    for row, a, b in zip(answer.rows, low, high, strict=True):
        if row[0] in REGIONS:
            assert a[1] <= truth[row[0]][1] <= b[1] and a[2] <= truth[row[0]][2] <= b[2] and row[2] == 13


@pytest.fixture(scope="module")
def fixture(tmp_path_factory, publishes):
    answerer = ReleaseEngine(
        open_release(write_fixture(tmp_path_factory.mktemp("f") / "f.dpsql", make_rows()))
    )
    yield answerer
    answerer.release.close()


@pytest.mark.parametrize(("sql", "star"), FILE["interval or a reason"])
def test_every_number_has_an_interval_or_a_reason(request, star, sql):
    answerer = request.getfixturevalue(star)
    answer = (answerer[1] if star == "shop" else answerer).query(sql)
    low, high = answer.interval()
    for c, name in enumerate(answer.columns):
        if name == "region":
            continue
        reason = {**answer.undefined, **answer.gaps()}.get(name)
        for r, row in enumerate(answer.rows):
            ends = low.iat[r, c], high.iat[r, c]
            assert row[c] is None or (ends[0] < ends[1] if reason is None else all(map(missing, ends)))
        assert c in answer.noisy or name in answer.undefined


def missing(value):
    return value is None or value != value
