"""Plans of streams: `workload:` reaches the choice of the strategy, and the errors that are foreseen hold."""

from __future__ import annotations

import json
from contextlib import closing
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import dpsql
from dpsql import api
from dpsql.catalog import load_catalog
from dpsql.catalog.catalog import catalog_from_json
from dpsql.central.axes import axis_maker, open_public
from dpsql.errors import CatalogError
from dpsql.examples.retail import make_star, write_star
from dpsql.mechanisms.distribution import GAUSSIAN, LAPLACE
from dpsql.streams.plan import chosen, plan_stream
from tests.stream_shop import CATALOG, make_stream_shop
from tests.thinned import by_default

pytestmark = pytest.mark.usefixtures("publishes")


def text_of(stream: str, delta: str = "0") -> str:
    text = CATALOG.replace("EPSILON", "1").replace("DELTA", delta)
    return text.replace("horizon: 365", f"horizon: 365, {stream}" if stream else "horizon: 365")


def written(folder: Path, stream: str, delta: str = "0") -> Path:
    path = folder / "shop.yaml"
    path.write_text(text_of(stream, delta))
    return path


@pytest.mark.parametrize(
    ("stream", "name"),
    [
        ("workload: {running: 1}", "prefix over 365 batches"),
        ("workload: [running]", "prefix over 365 batches"),
        ("workload: {1: 1}", "each batch on its own"),
        ("workload: {1: 1000, running: 1}", "each batch on its own"),
        ("workload: {range: 1}, strategy: tree", "batches and blocks of 20, budgets 5:5"),
        ("", "batches and blocks of 24, budgets 6:4"),
    ],
)
def test_what_is_asked_chooses_the_strategy(tmp_path: Path, stream: str, name: str) -> None:
    catalog = load_catalog(written(tmp_path, stream))
    assert chosen(catalog, LAPLACE).name == name
    assert chosen(catalog_from_json(catalog.to_json()), LAPLACE).name == name


def test_weights_are_relative_and_windows_that_fit_are_the_default(tmp_path: Path) -> None:
    one, ten = (load_catalog(written(tmp_path, f"workload: {{running: {w}, 7: {w}}}")) for w in (1, 10))
    assert chosen(one, LAPLACE).expected_error == pytest.approx(chosen(ten, LAPLACE).expected_error)
    short = load_catalog(written(tmp_path, "")).model_copy()
    assert short.stream is not None
    short = short.model_copy(update={"stream": short.stream.model_copy(update={"horizon": 3})})
    assert chosen(short, GAUSSIAN).expected_error > 0  # no window of 7 batches is asked of 3


@pytest.mark.parametrize(
    ("upper", "most", "ends"),
    by_default([(200, 1.03, False), (200, 1.03, True), (200_000, 1.06, False), (200_000, 1.06, True)], 2),
)
def test_sums_leave_counts_their_spectral_rows(tmp_path: Path, upper: int, most: float, ends: bool) -> None:
    """Weights of time, rows of categories and a price in cents share 63 bits with the rows that a stream may count."""
    text = CATALOG.replace("horizon: 365", f"horizon: 60, ends: {str(ends).lower()}")
    text = text.replace("lower: 0, upper: 200,", f"lower: 0, upper: {upper},")
    regions = "[customer.region, sales.sold_on], measures: ["
    text = text.replace(regions, f"{regions}sales.amount, ")
    shop = make_stream_shop(tmp_path, customers=20, text=text, delta="1e-6")
    catalog = load_catalog(shop.catalog)
    with closing(open_public(catalog)) as public:
        plan = plan_stream(catalog, axis_maker(catalog, public), 0)
    assert plan.strategy.name.startswith("spectral")
    assert plan.batch.axes[0].choice.expected_error < most * chosen(catalog, GAUSSIAN).expected_error
    (emission,) = plan.strategy.emissions(59)
    for statistic in plan.batch.statistics:
        sums = np.array([[statistic.bounds.reach if statistic.bounds else 1]])
        for strategy in plan.batch.strategies(statistic)[1:]:
            entries = strategy.rows.measure(np.eye(strategy.leaves, dtype=np.int64))
            sums = np.multiply.outer(sums, np.abs(entries))
        assert int(np.abs(emission.weights).max()) * int(sums.max()) << 32 < 1 << 63


