"""Rows beyond a declared contribution bound: intervals reach them, and every interface says where nobody measured
them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpsql.catalog import load_catalog
from dpsql.curator.forecast import plan_catalog
from dpsql.curator.prove.layouts import RawRows
from dpsql.executor.engine import ReleaseEngine
from dpsql.federation.session import open_session
from dpsql.interfaces.web.explore.answers import Explorer
from dpsql.interfaces.web.report import report_page
from dpsql.intervals.excess import Grown, reach_of
from dpsql.noise import Noise, ZeroNoise
from dpsql.progress import silent
from dpsql.release import open_release
from dpsql.release.format import RowsBeyondBound
from dpsql.release.reports import BIT, UNSEEN
from dpsql.results.export import export
from tests import releases
from tests.interfaces_release import CATALOG, build
from tests.thinned import by_default

UNMEASURED = "of the bounded rows; rows beyond max_ids were not measured"
STAR = """
privacy: {lineage: shop, cap: 9000, unit: customer.customer_id, epsilon: 400}
tables:
  customer: {role: dimension, key: customer_id, private: true, columns: {
    region: {type: string, categories: [east, west]}}}
  sales:
    role: fact
    max_ids: 10
    SHARE
    foreign_keys: {customer_id: customer}
    columns:
      kind: {type: int, lower: 0, upper: 3}
      amount: {type: int, lower: 0, upper: 100, measure: true}
      balance: {type: int, lower: -50, upper: 50, measure: true}
views:
  kinds: {of: sales, axes: [sales.kind, customer.region], measures: [count, people, sales.amount, sales.balance]}
