"""Every strategy of a stream with none, one and two axes beside time, in both currencies, for rows and for people.

The second append reads the state that the first one wrote, so three pass through every reader of a state.
"""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest

from dpsql import api
from dpsql.errors import CatalogError
from tests.stream_shop import CATALOG, make_stream_shop

pytestmark = pytest.mark.usefixtures("publishes")

STRATEGIES = ("tree", "fda", "prefix", "spectral", "auto")
PURE, DELTA = ("0", "row"), ("1e-9", "customer.customer_id")
QUICK = {*product(("tree", "fda"), (PURE, DELTA)), ("prefix", PURE), ("spectral", DELTA), ("auto", DELTA)}
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


def text_of(strategy: str, unit: str) -> str:
    text = CATALOG[: CATALOG.index("views:")].replace("horizon: 365", f"horizon: 7, strategy: {strategy}")
    if unit == "row":
        text = text.replace("unit: customer.customer_id", "unit: row").replace(", max_batches: 10", "")
        text = text.replace("     max_ids: 10,\n", "")
    return text + VIEWS


@pytest.mark.parametrize(("strategy", "delta", "unit"), GRID)
def test_a_stream_of_every_make_is_appended_to_and_read(
    tmp_path: Path, strategy: str, delta: str, unit: str
) -> None:
    shop = make_stream_shop(tmp_path, customers=400, text=text_of(strategy, unit), delta=delta)
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
    shop = make_stream_shop(tmp_path, customers=40, text=text_of("spectral", "row"))
    with pytest.raises(CatalogError, match="strategy"):
        shop.append(0)


@pytest.mark.parametrize(
    ("mechanism", "name"),
    [("identity", "identity"), ("tree", "Tree"), ("lue_dptree", "LUE-DPTree"), ("gaussian", "")],
)
def test_a_named_mechanism_is_what_is_measured_under_a_delta(
    tmp_path: Path, mechanism: str, name: str
) -> None:
    text = text_of("auto", "row").replace(BOTH, f"customer.age, customer.sex], mechanism: {mechanism}")
    shop = make_stream_shop(tmp_path, customers=40, text=text, delta="1e-9")
    two = next(s for s in api.plan(shop.catalog, []).statistics if s.view == "two")
    ages = two.strategies[next(i for i, axis in enumerate(two.axes) if "age" in axis)]
    assert two.noise == "Gaussian" and name in ages


def test_a_mechanism_without_gaussian_rows_is_refused_under_a_delta(tmp_path: Path) -> None:
    text = text_of("auto", "row").replace(BOTH, "customer.age, customer.sex], mechanism: struct_construct")
    shop = make_stream_shop(tmp_path, customers=40, text=text, delta="1e-9")
    with pytest.raises(CatalogError, match="struct_construct"):
        shop.append(0)


@pytest.mark.parametrize("ends", ["ends: true", "ends: false"])
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
