"""Daily batches of the bundled shop: without noise every state equals plain DuckDB; with noise intervals cover."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dpsql.executor.engine import ReleaseEngine
from dpsql.noise import ExactNoise, insecure_test_entropy
from tests.oracle.star import same
from tests.stream_shop import CATALOG, StreamShop, make_stream_shop

QUESTIONS = [
    "SELECT COUNT(*) FROM sales",
    "SELECT COUNT(*), SUM(amount) FROM sales WHERE sold_on BETWEEN DATE '2025-01-03' AND DATE '2025-01-19'",
    "SELECT sold_on, COUNT(*), SUM(amount) FROM sales GROUP BY sold_on ORDER BY sold_on",
    "SELECT DATE_TRUNC('week', sold_on) AS w, COUNT(*) FROM sales GROUP BY 1 ORDER BY 1",
    "SELECT DATE_TRUNC('month', sold_on) AS m, COUNT(*), SUM(amount) FROM sales GROUP BY 1 ORDER BY 1",
    "SELECT region, COUNT(*) FROM sales JOIN customer USING (customer_id) GROUP BY region ORDER BY region",
    "SELECT EXTRACT(ISODOW FROM sold_on) AS d, sex, COUNT(*) FROM sales JOIN customer USING (customer_id) "
    "GROUP BY 1, 2 ORDER BY 1, 2",
    "SELECT category, COUNT(*) FROM sales JOIN product USING (product_id) "
    "WHERE sold_on >= DATE '2025-01-05' GROUP BY category ORDER BY category",
    "SELECT COUNT(*) FROM sales JOIN customer USING (customer_id) WHERE age >= 45 AND sold_on < DATE '2025-01-10'",
]


def check_state(shop: StreamShop, state: ReleaseEngine, days: int) -> None:
    raw = shop.raw(days)
    for question in QUESTIONS:
        wanted = [row for row in raw.execute(question).fetchall() if row[-1] is not None and row[-1] != 0]
        found = [row for row in state.query(question).rows if row[-1] is not None and row[-1] != 0]
        assert len(found) == len(wanted), question
        for left, right in zip(found, wanted, strict=True):
            assert all(same(a, b) for a, b in zip(left, right, strict=True)), (question, left, right)


def appended(shop: StreamShop, days: int, checkpoints: set[int]) -> Iterator[tuple[int, ReleaseEngine]]:
    """Append day by day; the states at the checkpoints, opened while the stream goes on."""
    for day in range(days):
        report = shop.append(day)
        assert report.added and report.created == (day == 0) and report.charged == (1 if day == 0 else 0)
        if day in checkpoints:
            yield day, shop.opened()


@pytest.mark.slow
def test_thirty_days_equal_duckdb_and_open_readers_keep_their_state(tmp_path: Path) -> None:
    shop = make_stream_shop(tmp_path)
    states = dict(appended(shop, 30, {0, 6, 27, 29}))
    for day, state in states.items():  # the first ones were opened 29 appends ago
        assert state.query(QUESTIONS[0]).provenance["as_of_batch"] == day
        check_state(shop, state, day + 1)
    check_state(shop, shop.opened(as_of=20), 21)
    check_state(shop, shop.opened(as_of="2025-01-20"), 20)


@pytest.mark.timeout(3600)  # of a clock, beside whatever else runs
@pytest.mark.slow
def test_a_year_equals_duckdb(tmp_path: Path) -> None:
    shop = make_stream_shop(tmp_path, customers=20_000)
    for day, state in appended(shop, 365, {27, 100, 199, 364}):
        check_state(shop, state, day + 1)
        state.release.close()


NOISY = """SELECT sold_on, category, COUNT(*) FROM sales JOIN product USING (product_id) GROUP BY 1, 2 ORDER BY 1, 2
SELECT sold_on, region, COUNT(*) FROM sales JOIN customer USING (customer_id) GROUP BY 1, 2 ORDER BY 1, 2
SELECT sold_on, SUM(amount) FROM sales GROUP BY 1 ORDER BY 1""".splitlines()


@pytest.mark.slow
@pytest.mark.parametrize(("delta", "days"), [("0", 29), ("1e-6", 8)])
def test_intervals_cover_and_predicted_errors_are_right(tmp_path: Path, delta: str, days: int) -> None:
    """Real draws; under pure epsilon over a closed block of 28 days and an open one. Hundreds of answers."""
    noise = ExactNoise(insecure_test_entropy(3))
    unasked = ("  ages:", "  sexes:")
    text = "\n".join(line for line in CATALOG.splitlines() if not line.startswith(unasked)) + "\n"
    shop = make_stream_shop(tmp_path, noise=noise, customers=500, delta=delta, text=text)
    for day in range(days):
        shop.append(day)
    noisy, truth = shop.opened(), make_exact(shop, days)
    deviations = []
    for question in NOISY:
        result = noisy.query(question)
        for row, error in zip(result.rows, result.stderr_rows, strict=True):
            if error[-1] is not None:
                exact = truth.get((question, *map(str, row[:-1])), 0.0)
                deviations.append((float(row[-1]) - float(exact)) / float(error[-1]))
    found = np.array(deviations)
    assert found.size > 12 * days
    assert abs(float(found.std()) - 1) < 0.12
    assert 0.92 <= float((np.abs(found) <= 1.96).mean()) <= 0.98


def make_exact(shop: StreamShop, days: int) -> dict[tuple[str, ...], float]:
    raw = shop.raw(days)
    return {
        (question, *map(str, row[:-1])): float(row[-1])
        for question in NOISY
        for row in raw.execute(question).fetchall()
    }
