"""Every strategy of a stream with none, one and two axes beside time, in both currencies, for rows and for people.

The second append reads the state that the first one wrote, so three pass through every reader of a state.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from dpsql.errors import CatalogError
from tests.stream_shop import CATALOG, make_stream_shop

STRATEGIES = ("chain", "fenwick", "fda", "prefix", "toeplitz", "auto")
GRID = [
    pytest.param(*case, id="-".join(case))
    for case in product(STRATEGIES, ("0", "1e-9"), ("row", "customer.customer_id"))
    if case[0] != "toeplitz" or case[1] != "0"  # Toeplitz's nodes are read with weights: Gaussian noise only
]
VIEWS = """views:
  none: {of: sales, axes: [sales.sold_on], measures: [count]}
  one: {of: sales, axes: [customer.sex, sales.sold_on], measures: [count]}
  two: {of: sales, axes: [sales.sold_on, customer.age, customer.sex], coarsen: {customer.age: [45]}, measures: [count]}
"""
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


def test_toeplitz_is_refused_without_a_delta(tmp_path: Path) -> None:
    shop = make_stream_shop(tmp_path, customers=40, text=text_of("toeplitz", "row"))
    with pytest.raises(CatalogError, match="strategy"):
        shop.append(0)