@pytest.mark.parametrize(
    ("stream", "said"),
    [
        (
            "workload: {weekly: 1}",
            "`weekly` is not a question; write running, prefix, range, or a number of batches",
        ),
        ("workload: {0: 1}", "`0` is not a question"),
        ("workload: {running: 0}", "the weight of `running` in `workload` must be above 0"),
        ("workload: {running: -1}", "above 0"),
        ("workload: {366: 1}", "`workload: 366` is longer than the horizon of 365 batches"),
        ("workload: {}", "`workload` names no question"),
        ("workload: running", "workload"),
        ("asked: {running: 1}", "stream: unknown key `asked`; write one of `column`"),
    ],
)
def test_what_cannot_be_asked_is_refused(tmp_path: Path, stream: str, said: str) -> None:
    with pytest.raises(CatalogError) as error:
        load_catalog(written(tmp_path, stream))
    assert said in str(error.value) and "\n" not in str(error.value)


def test_asked_is_refused_where_it_would_change_nothing(tmp_path: Path) -> None:
    catalog = load_catalog(written(tmp_path, "strategy: fda, workload: {running: 1}", "1e-9"))
    with pytest.raises(CatalogError, match=r"stream.workload: `fda` measures the same whatever is asked"):
        chosen(catalog, GAUSSIAN)


def test_the_plan_says_what_the_others_err_by(tmp_path: Path) -> None:
    text = CATALOG.replace("horizon: 365", "horizon: 30, workload: {running: 1}")
    shop = make_stream_shop(tmp_path, customers=40, text=text)
    report = api.plan(shop.catalog, [])
    days = report.statistics[0]
    assert days.strategies[0] == "prefix over 30 batches"
    (axis,) = days.axis_forecasts
    names = [name for name, _ in axis.runners_up]
    assert {"fda over 30 batches", "each batch on its own"} <= set(names)
    errors = [axis.expected, *(error for _, error in axis.runners_up)]
    assert errors == sorted(errors)


ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("delta", [pytest.param("0", marks=pytest.mark.slow), "1e-6"])
def test_predicted_errors_are_those_of_the_stream_at_its_horizon(tmp_path: Path, delta: str) -> None:
    text = CATALOG.replace("horizon: 365", "horizon: 4").replace("max_batches: 10", "max_batches: 2")
    shop = make_stream_shop(tmp_path, customers=60, text=text, delta=delta)
    questions = [
        "SELECT COUNT(*) FROM sales",
        "SELECT COUNT(*) FROM sales WHERE sold_on BETWEEN DATE '2025-01-02' AND DATE '2025-01-03'",
        "SELECT COUNT(*) FROM sales JOIN customer USING (customer_id) WHERE sex = 'F'",
    ]
    report = api.plan(shop.catalog, questions)
    for day in range(4):
        shop.append(day)
    state = shop.opened()
    for query, question in zip(report.queries, questions, strict=True):
        assert query.columns, question
        actual = state.query(question).stderr_rows[0][0]
        assert query.columns[0].median == pytest.approx(actual, rel=1e-6), question


def test_a_stream_is_not_published_as_a_release(tmp_path: Path) -> None:
    shop = make_stream_shop(tmp_path, customers=60)
    with pytest.raises(CatalogError, match="dpsql append"):
        dpsql.publish(shop.catalog, tmp_path / "out.dpsql")
    assert not (tmp_path / "out.dpsql").exists()


def test_the_bundled_stream_catalog_plans(tmp_path: Path) -> None:
    file = tmp_path / "retail_stream.yaml"
    file.write_text((ROOT / "catalog" / file.name).read_text("utf-8"), encoding="utf-8")
    write_star(tmp_path / "data", make_star(7, 200, 20))
    catalog = load_catalog(file)
    assert catalog.stream is not None and catalog.stream.max_batches == 10
    assert "days" in {statistic.view for statistic in api.plan(file).statistics}


# Every strategy of a stream with none, one and two axes beside time, in both currencies, for rows and for people.


STRATEGIES = ("tree", "fda", "prefix", "spectral", "auto")
PURE, DELTA = ("0", "row"), ("1e-9", "customer.customer_id")
QUICK = {("tree", PURE), ("fda", DELTA), ("prefix", PURE), ("spectral", DELTA)}
GRID = [
    pytest.param(*case, id="-".join(case), marks=() if (case[0], case[1:]) in QUICK else pytest.mark.slow)
    for case in product(STRATEGIES, ("0", "1e-9"), ("row", "customer.customer_id"))
    if case[0] != "spectral" or case[1] != "0"  # its numbers are read with weights: Gaussian noise only
]
VIEWS = """views:
  none: {of: sales, axes: [sales.sold_on], measures: [count]}
  one: {of: sales, axes: [customer.sex, sales.sold_on], measures: [count]}
  two: {of: sales, axes: [sales.sold_on, {axis: customer.age, cuts: [45]}, customer.sex], measures: [count]}
"""
BOTH = "{axis: customer.age, cuts: [45]}, customer.sex]"
BESIDE = ("", "sex", "sex, age >= 45")
DAYS = 3