"""


def published(
    folder: Path,
    share: str = "",
    star: str = STAR,
    most: int = 40,
    noise: Noise | None = None,
    *,
    taste: int = 0,
) -> ReleaseEngine:
    """A star of 2,000 people with 1 to `most` rows, of which ten count; most rows of heavy people have kind `taste`."""
    dice = np.random.default_rng(5)
    many = np.minimum(most, np.ceil(dice.lognormal(1.5, 1.0, 2000))).astype(int)
    owner = np.repeat(np.arange(2000), many)
    kind, amount = dice.integers(0, 4, len(owner)), dice.integers(0, 60, len(owner))
    kind = np.where((many[owner] > 10) & (amount < 40), taste, kind) if taste else kind
    columns = (owner, kind, amount, dice.integers(-40, 41, len(owner)))
    sales = RawRows("customer_id INT, kind INT, amount INT, balance INT", np.transpose(columns).tolist())
    region = "CASE WHEN range % 3 = 0 THEN 'east' ELSE 'west' END AS region"
    customer = f"SELECT range::INT AS customer_id, {region} FROM range(2000)"
    catalog = releases.write_catalog(folder, star, {"sales": sales, "customer": customer}, SHARE=share)
    return releases.published(catalog, noise or releases.seeded(3))


@pytest.fixture(scope="module")
def measured(publishes: None, tmp_path_factory: pytest.TempPathFactory) -> ReleaseEngine:
    return published(tmp_path_factory.mktemp("measured"))


@pytest.fixture(scope="module")
def unmeasured(publishes: None, tmp_path_factory: pytest.TempPathFactory) -> ReleaseEngine:
    return published(tmp_path_factory.mktemp("unmeasured"), "clipped_share: 0")


def exact(answerer: ReleaseEngine, sql: str) -> list[tuple[float, ...]]:
    """The same statement over all raw rows."""
    with releases.plain_tables(answerer.release.path.parent) as connection:
        return connection.execute(sql).fetchall()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*), SUM(amount), AVG(amount), SUM(balance), AVG(balance) FROM sales",
        "SELECT COUNT(*), SUM(amount), AVG(amount) FROM sales WHERE kind < 2",
        "SELECT kind, COUNT(*), SUM(amount), AVG(amount) FROM sales GROUP BY kind ORDER BY kind",
        "SELECT region, COUNT(*), SUM(amount) FROM sales JOIN customer USING (customer_id) GROUP BY 1 ORDER BY 1",
        "SELECT SUM(n), MAX(n) - MIN(n) FROM (SELECT kind, COUNT(*) AS n FROM sales GROUP BY kind) AS t",
        "SELECT SUM(s) / SUM(n) FROM (SELECT kind, COUNT(*) AS n, SUM(amount) AS s FROM sales GROUP BY kind) AS t",
    ],
)
def test_intervals_hold_the_exact_answer_over_all_rows(measured: ReleaseEngine, sql: str):
    answer = measured.query(sql)
    truths = exact(measured, sql)
    low, high = answer.interval_rows(0.99)
    shown = [i for i, row in enumerate(answer.rows) if row[0] not in (None, "(other)")]
    for truth, at in zip(truths, shown, strict=True):
        for column in answer.noisy:
            assert low[at][column] <= truth[column] <= high[at][column], (sql, column)
    for at in set(range(len(answer.rows))) - set(shown):  # no row is in the group NULL, nor in (other)
        count = answer.noisy[0]
        assert low[at][count] <= 0 <= high[at][count], sql


@pytest.mark.usefixtures("publishes")
def test_the_interval_of_a_quantile_holds_that_of_all_rows(tmp_path: Path):
    """Heavy people's rows have larger values, and the bound keeps a part of them: the bounded rows' median is less."""
    answerer = published(tmp_path, taste=3)
    sql = "SELECT quantile_disc(kind, 0.5) AS q FROM sales"
    ((truth,),) = exact(answerer, sql)
    answer = answerer.query(sql)
    ((low,),), ((high,),) = answer.interval_rows(0.95)
    assert answer.rows[0][0] < truth <= high and low <= answer.rows[0][0]


def test_a_count_is_below_and_its_interval_reaches_up_alone(measured: ReleaseEngine):
    sql = """SELECT COUNT(*), DP_INTERVAL_LOW(COUNT(*)), DP_INTERVAL_HIGH(COUNT(*)), DP_STDERR(COUNT(*), 'noise')
        FROM sales"""
    ((count, low, high, noise),) = measured.query(sql).rows
    ((truth,),) = exact(measured, "SELECT COUNT(*) FROM sales")
    assert truth > count + 10 * noise, "the bound cuts"
    assert low == pytest.approx(count, abs=3 * noise)
    assert high - count > 0.9 * (truth - count)


def test_a_part_of_an_error_is_no_more_than_the_whole(measured: ReleaseEngine):
    for sql in (
        "SELECT COUNT(*), SUM(amount), AVG(amount), SUM(balance), AVG(balance) FROM sales",
        "SELECT kind, COUNT(*), SUM(amount), SUM(balance), COUNT(DISTINCT customer_id) FROM sales GROUP BY kind",
    ):
        answer = measured.query(sql)
        assert any(row[c] for row in answer.components["tail"] for c in answer.noisy)
        for whole, *parts in zip(answer.stderr_rows, *answer.components.values(), strict=True):
            for column in answer.noisy:
                assert all(part[column] <= whole[column] * (1 + 1e-9) for part in parts), (sql, column)


def test_equal_values_have_equal_intervals_however_they_are_spelt(measured: ReleaseEngine):
    spelt = (
        "SELECT SUM(amount) / COUNT(*) FROM sales",
        "SELECT s / n FROM (SELECT SUM(amount) AS s, COUNT(*) AS n FROM sales) AS t",
    )
    one, two = (measured.query(sql).interval_rows(0.95) for sql in spelt)
    assert np.array(one, float) == pytest.approx(np.array(two, float), rel=1e-6)
    whole = measured.query("SELECT COUNT(*) FROM sales").interval_rows(0.95)
    summed = measured.query("SELECT SUM(n) FROM (SELECT kind, COUNT(*) AS n FROM sales GROUP BY 1) AS t")
    assert np.array(summed.interval_rows(0.95), float) == pytest.approx(np.array(whole, float), rel=1e-2)


def test_the_hint_is_the_measured_share_and_people_have_none(measured: ReleaseEngine):
    ((hint,),) = measured.query("SELECT DP_BIAS_HINT(COUNT(*)) FROM sales").rows
    ((truth,),) = exact(measured, "SELECT COUNT(*) FROM sales")
    count = measured.query("SELECT COUNT(*) FROM sales").scalar()
    assert hint == pytest.approx(1 - count / truth, rel=0.2)
    outer = "SELECT DP_BIAS_HINT(SUM(n)) FROM (SELECT kind, COUNT(*) AS n FROM sales GROUP BY 1) AS t"
    assert measured.query(outer).scalar() == hint
    (flag,) = measured.query("SELECT COUNT(*) FROM sales").flags
    assert "lie beyond max_ids (10)" in flag
    people = measured.query(
        "SELECT COUNT(DISTINCT customer_id), DP_BIAS_HINT(COUNT(DISTINCT customer_id)) FROM sales"
    )
    assert people.rows[0][1] == 0.0
    assert not [note for note in people.notes if "max_ids" in note]


@pytest.mark.usefixtures("publishes")
def test_what_noise_hides_is_null_and_still_widens(tmp_path: Path):
    answerer = published(tmp_path, "", STAR.replace("epsilon: 400", "epsilon: 0.5"))
    result = answerer.query("SELECT COUNT(*), DP_BIAS_HINT(COUNT(*)) FROM sales")
    assert result.rows[0][1] is None
    assert any("hidden by noise" in note for note in result.notes)
    low, high = (end[0][0] for end in result.interval_rows(0.95))
    noise = answerer.query("SELECT DP_STDERR(COUNT(*), 'noise') FROM sales").scalar()
    assert high - low > 8 * noise


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) FROM sales",
        "SELECT AVG(amount) FROM sales WHERE kind = 1",
        "SELECT MEDIAN(kind) FROM sales",
        "SELECT kind, SUM(amount) FROM sales GROUP BY kind",
    ],
)
def test_unmeasured_rows_are_named_in_every_answer(unmeasured: ReleaseEngine, sql: str):
    assert [flag for flag in unmeasured.query(sql).flags if UNMEASURED in flag]


def test_unmeasured_rows_have_no_hint(unmeasured: ReleaseEngine):
    inner = "SELECT DP_BIAS_HINT(COUNT(*)), DP_BIAS_HINT(SUM(amount)), DP_BIAS_HINT(AVG(amount)) FROM sales"
    assert unmeasured.query(inner).rows == ((None, None, None),)
    outer = "SELECT DP_BIAS_HINT(SUM(n)) FROM (SELECT kind, COUNT(*) AS n FROM sales GROUP BY 1) AS t"
    assert unmeasured.query(outer).rows == ((None,),)
    people = unmeasured.query("SELECT COUNT(DISTINCT customer_id) FROM sales")
    assert not [note for note in people.notes if UNMEASURED in note]


def exported(folder: Path, release: Path) -> str:
    with closing(open_session([release])) as opened:
        export(opened, folder / "out", (), 0.95, silent)
    return (folder / "out" / "schema.json").read_text()


def reported(folder: Path, release: Path) -> str:
    with closing(open_release(release)) as opened:
        return report_page(opened)


def explored(folder: Path, release: Path) -> str:
    with closing(open_session([release])) as opened:
        return json.dumps(Explorer(opened).ask("SELECT COUNT(*) FROM sales", 0.95))


@pytest.mark.usefixtures("publishes")
@pytest.mark.parametrize("interface", by_default([exported, reported, explored], 1))
def test_interfaces_name_unmeasured_rows(tmp_path: Path, interface: Callable[[Path, Path], str]):
    release = build(tmp_path, text=CATALOG.replace("max_ids: 20", "max_ids: 2\n    clipped_share: 0"))
    assert UNMEASURED in interface(tmp_path, release)


def lines(amount: float, rows: float) -> list[Grown]:
    place = np.zeros(1, np.int64)
    columns = (np.array([value]) for value in (amount, rows, 0.0, 0.0, True, False, 1.0))
    return [Grown(place, place, *columns)]


def test_where_the_rows_lie_that_a_bit_leaves_out_shifts_both_ends():
    declared, bit = (
        reach_of(lines(100, 100), 1, RowsBeyondBound("sales", how, 10, 1000.0, 200, 10.0, 30))
        for how in ("truncate", BIT)
    )
    lie = np.sqrt(declared.up - (0.01**2 + (UNSEEN * 0.2) ** 2) * 100**2)
    assert lie > 10 and bit.shift_high == -bit.shift_low == pytest.approx(1.96 * lie, rel=1e-3)
    assert (bit.up, bit.down) == (0, 0), "no values differ"


def test_reach_of_the_whole_is_the_measure_and_groups_reach_further():
    beyond = RowsBeyondBound("sales", "truncate", 10, 1000.0, 200, 10.0, 30)
    whole, tenth = reach_of(lines(1000, 1000), 1, beyond), reach_of(lines(100, 100), 1, beyond)
    assert whole.shift_high == pytest.approx(200)
    assert whole.up == pytest.approx(10**2 + (UNSEEN * 200) ** 2)
    assert (whole.shift_low, whole.down) == (0, 0)
    assert tenth.shift_high == pytest.approx(20)
    assert np.sqrt(tenth.up) > 0.7 * 20, "heavy units may favour a group"


@pytest.mark.usefixtures("publishes")
def test_noise_in_a_group_without_rows_is_not_taken_for_heavy_rows(tmp_path: Path):
    answerer = published(
        tmp_path, star=STAR.replace("upper: 3}", "upper: 11}").replace("epsilon: 400", "epsilon: 4")
    )
    answer = answerer.query(
        "SELECT kind, COUNT(*), SUM(amount), SUM(balance) FROM sales WHERE kind BETWEEN 4 AND 11 GROUP BY kind"
    )
    # Counts of -26 and sums of -4,000 stood for heavy units' rows at the bound: seven times their noise and more.
    for whole, noise in zip(answer.stderr_rows, answer.noise_rows, strict=True):
        assert all(error < 3 * noise[c] for c, error in enumerate(whole) if c), whole


def test_units_beyond_four_bounds_open_the_ends_to_which_rows_move():
    beyond = RowsBeyondBound("sales", "truncate", 10, 1000.0, 200, 10.0, 30, 7, 2.0)
    reach = reach_of(lines(100, 100), 1, beyond)
    assert (reach.up, reach.down) == (np.inf, 0)
    assert replace(beyond, units=6).unbounded is False, "three standard errors of noise"


@pytest.mark.usefixtures("publishes")
def test_where_people_own_more_than_is_measured_numbers_are_open_and_say_so(tmp_path: Path):
    """Two of a hundred owned 60 rows under `max_ids: 3`: 0 of 4 intervals of the total held, with a note beside it."""
    answerer = published(tmp_path, most=400, star=STAR.replace("max_ids: 10", "max_ids: 3"))
    (beyond,) = answerer.release.meta.bounding
    assert isinstance(beyond, RowsBeyondBound) and beyond.unbounded
    for sql in (
        "SELECT COUNT(*), SUM(amount), AVG(amount) FROM sales",
        "SELECT kind, COUNT(*), SUM(amount), AVG(amount) FROM sales GROUP BY kind ORDER BY kind",
        "SELECT AVG(CASE WHEN kind = 0 THEN 1 ELSE 0 END), MEDIAN(kind) FROM sales",
    ):
        answer = answerer.query(sql)
        assert any("units own more than 48 rows, of which 3 count" in flag for flag in answer.flags)
        low, high = answer.interval_rows()
        truth = exact(answerer, sql)
        shown = [row for row in range(len(answer.rows)) if len(truth) == 1 or answer.rows[row][0] is not None]
        for true, row in zip(truth, shown, strict=True):
            for c, value in enumerate(true):
                below, above = low[row][c], high[row][c]
                assert (below is None or below <= value) and (above is None or value <= above), (sql, c, row)
        if "COUNT" in sql:
            count = answer.columns.index("count_star()")
            assert all(low[row][count] is not None and high[row][count] is None for row in shown)


def test_an_average_of_an_axis_is_no_wider_in_a_part_of_the_rows(measured: ReleaseEngine):
    """Its sum and its count are over the same rows, so no taste for the part moves it; it reached from 0 to 3."""
    sql = "SELECT AVG(kind), SUM(kind) * 1.0 / COUNT(kind) FROM sales JOIN customer USING (customer_id)"
    ends = (measured.query(sql + where).interval_rows() for where in ("", " WHERE region = 'west'"))
    whole, part = (np.array(high, float) - np.array(low, float) for low, high in ends)
    assert np.all(part < 1.2 * whole)


@pytest.mark.usefixtures("publishes")
def test_noise_below_zero_is_no_small_number_of_people(tmp_path: Path):
    measured = set[bool]()
    for seed in range(6):
        engine = published(tmp_path / f"{seed}", most=10, noise=releases.seeded(seed))
        answer = engine.query("SELECT COUNT(*), SUM(amount) FROM sales")
        assert not any("people by the estimate" in note for note in answer.notes), (
            "nobody asked for min_people"
        )
        measured |= {beyond.people < 0 for beyond in engine.release.meta.bounding}
        if len(measured) == 2:
            return
    pytest.fail("all were on one side of 0")


def test_without_a_count_of_rows_nothing_is_known():
    beyond = RowsBeyondBound("sales", "truncate", 10, None, 200, 10.0, 30)
    assert np.isnan(reach_of(lines(100, 0), 1, beyond).shift_high)


def test_predictions_are_what_answers_show_when_nobody_has_rows_beyond_the_bound(
    publishes: None, tmp_path: Path
) -> None:
    asked = published(tmp_path, "clipped_share: 0.001", most=10, noise=ZeroNoise())
    (beyond,) = asked.release.meta.bounding
    assert isinstance(beyond, RowsBeyondBound) and beyond.rows == 0
    kinds = "SELECT kind, COUNT(*) AS n, SUM(amount) AS s FROM sales WHERE kind IS NOT NULL GROUP BY kind"
    statements = [
        "SELECT COUNT(*) FROM sales", "SELECT SUM(amount) FROM sales", kinds,
        "SELECT COUNT(*) FROM sales WHERE kind = 2", "SELECT COUNT(DISTINCT customer_id) FROM sales",
    ]  # fmt: skip
    planned = plan_catalog(load_catalog(tmp_path / "catalog.yaml"), statements)
    for query, sql in zip(planned.queries, statements, strict=True):
        result = asked.query(sql)
        for column in query.columns:
            at = result.columns.index(column.name)
            shown = float(np.median([row[at] for row in result.stderr_rows]))
            noise = float(np.median([row[at] for row in result.noise_rows]))
            assert column.median is not None and 0.67 < column.median / shown < 1.5, sql
            assert shown > 1.5 * noise or "DISTINCT" in sql
    total, people = planned.queries[0].columns[0], planned.queries[-1].columns[0]
    assert total.median == pytest.approx(asked.query(statements[0]).stderr_rows[0][0], rel=1e-3)
    assert people.median == pytest.approx(asked.query(statements[-1]).stderr_rows[0][0], rel=1e-6)
