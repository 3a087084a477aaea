"""With noise: the same question has the same answer, and parts add up to the whole exactly, across views."""

from __future__ import annotations

import pytest

from dpsql.executor.engine import ReleaseEngine
from dpsql.noise import ExactNoise, insecure_test_entropy
from dpsql.release import open_release
from tests.oracle.star import make_shop, publish_shop

CUSTOMER, PRODUCT = "JOIN customer USING (customer_id)", "JOIN product USING (product_id)"


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    folder = tmp_path_factory.mktemp("noisy")
    make_shop(folder)
    return publish_shop(folder, ExactNoise(insecure_test_entropy(7)))


@pytest.mark.parametrize(
    ("parts", "whole"),
    [
        (f"SELECT region, COUNT(*) FROM sales {CUSTOMER} GROUP BY region", "SELECT COUNT(*) FROM sales"),
        ("SELECT sold_on, COUNT(*) FROM sales GROUP BY sold_on", "SELECT COUNT(*) FROM sales"),
        ("SELECT EXTRACT(MONTH FROM sold_on), COUNT(*) FROM sales GROUP BY 1", "SELECT COUNT(*) FROM sales"),
        (
            f"SELECT category, COUNT(*) FROM sales {PRODUCT} GROUP BY 1",
            f"SELECT COUNT(*) FROM sales {PRODUCT}",
        ),
        (
            f"SELECT region, COUNT(*) FROM sales {CUSTOMER} WHERE sold_on < DATE '2025-07-01' GROUP BY 1",
            "SELECT COUNT(*) FROM sales WHERE sold_on < DATE '2025-07-01'",
        ),
        (
            "SELECT sex, COUNT(*) FROM customer WHERE age >= 40 GROUP BY sex",
            "SELECT COUNT(*) FROM customer WHERE age >= 40",
        ),
        (
            f"SELECT region, SUM(amount) FROM sales {CUSTOMER} GROUP BY region",
            "SELECT SUM(amount) FROM sales",
        ),
    ],
)
def test_parts_add_up_to_the_whole(shop, parts, whole):
    total = shop.query(whole).rows[0][0]
    added = sum(row[-1] for row in shop.query(parts).rows)
    if "SUM" in whole:
        assert float(added) == pytest.approx(float(total), rel=1e-12)
    else:
        assert added == total  # multiples of 2^-20 below 2^33: floats add them exactly


def test_the_same_question_has_the_same_answer(shop):
    sql = f"SELECT region, COUNT(*), AVG(amount) FROM sales {CUSTOMER} GROUP BY region"
    again = ReleaseEngine(open_release(shop.release.path, insecure=True))
    assert shop.query(sql).rows == again.query(sql).rows == shop.query(sql.lower() + " ").rows