def grid_text_of(strategy: str, unit: str) -> str:
    text = CATALOG[: CATALOG.index("views:")].replace("horizon: 365", f"horizon: 7, strategy: {strategy}")
    if unit == "row":
        text = text.replace("unit: customer.customer_id", "unit: row").replace(", max_batches: 10", "")
        text = text.replace("     max_ids: 10,\n", "")
    return text + VIEWS


@pytest.mark.parametrize(("strategy", "delta", "unit"), GRID)
def test_a_stream_of_every_make_is_appended_to_and_read(tmp_path, strategy, delta, unit):
    shop = make_stream_shop(tmp_path, customers=400, text=grid_text_of(strategy, unit), delta=delta)
    for day in range(DAYS):
        assert shop.append(day).added
    now, earlier, raw = shop.opened(), shop.opened(as_of=DAYS - 2), shop.raw(DAYS)
    for beside in BESIDE:
        joined = "JOIN customer USING (customer_id) " if beside else ""
        columns = "sold_on" + (f", {beside}" if beside else "")
        question = f"SELECT {columns}, COUNT(*) AS n FROM sales {joined}GROUP BY ALL"
        answer = now.query(question)
        counts = {row[:-1]: row[-1] for row in answer.rows}
        for *key, n in raw.execute(question).fetchall():
            assert counts[tuple(key)] == pytest.approx(n, abs=1e-2)
        assert all(row[-1] > 0 for row in answer.stderr_rows)
        assert len(earlier.query(question).rows) < len(answer.rows)


def test_spectral_is_refused_without_a_delta(tmp_path: Path) -> None:
    shop = make_stream_shop(tmp_path, customers=40, text=grid_text_of("spectral", "row"))
    with pytest.raises(CatalogError, match="strategy"):
        shop.append(0)


@pytest.mark.parametrize(
    ("mechanism", "name"),
    by_default(
        [("identity", "identity"), ("tree", "Tree"), ("lue_dptree", "LUE-DPTree"), ("gaussian", "")], 2
    ),
)
def test_a_named_mechanism_is_what_is_measured_under_a_delta(tmp_path, mechanism, name):
    text = grid_text_of("auto", "row").replace(BOTH, f"customer.age, customer.sex], mechanism: {mechanism}")
    shop = make_stream_shop(tmp_path, customers=40, text=text, delta="1e-9")
    two = next(s for s in api.plan(shop.catalog, []).statistics if s.view == "two")
    ages = two.strategies[next(i for i, axis in enumerate(two.axes) if "age" in axis)]
    assert two.noise == "Gaussian" and name in ages


def test_a_mechanism_without_gaussian_rows_is_refused_under_a_delta(tmp_path: Path) -> None:
    text = grid_text_of("auto", "row").replace(
        BOTH, "customer.age, customer.sex], mechanism: struct_construct"
    )
    shop = make_stream_shop(tmp_path, customers=40, text=text, delta="1e-9")
    with pytest.raises(CatalogError, match="struct_construct"):
        shop.append(0)


@pytest.mark.parametrize("ends", by_default(["ends: true", "ends: false"], 1))
def test_sums_of_amounts_have_room_for_their_weights(tmp_path: Path, ends: str) -> None:
    """Whole weights are as coarse as 2^32 rows of the largest amount need, and answers are exact all the same."""
    text = CATALOG.replace("horizon: 365", f"horizon: 30, strategy: spectral, {ends}")
    shop = make_stream_shop(tmp_path, customers=200, text=text, delta="1e-6")
    for day in range(DAYS):
        shop.append(day)
    weights = json.loads((shop.directory / "promise.json").read_text())["strategies"]["time"]["strategy"]
    largest = max(map(abs, weights["rows"])) * max(weights.get("factors", [1]))
    assert 1 << 55 < largest * 10_000 << 32 <= 1 << 62
    question = "SELECT sold_on, SUM(amount), COUNT(*) FROM sales GROUP BY ALL"
    found = {day: (float(total), float(n)) for day, total, n in shop.opened().query(question).rows}
    for day, total, n in shop.raw(DAYS).execute(question).fetchall():
        assert found[day] == pytest.approx((float(total), n), abs=1e-2)
