"""With noise: the same question has the same answer, and parts add up to the whole exactly, across views."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpsql.executor.engine import ReleaseEngine
from dpsql.noise import ExactNoise, insecure_test_entropy
from dpsql.release import open_release
from tests.oracle.star import make_shop, publish_shop
from tests.statements import sections

CUSTOMER = "JOIN customer USING (customer_id)"


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    folder = tmp_path_factory.mktemp("noisy")
    make_shop(folder)
    return publish_shop(folder, ExactNoise(insecure_test_entropy(7)))


@pytest.mark.parametrize(
    ("parts", "whole"), sections(Path(__file__).with_name("adding_up.sql"))["parts and the whole"]
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
